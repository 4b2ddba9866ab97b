"""The house keeps its rules: who imports whom, importing does nothing, and no two lists that disagree."""

import ast
import functools
import graphlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys

import pytest

from course.__main__ import commands
from course.tools import ROOT, needs

SOURCES = {
    "helpers": ROOT / "helpers",
    "course": ROOT / "course",
    "practice_gpus": ROOT / "practice_gpus/src/practice_gpus",
}
MODULES = sorted(path for folder in SOURCES.values() for path in folder.rglob("*.py"))
# What a room may import: itself, and what lies below it.
BELOW = {
    "practice_gpus": set(),
    "helpers": {"practice_gpus"},
    "course": {"helpers", "practice_gpus"},
}


def dotted(path):
    """Return the dotted name of a module of the course."""
    [(room, folder)] = [pair for pair in SOURCES.items() if pair[1] in path.parents]
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def imports(path):
    """Return the dotted names that a file imports from the course, at its top or inside functions, but for types."""
    here = dotted(path).split(".")[: None if path.name == "__init__.py" else -1]
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = (node for node in tree.body if isinstance(node, ast.If))
    never = [
        b for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING" for b in block.body
    ]
    for node in (node for node in ast.walk(tree) if node not in never):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) + 1 - node.level]) if node.level else ""
            names |= {".".join(filter(None, [base, node.module, a.name])) for a in node.names}
    return {name for name in names if name.split(".")[0] in SOURCES}


def module_graph():
    """Return {module: modules of the course that it imports}."""
    files = {dotted(path): path for path in MODULES}
    return {
        name: {wanted if wanted in files else wanted.rpartition(".")[0] for wanted in imports(path)}
        - {
            name,
            *(inside for inside in files if inside.startswith(f"{name}.")),
        }  # a package's parts
        for name, path in files.items()
    }


def test_imports_go_downwards():
    """practice_gpus serves others without the course, and a lesson never needs a teacher's tools."""
    for path in MODULES:
        room = dotted(path).split(".")[0]
        rooms = {name.split(".")[0] for name in imports(path)} - {room}
        assert rooms <= BELOW[room], (path, rooms - BELOW[room])
        if not dotted(path).startswith(("course.tools", "course.__main__")):
            assert not any(name.startswith("course.tools") for name in imports(path)), path


def test_no_module_imports_itself_around_a_circle():
    graphlib.TopologicalSorter(module_graph()).prepare()  # CycleError names the modules


DOORS = ("clock", "kernels", "machine", "pytorch", "reports", "traces")  # rooms of practice_gpus


def test_nobody_reaches_past_a_door_of_practice_gpus():
    """What a room doesn't export may change any day; whoever took it breaks then."""
    for path in MODULES:
        here = dotted(path)
        for name in imports(path):
            room, *inside = name.split(".")[1:] or [""]
            if name.startswith("practice_gpus.") and room in DOORS and len(inside) > 1:
                assert here.startswith(f"practice_gpus.{room}"), (here, name)


def test_practice_gpus_are_eight_floors_high():
    """An operator's road from PyTorch to the clock leads through a few rooms, each above what it rests on."""

    def room(module):
        return ".".join(module.split(".")[: 3 if module.split(".")[1:2] == ["situations"] else 2])

    below: dict[str, set[str]] = {}
    for module, wanted in module_graph().items():
        if module.startswith("practice_gpus."):
            inside = {room(name) for name in wanted if name.startswith("practice_gpus.")}
            below.setdefault(room(module), set()).update(inside - {room(module)})
    order = graphlib.TopologicalSorter(below)
    floors: dict[str, int] = {}
    for name in order.static_order():  # CycleError where two rooms rest on each other
        floors[name] = 1 + max((floors[each] for each in below.get(name, ())), default=0)
    assert max(floors.values()) <= 8, floors


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
    files = [*ROOT.glob("helpers/[!_]*.py"), *ROOT.glob("course/*/__init__.py")]
    return ["helpers", "course", "practice_gpus", *sorted(map(dotted, files))]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_importing_a_room_shows_nothing_starts_nothing_and_costs_little():
    """A lesson starts at once and its random numbers are the learner's."""
    line = [sys.executable, "-c", PROBE, *rooms()]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    for answer in map(json.loads, done.stdout.splitlines()):
        name = answer.pop("name")
        assert not any(answer.values()), (name, answer)


def test_commands_in_texts_exist():
    places = [ROOT / "README.md", *ROOT.glob("notebooks/*"), *ROOT.glob(".github/workflows/*")]
    places += [*ROOT.glob("course/doctor/*.txt"), ROOT / ".ci/run", *MODULES]
    kinds = (".ipynb", ".md", ".py", ".txt", ".yml", "")
    texts = [
        path.read_text(encoding="utf-8")
        for path in places
        if path.suffix in kinds and path.is_file()
    ]
    named = {word for text in texts for word in re.findall(r"-m course ([a-z]\w*)", text)}
    assert named and named - set(commands()) == set()
    assert not [
        text for text in texts if re.search(r"-m (helpers|tools|lessons)\b|-m course lab\b", text)
    ]


def test_course_and_practice_gpus_carry_one_version():
    """A badge opens the tag of one version, and Colab installs both from it."""
    number = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.M)[1]
    package = SOURCES["practice_gpus"]
    texts = (package / "__init__.py", package.parents[1] / "situations/pyproject.toml")
    assert {re.search(r'ersion(?:__)? = "(.+)"', path.read_text())[1] for path in texts} == {number}
    for file in ("CHANGELOG.md", "practice_gpus/CHANGELOG.md"):
        assert f"\n## {number}\n" in (ROOT / file).read_text(encoding="utf-8")


def test_what_is_imported_is_declared():
    """A package that only a neighbour brings is gone with the neighbour's next release, and a lesson stops."""
    tests = [*(ROOT / "tests").rglob("*.py")]
    imported = {name.split(".")[0] for path in [*MODULES, *tests] for name in top_imports(path)}
    own = {*SOURCES, *(path.stem for path in (ROOT / "tests").rglob("*"))}
    tables = ("dependencies", "test", "browser", "grade", "kernels")
    declared = {re.split(r"[^\w.-]", need)[0].lower() for table in tables for need in needs(table)}
    packages = {"bs4": ["beautifulsoup4"]}  # Python 3.10 doesn't find it
    packages |= importlib.metadata.packages_distributions()
    # by PyTorch's CUDA builds; by lesson 14; by tests; by JupyterLab on Python 3.10
    brought = {"cuda", "birdcalls", "sitecustomize", "slow_to_import", "tomli"}
    for name in sorted(imported - own - brought - set(sys.stdlib_module_names)):
        distributions = {each.lower().replace("_", "-") for each in packages.get(name, [name])}
        assert distributions & declared, name


def top_imports(path):
    """Return the names of the modules that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def test_what_contributing_names_is_there():
    """A stranger looks for it where the page says."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Where to look")[2].partition("## Try it")[0]
    named = re.findall(r"`([\w./]+\.(?:py|txt|json)|course/[\w/]+/)`", table)
    assert len(named) > 12
    package = ROOT / "practice_gpus/src/practice_gpus"
    missing = [
        name for name in named if not any((root / name).exists() for root in (ROOT, package))
    ]
    assert missing == []
