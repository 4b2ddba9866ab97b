"""Types: what a function takes and gives back is written in it, and mypy finds no contradiction."""

import ast
import subprocess
import sys

import pytest

from tools import ROOT

CHECKED = ("helpers", "measurements", "practice_gpus/src", "lessons/measure.py", "tools/record.py")
LATER = (  # modules whose hints are not complete yet: take one out when they are
    "helpers/checks/codes.py helpers/checks/core.py helpers/checks/expect.py helpers/checks/limit.py "
    "helpers/checks/panel.py helpers/checks/progress.py helpers/figures.py helpers/palette.py helpers/plots.py "
    "helpers/predictions.py helpers/show.py helpers/widgets.py helpers/timeline/__init__.py helpers/timeline/forecasts.py "
    "helpers/timeline/measure.py helpers/timeline/rows.py helpers/timeline/spec.py helpers/vega.py "
    "helpers/my_tools.py"
).split()
MODULES = [
    path
    for path in sorted((ROOT / "helpers").rglob("*.py"))
    if path.relative_to(ROOT).as_posix() not in LATER
]


def test_mypy_finds_nothing():
    """An editor warns a learner or an author of a wrong argument only if the hints are right."""
    line = [sys.executable, "-m", "mypy", "--cache-dir=.mypy_cache", *CHECKED]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True)
    if "No module named mypy" in done.stderr:
        pytest.skip("needs the package mypy")
    assert done.returncode == 0, done.stdout + done.stderr


def public_functions(path):
    """The public functions and methods of public classes in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    bodies = [tree.body, *(node.body for node in classes if not node.name.startswith("_"))]
    for body in bodies:
        for node in body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield node


def lacks_hints(function):
    """Whether an argument or the result of a function has no hint."""
    signature = function.args
    arguments = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    arguments += [each for each in (signature.vararg, signature.kwarg) if each]
    named = [each for each in arguments if each.arg not in ("self", "cls")]
    return function.returns is None or any(each.annotation is None for each in named)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_public_functions_of_helpers_say_what_they_take_and_give(path):
    """Who calls one sees beside the cursor what fits, without opening the file."""
    assert [each.name for each in public_functions(path) if lacks_hints(each)] == []
