"""Lessons out of order: sections again after the end, cells interrupted and run again, kernels restarted half-way."""

import ast
import functools
import random
import re

import pytest
from lanes import LESSONS
from lesson_runs import LOST, Kernel, code, sections

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


SHORT = ("92",)  # its cells are over before they can be interrupted
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
    assert count or lesson in SHORT


def names_bound(tree):
    """Return the names that Python code binds."""
    words = {"name", "asname", "id"}
    return {getattr(node, word, None) for node in ast.walk(tree) for word in words} - {None}


def bound_before(lesson):
    """Return, for each section, the names that earlier cells of the lesson bind."""
    known, found = set(), []
    for _, cells in sections(lesson):
        found.append(set(known))
        for _, cell in cells:
            known |= bound(cell.source)
    return found


def bound(source):
    """Return the names that the source of a cell binds, magics left out."""
    plain = "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!")))
    names = set()
    for node in ast.walk(ast.parse(plain)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
    return names


def lacks_an_earlier_section(failure, known):
    """Tell whether a cell failed for want of a name that an earlier section of the lesson binds."""
    name = re.fullmatch(r"name '(\w+)' is not defined", failure.text)
    return failure.kind == "NameError" and name and name[1] in known


def after_a_restart(cells):
    """Return the failures of `cells` in a new kernel."""
    with Kernel() as kernel:
        return kernel.cells(cells)


def judged(failures):
    """Return the first failure, from which others follow, and those that nothing excuses."""
    return failures[:1] + [failure for failure in failures[1:] if failure.kind in LOST]


@of_lessons(LESSONS)
def test_after_a_restart_a_section_runs_or_names_what_it_lacks(lesson, pool):
    parts, unclear = sections(lesson), []
    chosen = range(1, len(parts))
    known = bound_before(lesson)
    outcomes = pool.map(after_a_restart, [parts[0][1] + parts[place][1] for place in chosen])
    for place, failures in zip(chosen, outcomes, strict=True):
        unclear += [
            (parts[place][0], failure)
            for failure in judged(failures)
            if not lacks_an_earlier_section(failure, known[place])
        ]
    assert unclear == []
