"""A page has all that a page needs, and a new one gets it by one command."""

import json
import re
import subprocess
import sys

import pytest
from copies import copy_of_course

from course import pages
from course.checks import core
from course.tools import ROOT, _notebooks
from course.tools.page import TODO

EXERCISES = {each.key: each for number in core.LESSONS for each in core.exercises(number)}


def lacks(page):
    """Return what a page still lacks, in words: each would leave a reader or a teacher without it."""
    path = ROOT / "notebooks" / page.file
    if not path.exists():
        return [f"the notebook notebooks/{page.file}"]
    cells = _notebooks.read(path).cells
    found = [
        f"cell {n} of {page.file}: {line}"
        for n, cell in enumerate(cells)
        for line in cell.source.splitlines()
        if TODO in line
    ]
    if TODO in page.summary:
        found.append(f"a summary of {page.file} in course/pages.py")
    first = next((n for n, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    if page in pages.LESSONS and "](attachment:first.png)" not in "".join(
        cell.source for cell in cells[:first]
    ):
        found.append(f"a picture before the first code of {page.file}")
    return found


@pytest.mark.parametrize("page", pages.NOTEBOOKS, ids=lambda page: page.number)
def test_a_page_lacks_nothing(page):
    """A reader never meets what an author meant to write later."""
    assert lacks(page) == []


def test_an_exercise_belongs_to_a_page_and_keeps_its_number():
    """A progress code of today restores what was solved, wherever the exercise stands."""
    numbers = {page.number for page in pages.NOTEBOOKS}
    assert {each.page for each in EXERCISES.values()} <= numbers
    assert all(each.page.startswith(key[:2]) for key, each in EXERCISES.items())


@pytest.mark.slow
def test_one_command_makes_a_page_that_runs(tmp_path):
    """Whoever adds a page writes words, and no list."""
    copy_of_course(tmp_path)

    def call(*words):
        line = [sys.executable, "-m", "course", *words]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "notebooks/03z_is_it_full.ipynb" in call(
        "page", "03z", "Is it full?", "Find the bend", "20"
    )
    call("page", "80", "Another thing", "Do another thing", "10")
    call("publish")
    call("execute", "03z", "80")
    for file in ("03z_is_it_full.ipynb", "80_another_thing.ipynb"):
        cells = json.loads((tmp_path / "notebooks" / file).read_text())["cells"]
        assert any("first.png" in cell.get("attachments", {}) for cell in cells)
        assert re.search("All lessons", "".join(cells[0]["source"]))
    assert "| 03z |" in (tmp_path / "notebooks/INSTRUCTORS.md").read_text()
