"""What the options of the commands take, looked at before any work: argparse then names the option and what came."""

import argparse
import os
import re
from pathlib import Path

from course import files


def positive(text: str) -> int:
    """Return the whole number that the value of an option means; ArgumentTypeError where it is not above 0."""
    return _number(text, "a whole number above 0", 1)


def not_negative(text: str) -> int:
    """Return a whole number of 0 or more."""
    return _number(text, "a whole number, 0 or more", 0)


def port(text: str) -> int:
    """Return the number of a port."""
    return _number(text, "a number from 1 to 65535", 1, 65535)


def _number(text, takes, least, most=10**9):
    if not (text.isascii() and text.isdecimal() and least <= int(text[:12]) <= most):
        raise argparse.ArgumentTypeError(f"takes {takes}, not {text!r}")
    return int(text)


def build(text: str) -> str:
    """Return the name of a build of PyTorch, as its index calls it."""
    if not re.fullmatch(r"default|cpu|xpu|cu\d{2,3}|rocm\d+(\.\d+)*|", text.strip()):
        raise argparse.ArgumentTypeError(
            f"takes cpu, xpu, default, or the likes of cu130 and rocm6.4, not {text!r}"
        )
    return text


def folder(text: str) -> Path:
    """Return the path of a folder that is there and can be written, or can be made."""
    path = Path(text)
    if files.too_long(path):
        raise argparse.ArgumentTypeError(f"takes a folder, and {text!r} is too long a name")
    above = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise argparse.ArgumentTypeError(f"takes a folder, and {str(above)!r} is none to write in")
    return path


def new_file(text: str) -> Path:
    """Return the path of a file that is not there yet, in a folder that can be written."""
    path = _in_a_folder(text)
    if os.path.lexists(path):
        raise argparse.ArgumentTypeError(f"takes a new file, and {text!r} is there already")
    return path


def own_file(text: str) -> Path:
    """Return the path of a file in a folder that can be written; whose it is, the command looks."""
    path = _in_a_folder(text)
    if os.path.exists(path) and not path.is_file():
        raise argparse.ArgumentTypeError(f"takes a file, and {text!r} is none")
    return path


def _in_a_folder(text):
    path = Path(text)
    above = path.absolute().parent
    if not os.path.isdir(above) or not os.access(above, os.W_OK) or files.too_long(path):
        raise argparse.ArgumentTypeError(f"takes a file in a folder to write in, not {text!r}")
    return path


def file(text: str) -> Path:
    """Return the path of a file that is there."""
    if not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"takes a file, and there is none called {text!r}")
    return Path(text)
