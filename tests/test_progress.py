"""Progress survives restarts and damage, and needs no writable disk."""

import csv
import io
import random

import pytest

from helpers.__main__ import run
from helpers.checks import codes, progress
from lessons import all_keys
from tools import progress as command

pytestmark = pytest.mark.usefixtures("home")


def test_entries_are_merged_and_read_back(home):
    assert progress.load() == {}
    assert progress.record("a", status="correct")
    assert progress.record("a", hints=2)
    assert progress.load() == {"a": {"status": "correct", "hints": 2}}
    assert [f.name for f in home.iterdir()] == ["progress.json"]


@pytest.mark.parametrize("damage", [b"{", b'{"a": 1}', b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_file_costs_only_itself(home, damage):
    progress.record("a", n=1)
    (home / "progress.json").write_bytes(damage)
    assert progress.load() == {}
    assert (home / "progress.damaged.json").read_bytes() == damage
    assert progress.record("b", n=2)
    assert progress.load() == {"b": {"n": 2}}


def test_a_folder_that_cannot_be_written_keeps_progress_in_memory(home):
    home.write_text("in the way")
    assert progress.record("a", n=1) is False
    assert progress.load() == {"a": {"n": 1}}


def random_states(chance):
    """Return random results of a learner, from few to all."""
    share = chance.random()
    items = [item for item in codes.ITEMS if chance.random() < share]
    return {item: chance.choice([codes.NOT_YET, codes.DONE]) for item in items}


FIRST = "P1-AAIZTGMZTGMZTGMZTGMZTGMZTGMZSGIHOSZDI"  # all 67 items of the first codes, solved and not solved in turn
NAMES = ("", "Ann", "Łukasz Ö.", "李小龍", "=1+1", "x" * 40)


def test_a_code_gives_back_what_went_in():
    for seed in range(300):
        chance = random.Random(seed)
        states, name = random_states(chance), chance.choice(NAMES)
        code = codes.encode(states, name)
        assert codes.decode(code) == (states, name)
        assert codes.decode(f" {code[:7].lower()}\n{code[7:]} ") == (states, name)
    assert len(codes.encode(dict.fromkeys(codes.ITEMS, codes.DONE), "Ann")) <= 60


def test_every_wrong_character_is_noticed_and_nearly_every_other_slip():
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567018-/ é"
    for seed in range(8):
        chance = random.Random(seed)
        code = codes.encode(random_states(chance), chance.choice(NAMES))
        places = range(len(code))
        slips = {code[:i] + letter + code[i + 1 :] for i in places for letter in letters}
        slips |= {code[:i] + code[i : i + 2][::-1] + code[i + 2 :] for i in places}
        slips |= {code[:i] + code[i + 1 :] for i in places} | {code[:i] for i in places}
        slips |= {code + "".join(chance.choices("AB7", k=1 + i % 12)) for i in range(100)}
        for damaged in slips - {code}:
            with pytest.raises(ValueError, match="progress code|damaged"):
                codes.decode(damaged)


def test_two_learners_of_one_name_keep_a_row_each():
    ann = codes.encode({"02.same": codes.DONE}, "Ann")
    rows, bad = command.collect([ann, ann, codes.encode({}), ann])
    assert [name for name, _ in rows] == ["Ann", "Ann (2)", "learner 3", "Ann (3)"] and not bad


NONSENSE = ("", "P1-AAAA", "G1/x/y", "P2-AAAA", "P1-" + "7" * 4000, None)


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_is_no_code(nonsense):
    with pytest.raises(ValueError, match="progress code|damaged"):
        codes.decode(nonsense)


def test_old_codes_keep_their_meaning_when_lessons_gain_exercises(monkeypatch):
    states = random_states(random.Random(1))
    code, items = codes.encode(states, "Ann"), codes.ITEMS
    monkeypatch.setattr(codes, "ITEMS", (*items, "08.new", "08.newer"))
    assert codes.decode(code) == (states, "Ann")
    newer = codes.encode({**states, "08.newer": codes.DONE})
    monkeypatch.setattr(codes, "ITEMS", items)
    with pytest.raises(ValueError, match="newer version"):
        codes.decode(newer)


def test_every_exercise_and_question_has_a_place_that_stays():
    """Places are never given to another item: the first 67 stand as they stood when codes were first written."""
    from test_exercises import MODULES

    present = {key for keys in all_keys().values() for key in keys}
    quizzes = [getattr(module, "QUIZ", ()) for module in MODULES]
    present |= {f"quiz.{question.key}" for quiz in quizzes for question in quiz}
    assert present - set(codes.ITEMS) == set() and len(set(codes.ITEMS)) == len(codes.ITEMS)
    first = {item: 1 + place % 2 for place, item in enumerate(codes.ITEMS[:67])}
    assert codes.encode(first) == FIRST


def test_progress_goes_from_one_machine_to_another(monkeypatch, tmp_path):
    progress.record("02.batch", status="correct")
    progress.record("02.same", status="not yet", hints=1)
    progress.record("quiz.02.alone", right=False)
    progress.record("predict.02.default", guess="on the CPU")
    code = progress.code("Ann")
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path / "other"))
    assert progress.restore(code) == 3
    assert progress.load() == {
        "02.batch": {"status": "correct"},
        "02.same": {"status": "not yet"},
        "quiz.02.alone": {"right": False},
    }
    assert progress.code("Ann") == code and progress.restore(code) == 0


