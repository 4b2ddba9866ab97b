"""Grade a class: run every notebook of a folder whole in a sandbox, note what each check says, write one table."""

import csv
import functools
import io
import math
import os
import re
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
from helpers.commands import _grade_sandbox, _notebooks
from helpers.commands._environment import ROOT
from helpers.commands._grade_inside import CHECK
from helpers.commands._sheets import harmless

HELP = "grade submitted notebooks: FOLDER --out grades.csv, one line for each file"
STOPPED = "stopped"
OUTCOMES = (CORRECT, NOT_YET, NOT_ATTEMPTED, ERROR, STOPPED)
ATTEMPTS = 4  # a cell that ends its kernel is left out of the next
MEGABYTES = 20
DOUBTFUL = re.compile(  # words that honest answers rarely need
    r"\b(?:_getframe|currentframe|f_back|f_locals|ctypes|gc|settrace|__eq__|__torch_function__|__code__|__globals__|"
    r"__subclasses__|_grade_\w+|GRADE_EVENTS|_exit|answers\.lesson\d\d|exercises\.\w+)\b|"
    r"(?<=[.'\"])(?:reference|solution|solution_source|check_answer|outcome)\b"
)
REFUSED = """learners' code runs only in a sandbox, and none works here: {}.
Install bubblewrap (on Linux: apt install bubblewrap), grade in a container (INSTRUCTORS.md has the command), or give
--unsealed: the notebooks can then read, change and send whatever you can. Nothing has been run."""
UNSEALED = "Not sealed: these notebooks can read, change and send whatever you can."


def add_arguments(parser):
    """Add the options of `grade`."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the notebooks; folders inside it are searched too")
    add("--out", required=True, metavar="FILE.csv", help="the table, written whole or not at all")
    add("--force", action="store_true", help="replace the table that is there")
    add("--lesson", metavar="NN", help="grade notebooks of this lesson only (default: any)")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="notebooks at once (one a core)")
    add("--seconds", type=float, default=600, help="time for one notebook (default 600)")
    add("--memory", type=float, default=3, help="GB for one notebook (default 3)")
    add("--unsealed", action="store_true", help="run without a sandbox, with limits only")


def run(args):
    """Grade all files, write the table, print a summary. Returns 0, 2 where that cannot be, 130 when stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        paths = checked(args)
        reason = "" if args.unsealed else _grade_sandbox.problem()
        if reason:
            raise ValueError(REFUSED.format(reason))
        if args.unsealed:
            print(UNSEALED, flush=True)
        rows = grade_all(paths, args)
    except ValueError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nStopped: {args.out} is as it was. Run it again.", file=sys.stderr)
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
    out, folder = Path(args.out), Path(args.folder)
    if not folder.is_dir():
        raise ValueError(f"FOLDER is {args.folder!r}; it takes the folder that holds the notebooks")
    if out.suffix != ".csv" or out.is_dir() or not os.access(out.absolute().parent, os.W_OK):
        raise ValueError(f"--out is {args.out!r}; it takes FILE.csv in a folder you can write to")
    if os.path.lexists(out) and not args.force:
        raise ValueError(f"--out is {args.out!r}, which is there; name another, or give --force")
    if args.lesson not in (None, *all_keys()):
        raise ValueError(f"--lesson is {args.lesson!r}; it takes one of {', '.join(all_keys())}")
    for name, most in (("jobs", 1000), ("seconds", 86400), ("memory", 4096)):
        value = getattr(args, name)
        if not (math.isfinite(value) and 0 < value <= most):
            raise ValueError(f"--{name} is {value}; it takes a number above 0, at most {most}")
    paths = [Path(base, name) for base, _, names in os.walk(folder) for name in names]
    hidden = re.compile(r"(^|[/\\])(\.|__MACOSX)")
    paths = [path for path in paths if not hidden.search(str(path.relative_to(folder)))]
    if not any(path.suffix.lower() == ".ipynb" for path in paths):
        raise ValueError(f"FOLDER is {args.folder!r}, and no file in it ends in .ipynb")
    return sorted(path for path in paths if path.absolute() != out.absolute())


def grade_all(paths, args):
    """Return {name: row} of all files, `args.jobs` at once; shows how far it is and the time left."""
    from tqdm import tqdm

    stopping = threading.Event()
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(grade_one, path, args, stopping) for path in paths]
        try:
            rows = [each.result() for each in tqdm(waiting, unit="file")]
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
    names = [str(path.relative_to(args.folder)) for path in paths]
    return dict(zip(names, rows, strict=True))


def grade_one(path, args, stopping):
    """Return {"lesson", "note", "review", "outcomes": {key: (status, text)}} of one file."""
    try:
        cells, claimed = read(path)
        lesson = lesson_of(path, cells)
        if args.lesson not in (None, lesson):
            raise ValueError(f"a notebook of lesson {lesson}")
    except ValueError as error:
        return {"lesson": args.lesson or "", "note": str(error), "review": "", "outcomes": {}}
    job = {"cells": cells, "lesson": lesson, "scripts": str(ROOT / "notebooks/scripts")}
    job |= {"cell_seconds": args.seconds / 4, "memory": args.memory}
    seen, stopped, note = run_cells(job, args, stopping)
    outcomes = {key: outcome(key, cells, seen, stopped) for key in all_keys()[lesson]}
    solved = {key[3:] for key, (status, _) in outcomes.items() if status == CORRECT}
    review = review_of(cells, lesson, seen, claimed - solved)
    return {"lesson": lesson, "note": note, "review": review, "outcomes": outcomes}


