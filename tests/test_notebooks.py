"""Run the lessons as learners do: strictly compared, without a network, each cell twice.

Times here only catch a lesson that has become several times too slow; `python3 -m helpers report` gives the figures.
"""

import copy
import functools
import tempfile

import pytest
from nbclient import NotebookClient

from helpers.commands import _notebooks
from helpers.commands._strict import offline_possible, run_strict
from helpers.commands.execute import environment

PATHS = _notebooks.find()
of_each = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
SLACK = 3  # a busy machine


@pytest.fixture(scope="module")
def strict():
    """Return a function that runs strict nbval once for each notebook and keeps the result."""
    return functools.cache(run_strict)


@of_each
def test_outputs_are_as_stored(path, strict):
    result = strict(path)
    assert result["status"] == 0, result["text"]
    assert result["cells"], "nothing was executed"


@of_each
@pytest.mark.skipif(not offline_possible(), reason="needs `unshare -r -n` (Linux with user namespaces)")
def test_needs_no_network(path, strict):
    assert strict(path)["offline"] and strict(path)["status"] == 0


@of_each
def test_fits_time_and_memory(path, strict):
    result = strict(path)
    assert result["seconds"] <= 45 * SLACK
    assert max(result["cells"]) <= 30 * SLACK
    assert result["first_figure"] is None or result["first_figure"] <= 10 * SLACK
    assert result["memory"] is None or result["memory"] <= 1.2 * 2**30


@of_each
def test_each_cell_may_run_twice_in_a_row(path):
    notebook = _notebooks.read(path)
    notebook.cells = [twin for cell in notebook.cells for twin in twins(cell)]
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(notebook, timeout=180, kernel_name="python3", extra_arguments=["--log-level=ERROR"])
        client.execute(env=environment(home), cwd=str(path.parent))


def twins(cell):
    """Return the cell, twice when it is code."""
    return [cell] if cell.cell_type != "code" else [cell, copy.deepcopy(cell)]
