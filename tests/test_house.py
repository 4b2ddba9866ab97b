"""The house keeps its rules: who imports whom, importing does nothing, sizes, and no two lists that disagree."""

import ast
import os
import re
import statistics
from pathlib import Path

import pytest

from helpers.commands import _imports
from helpers.commands._environment import ROOT

HELPERS = ROOT / "helpers"
MODULES = sorted(path for path in HELPERS.rglob("*.py") if "__pycache__" not in path.parts)
# A room may import rooms of lower rank, and of its own rank where that makes no circle. Rooms not named: GROUND.
GROUND = 1
RANKS = {"course": 0, "practice": 2, "timing": 3, "memory": 3, "recordings": 3, "data": 3, "training": 3,
         "plots": 4, "cards": 5, "explain": 5, "widgets": 5, "exercises": 5, "commands": 6}
CORE = {HELPERS / "exercises" / name for name in ("__init__.py", "core.py", "panel.py", "progress.py")}
CONTENT = {path for path in MODULES if path.parent.name == "exercises"} - CORE  # tasks, answers right and wrong
PLAIN = ("devices", "data", "timing", "memory", "plots", "widgets")


def room(path):
    """Return the name of the room a file of helpers belongs to."""
    return path.relative_to(HELPERS).parts[0].removesuffix(".py")


def imports(path):
    """Return the dotted names that a file imports from helpers, at its top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            here = ["helpers", *path.relative_to(HELPERS).parts[:-1]]
            base = ".".join(here[:len(here) + 1 - node.level]) if node.level else ""
            names |= {".".join(filter(None, [base, node.module, alias.name])) for alias in node.names}
    return {name for name in names if name.startswith("helpers.")}


def imported_rooms(path):
    """Return the rooms of helpers that a file imports."""
    return {name.split(".")[1] for name in imports(path)} - {room(path)}


def module_graph():
    """Return {module: modules of helpers that it imports}."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES}
    return {name: {wanted if wanted in files else wanted.rpartition(".")[0] for wanted in imports(path)} - {name}
            for name, path in files.items()}


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(HELPERS)) for path in MODULES])
def test_imports_go_downwards(path):
    if path.name not in ("__init__.py", "__main__.py") or path.parent != HELPERS:
        above = [name for name in imported_rooms(path)
                 if RANKS.get(name, GROUND) > RANKS.get(room(path), GROUND)]
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
    readers = [path for path in MODULES if re.search(r"import (nbformat|nbclient)", path.read_text(encoding="utf-8"))]
    assert {room(path) for path in readers} <= {"commands"}


def test_helpers_itself_is_only_a_docstring():
    body = ast.parse((HELPERS / "__init__.py").read_text(encoding="utf-8")).body
    assert len(body) == 1 and isinstance(body[0], ast.Expr)


def test_torchvision_is_imported_only_where_it_is_used():
    for path in MODULES:
        tops = [node for node in ast.parse(path.read_text(encoding="utf-8")).body
                if isinstance(node, ast.Import | ast.ImportFrom)]
        assert "torchvision" not in ast.unparse(tops), path


@pytest.fixture(scope="module")
def imported():
    """Return what importing each room does in a fresh process that holds torch and numpy; the best of three times."""
    return _imports.import_costs()


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="measured by forking, which this system does not do")


@needs_fork
def test_importing_is_silent_and_starts_nothing(imported):
    assert [row for row in imported if row["shown"] or row["seed"] or row["cuda"] or row["files"]] == []


@needs_fork
def test_importing_takes_at_most_150_ms_beyond_torch(imported):
    slow = {row["name"]: round(1000 * row["seconds"]) for row in imported if row["seconds"] > 0.150}
    assert slow == {}


def code_lines(paths):
    """Return the number of lines with code or comment: no blank lines, no docstrings."""
    total = 0
    for path in paths:
        text = path.read_text(encoding="utf-8")
        notes = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)
                 and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
        total += sum(bool(line.strip()) for line in text.splitlines())
        total -= sum(bool(line.strip()) for note in notes
                     for line in text.splitlines()[note.lineno - 1:note.end_lineno])
    return total


def files(*names):
    """Return the Python files of rooms by name."""
    return [path for path in MODULES if room(path) in names]


# Practice began with an aim of 900. The 642 situations of tests/practice/fidelity.py, words of errors included, take
# 1,160; leaving some out would make answers wrong or words strange, which costs learners more. It must not grow.
# Grading runs strangers' code: its walls, watchers and judge are a program of their own beside the commands.
GRADING = [path for path in files("commands") if "grade" in path.name]
COMMANDS = [path for path in files("commands") if path not in GRADING]


@pytest.mark.parametrize(("name", "paths", "limit"), [
    ("plain modules", files(*PLAIN), 1000), ("practice", files("practice"), 1160), ("commands", COMMANDS, 1000),
    ("grading", GRADING, 600)], ids=lambda value: value if isinstance(value, str) else "")
def test_rooms_stay_small(name, paths, limit):
    assert paths and code_lines(paths) <= limit


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(HELPERS)) for path in MODULES])
def test_modules_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= (500 if path in CONTENT else 300)
    sizes = [node.end_lineno - node.lineno + 1 for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.FunctionDef)]
    assert statistics.median(sizes or [0]) <= 15 and max(sizes, default=0) <= 50


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(HELPERS)) for path in MODULES])
def test_public_names_have_docstrings(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    bare = [node.name for node in named if not node.name.startswith("_") and not ast.get_docstring(node)]
    assert ast.get_docstring(tree) and (bare == [] or path in CONTENT)


def names_in(text):
    """Return {package: range} of requirement lines such as 'torch>=2.11'."""
    return dict(re.findall(r"^([a-z][\w-]*)([<>=!~][^\s#]*)", text, flags=re.M))


def project():
    """Return (packages, dependencies) as pyproject.toml lists them."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = \[(.*?)\]", text, flags=re.M | re.S)[1]
    depends = re.search(r"^dependencies = \[(.*?)\]", text, flags=re.M | re.S)[1]
    return set(re.findall(r'"([\w.]+)"', packages)), names_in("\n".join(re.findall(r'"([^"]+)"', depends)))


def test_pyproject_lists_every_package():
    on_disk = {".".join(path.parent.relative_to(ROOT).parts) for path in HELPERS.rglob("__init__.py")}
    assert project()[0] == on_disk | {"helpers.scripts"}


def test_ranges_of_pyproject_and_requirements_agree():
    required = names_in((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    assert {name: required.get(name) for name in project()[1]} == project()[1]


def test_every_requirement_says_who_needs_it():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert [line for line in lines if not re.match(r"\S+( \.)?\s+# \S.*", line)] == []


def test_commands_in_texts_exist():
    from helpers.__main__ import commands

    places = [ROOT / "README.md", *ROOT.glob("notebooks/*"), *ROOT.glob(".github/workflows/*"), *MODULES]
    texts = [path for path in places if path.is_file()]
    named = {word for path in texts
             for word in re.findall(r"-m helpers ([a-z]+)", path.read_text(encoding="utf-8"))}
    assert named - set(commands()) == set()


def test_links_of_the_readme_lead_to_files_that_are_there():
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert targets and [target for target in targets if not (ROOT / target).exists()] == []


def test_every_workflow_and_helper_file_is_text_with_unix_line_ends():
    for path in [*MODULES, *Path(ROOT, ".github").rglob("*.yml"), ROOT / ".ci/run"]:
        assert b"\r\n" not in path.read_bytes(), path
