"""The model answers in their lessons: written into the starter cells and run in a fresh kernel, each is correct."""

import ast
import importlib
import re
import tempfile

import pytest
from nbclient import NotebookClient

from course.checks.core import all_keys
from course.pages import number_of
from course.tools import _notebooks
from course.tools.execute import environment

PATHS = _notebooks.find()
of_each = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
CHECK = re.compile(r"^ex\.(\w+)\.check\((\w+)\)$", flags=re.M)


def checks(notebook):
    """Return [(index of the cell, name of the exercise, name of the answer)] of a lesson."""
    return [
        (i, *found.groups())
        for i, cell in enumerate(notebook.cells)
        if cell.cell_type == "code"
        for found in CHECK.finditer(cell.source)
    ]


def place(notebook, before, answer):
    """Return (cell, first line, last line) of the starter that defines `answer`, at or before a cell."""
    for cell in reversed(notebook.cells[: before + 1]):
        if cell.cell_type != "code":
            continue
        for node in ast.parse(cell.source).body:
            names = [
                getattr(node, "name", None),
                *(getattr(part, "id", None) for part in getattr(node, "targets", ())),
            ]
            if answer in names:
                tops = [part.lineno for part in getattr(node, "decorator_list", ())]
                return cell, min([node.lineno, *tops]) - 1, node.end_lineno
    raise LookupError(f"no starter defines {answer}")


def shown(cell):
    """Return what a cell shows, as text."""
    return "\n".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    )


@of_each
def test_every_exercise_is_checked_in_its_lesson(path):
    names = {name for _, name, _ in checks(_notebooks.read(path))}
    number = number_of(path.name)
    assert {f"{number[:2]}.{name}" for name in names} == set(all_keys().get(number, ()))


@pytest.mark.slow
@of_each
def test_every_solution_is_correct_in_its_lesson(path):
    notebook = _notebooks.read(path)
    found = checks(notebook)
    if not found:
        pytest.skip("a lesson without exercises")
    module = importlib.import_module(f"course.lesson{path.name[:2]}.exercises")
    for index, name, answer in found:
        cell, first, last = place(notebook, index, answer)
        lines = cell.source.splitlines()
        cell.source = "\n".join(
            [*lines[:first], getattr(module, name).solution_source(), *lines[last:]]
        )
    del notebook.cells[found[-1][0] + 1 :]
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook, timeout=240, kernel_name="python3", extra_arguments=["--log-level=ERROR"]
        )
        client.execute(env=environment(home, CUDA_VISIBLE_DEVICES=""), cwd=str(path.parent))
    told = {name: shown(notebook.cells[index]) for index, name, _ in found}
    assert {name: text for name, text in told.items() if "Correct! " not in text} == {}
