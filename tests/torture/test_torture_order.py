"""Lessons out of order: each cell twice in a row, and the sections again after the end."""

import pytest
from lanes import LESSONS
from lesson_runs import code, run_cells, sections


def outcome_of_each_cell_twice_and_each_section_again(lesson, folder):
    """Return the failures of cells run twice in a row, then of the sections again, the last one first."""
    twice = [cell for cell in code(lesson) for _ in range(2)]
    again = [cell for section in reversed(sections(lesson)) for cell in section]
    return run_cells(twice + again)


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_cell_twice_and_each_section_again(lesson, outcome):
    assert outcome() == []
