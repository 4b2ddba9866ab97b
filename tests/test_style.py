"""The form of the lessons: anatomy, rhythm, metadata, sizes. Nothing is executed here."""

import importlib
import re
from collections import Counter

import nbformat
import pytest

from helpers import course
from helpers.checks.core import Exercise
from helpers.commands import _notebooks, publish

PATHS = _notebooks.find()
LESSONS = [path for path in PATHS if path.name[:2] < "90"]
TAUGHT = [path for path in LESSONS if path.name[:2] != "00"]
TAGS = {"nbval-ignore-output", "raises-exception"}


def of(paths):
    """Parametrize a test over notebooks; without any there is nothing to test yet."""
    return pytest.mark.parametrize("path", paths, ids=[path.stem for path in paths])


@pytest.fixture(scope="module")
def load():
    """Return a reader that reads each notebook once."""
    cache = {}
    return lambda path: cache.setdefault(path, _notebooks.read(path))


def prose(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@of(PATHS)
def test_rhythm_is_inside_the_bands(path, load):
    assert _notebooks.outside_bands(_notebooks.rhythm(load(path)), path.name[:2]) == []


def test_only_the_glossary_leaves_a_band_and_only_in_words_per_cell():
    assert _notebooks.WITHOUT_BAND == {"92": {"words"}}


@of(PATHS)
def test_most_outputs_are_compared(path, load):
    measures = _notebooks.rhythm(load(path))
    assert measures["compared"] >= 0.7 * measures["with output"], measures


@of(PATHS)
def test_begins_with_title_badges_and_links(path, load):
    first = load(path).cells[0].source
    assert re.match(r"# \S.*\n\n<!-- nav -->\n\[!\[", first)
    assert first.count(".ipynb)") >= len(course.NOTEBOOKS) - 1


@of(LESSONS)
def test_says_what_the_learner_does_learns_and_needs(path, load):
    text = prose(load(path)).replace("’", "'")
    for phrase in ("What you'll do", "What you'll learn", "What you'll need"):
        assert phrase in text, phrase


@of(LESSONS)
def test_minutes_are_those_of_its_words_code_and_exercises(path, load):
    said = re.search(
        r"about (\d+) minutes to read and run, and (\d+) for the exercise", prose(load(path))
    )
    assert said, "What you'll need says: about N minutes to read and run, and M for the exercises"
    module = vars(importlib.import_module(f"exercises.lesson{path.name[:2]}")).values()
    exercises = sum(value.minutes for value in module if isinstance(value, Exercise))
    reading = _notebooks.reading_minutes(load(path))
    assert int(said[1]) == pytest.approx(reading, rel=0.1, abs=2) and int(said[2]) == exercises
    assert course.lesson(path.name[:2]).minutes == pytest.approx(
        reading + exercises, rel=0.05, abs=2
    )


@of(TAUGHT)
def test_has_the_closing_sections(path, load):
    headings = " | ".join(re.findall(r"^#{2,3} (.*)$", prose(load(path)), flags=re.M))
    wanted = ["Recap", "In practice"] + ["Break it"] * (path.name[:2] != "01")
    assert [name for name in wanted if name.lower() not in headings.lower()] == [], headings


@of(TAUGHT)
def test_lists_three_to_five_things_to_learn(path, load):
    text = (
        prose(load(path))
        .replace("’", "'")
        .split("What you'll learn")[1]
        .split("What you'll need")[0]
    )
    assert 3 <= len(re.findall(r"^\s*[-*] ", text, flags=re.M)) <= 5


@of(TAUGHT)
def test_has_an_explorer_a_prediction_a_quiz_and_an_exercise(path, load):
    source = "\n".join(cell.source for cell in code(load(path)))
    missing = [name for name in ("explore", "predict(", "quiz(", "check(") if name not in source]
    assert missing == []


@of(PATHS)
def test_setup_cell_is_short_and_prints_nothing(path, load):
    cells = code(load(path))
    if cells:
        assert len(cells[0].source.splitlines()) <= 3
        assert cells[0].outputs == []


@of(PATHS)
def test_last_cell_is_prose(path, load):
    assert load(path).cells[-1].cell_type == "markdown"


@of(PATHS)
def test_stored_as_executed_from_top_to_bottom(path, load):
    counts = [cell.execution_count for cell in code(load(path))]
    assert counts == list(range(1, len(counts) + 1)), (
        "run: python3 -m helpers execute " + path.name[:2]
    )


@of(PATHS)
def test_file_is_valid_small_and_without_widget_state(path, load):
    notebook = load(path)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    assert _notebooks.VIEW not in path.read_text(encoding="utf-8")
    assert path.stat().st_size <= _notebooks.MAX_KB * 1024
    assert _notebooks.heavy(notebook) == []


@of(PATHS)
def test_cells_have_ids_of_their_own(path, load):
    ids = Counter(cell.get("id") for cell in load(path).cells)
    assert ids.most_common(1)[0][1] == 1 and None not in ids


@of(PATHS)
def test_tags_are_known_and_have_a_reason(path, load):
    for index, cell in enumerate(load(path).cells):
        tags = _notebooks.tags(cell)
        assert tags <= TAGS, f"cell {index}: {tags - TAGS}"
        assert not tags or len(cell.metadata.get("reason", "").split()) >= 3, (
            f"cell {index} needs a reason"
        )


@of(PATHS)
def test_no_comment_switches_the_comparison(path, load):
    assert not re.search(
        r"#\s*(NBVAL_|PYTEST_VALIDATE)", "\n".join(cell.source for cell in code(load(path)))
    )


@of(PATHS)
def test_code_lines_fit(path, load):
    setup = publish.setup_line(course.REPOSITORY)
    long = [
        line
        for cell in code(load(path))
        for line in cell.source.splitlines()
        if len(line) > 120 and line != setup
    ]
    assert long == []


@of(PATHS)
def test_stored_outputs_name_no_machine_of_an_author(path, load):
    shown = "\n".join(
        str(value)
        for cell in code(load(path))
        for output in cell.outputs
        for value in [
            output.get("text", ""),
            output.get("data", {}).get("text/plain", ""),
            *output.get("traceback", []),
        ]
    )
    assert re.findall(r"(?:/home/\w+|/Users/\w+|/work/\w+|site-packages/\S+)", shown) == []


@of(PATHS)
def test_links_lead_to_files_that_are_there(path, load):
    targets = re.findall(r"\]\((?!https?:|#|attachment:|mailto:)([^)#\s]+)", prose(load(path)))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_derived_parts_are_fresh():
    assert [path.name for path in publish.stale(course.REPOSITORY)] == [], (
        "run: python3 -m helpers publish"
    )


def test_every_lesson_has_its_notebook():
    assert {each.file for each in course.NOTEBOOKS} == {path.name for path in PATHS}
