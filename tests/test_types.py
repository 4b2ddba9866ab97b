"""Types: what a function takes and gives back is written in it, and mypy finds no contradiction."""

import ast
import subprocess
import sys

import pytest

from course.tools import ROOT

# What learners read, and Triton's kernels, is written without types.
UNTYPED = {"watch.py", "puzzle.py", "ranks.py", "compilers.py"}
LESSONS = [path for path in ROOT.glob("course/gpt/*.py") if path.stem != "__init__"]
ROOMS = [
    ROOT / "helpers",
    *(path for path in ROOT.glob("course/*") if not path.name.startswith(("lesson", "gpt"))),
]
FILES = [path for room in ROOMS for path in ([room] if room.is_file() else room.rglob("*.py"))]
MODULES = sorted(
    path for path in [*FILES, *LESSONS] if path.suffix == ".py" and path.name not in UNTYPED
)


def test_mypy_finds_nothing():
    """An editor warns a learner or an author of a wrong argument only if the hints are right."""
    if sys.version_info < (3, 11):
        pytest.skip("NumPy and matplotlib name their types right from releases for Python 3.11 on")
    line = [sys.executable, "-m", "mypy", "--cache-dir=.mypy_cache", *map(str, MODULES)]
    line += ["practice_gpus/src", "course/lesson14/runs.py"]
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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_public_functions_say_what_they_take_and_give(path):
    """Who calls one sees beside the cursor what fits, without opening the file."""
    assert [each.name for each in public_functions(path) if lacks_hints(each)] == []
