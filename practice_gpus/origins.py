"""Where in a person's own code something happens, and which block of memory a tensor fills."""

import os
import sys
import sysconfig
from pathlib import Path

from .machine import storage

HERE = str(Path(__file__).parent)
PATHS = sysconfig.get_paths()
INSTALLED = tuple({HERE, *(PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))})
# Files of PyTorch whose waits have a purpose: once a step, once a tensor, once a number.
PURPOSES = {"grad_scaler.py": "scaler", "serialization.py": "save", "_tensor_str.py": "print"}
own = {}  # file name → whether it is the person's own code


def is_own(name):
    """Whether a file holds a person's code, not that of Python, of an installed package or of practice GPUs."""
    if name not in own:
        inside = name.startswith(INSTALLED) or "site-packages" in name
        own[name] = not inside and not name.startswith("<")
    return own[name]


def origin():
    """(code, position in it) of the innermost line of a person's own that is running, or None."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if own[name] if name in own else is_own(name):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def line(place):
    """(file, line number) of what `origin` gave; ("", 0) where it gave None."""
    if place is None:
        return "", 0
    code, position = place
    for start, end, number in code.co_lines():
        if start <= position < end and number:
            return code.co_filename, number
    return code.co_filename, code.co_firstlineno


def block_of(tensor):
    """The block of memory that a tensor on a practice GPU fills, or None."""
    try:
        return getattr(storage(tensor).practice, "block", None)
    except (AttributeError, NotImplementedError, RuntimeError, ValueError):
        return None  # it has no storage, such as a parameter of a lazy module


def purpose():
    """What PyTorch waits for on behalf of the line that is running: "scaler", "save", "print", or "" for none of them."""
    frame = sys._getframe(2)
    while frame is not None and not is_own(frame.f_code.co_filename):
        found = PURPOSES.get(os.path.basename(frame.f_code.co_filename))
        if found is not None:
            return found
        frame = frame.f_back
    return ""
