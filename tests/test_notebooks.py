"""Run the lessons as learners do: strictly compared, without a network, each cell twice.

Times here only catch a lesson that has become several times too slow; `python3 -m helpers report` gives the figures.
"""

import copy
import functools
import re
import tempfile

import pytest
import torch
from nbclient import NotebookClient
from slow import lessons

from helpers.commands import _notebooks
from helpers.commands._strict import offline_possible, run_strict
from helpers.commands.execute import environment

PATHS = _notebooks.find()
of_each = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
SLACK = 5  # a busy machine, where the threads of a loop wait for each other
MEMORY = (
    6 if torch.cuda.is_available() else 1.2
)  # GiB; a GPU's libraries and context lie in the process, too


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
@pytest.mark.skipif(
    not offline_possible(), reason="needs `unshare -r -n` (Linux with user namespaces)"
)
def test_needs_no_network(path, strict):
    assert strict(path)["offline"] and strict(path)["status"] == 0


@of_each
def test_fits_time_and_memory(path, strict):
    result = strict(path)
    assert result["seconds"] <= 45 * SLACK
    assert max(result["cells"]) <= 30 * SLACK
    assert result["first_figure"] is None or result["first_figure"] <= 10 * SLACK
    assert result["memory"] is None or result["memory"] <= MEMORY * 2**30


@pytest.mark.parametrize(
    "path", lessons(PATHS, slow=("04", "08"))
)  # the whole torture lane does these two
def test_each_cell_may_run_twice_in_a_row(path):
    notebook = _notebooks.read(path)
    notebook.cells = [twin for cell in notebook.cells for twin in twins(cell)]
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook, timeout=600, kernel_name="python3", extra_arguments=["--log-level=ERROR"]
        )
        client.execute(env=environment(home), cwd=str(path.parent))


def twins(cell):
    """Return the cell, twice when it is code."""
    return [cell] if cell.cell_type != "code" else [cell, copy.deepcopy(cell)]


PLAUSIBLE = [  # lesson, words around one number or two, how small and how large the first by the second may be
    ("02", r"create, then move: ([\d.]+) ms; create in place: ([\d.]+) ms", 1, 10),
    ("04", r"([\d.]+) s an epoch, with its test", 0.05, 3),
    ("07", r"time_ms: +([\d.]+) ms.*\nTimer: +([\d.]+) ms", 0.67, 1.5),
    ("07", r"product ([\d.]+) ms, with copies there and back ([\d.]+) ms", 0.67, 1.5),
    (
        "08",
        r"([\d.]+) times the loop of lesson 04; the ratios of the rungs multiply to ([\d.]+)",
        0.8,
        1.25,
    ),
]


@pytest.mark.parametrize(
    ("lesson", "words", "least", "most"), PLAUSIBLE, ids=[row[1][:24] for row in PLAUSIBLE]
)
def test_stored_times_are_not_those_of_a_busy_moment(lesson, words, least, most):
    """The text beside them says otherwise; execute the lesson again while nothing else runs."""
    [path] = _notebooks.find([lesson])
    text = "".join(
        output.get("text", "")
        for cell in _notebooks.read(path).cells
        for output in cell.get("outputs", [])
    )
    [found] = re.findall(words, text)
    numerator, denominator = found if isinstance(found, tuple) else (found, 1)
    assert least <= float(numerator) / float(denominator) <= most
