"""Lessons out of order: sections again after the end, cells interrupted and run again, kernels restarted half-way."""

import functools
import random

import pytest
from lanes import LESSONS
from lesson_runs import Kernel, code, sections

of_lessons = functools.partial(pytest.mark.parametrize, "lesson")


def outcome_of_each_cell_twice_and_each_section_again(lesson, folder):
    """Return the failures of cells run twice in a row, then of the sections again, the last one first."""
    with Kernel() as kernel:
        twice = kernel.cells([cell for cell in code(lesson) for _ in range(2)])
        return twice, [
            (heading, failure)
            for heading, cells in reversed(sections(lesson))
            for failure in kernel.cells(cells)
        ]


@of_lessons(LESSONS)
def test_each_cell_twice_and_each_section_again(lesson, outcome):
    assert outcome() == ([], [])


IMPORTS = """
import matplotlib.pyplot, torch._dynamo, torch.distributed._tools.mem_tracker, torch.profiler, torch.utils.benchmark
import matplotlib.backends.backend_agg, matplotlib.ticker, torch.utils.checkpoint, torch.utils.flop_counter
import ipywidgets, unittest.mock, practice_gpus, helpers.widgets, helpers.plots, helpers.scripts
torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
"""


def outcome_of_an_interrupted_cell_runs_again(lesson, folder):
    """Interrupt each cell; return how many were, the failures, and what the kernel said to the set-up.

    Imports are over before: one that is broken off (NumPy's, sympy's, networkx's at the first torch.compile) is not
    repaired by another one, whoever wrote the cell; only a new kernel helps.
    """
    chance, failures, count = random.Random(lesson), [], 0
    set_up, *others = code(lesson)
    with Kernel() as kernel:
        failures += kernel.cells([set_up])
        ready = kernel.run(IMPORTS)[0]
        for number, cell in others:
            error, stopped = kernel.run(cell.source, stop_after=chance.uniform(0.2, 0.6))
            count += stopped
            if stopped and error and error[0] != "KeyboardInterrupt":
                failures.append((number, "interrupted", *error))
            failures += kernel.cells([(number, cell)]) if stopped else []
    return count, failures, ready


@of_lessons(LESSONS)
def test_an_interrupted_cell_runs_again(lesson, outcome):
    count, failures, ready = outcome()
    assert failures == [] and ready is None
    assert count
