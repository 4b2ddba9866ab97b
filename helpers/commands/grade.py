"""Grade a class: run every notebook of a folder whole in a sandbox, note what each check says, write one table.

It serves an honest class. Learners' code runs in `_grade_run`, beside the checks, and who studies them can fool them.
"""

import csv
import io
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from exercises import all_keys
from helpers import files
from helpers.checks.core import CORRECT, ERROR, NOT_ATTEMPTED, NOT_YET
from helpers.commands import _grade_read, _grade_sandbox
from helpers.commands._environment import ROOT
from helpers.commands._sheets import harmless

HELP = "grade submitted notebooks: FOLDER --out grades.csv, one line for each notebook"
STOPPED = "stopped"
OUTCOMES = (CORRECT, NOT_YET, NOT_ATTEMPTED, ERROR, STOPPED)
ATTEMPTS = 4  # a cell that ends its kernel is left out of the next
LENGTH = 400
REFUSED = """learners' code runs only in a sandbox, and none works here: {}.
Install bubblewrap (on Linux: apt install bubblewrap), grade in a container (INSTRUCTORS.md, Grade, has the command),
or give --unsealed: the notebooks can then read, change and send whatever you can. Nothing has been run."""
UNSEALED = "Not sealed: these notebooks can read, change and send whatever you can."


def add_arguments(parser):
    """Add the options of `grade`."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the notebooks; folders inside it are searched too")
    add("--out", required=True, metavar="FILE.csv", help="the table, written whole or not at all")
    add("--force", action="store_true", help="replace the table that is there")
    add("--lesson", metavar="NN", help="grade notebooks of this lesson only (default: any)")
    cores = os.cpu_count() or 1
    add("--jobs", type=int, default=cores, help="notebooks at once (default: one a core)")
    add("--seconds", type=float, default=300, help="time for one notebook (default 300)")
    add("--memory", type=float, default=3, help="GB for one notebook (default 3)")
    add("--unsealed", action="store_true", help="run without a sandbox, with limits only")


def run(args):
    """Grade all notebooks, write the table, print a summary. Returns 0, 2 where that cannot be, 130 when stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        paths = checked(args)
        reason = "" if args.unsealed else _grade_sandbox.problem()
        if reason:
            raise ValueError(REFUSED.format(reason))
    except ValueError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    if args.unsealed:
        print(UNSEALED, flush=True)
    try:
        rows = grade_all(paths, args)
    except KeyboardInterrupt:
        print(f"\nStopped; {args.out} has not been written. Run it again.", file=sys.stderr)
        return 130
    text = io.StringIO(newline="")
    csv.writer(text).writerows(table(rows))
    try:
        files.write(args.out, text.getvalue().encode("utf-8-sig"))
    except OSError as error:
        print(text.getvalue())
        print(f"grade: {args.out}: {error.strerror}; the table stands above", file=sys.stderr)
        return 2
    print(f"{summary(rows)}\n{args.out}: {len(paths)} files")
    return 0


def checked(args):
    """Return the paths of all files in the folder, sorted; ValueError for an argument that will not do."""
    out = Path(args.out)
    if not Path(args.folder).is_dir():
        raise ValueError(f"FOLDER is {args.folder!r}; it takes the folder that holds the notebooks")
    if (
        out.suffix.lower() != ".csv"
        or out.is_dir()
        or not os.access(out.absolute().parent, os.W_OK)
    ):
        raise ValueError(
            f"--out is {args.out!r}; it takes FILE.csv in a folder that can be written to"
        )
    if os.path.lexists(out) and not args.force:
        raise ValueError(f"--out is {args.out!r}, which is there; name another, or give --force")
    if args.lesson not in (None, *all_keys()):
        raise ValueError(f"--lesson is {args.lesson!r}; it takes one of {', '.join(all_keys())}")
    for name, most in (("jobs", 1000), ("seconds", 86400), ("memory", 4096)):
        value = getattr(args, name)
        if not (math.isfinite(value) and 0 < value <= most):
            raise ValueError(f"--{name} is {value}; it takes a number above 0, at most {most}")
    paths = [Path(base, name) for base, _, names in os.walk(args.folder) for name in names]
    paths = [path for path in paths if wanted(path.relative_to(args.folder)) and path != out]
    if not any(path.name.lower().endswith(".ipynb") for path in paths):
        raise ValueError(f"FOLDER is {args.folder!r}, and no file in it ends in .ipynb")
    return sorted(paths)


def wanted(path):
    """Tell whether a file may be a submission: hidden files and folders are none."""
    return not any(part.startswith((".", "__MACOSX")) for part in path.parts)


def grade_all(paths, args):
    """Return {name: row} of all files, `args.jobs` at once; shows how far it is and the time left."""
    from tqdm import tqdm

    stopping = threading.Event()
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [
            pool.submit(grade_one, path, number, args, stopping)
            for number, path in enumerate(paths)
        ]
        try:
            done = [each.result() for each in tqdm(waiting, unit="notebook")]
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
    names = [str(path.relative_to(args.folder)) for path in paths]
    return dict(zip(names, done, strict=True))


