"""A learner runs a cell again: each cell of a notebook twice in a row."""

import copy
import tempfile

import pytest
from nbclient import NotebookClient

from helpers.commands import _notebooks
from helpers.commands.execute import environment

PATHS = _notebooks.find()


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_each_cell_may_run_twice_in_a_row(path):
    notebook = _notebooks.read(path)
    cells = [[cell, copy.deepcopy(cell)] for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = [cell for twins in cells for cell in twins]
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook, timeout=600, kernel_name="python3", extra_arguments=["--log-level=ERROR"]
        )
        client.execute(env=environment(home), cwd=str(path.parent))
