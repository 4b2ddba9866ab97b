"""Where in a person's own code something happens."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = str(Path(__file__).parents[1])
PATHS = sysconfig.get_paths()
INSTALLED = tuple({HERE, *(PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))})
# Files of PyTorch whose waits have a purpose: once a step, once a tensor, once a number.
PURPOSES = {"grad_scaler.py": "scaler", "serialization.py": "save", "_tensor_str.py": "print"}
# Files of PyTorch that take memory of their own: what for.
OWNERS = {
    "distributed.py": "buckets",
    "replicate.py": "replicas",
    "grad_scaler.py": "optimizer",
    "clip_grad.py": "optimizer",
}
THIN = (
    *("_tensor.py", "_tensor_str.py", "functional.py", "_decorators.py", "_contextlib.py"),
    "_ops.py",
)
ASKED = {"__torch_function__", "__torch_dispatch__"}
PLAIN = {"torch", "numpy"}  # what they do is the person's own doing


@functools.cache
def is_own(name: str) -> bool:
    """Whether a file holds a person's code, not that of Python, of an installed package or of practice GPUs."""
    installed = name.startswith(INSTALLED) or "site-packages" in name
    return not installed and not name.startswith("<")


def origin() -> tuple | None:
    """(code, position in it) of the innermost line of a person's own that is running, or None."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if is_own(code.co_filename):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def taker() -> tuple:
    """(what `origin` gives, what a file of PyTorch on the way to here takes memory for, or "")."""
    frame: FrameType | None = sys._getframe(2)
    owner = ""
    while frame is not None:
        code = frame.f_code
        if is_own(code.co_filename):
            return (code, frame.f_lasti), owner
        owner = owner or owner_of(code.co_filename)
        frame = frame.f_back
    return None, owner


@functools.cache
def owner_of(name: str) -> str:
    """What a file of PyTorch takes memory of its own for, or ""."""
    return OWNERS.get(os.path.basename(name), "")


def depth() -> Any:
    """The `stacklevel` with which the caller's `warnings.warn` names the innermost line of a person's own; 1 without any."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            return level
        frame = frame.f_back
        level += 1
    return 1


def line(place: tuple | None) -> tuple:
    """(file, line number) of what `origin` gave; ("", 0) where it gave None."""
    if place is None:
        return "", 0
    code, position = place
    for start, end, number in code.co_lines():
        if start <= position < end and number:
            return code.co_filename, number
    return code.co_filename, code.co_firstlineno


def within() -> list:
    """The codes of installed packages that are running for the innermost line of a person's own, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    codes = []
    while frame is not None and not is_own(frame.f_code.co_filename):
        code = frame.f_code
        if not code.co_filename.startswith((HERE, "<")):
            codes.append(code)
        frame = frame.f_back
    return codes


def purpose(codes: list) -> str:
    """What the first file among ``codes`` waits for of which that is known, or ""."""
    names = (os.path.basename(code.co_filename) for code in codes)
    return next((PURPOSES[name] for name in names if name in PURPOSES), "")


def framework(codes: list) -> tuple[str, str]:
    """(package that a person's own line called, innermost function of one) where something happens; ("", "") outside.

    What a tensor of a package's own class does, it does for who asked it.
    """
    theirs = [(package_of(code.co_filename), code) for code in codes]
    theirs = [(package, code) for package, code in theirs if package]
    if not theirs or theirs[-1][1].co_name in ASKED:
        return "", ""
    return theirs[-1][0], name_of(theirs[0][1])


@functools.cache
def package_of(name: str) -> str:
    """The installed package that a file belongs to; "" for a person's own, for Python's and for most of PyTorch."""
    _, installed, path = name.replace(os.sep, "/").rpartition("-packages/")
    package, *inner = path.removesuffix(".py").split("/")
    if path.startswith("torch/distributed/") and len(inner) > 2:
        return f"torch.distributed.{inner[1]}"  # FSDP, pipelines: frameworks, which wait on purpose
    return package if installed and package not in PLAIN else ""


def name_of(code: CodeType) -> str:
    """A function, as "LBFGS.step"."""
    return getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")


def cause(codes: list) -> str:
    """The function of an installed package that a wait comes from, such as "LBFGS.step"; "" for a person's own call."""
    for code in codes:
        if os.path.basename(code.co_filename) not in THIN and code.co_name not in ASKED:
            return name_of(code)
    return ""