def test_restoring_never_loses_what_is_there():
    progress.record("02.batch", status="not yet")
    progress.record("quiz.02.alone", right=False)
    older = progress.code()
    progress.record("02.batch", status="correct")
    progress.record("quiz.02.alone", right=True)
    progress.record("02.same", status="correct", hints=2)
    here = progress.load()
    assert progress.restore(older) == 0 and progress.load() == here
    with pytest.raises(ValueError, match="damaged"):
        progress.restore(older[:-1])
    assert progress.load() == here


@pytest.fixture
def learners():
    """Return the codes of a class of three; the third has no name."""
    ann = {"00.warm_up": 2, "02.batch": 1, "02.same": 2, "quiz.02.alone": 1, "quiz.02.result": 2}
    bob = {"02.batch": 1, "quiz.02.alone": 1}
    return [codes.encode(ann, "Ann"), codes.encode(bob, "=Bob"), codes.encode({})]


def test_a_class_becomes_a_table(learners, capsys):
    assert run("progress", learners) == 0
    out = capsys.readouterr().out
    ann, bob, third = out.splitlines()[1:4]
    assert ann.startswith("Ann  ") and "1 of 1" in ann and "1 of 2" in ann
    assert ann.endswith("02.batch")
    assert bob.startswith("=Bob") and third.startswith("learner 3")
    assert "not solved yet: 02.batch (2 of 2)" in out and "wrong: 02.alone (2 of 2)" in out


def test_a_bad_code_costs_only_its_own_row_and_is_named(learners, capsys):
    learners[1] = learners[1][:-1] + ("A" if learners[1][-1] != "A" else "B")
    assert run("progress", learners) == 1
    told = capsys.readouterr()
    assert "Ann" in told.out and "learner 3" in told.out and "Bob" not in told.out
    assert "code 2: damaged" in told.err and learners[1] in told.err


def test_codes_come_from_a_file_or_from_the_standard_input(learners, capsys, monkeypatch, tmp_path):
    (tmp_path / "codes.txt").write_text("\ufeff" + "\n".join(learners), encoding="utf-8")
    assert run("progress", ["--file", str(tmp_path / "codes.txt")]) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n".join(learners)))
    assert run("progress", []) == 0
    assert capsys.readouterr().out == first
    assert run("progress", ["--file", str(tmp_path / "none.txt")]) == 2
    assert "none.txt" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("progress", []) == 1 and "no codes" in capsys.readouterr().err


def test_the_csv_is_safe_in_a_spreadsheet_and_written_whole(learners, tmp_path, capsys):
    file = tmp_path / "class.csv"
    assert run("progress", [*learners, "--out", str(file)]) == 0
    head, ann, bob, third = csv.reader(file.read_text(encoding="utf-8-sig").splitlines())
    assert head[:2] == ["learner", "00"] and ann[:2] == ["Ann", "1 of 1"]
    assert len(third) == len(head) and bob[0] == "'=Bob"
    before = file.read_bytes()
    assert run("progress", [*learners, "--out", str(file)]) == 2
    assert "which is there already; --force replaces it" in capsys.readouterr().err
    assert run("progress", ["P1-AAAA", "--out", str(file), "--force"]) == 1
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["class.csv"]
    assert run("progress", [*learners, "--out", str(tmp_path / "none" / "class.csv")]) == 2
    assert "class.csv" in capsys.readouterr().err
