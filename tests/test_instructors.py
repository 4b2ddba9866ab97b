"""The instructors' page: its plans and minutes follow from the lessons, and its settings are valid."""

import ast
import importlib
import re

import nbformat
import pytest

from helpers import course
from helpers.checks.core import Exercise
from helpers.commands import _notebooks
from helpers.commands._environment import ROOT

TEXT = (ROOT / "notebooks/INSTRUCTORS.md").read_text(encoding="utf-8")


def rows(heading):
    """Return the cells of the first table below a heading, without its head."""
    lines = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    return table[2:]


def sections(number):
    """Return {heading: minutes to read and run} of a lesson, in its order; "" is what stands before the first."""
    [path] = _notebooks.find([number])
    cells, minutes, heading = _notebooks.read(path).cells, {}, ""
    for cell in cells:
        for part in (
            re.split(r"^(?=## )", cell.source, flags=re.M)
            if cell.cell_type == "markdown"
            else [cell.source]
        ):
            heading = part.splitlines()[0][3:] if part.startswith("## ") else heading
            single = nbformat.v4.new_notebook(cells=[nbformat.from_dict({**cell, "source": part})])
            minutes[heading] = minutes.get(heading, 0) + _notebooks.reading_minutes(single)
    return minutes


def exercises(number):
    """Return the minutes of a lesson's exercises, in the order of the lesson."""
    [path] = _notebooks.find([number])
    text = "\n".join(cell.source for cell in _notebooks.read(path).cells)
    return [
        int(minutes)
        for minutes in re.findall(r"^\*About .*?(\d+) minutes, difficulty", text, flags=re.M)
    ]


def planned(number, plan):
    """Return the minutes of one cell of the plans: "all but *A*; exercises 1, 2" or "to *B*; exercises 1"."""
    what, _, chosen = plan.partition("; exercises ")
    known, named = sections(number), re.findall(r"\*(.+?)\*", what)
    assert set(named) <= set(known), f"lesson {number} has no section {named}"
    names = list(known)
    if what.startswith("to "):
        names = names[: names.index(named[0]) + 1]
    elif what.startswith("all but "):
        names = [name for name in names if name not in named]
    else:
        assert what == "all"
    minutes = exercises(number)
    wanted = map(int, chosen.split(", ")) if chosen else range(1, len(minutes) + 1)
    return sum(known[name] for name in names) + sum(minutes[each - 1] for each in wanted)


@pytest.mark.parametrize("row", rows("Plans")[:-1], ids=lambda row: row[0])
def test_minutes_of_each_plan_follow_from_the_lesson(row):
    for cell in row[1:]:
        if cell != "–":
            plan, said = cell.split(" · ")
            assert planned(row[0], plan) == pytest.approx(int(said), abs=3), cell


def test_plans_add_up_and_a_group_takes_a_quarter_more():
    table = rows("Plans")
    for column in range(1, 4):
        alone = sum(int(row[column].split(" · ")[1]) for row in table[:-1] if row[column] != "–")
        said = list(map(int, re.findall(r"\d+", table[-1][column])))
        assert said == [alone, round(1.25 * alone)]


def test_every_lesson_has_its_minutes():
    table = rows("How long each lesson takes")
    assert [row[0] for row in table] == [each.number for each in course.LESSONS]
    for number, reading, solving, *_ in table:
        module = vars(importlib.import_module(f"exercises.lesson{number}")).values()
        assert int(solving) == sum(value.minutes for value in module if isinstance(value, Exercise))
        assert int(reading) + int(solving) == pytest.approx(course.lesson(number).minutes, abs=1)
        [path] = _notebooks.find([number])
        words = f"about {reading} minutes to read and run, and {solving} for the exercises"
        assert number == "00" or words in path.read_text(encoding="utf-8")


def test_check_points_name_every_lesson():
    assert [row[0] for row in rows("Check-points")] == [
        each.number for each in course.LESSONS if each.number != "00"
    ]


def test_settings_of_the_hub_are_python_and_yaml():
    yaml = pytest.importorskip("yaml")
    found = re.findall(r"```(python|yaml)\n(.*?)```", TEXT, flags=re.S)
    for kind, text in found:
        ast.parse(text) if kind == "python" else yaml.safe_load(text)
    blocks = dict(reversed(found))  # the first of each kind
    assert {"singleuser", "prePuller", "cull"} <= set(yaml.safe_load(blocks["yaml"]))
    for name in ("cull_idle_timeout", "cull_interval", "cull_connected"):
        assert name in blocks["python"] and name in blocks["yaml"]
