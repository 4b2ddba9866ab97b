"""The learner's own copies of the lessons in my_notebooks/: made once, never overwritten. Only standard library."""

import hashlib
import json
import os
import re
from collections.abc import Iterable

from course import files
from course.pages import number_of
from course.tools import ROOT

ORIGINALS = ROOT / "notebooks"
FOLDER = ROOT / "my_notebooks"
RECORD = ".copied.json"  # {file: fingerprint of the original that was copied}
OFFER = "Yours stay; to have a new one beside it: python3 lab.py --fresh {first}"
LINES = {  # what was done with copies: what to say of it
    "new": "Your copies of the lessons are in {folder}/ ({count} new).",
    "followed": "Brought up to date, since you had not changed them: {names}",
    "newer": "Newer than your copies: {names}. " + OFFER,
    "unknown": "Perhaps newer than your copies ({record} no longer says): {names}. " + OFFER,
}


def prepare(anew: str | None = None) -> list[str]:
    """Give every lesson and script a copy, and copies that nobody changed the newest text; return lines to print.

    The lesson `anew` ("03") gets a fresh one, whatever is there. Any other copy that was changed stays; where its
    original is newer, a line says so. Raises OSError where the folder cannot be written or is a link, which the course
    does not follow.
    """
    for folder in (FOLDER, FOLDER / "scripts"):
        if folder.is_symlink():
            raise OSError(f"{folder} is a link, which the course does not follow")
    wanted = "" if anew is None else file_of(anew)
    lines = [set_aside(wanted)] if wanted else []
    (FOLDER / "scripts").mkdir(parents=True, exist_ok=True)
    record = read_record()
    before = dict(record)
    done = {name: bring(name, record) for name in originals()}
    lines += gone(record, done)
    if record != before:
        files.write(FOLDER / RECORD, json.dumps(record, indent=1))
    done.pop(wanted, None)  # its line is there
    return describe(done) + lines


def originals() -> list[str]:
    """Return the files that learners change: the notebooks and the scripts that they launch."""
    paths = [*ORIGINALS.glob("[0-9]*.ipynb"), *ORIGINALS.glob("scripts/[!_]*.py")]
    return sorted(path.relative_to(ORIGINALS).as_posix() for path in paths)


def read_record() -> dict[str, str]:
    """Return what was copied; {} where the record is not there or damaged."""
    try:
        record = json.loads((FOLDER / RECORD).read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def content(name: str) -> bytes:
    """Return the bytes of a new copy: a notebook without the counts of the author's run, as nothing has run yet."""
    data = (ORIGINALS / name).read_bytes()
    if name.endswith(".py"):
        return data
    return re.sub(rb'^( *"execution_count": )\d+', rb"\1null", data, flags=re.M)


def digest(data: bytes) -> str:
    """Return a fingerprint of bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def sources(data: bytes) -> list:
    """Return the sources of a notebook's cells, which a run leaves alone; of any other file its bytes."""
    try:
        return [cell["source"] for cell in json.loads(data)["cells"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return [data]


def bring(name: str, record: dict[str, str]) -> str:
    """Copy the file `name` where that loses nothing; return what was done.

    That is "new", "kept", "followed", "newer", or "unknown" where the record does not say what was copied.
    """
    data, copy = content(name), FOLDER / name
    newest, before = digest(data), record.get(name)
    exists, plain = os.path.lexists(copy), copy.is_file() and not copy.is_symlink()
    mine = copy.read_bytes() if plain else b""
    if exists and not isinstance(before, str):
        if sources(mine) != sources(data):
            return "unknown"
        before = record[name] = newest
    if exists and before == newest:
        return "kept"
    if exists and (not plain or digest(mine) != before):
        return "newer"
    files.write(copy, data)
    record[name] = newest
    return "followed" if exists else "new"


def gone(record: dict[str, str], there: Iterable[str]) -> list[str]:
    """Return a line for each copy whose original is no longer there, once: the record forgets it."""
    names = {short(name): name for name in there if name.endswith(".ipynb")}
    lines = []
    for name in sorted(record.keys() - set(there)):
        del record[name]
        if os.path.lexists(FOLDER / name):
            now = names.get(short(name))
            renamed = f"is {now} now" if now else "is no longer part of the course"
            lines.append(f"{name} {renamed}; your copy of it stays as it is.")
    return lines


def describe(done: dict[str, str]) -> list[str]:
    """Return lines that say what was done and what is offered."""
    lines = []
    for kind, line in LINES.items():
        found = [short(name) for name, what in done.items() if what == kind]
        if found:
            some = {"count": len(found), "names": ", ".join(found), "first": found[0]}
            lines.append(line.format(folder=FOLDER.name, record=RECORD, **some))
    return lines


def short(name: str) -> str:
    """Return the name of a file as one would call it: "03", "train.py"."""
    return number_of(name) if name.endswith(".ipynb") else name.split("/")[-1]


def file_of(name: str) -> str:
    """Return the file that `name` ("03", "train.py") means; ValueError where there is no such lesson."""
    names = {short(file): file for file in originals()}
    if name not in names:
        raise ValueError(f"--fresh is {name!r}; it takes one of {', '.join(names)}")
    return names[name]


def set_aside(file: str) -> str:
    """Give the learner's copy another name, with _mine, _mine2, …, so that a new one is made; return a line on it."""
    copy = FOLDER / file
    line = f"{FOLDER.name}/{file} is new."
    if not os.path.lexists(copy):
        return line
    aside = files.unused(copy.with_stem(f"{copy.stem}_mine"))
    copy.rename(aside)
    return f"{line} Your own is now {aside.name}."
