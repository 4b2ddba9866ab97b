"""The learner's own copies of the lessons in my_notebooks/: made once, never overwritten. Only standard library."""

import hashlib
import json
import os
import re
from pathlib import Path

from helpers import files
from tools import ROOT

ORIGINALS = ROOT / "notebooks"
FOLDER = ROOT / "my_notebooks"
RECORD = ".copied.json"  # {file: fingerprint of the original that was copied}


def prepare(anew: str | None = None) -> list[str]:
    """Give every lesson and script a copy, and copies that nobody changed the newest text; return lines to print.

    The lesson `anew` ("03") gets a fresh one, whatever is there. Any other copy that was changed stays; where its
    original is newer, a line says so. Raises OSError where the folder cannot be written or is a link, which the course
    does not follow.
    """
    for folder in (FOLDER, FOLDER / "scripts"):
        if folder.is_symlink():
            raise OSError(f"{folder} is a link, which the course does not follow")
    FOLDER.mkdir(exist_ok=True)
    renewed = [] if anew is None else [fresh(anew)]
    record = read_record()
    before = dict(record)
    notes: dict[str, list[str]] = {"new": [], "followed": [], "newer": [], "kept": []}
    for original in originals():
        name = original.relative_to(ORIGINALS).as_posix()
        notes[bring(original, name, record)].append(name)
    if record != before:
        files.write(FOLDER / RECORD, json.dumps(record, indent=1))
    return describe(notes) + renewed


def originals() -> list[Path]:
    """Return the files that learners change: the notebooks and the scripts that they launch."""
    return sorted([*ORIGINALS.glob("[0-9]*.ipynb"), *ORIGINALS.glob("scripts/[!_]*.py")])


def read_record() -> dict[str, str]:
    """Return what was copied; {} where the record is not there or damaged."""
    try:
        record = json.loads((FOLDER / RECORD).read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def content(original: Path) -> bytes:
    """Return the bytes of a new copy: a notebook without the counts of the author's run, as nothing has run yet."""
    data = original.read_bytes()
    if original.suffix != ".ipynb":
        return data
    return re.sub(rb'^( *"execution_count": )\d+', rb"\1null", data, flags=re.M)


def digest(data: bytes) -> str:
    """Return a fingerprint of bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def bring(original: Path, name: str, record: dict[str, str]) -> str:
    """Copy `original` to the file `name` where that loses nothing; return what was done: a key of the notes."""
    data = content(original)
    copy = FOLDER / name
    newest = digest(data)
    before = record.setdefault(name, newest)
    exists = os.path.lexists(copy)
    if exists and before == newest:
        return "kept"
    if exists and (not copy.is_file() or copy.is_symlink() or digest(copy.read_bytes()) != before):
        return "newer"
    copy.parent.mkdir(exist_ok=True)
    files.write(copy, data)
    record[name] = newest
    return "followed" if exists else "new"


def describe(notes: dict[str, list[str]]) -> list[str]:
    """Return lines that say what was done and what is offered."""
    lines = []
    if notes["new"]:
        lines.append(f"Your copies of the lessons are in {FOLDER.name}/ ({len(notes['new'])} new).")
    if notes["followed"]:
        lines.append(
            f"Brought up to date, since you had not changed them: {short(notes['followed'])}"
        )
    if notes["newer"]:
        number = short(notes["newer"]).split(",")[0]
        lines.append(
            f"Newer than your copies: {short(notes['newer'])}. Yours stay; to have a new one beside it: "
            f"python3 lab.py --fresh {number}"
        )
    return lines


def short(names: list[str]) -> str:
    """Return the names of files as one would call them: "03, 07, train.py"."""
    labels = [name[:2] if name.endswith(".ipynb") else name.split("/")[-1] for name in names]
    return ", ".join(labels)


def file_of(name: str) -> str:
    """Return the file that `name` means: "03", a file's name, a script's; ValueError where there is no such lesson."""
    files_there = [path.relative_to(ORIGINALS).as_posix() for path in originals()]
    matches = [f for f in files_there if f.startswith(f"{name}_") or name in (f, short([f]))]
    if len(matches) != 1:
        raise ValueError(f"--fresh is {name!r}; it takes one of {short(files_there)}")
    return matches[0]


def fresh(name: str) -> str:
    """Put a new copy of the lesson `name` in the place of the learner's, which gets another name; return a line on it."""
    file = file_of(name)
    copy = FOLDER / file
    line = f"{copy.relative_to(ROOT).as_posix()} is new."
    if os.path.lexists(copy):
        aside = free_name(copy)
        copy.rename(aside)
        line += f" Your own is now {aside.name}."
    record = read_record()
    record.pop(file, None)
    bring(ORIGINALS / file, file, record)
    files.write(FOLDER / RECORD, json.dumps(record, indent=1))
    return line


def free_name(path: Path) -> Path:
    """Return a path beside `path` that nothing has: its name with _mine, _mine2, …"""
    candidate = path.with_stem(f"{path.stem}_mine")
    number = 2
    while os.path.lexists(candidate):
        candidate = path.with_stem(f"{path.stem}_mine{number}")
        number += 1
    return candidate