def grade_one(path, number, args, stopping):
    """Return {"lesson", "note", "review", "outcomes": {key: (status, text)}} of one file."""
    row = {"lesson": args.lesson or "", "note": "", "review": "", "outcomes": {}}
    try:
        submission = _grade_read.read(path)
        lesson = _grade_read.lesson_of(path, submission.cells, all_keys())
        if args.lesson not in (None, lesson):
            raise _grade_read.Unreadable(f"a notebook of lesson {lesson}")
    except _grade_read.Unreadable as error:
        return {**row, "note": str(error)}
    job = {
        "cells": submission.cells,
        "lesson": lesson,
        "cell_seconds": 0.4 * args.seconds,
        "memory": args.memory,
        "scripts": str(ROOT / "notebooks/scripts"),
        "user": 0,
    }
    if not args.unsealed and os.geteuid() == 0:
        job["user"] = _grade_sandbox.FIRST_USER + number
    seen, stopped, note = run_cells(job, args, stopping)
    outcomes = {key: outcome(key, submission.cells, seen, stopped) for key in all_keys()[lesson]}
    review = review_of(submission, lesson, seen, outcomes)
    return {"lesson": lesson, "note": note, "review": review, "outcomes": outcomes}


def run_cells(job, args, stopping):
    """Run the cells of a notebook; return the events, {cell that ended its kernel: why}, and a note.

    After a cell that ends its kernel all others run again without it.
    """
    until = time.monotonic() + args.seconds
    hidden = os.path.realpath(args.folder)
    seen, stopped = [], {}
    for _ in range(ATTEMPTS):
        task = {**job, "skip": list(stopped), "seconds": until - time.monotonic()}
        found, why = _grade_sandbox.run(task, not args.unsealed, hidden, stopping)
        seen += found
        if any("end" in event for event in found):
            break
        reasons = [str(event["stopped"]) for event in found if "stopped" in event]
        why = why or (reasons or ["it ended the kernel"])[-1]
        begun = [event["begin"] for event in found if "begin" in event]
        if not begun or not isinstance(begun[-1], int):
            return seen, stopped, f"ended early: {why}"
        stopped[begun[-1]] = why
        if time.monotonic() > until:
            break
    note = "; ".join(f"cell {number + 1} stopped: {why}" for number, why in stopped.items())
    return seen, stopped, note


def outcome(key, cells, seen, stopped):
    """Return (status, text) of an exercise: what its check said, or why it said nothing.

    Solved once is solved; else the last check counts.
    """
    results = [each for each in seen if each.get("key") == key and each.get("status") in OUTCOMES]
    for each in [each for each in results if each["status"] == CORRECT] or results[::-1]:
        return each["status"], str(each.get("message", ""))
    where = [n for n, source in enumerate(cells) if key[3:] in _grade_read.CHECK.findall(source)]
    if not where:
        return NOT_ATTEMPTED, f"no call of ex.{key[3:]}.check in the notebook"
    if where[-1] in stopped:
        return STOPPED, stopped[where[-1]]
    errors = [str(event.get("error")) for event in seen if event.get("cell") == where[-1]]
    return (ERROR, errors[-1]) if errors else (STOPPED, "its check did not run")


def review_of(submission, lesson, seen, outcomes):
    """Return what a person should look at, as one text."""
    solved = {key[3:] for key, (status, _) in outcomes.items() if status == CORRECT}
    own = {str(each.get("key"))[3:] for each in seen if each.get("own")}
    again = {str(each.get("key"))[3:] for each in seen if "again" in each}
    replaced = {str(name) for each in seen for name in each.get("replaced") or ()}
    found = {
        "uses": _grade_read.doubts(submission.cells, lesson),
        "the course's own answer": own,
        "replaced": replaced,
        "another outcome when checked again": again,
        "correct in its stored outputs only": submission.claimed - solved,
    }
    return "; ".join(
        f"{what}: {', '.join(sorted(names))}" for what, names in found.items() if names
    )


def table(rows):
    """Return the lines of the table for {name: row}: points, notes, each exercise's outcome and its reason."""
    keys = all_keys()
    lessons = {row["lesson"] for row in rows.values()}
    shown = [key for lesson in keys if lesson in lessons for key in keys[lesson]]
    reasons = [f"{key}{word}" for key in shown for word in ("", " reason")]
    yield ["submission", "lesson", "points", "of", "note", "review", *reasons]
    for name, row in rows.items():
        outcomes = [row["outcomes"].get(key, ("", "")) for key in shown]
        points = sum(status == CORRECT for status, _ in outcomes)
        texts = [row["note"], row["review"], *(text for pair in outcomes for text in pair)]
        most = len(keys.get(row["lesson"], ())) or ""
        yield [cell(name, 9999), row["lesson"], points, most, *map(cell, texts)]


def cell(text, length=LENGTH):
    """Return `text` as one printable line that no spreadsheet takes for a formula."""
    words = str(text).replace("\n", " ")
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    return harmless(line.strip()[:length])


def summary(rows):
    """Return a table in text: how often each exercise had each outcome, then the files that could not be graded."""
    pairs = [pair for row in rows.values() for pair in row["outcomes"].items()]
    counts = Counter((key, status) for key, (status, _) in pairs)
    lines = [f"{'exercise':16}  " + "  ".join(OUTCOMES)]
    for key in sorted({key for key, _ in counts}):
        numbers = [f"{counts[key, status]:>{len(status)}}" for status in OUTCOMES]
        lines.append(f"{key:16}  " + "  ".join(numbers))
    for name, row in rows.items():
        if not row["outcomes"]:
            lines.append(f"not graded: {cell(name)}: {cell(row['note'])}")
    return "\n".join(lines)
