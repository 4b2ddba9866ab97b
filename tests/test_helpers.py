"""helpers stays small: a learner reads all of it, and finds nothing there that only one page needs."""

import ast
import contextlib
import functools
import json

import pytest

from course.tools import ROOT

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for room in ("helpers", "course")
    for path in (ROOT / room).rglob("*.py")
}
HELPERS = [name for name in FILES if name.startswith("helpers.")]


def uses(tree):
    """Return the names that code takes from the modules in `FILES`, as {(module, name)}; of a module itself (module, "")."""
    found, modules = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                found.add((inside, "") if inside in FILES else (node.module, alias.name))
                modules[alias.asname or alias.name] = inside
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add((modules.get(node.value.id), node.attr))
    return {(module, name) for module, name in found if module in FILES}


@functools.cache
def tree(module):
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def definitions(module):
    """Return {name: its definition} of the functions and classes of a module."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: node for node in tree(module).body if isinstance(node, kinds)}


@functools.cache
def needs(module, name):
    """Return what one name of a module uses; in the course, what its whole module uses."""
    if module.startswith("course"):
        return uses(tree(module))
    code = definitions(module).get(name)
    if code is None:
        return set()
    words = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
    own = {(module, word) for word in words & set(definitions(module))}
    return own | {(other, word) for other, word in uses(tree(module)) if word in words}


def reached(first):
    """Return all that code which uses `first` uses: of the course whole modules, of helpers function by function."""
    todo, seen = list(first), set(first)
    while todo:
        more = needs(*todo.pop()) - seen
        todo += more
        seen |= more
    return seen


def source(path):
    """Return the Python code of a page, or of a script that pages launch."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [text]
    cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [
        "".join(line for line in cell if not line.lstrip().startswith(("%", "!"))) for cell in cells
    ]


@functools.cache
def pages():
    """Return {page: what it uses}; a script counts as a page."""
    found = {}
    for path in (ROOT / "notebooks").rglob("*[0-9a-z].*"):
        if path.suffix in (".ipynb", ".py") and ".ipynb_checkpoints" not in path.parts:
            page = ast.Module([], [])  # one cell may use what another imports
            for cell in source(path):
                with contextlib.suppress(SyntaxError):  # a cell that shows one
                    page.body += ast.parse(cell).body
            found[path.name] = reached(uses(page))
    return found


@pytest.mark.parametrize("module", HELPERS)
def test_each_public_function_serves_two_pages(module):
    """What one page uses is that lesson's: here a learner would read it for nothing."""
    public = [name for name in definitions(module) if not name.startswith("_")]
    users = {
        name: [page for page, used in pages().items() if (module, name) in used] for name in public
    }
    assert public and {name: by for name, by in users.items() if len(by) < 2} == {}
