"""What a submitted notebook holds: its cells, its lesson, its checks, what a person should look at. Runs nothing."""

import os
import re
import stat
from collections import Counter, namedtuple

from helpers.commands import _notebooks

MEGABYTES = 20
CHECK = re.compile(r"\b(\w+)\s*\.\s*check\s*\(")  # the exercise's name in ex.NAME.check(
DOUBTFUL = re.compile(
    r"\b(?:_getframe|currentframe|f_back|f_locals|ctypes|gc|settrace|setprofile|__eq__|__torch_function__|"
    r"__code__|__globals__|__subclasses__|_grade_\w+|GRADE_EVENTS|os\._exit|answers\.lesson\d\d|"
    r"exercises\.\w+)\b|(?<=[.'\"])(?:reference|solution|solution_source|check_answer|outcome)\b"
)

Submission = namedtuple("Submission", "cells claimed")


class Unreadable(ValueError):
    """The notebook cannot be graded; the text says why."""


def read(path):
    """Return the sources of the code cells, and the exercises that the stored outputs call correct; or Unreadable."""
    import nbformat

    text = content(path)
    try:
        notebook = nbformat.reads(text.decode("utf-8"), as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        claimed = [
            name
            for cell in cells
            if "✓ Correct" in str(cell.outputs)
            for name in CHECK.findall(cell.source)
        ]
        return Submission([str(cell.source) for cell in cells], set(claimed))
    except Exception as error:
        raise Unreadable(f"not a notebook ({type(error).__name__}: {str(error)[:80]})") from None


def content(path):
    """Return the bytes of a file; Unreadable for links, pipes, large files and names of other kinds."""
    if not path.name.lower().endswith(".ipynb"):
        raise Unreadable("its name does not end in .ipynb: unpack or rename it")
    if path.is_symlink():
        raise Unreadable("a symbolic link; links are not followed")
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable("not a regular file")
            text = file.read(MEGABYTES * 10**6 + 1)
    except OSError as error:
        raise Unreadable(f"cannot be opened: {error.strerror}") from None
    if len(text) > MEGABYTES * 10**6:
        raise Unreadable(f"larger than {MEGABYTES} MB; clear its outputs")
    return text


def lesson_of(path, cells, keys):
    """Return the number of the lesson whose exercises the notebook checks; `keys` are those of all lessons."""
    text = "\n".join(cells)
    checked = set(CHECK.findall(text))
    imported = re.findall(r"\blesson(\d\d)\b", text)

    def fit(number):
        names = {key[3:] for key in keys[number]}
        return len(names & checked), number in imported, path.name.startswith(f"{number}_")

    best = max(keys, key=fit)
    if not any(fit(best)):
        raise Unreadable("no lesson's notebook: it checks no exercise of the course")
    return best


def doubts(cells, lesson):
    """Return words that honest answers rarely need and the lesson itself does not hold as often, sorted."""
    own = [
        cell.source
        for path in _notebooks.FOLDER.glob(f"{lesson}_*.ipynb")
        for cell in _notebooks.read(path).cells
    ]
    more = Counter(DOUBTFUL.findall("\n".join(cells))) - Counter(DOUBTFUL.findall("\n".join(own)))
    return sorted(more)
