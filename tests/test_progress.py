"""Progress survives restarts and damage, and needs no writable disk."""

import csv
import importlib
import io
import random

import pytest

from course.__main__ import run
from course.checks import core, inventory, progress
from course.checks.core import all_keys
from course.pages import LESSONS
from course.tools import progress as command

pytestmark = pytest.mark.usefixtures("home")


def test_entries_are_merged_and_read_back(home):
    assert progress.load() == {}
    assert progress.record("a", status="correct")
    assert progress.record("a", hints=2)
    assert progress.load() == {"a": {"status": "correct", "hints": 2}}
    assert {f.name for f in home.iterdir()} <= {"progress.json", ".lock"}


@pytest.mark.parametrize("damage", [b"{", b"[1]", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_file_costs_only_itself_and_every_one_is_kept(home, damage, capsys):
    """The second file with conflict markers took the place of the first one's rescue, without a word."""
    home.mkdir(exist_ok=True)
    for number in ("", "2", "3"):
        (home / "progress.json").write_bytes(damage + number.encode())
        assert progress.load() == {}
        assert progress.record("b", n=2)
        aside = home / f"progress.damaged{number}.json"
        assert aside.read_bytes() == damage + number.encode()
        assert str(aside) in capsys.readouterr().out
        assert progress.load() == {"b": {"n": 2}}


def test_one_damaged_entry_costs_no_other(home):
    home.mkdir(exist_ok=True)
    (home / "progress.json").write_text('{"a": 1, "b": {"n": 2}}')
    assert progress.record("c", n=3) and progress.load() == {"b": {"n": 2}, "c": {"n": 3}}
    assert '"a": 1' in (home / "progress.damaged.json").read_text()


def test_a_folder_that_cannot_be_written_keeps_progress_in_memory(home):
    home.write_text("in the way")
    assert progress.record("a", n=1) is False
    assert progress.load() == {"a": {"n": 1}}


def random_states(chance):
    """Return random results of a learner, from few to all."""
    share = chance.random()
    items = [item for item in progress.ITEMS if chance.random() < share]
    return {item: chance.choice([progress.NOT_YET, progress.DONE]) for item in items}


NAMES = ("", "Ann", "Łukasz Ö.", "李小龍", "=1+1", "x" * 40)


def test_a_code_gives_back_what_went_in():
    for seed in range(300):
        chance = random.Random(seed)
        states, name = random_states(chance), chance.choice(NAMES)
        code = progress.encode(states, name)
        assert progress.decode(code) == (states, name)
        assert len(code) <= 200
    with pytest.raises(ValueError, match="up to 40 bytes"):
        progress.encode({}, "é" * 21)


@pytest.mark.parametrize(
    "sent",
    ["`{}`", "“{}”", "'{}'.", "\u200b{}\u200b", " {} \n"],
)
@pytest.mark.parametrize("dash", "-–—‑−")
def test_a_code_from_a_phone_is_read(sent, dash):
    """Learners copy it into a chat, which turns dashes and quotes into typographic ones."""
    code = progress.encode({"02.batch": progress.DONE}, "Ann")
    half = len(code) // 2
    broken = f"{code[:half].lower()}\n{code[half:]}"
    for each in (code, broken):
        assert progress.decode(sent.format(each.replace("-", dash)))[1] == "Ann"


def test_every_slip_is_noticed():
    chance = random.Random(0)
    code = progress.encode(random_states(chance), "Ann")
    for place in range(3, len(code)):
        before, letter, after = code[:place], code[place], code[place + 1 :]
        for damaged in (before + "A7"[letter == "A"] + after, before + after, before):
            with pytest.raises(ValueError, match="damaged"):
                progress.decode(damaged)


def test_codes_keep_their_meaning_when_lessons_gain_exercises(monkeypatch):
    code, items = progress.encode({"02.batch": progress.DONE}, "Ann"), progress.ITEMS
    monkeypatch.setattr(progress, "ITEMS", (*items, "77.new"))
    assert progress.decode(code) == ({"02.batch": progress.DONE}, "Ann")
    newer = progress.encode({"77.new": progress.DONE})
    monkeypatch.setattr(progress, "ITEMS", items)
    with pytest.raises(ValueError, match="another version"):
        progress.decode(newer)


def test_teacher_and_learner_count_the_same_exercises_and_questions():
    present = {key for keys in all_keys().values() for key in keys}
    for name in core.LESSONS.values():
        present |= {
            f"quiz.{each.key}" for each in getattr(importlib.import_module(name), "QUIZ", ())
        }
    present |= {item.key for form in inventory.FORMS for item in inventory.items(form)}
    assert present == set(progress.ITEMS) - set(progress.RETIRED), (
        "ITEMS in course/checks/progress.py; new ones at its end"
    )
    assert len(set(progress.ITEMS)) == len(progress.ITEMS)


def test_progress_goes_from_one_machine_to_another(monkeypatch, tmp_path):
    progress.record("02.batch", status="correct")
    progress.record("02.repair", status="not yet", hints=1)
    progress.record("quiz.02.alone", right=False)
    progress.record("predict.02.default", guess="on the CPU")
    code = progress.code("Ann")
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path / "other"))
    assert progress.restore(code) == 3
    assert progress.load() == {
        "02.batch": {"status": "correct"},
        "02.repair": {"status": "not yet"},
        "quiz.02.alone": {"right": False},
    }
    assert progress.code("Ann") == code and progress.restore(code) == 0


