"""The concept inventory: two forms that are alike, answers that the lessons give, sources for what is wrong."""

import collections
import json

import pytest

from course.__main__ import run
from course.checks import inventory, progress
from course.tools import ROOT
from course.tools import progress as table

pytestmark = pytest.mark.usefixtures("home")
of_each = pytest.mark.parametrize("idea", inventory.ideas(), ids=lambda idea: idea["idea"])


@of_each
def test_the_lesson_that_is_named_has_the_sentence_that_answers_both_forms(idea):
    [path] = (ROOT / "notebooks").glob(f"{idea['lesson']}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = ["".join(cell["source"]) for cell in cells]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    shown += ["".join(output.get("data", {}).get("text/plain", ())) for output in outputs]
    assert any(idea["stands"] in text for text in shown)


@of_each
def test_each_wrong_answer_has_the_thread_of_someone_who_thought_so(idea):
    for form in inventory.FORMS:
        assert len(idea[form]["wrong"]) >= 2
        assert all(wrong["thread"].startswith("https://") for wrong in idea[form]["wrong"])


@pytest.mark.parametrize("form", inventory.FORMS)
def test_neither_place_nor_length_gives_an_answer_away(form):
    items = inventory.items(form)
    places = collections.Counter(item.choices.index(item.right) for item in items)
    assert max(places.values()) <= 5 and len(places) >= 3
    for most in (max, min):  # read as shown, without backticks; a tie gives nothing away
        lengths = [[len(choice.replace("`", "")) for choice in item.choices] for item in items]
        place = [item.choices.index(item.right) for item in items]
        alone = [
            own.count(most(own)) == 1 and own[at] == most(own)
            for own, at in zip(lengths, place, strict=True)
        ]
        assert sum(alone) <= 4


def test_an_answer_is_kept_and_nothing_tells_whether_it_is_right(capsys):
    inventory.ask("a")
    item = inventory.items("a")[0]
    inventory.record(item, item.choices[0])
    text = capsys.readouterr().out
    assert item.question in text and "Right" not in text and "✓" not in text
    with pytest.raises(ValueError, match="takes one of"):
        inventory.record(item, "perhaps")
    with pytest.raises(ValueError, match="takes 'a' or 'b'"):
        inventory.items("c")


def answer(form, right):
    """Answer a form, the first `right` questions right."""
    for number, item in enumerate(inventory.items(form)):
        other = next(choice for choice in item.choices if choice != item.right)
        inventory.record(item, item.right if number < right else other)


def test_the_gain_is_shown_with_the_lessons_to_read(capsys):
    answer("a", 4)
    answer("b", 11)
    inventory.gain()
    text = capsys.readouterr().out
    assert "Before the course: 4 of 12" in text and "Now: 11 of 12" in text
    assert "what 16 bits speed up: lesson 01" in text


def test_the_gain_goes_into_the_code_and_the_teachers_table_names_what_a_class_lacks(capsys):
    answer("a", 4)
    answer("b", 11)
    code = progress.code("Ann")
    assert table.row("Ann", progress.decode(code)[0])[-2] == "4 → 11"
    assert run("progress", [code, code]) == 0
    text = capsys.readouterr().out
    assert "ideas most often wrong after it: what 16 bits speed up (2 of 2)" in text
    assert progress.restore(code) == 0


def test_a_teacher_prints_the_forms_and_their_key(capsys):
    assert run("inventory", []) == 0
    sheet = capsys.readouterr().out
    assert sheet.count("[ ]") >= 72 and "Form B" in sheet and "github.com" not in sheet
    assert run("inventory", ["--form", "a", "--key"]) == 0
    key = capsys.readouterr().out
    assert "Form B" not in key and key.count("https://") >= 24