def read(path):
    """Return the code cells, and the names of exercises that the stored outputs call correct; or ValueError."""
    if path.suffix.lower() != ".ipynb":
        raise ValueError("its name does not end in .ipynb: unpack or rename it")
    if path.is_symlink() or not path.is_file():
        raise ValueError("not a regular file; links are not followed")
    if path.stat().st_size > MEGABYTES * 10**6:
        raise ValueError(f"larger than {MEGABYTES} MB; clear its outputs")
    try:
        cells = [cell for cell in _notebooks.read(path).cells if cell.cell_type == "code"]
        claims = [cell.source for cell in cells if "✓ Correct" in str(cell.outputs)]
        return [str(cell.source) for cell in cells], set(CHECK.findall("\n".join(claims)))
    except Exception as error:
        raise ValueError(f"not a notebook ({type(error).__name__}: {str(error)[:80]})") from None


def lesson_of(path, cells):
    """Return the number of the lesson whose exercises the notebook checks; ValueError where it checks none."""
    checks = set(CHECK.findall("\n".join(cells)))
    imports = re.findall(r"\blesson(\d\d)\b", "\n".join(cells))
    fits = {
        number: (
            len({key[3:] for key in keys} & checks),
            number in imports,
            number == path.name[:2],
        )
        for number, keys in all_keys().items()
    }
    best = max(fits, key=fits.get)
    if not any(fits[best]):
        raise ValueError("no lesson's notebook: it checks no exercise of the course")
    return best


def run_cells(job, args, stopping):
    """Return the events of a run, {number of a cell that ended its kernel: why}, and a note.

    After a cell that ends its kernel all others run again without it.
    """
    until = time.monotonic() + args.seconds
    hidden = None if args.unsealed else os.path.realpath(args.folder)
    seen, stopped, begun, why = [], {}, [0], ""
    for _ in range(ATTEMPTS):
        task = {**job, "skip": list(stopped), "seconds": until - time.monotonic()}
        found, why = _grade_sandbox.run(task, hidden, stopping)
        seen += found
        begun = [event["begin"] for event in found if "begin" in event]
        if any("end" in event for event in found) or begun[-1:] in ([], [None]):
            break
        stopped[begun[-1]] = why or "it ended the kernel, or took too long"
        if time.monotonic() > until:
            break
    notes = [f"cell {number + 1} stopped: {reason}" for number, reason in stopped.items()]
    return seen, stopped, "; ".join(notes) or (why if begun else "it did not start")


def outcome(key, cells, seen, stopped):
    """Return (status, text): what the check said, or why it said nothing. Solved once is solved."""
    results = [each for each in seen if each.get("key") == key and each.get("status") in OUTCOMES]
    for each in [each for each in results if each["status"] == CORRECT] or results[::-1]:
        return each["status"], str(each.get("message"))
    places = [n for n, source in enumerate(cells) if key[3:] in CHECK.findall(source)]
    if not places:
        return NOT_ATTEMPTED, f"no call of ex.{key[3:]}.check in the notebook"
    errors = [str(event["error"]) for event in seen if event.get("cell") == places[-1]]
    if places[-1] not in stopped and errors:
        return ERROR, errors[-1]
    return STOPPED, stopped.get(places[-1], "its check did not run")


@functools.cache
def usual(lesson):
    """Return how often the lesson itself uses each doubtful word."""
    [path] = _notebooks.find([lesson])
    return Counter(DOUBTFUL.findall("\n".join(read(path)[0])))


def review_of(cells, lesson, seen, claimed):
    """Return what a person should look at, as one text; what the lesson itself uses does not count."""
    counts = Counter(DOUBTFUL.findall("\n".join(cells))) - usual(lesson)
    reasons = {
        "uses": counts,
        "the course's own answer": {str(each.get("key"))[3:] for each in seen if each.get("own")},
        "replaced": {str(each["replaced"]) for each in seen if "replaced" in each},
        "differs when checked again": {str(each["differs"]) for each in seen if "differs" in each},
        "correct in its stored outputs only": claimed,
    }
    return "; ".join(f"{what}: {', '.join(sorted(why))}" for what, why in reasons.items() if why)


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
        yield [line(name), row["lesson"], points, most, *(line(text)[:400] for text in texts)]


def line(text):
    """Return `text` as one printable line that no spreadsheet takes for a formula."""
    shown = [c if c.isprintable() else ascii(c)[1:-1] for c in str(text).replace("\n", " ")]
    return harmless("".join(shown).strip())


def summary(rows):
    """Return how often each exercise had each outcome, then the files that could not be graded, as text."""
    pairs = [(key, pair[0]) for row in rows.values() for key, pair in row["outcomes"].items()]
    lines = []
    for (key, status), count in sorted(Counter(pairs).items()):
        lines.append(f"{key:16} {status:20} {count:4}")
    ungraded = [f"not graded: {line(n)}: {r['note']}" for n, r in rows.items() if not r["outcomes"]]
    return "\n".join([*lines, *ungraded])
