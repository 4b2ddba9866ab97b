"""The house keeps its rules: who imports whom, importing does nothing, and no two lists that disagree."""

import ast
import graphlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys

import pytest

from tools import ROOT, needs

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
    "predictions": 5,
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


def test_imports_go_downwards():
    for path in MODULES:
        rank = RANKS.get(room(path), GROUND)
        above = [name for name in imported_rooms(path) if RANKS.get(name, GROUND) > rank]
        assert above == [] or room(path) == "__main__", path


def test_no_module_imports_itself_around_a_circle():
    graphlib.TopologicalSorter(module_graph()).prepare()  # CycleError names the modules


PROBE = """
import io, json, os, sys
import numpy, torch
def look(name):
    opened, shown, before = [], io.StringIO(), set(sys.modules)
    sys.addaudithook(lambda event, a: opened.append(str(a[0])) if event == "open" else None)
    sys.stdout = sys.stderr = shown
    seed = torch.get_rng_state()
    __import__(name)
    heavy = {"IPython", "ipywidgets", "matplotlib", "torchvision", "torch._dynamo", "nbformat"}
    return {"name": name, "shown": shown.getvalue(), "seed": not torch.equal(seed, torch.get_rng_state()),
            "cuda": torch.cuda.is_initialized(), "heavy": sorted(heavy & set(sys.modules) - before),
            "files": [f for f in opened if f.endswith((".json", ".ipynb"))]}
for name in sys.argv[1:]:
    if os.fork() == 0:
        answer = look(name)
        os.write(sys.__stdout__.fileno(), json.dumps(answer).encode() + b"\\n")
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def rooms():
    """Return the dotted names that a lesson or another program may import."""
    files = [path for path in HELPERS.glob("*.py") if not path.name.startswith("_")]
    folders = [path.parent for path in HELPERS.glob("*/__init__.py")]
    names = [f"helpers.{path.stem}" for path in files + folders if path.stem != "commands"]
    return ["helpers", "exercises", "practice_gpus", *sorted(names)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_importing_a_room_shows_nothing_starts_nothing_and_costs_little():
    """A lesson starts at once and its random numbers are the learner's."""
    line = [sys.executable, "-c", PROBE, *rooms()]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    for answer in map(json.loads, done.stdout.splitlines()):
        name = answer.pop("name")
        assert not any(answer.values()), (name, answer)


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
        *HELPERS.rglob("*.txt"),
        *MODULES,
    ]
    texts = [path for path in places if path.suffix in (".ipynb", ".md", ".py", ".txt", ".yml")]
    named = {
        word
        for path in texts
        for word in re.findall(r"-m tools ([a-z]+)", path.read_text(encoding="utf-8"))
    }
    assert named - set(commands()) == set()


def test_github_accepts_the_times_of_scheduled_tests():
    """One time that GitHub cannot read, such as weekday 7, and no scheduled test ever runs; nothing says so."""
    text = (ROOT / ".github/workflows/scheduled.yml").read_text(encoding="utf-8")
    times = re.findall(r'cron: "(.+)"', text)
    ranges = {
        "minute": (0, 59),
        "hour": (0, 23),
        "day": (1, 31),
        "month": (1, 12),
        "weekday": (0, 6),
    }
    for time in times:
        for value, (name, (low, high)) in zip(time.split(), ranges.items(), strict=True):
            assert value == "*" or low <= int(value) <= high, (time, name)
    assert set(re.findall(r"event.schedule != '(.+)'", text)) == set(times)


@pytest.mark.parametrize("check", [["check"], ["format", "--check"]], ids=["check", "format"])
def test_ruff_finds_nothing(check):
    """Layout and common mistakes are the formatter's business, and nobody's else."""
    line = [sys.executable, "-m", "ruff", *check, "--no-cache"]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True)
    if "No module named ruff" in done.stderr:
        pytest.skip("needs the package ruff")
    assert done.returncode == 0, done.stdout


def test_what_is_imported_is_declared():
    """A package that only a neighbour brings is gone with the neighbour's next release, and a lesson stops."""
    imported = {
        name.split(".")[0]
        for folder in (*PACKAGES, "tests")
        for path in (ROOT / folder).rglob("*.py")
        for name in top_imports(path)
    }
    own = {*PACKAGES, *(path.stem for path in (ROOT / "tests").rglob("*"))}
    tables = ("dependencies", "test", "browser", "grade", "kernels")
    declared = {re.split(r"[^\w.-]", need)[0].lower() for table in tables for need in needs(table)}
    packages = importlib.metadata.packages_distributions()
    for name in sorted(
        imported - own - set(sys.stdlib_module_names) - {"sitecustomize", "slow_to_import"}
    ):
        distributions = {each.lower().replace("_", "-") for each in packages.get(name, [name])}
        assert distributions & declared, name


def top_imports(path):
    """Return the names of the modules that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