def test_restoring_never_loses_what_is_there():
    progress.record("02.batch", status="not yet")
    progress.record("quiz.02.alone", right=False)
    older = progress.code()
    progress.record("02.batch", status="correct")
    progress.record("quiz.02.alone", right=True)
    progress.record("02.repair", status="correct", hints=2)
    here = progress.load()
    assert progress.restore(older) == 0 and progress.load() == here
    with pytest.raises(ValueError, match="damaged"):
        progress.restore(older[:-1])
    assert progress.load() == here


@pytest.fixture
def learners():
    """Return the codes of a class of three; the third has no name."""
    ann = {"00.warm_up": 2, "02.batch": 1, "02.repair": 2, "quiz.02.alone": 1, "quiz.02.pieces": 2}
    bob = {"02.batch": 1, "quiz.02.alone": 1}
    return [progress.encode(ann, "Ann"), progress.encode(bob, "=Bob"), progress.encode({})]


def test_a_class_becomes_a_table(learners, capsys):
    assert run("progress", learners) == 0
    out = capsys.readouterr().out
    ann, bob, third = out.splitlines()[1:4]
    assert ann.startswith("Ann  ") and "1 of 1" in ann and "1 of 2" in ann
    assert ann.endswith("02.batch")
    assert bob.startswith("=Bob") and third.startswith("learner 3")
    assert "not solved yet: 02.batch (2 of 2)" in out and "wrong: 02.alone (2 of 2)" in out


def test_two_learners_of_one_name_keep_a_row_each(learners):
    rows, bad = command.collect([*learners, learners[0]])
    assert [name for name, _ in rows] == ["Ann", "=Bob", "learner 3", "Ann (2)"] and not bad


def test_bare_progress_shows_your_own_map_and_where_to_go_on(capsys):
    assert run("progress", []) == 0 and "begin with 00, Start here" in capsys.readouterr().out
    progress.record("quiz.02.alone", right=True)
    assert command.going_on()[1] == "02"
    progress.record("quiz.03.ahead", right=True)
    sentence, number = command.going_on()
    assert number == "03" and sentence.endswith(" Still open: 02."), "what was skipped is lost"
    for item in [*command.of("02"), *command.of("03")]:
        progress.record(item, status="correct")
    assert run("progress", []) == 0
    out = capsys.readouterr().out
    assert "solved: go on with 04," in out and "Still open" not in out
    assert f"{len(command.of('02'))} of {len(command.of('02'))}" in out
    for item in progress.ITEMS:
        progress.record(item, status="correct", right=True)
    assert command.going_on()[1] == LESSONS[-1].number


def test_a_bad_code_costs_only_its_own_row_and_is_named(learners, capsys):
    learners[1] = learners[1][:-2]
    assert run("progress", learners) == 1
    told = capsys.readouterr()
    assert "Ann" in told.out and "learner 3" in told.out and "Bob" not in told.out
    assert "code 2: code is damaged" in told.err


def test_codes_come_from_a_file_or_from_the_standard_input(learners, capsys, monkeypatch, tmp_path):
    (tmp_path / "codes.txt").write_text("\ufeff" + "\n".join(learners), encoding="utf-8")
    assert run("progress", ["--file", str(tmp_path / "codes.txt")]) == 0
    first = capsys.readouterr().out
    lines = "\n".join(f"Ann, 10:32: {code[:20]}\n{code[20:]}\nBye!" for code in learners)
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run("progress", ["--file", "-"]) == 0
    assert capsys.readouterr().out == first
    assert run("progress", ["--file", str(tmp_path / "none.txt")]) == 2
    assert "none.txt" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("progress", ["--file", "-"]) == 1 and "no codes" in capsys.readouterr().err


def test_the_csv_is_safe_in_a_spreadsheet_and_written_whole(learners, tmp_path, capsys):
    file = tmp_path / "class.csv"
    assert run("progress", [*learners, "--out", str(file)]) == 0
    head, ann, bob, third = csv.reader(file.read_text(encoding="utf-8-sig").splitlines())
    assert head[:2] == ["learner", "00"] and ann[:2] == ["Ann", "1 of 1"]
    assert len(third) == len(head) and bob[0] == "'=Bob"
    before = file.read_bytes()
    assert run("progress", [*learners, "--out", str(file)]) == 2
    assert "which is there already; --force replaces it" in capsys.readouterr().err
    assert run("progress", ["P2-AAAA", "--out", str(file), "--force"]) == 1
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["class.csv"]
    assert run("progress", [*learners, "--out", str(tmp_path / "none" / "class.csv")]) == 2
    assert "class.csv" in capsys.readouterr().err
