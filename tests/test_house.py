"""The house keeps its rules: who imports whom, importing does nothing, and no two lists that disagree."""

import ast
import os
import re

import pytest

from helpers.commands import _imports
from helpers.commands._environment import ROOT

HELPERS = ROOT / "helpers"
PACKAGES = ("exercises", "helpers", "practice_gpus")
MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if "__pycache__" not in path.parts
)
# A room may import rooms of lower rank, and of its own rank where that makes no circle. Rooms not named: GROUND.
GROUND = 1
RANKS = {
    "practice_gpus": 0,
    "course": 0,
    "timing": 3,
    "memory": 3,
    "measurements": 3,
    "data": 3,
    "training": 3,
    "plots": 4,
    "troubleshooting": 5,
    "widgets": 5,
    "checks": 5,
    "exercises": 6,
    "commands": 7,
}


def room(path):
    """Return the name of the room a file belongs to: a package, or a module or folder of helpers."""
    return (
        path.relative_to(HELPERS if HELPERS in path.parents else ROOT).parts[0].removesuffix(".py")
    )


def imports(path):
    """Return the dotted names that a file imports from helpers, at its top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            here = list(path.relative_to(ROOT).parts[:-1])
            base = ".".join(here[: len(here) + 1 - node.level]) if node.level else ""
            names |= {
                ".".join(filter(None, [base, node.module, alias.name])) for alias in node.names
            }
    return {name for name in names if name.split(".")[0] in PACKAGES}


def imported_rooms(path):
    """Return the rooms of helpers that a file imports."""
    parts = [name.split(".") for name in imports(path)]
    return {part[1] if part[0] == "helpers" else part[0] for part in parts} - {room(path)}


def module_graph():
    """Return {module: modules of helpers that it imports}."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in MODULES
    }
    return {
        name: {wanted if wanted in files else wanted.rpartition(".")[0] for wanted in imports(path)}
        - {name}
        for name, path in files.items()
    }


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_imports_go_downwards(path):
    if path.name not in ("__init__.py", "__main__.py") or path.parent != HELPERS:
        above = [
            name
            for name in imported_rooms(path)
            if RANKS.get(name, GROUND) > RANKS.get(room(path), GROUND)
        ]
        assert above == []


def test_no_module_imports_itself_around_a_circle():
    graph = module_graph()

    def reach(start):
        seen, todo = set(), list(graph.get(start, ()))
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += graph.get(name, ())
        return seen

    assert [name for name in graph if name in reach(name)] == []


def test_only_commands_read_notebooks():
    readers = [
        path
        for path in MODULES
        if re.search(r"import (nbformat|nbclient)", path.read_text(encoding="utf-8"))
    ]
    assert {room(path) for path in readers} <= {"commands"}


def test_helpers_itself_is_only_a_docstring():
    body = ast.parse((HELPERS / "__init__.py").read_text(encoding="utf-8")).body
    assert len(body) == 1 and isinstance(body[0], ast.Expr)


def test_torchvision_is_imported_only_where_it_is_used():
    for path in MODULES:
        tops = [
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert "torchvision" not in ast.unparse(tops), path


@pytest.fixture(scope="module")
def imported():
    """Return what importing each room does in a fresh process that holds torch and numpy; the best of three times."""
    return _imports.import_costs()


needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="measured by forking, which this system does not do"
)


@needs_fork
def test_importing_is_silent_and_starts_nothing(imported):
    assert [
        row for row in imported if row["shown"] or row["seed"] or row["cuda"] or row["files"]
    ] == []


@needs_fork
def test_importing_takes_at_most_150_ms_beyond_torch(imported):
    slow = {row["name"]: round(1000 * row["seconds"]) for row in imported if row["seconds"] > 0.150}
    assert slow == {}


def test_pyproject_lists_every_package():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = \[(.*?)\]", text, flags=re.M | re.S)[1]
    on_disk = {".".join(path.parent.relative_to(ROOT).parts) for path in MODULES}
    assert set(re.findall(r'"([\w.]+)"', packages)) == on_disk | {"helpers.lesson_scripts"}


def test_commands_in_texts_exist():
    from helpers.__main__ import commands

    places = [
        ROOT / "README.md",
        *ROOT.glob("notebooks/*"),
        *ROOT.glob(".github/workflows/*"),
        *MODULES,
    ]
    texts = [path for path in places if path.is_file()]
    named = {
        word
        for path in texts
        for word in re.findall(r"-m helpers ([a-z]+)", path.read_text(encoding="utf-8"))
    }
    assert named - set(commands()) == set()


def test_links_of_the_readme_lead_to_files_that_are_there():
    targets = re.findall(
        r"\]\((?!https?:|#)([^)#\s]+)", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert targets and [target for target in targets if not (ROOT / target).exists()] == []
