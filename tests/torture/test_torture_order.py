"""Lessons out of order: cells twice, sections after the end, interrupted cells again, sections after a restart."""

import re

import pytest
from lanes import LESSONS
from lesson_runs import LOST, Failure, code, run_cells, sections
from nbformat.v4 import new_code_cell


def outcome_of_each_cell_twice_and_each_section_again(lesson, folder):
    """Return the failures of cells run twice in a row, then of the sections again, the last one first."""
    twice = [cell for cell in code(lesson) for _ in range(2)]
    again = [cell for section in reversed(sections(lesson)) for cell in section]
    return run_cells(twice + again)


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_cell_twice_and_each_section_again(lesson, outcome):
    assert outcome() == []


def test_a_lost_kernel_names_the_cell_that_ended_it():
    [lost] = run_cells([new_code_cell(source) for source in ("1", "import os; os._exit(1)", "2")])
    assert lost == Failure(1, "DeadKernelError", "Kernel died")


# Done before: an import that is broken off cannot be repaired by another one, only by a new kernel.
IMPORTS = """
import matplotlib.backends.backend_agg, matplotlib.pyplot, matplotlib.ticker, unittest.mock
import torch._dynamo, torch.profiler, torch.utils.benchmark, torch.utils.checkpoint, torch.utils.flop_counter
import ipywidgets, practice_gpus, helpers.memory, helpers.plots, helpers.scripts, helpers.widgets
"""


def outcome_of_an_interrupted_cell_runs_again(lesson, folder):
    """Return the failures of cells that are interrupted, at even places, each followed by the whole cell."""
    set_up, *others = code(lesson)
    cells = [new_code_cell(IMPORTS), set_up]
    for cell in others:
        stopped = new_code_cell(cell.source, metadata={**cell.metadata, "interrupt_after": 0.4})
        cells += [stopped, cell]
    return run_cells(cells)


@pytest.mark.parametrize("lesson", ["03", "04"])
def test_an_interrupted_cell_runs_again(lesson, outcome):
    found = outcome()
    stopped = [each for each in found if each.cell % 2 == 0 and each.kind == "KeyboardInterrupt"]
    assert stopped and found == stopped


@pytest.mark.parametrize("lesson", ["02", "05"])
def test_after_a_restart_a_section_runs_or_names_what_it_lacks(lesson, pool):
    set_up, *others = sections(lesson)
    unclear, earlier = [], ""
    runs = pool.map(run_cells, [set_up + section for section in others])
    for section, failures in zip(others, runs, strict=True):
        for failure in failures[:1] + [later for later in failures[1:] if later.kind in LOST]:
            name = re.fullmatch(r"name '(\w+)' is not defined", failure.text)
            if not (name and re.search(rf"\b{name[1]}\b", earlier)):
                unclear.append(failure)
        earlier += "\n".join(cell.source for cell in section)
    assert unclear == []
