"""The notebooks: each runs as a learner runs it, with the outputs that are stored, and each file is sound.

Nothing here knows a certain lesson, and no time decides.
"""

import ast
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
            data = cell.outputs[0].get("data")
            if not data:  # printed: the first line says what comes
                assert not re.search(r"\d", cell.outputs[0].text.split("\n")[0]), cell.source
                continue
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


PROSE = re.compile(r"[A-Z]\S*( \S+){4}|\w \w.*\w[.!](\s|$)")  # a title's five words, or a sentence


def gives_away(cell, asked):
    """Return what in a reveal cell's code answers the question of the cell `asked`, or explains the answer."""
    asked_for, here = _assigned(ast.parse(asked)), ast.parse(cell)
    choices = {text for value in asked_for.values() for text in _texts(value, ast.List)}
    [call] = (n for n in ast.walk(here) if getattr(getattr(n, "func", 0), "attr", 0) == "reveal")
    given = call.args + [each.value for each in call.keywords if each.arg in ("actual", "because")]
    for each in given:
        value = _assigned(here).get(getattr(each, "id", 0), each)
        fixed = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant)
        of_choices = fixed and getattr(value.value, "id", 0) in asked_for
        if of_choices or isinstance(value, ast.Constant | ast.JoinedStr):
            yield ast.unparse(value)
    texts = _texts(here, ast.AST)
    named = choices & texts
    yield from [*filter(PROSE.search, texts), *(named if len(named) == 1 else ())]


def _assigned(tree):
    """Return {name: its value} of the names that are assigned once."""
    pairs = [(n.targets[0], n.value) for n in ast.walk(tree) if isinstance(n, ast.Assign)]
    names = [target.id for target, _ in pairs if isinstance(target, ast.Name)]
    return {to.id: value for to, value in pairs if names.count(getattr(to, "id", 0)) == 1}


def _texts(tree, kind):
    """Return the strings in all nodes of a `kind` in `tree`."""
    within = (each for n in ast.walk(tree) if isinstance(n, kind) for each in ast.walk(n))
    return {n.value for n in within if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@of_each
def test_the_code_of_a_reveal_does_not_answer_its_question(path):
    """GitHub and nbviewer fold no cell: whoever reads a page there would meet the answer below each question."""
    sources = [cell.source for cell in code(path)]
    for place, source in enumerate(sources):
        if found := re.search(r"(\w+)\.reveal\(", source):
            asked = [each for each in sources[:place] if f"{found[1]} = predict(" in each]
            assert list(gives_away(source, asked[-1])) == [], source


@of_each
def test_the_numbers_of_a_recap_stay_folded_where_a_question_may_still_be_open(path):
    """Whoever scrolled to the end read "5,018 of 5,117 MiB" before they had guessed how much it is."""
    cells = _notebooks.read(path).cells
    asks = any("predict(" in cell.source for cell in cells if cell.cell_type == "code")
    for cell in cells if asks else ():
        recap = re.search(r"^## Recap$(.*)", cell.source, flags=re.M | re.S)
        if cell.cell_type == "markdown" and recap:
            assert not re.search(r"\d", recap[1].partition("<details>")[0]), recap[1]
