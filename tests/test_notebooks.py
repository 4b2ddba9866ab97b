"""The notebooks: each runs as a learner runs it, with the outputs that are stored, and each file is sound.

Nothing here knows a certain lesson, and no time decides.
"""

import re

import nbformat
import pytest
import torch
from strict import run_strict

from course import pages as course
from course import show
from course.tools import _notebooks, publish

PATHS = _notebooks.find()
# On Binder 2 may be all there is. A GPU's libraries and its context lie in the process, too.
MEMORY_GIB = 6 if torch.cuda.is_available() else 1.5
of_each = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])


def code(path):
    """Return the code cells of the notebook at `path`."""
    return [cell for cell in _notebooks.read(path).cells if cell.cell_type == "code"]


@pytest.mark.gpu
@pytest.mark.parametrize("path", [path for path in PATHS if code(path)], ids=lambda path: path.stem)
def test_runs_offline_with_the_outputs_that_are_stored_and_little_memory(path):
    status, text, memory = run_strict(path)
    assert status == 0, text
    assert memory is None or memory <= MEMORY_GIB * 2**30, f"{memory / 2**30:.2f} GiB"


def shown(cell):
    """Return what a cell has stored, as text."""
    texts = []
    for output in cell.outputs:
        texts.append(output.get("text", ""))
        texts.append(output.get("data", {}).get("text/plain", ""))
        texts += output.get("traceback", [])
    return "\n".join(texts)


@of_each
def test_the_file_is_valid_and_small(path):
    notebook = _notebooks.read(path)
    nbformat.validate(notebook)  # among others: cells have ids, each its own
    assert path.stat().st_size <= 700 * 1024


@of_each
def test_no_reader_meets_an_error_that_is_not_meant_or_an_author_s_folder(path):
    for cell in code(path):
        if "raises-exception" not in _notebooks.tags(cell):
            assert [each for each in cell.outputs if each.output_type == "error"] == []
        assert not re.search(r"/home/\w+|/Users/\w+|/work/\w+|site-packages/", shown(cell))


@of_each
def test_what_is_not_compared_has_a_reason(path):
    known = {"nbval-ignore-output", "raises-exception"}
    for cell in _notebooks.read(path).cells:
        tags = _notebooks.tags(cell)
        assert tags <= known and (not tags or cell.metadata.get("reason")), cell.source
        assert not re.search(r"#\s*(NBVAL_|PYTEST_VALIDATE)", cell.source)


def test_every_notebook_is_in_the_course_and_derived_parts_are_fresh():
    assert {each.file for each in course.NOTEBOOKS} == {path.name for path in PATHS}
    stale = [path.name for path in publish.stale(course.REPOSITORY)]
    assert stale == [], "run: python3 -m course publish"


PREVIEWED = ("text/html", "image/svg+xml", "application/pdf", "text/markdown", "text/plain")


@of_each
def test_a_folded_answer_does_not_show_its_first_line(path):
    """JupyterLab shows the first line of a folded output, of the first of these kinds that it has, empty lines aside."""
    for cell in code(path):
        if cell.metadata.get("jupyter", {}).get("outputs_hidden"):
            assert cell.outputs[0].output_type == "display_data", cell.source
            data = cell.outputs[0].data
            text = next(data[kind] for kind in PREVIEWED if kind in data)
            assert next(filter(None, text.split("\n"))).strip() == "", cell.source


@of_each
def test_an_unguessed_question_shows_nothing_but_its_panel(path):
    """Whoever reads the stored page, or runs all cells first, meets each question before its answer."""
    for cell in code(path):
        if ".reveal(" in cell.source and not cell.source.startswith("def "):
            pages = [output.get("data", {}).get("text/html", "") for output in cell.outputs]
            assert pages and all("course-panel" in p or show.STILL in p for p in pages), cell.source
            assert not any("<img" in p.partition("<details>")[0] for p in pages), cell.source
