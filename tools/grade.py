"""Grade a class: run every notebook of a folder whole in a sandbox, note what each check says, write one table."""

import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from helpers.checks.core import CORRECT, ERROR, NOT_ATTEMPTED
from lessons import all_keys
from tools import _grade_run, _notebooks, _sheets
from tools._grade_run import CHECK
from tools.execute import positive

HELP = "grade submitted notebooks: FOLDER --out grades.csv, one line for each file"
DOUBTFUL = re.compile(  # words that honest answers do not need
    r"\b(?:_getframe|currentframe|f_back|f_locals|f_globals|settrace|setprofile|get_objects|get_refer\w+|ctypes|"
    r"builtins|exercises\.\w+|answers\.lesson|__\w*(?:eq|code|globals|function|subclasses)__|_grade_\w+|GRADE_\w+)\b|"
    r"(?<=[.'\"])(?:reference|solution|solution_source|check_answer|outcome)\b"
)


def add_arguments(parser):
    """Add the options of `grade`."""
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="the notebooks, also in folders below it")
    add("--out", type=Path, required=True, metavar="FILE.csv", help="the table, written whole")
    add("--force", action="store_true", help="replace the table that is there")
    add("--jobs", type=positive, default=os.cpu_count() or 1, help="notebooks at once (one a core)")
    add("--seconds", type=positive, default=600, help="for one notebook, all tries (600)")
    add("--memory", type=positive, default=3, help="GB for one notebook (default 3)")
    add("--unsealed", action="store_true", help="run without a sandbox, with limits only")


def run(args):
    """Grade all files and write the table. Returns 0, 2 where that cannot be."""
    try:
        rows = grade_all(checked(args), args)
    except ValueError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    return _sheets.save(args.out, _sheets.lines(rows))


def checked(args):
    """Return the paths of all files in the folder, sorted; ValueError for what cannot be graded."""
    _sheets.check(args.out, args.force)
    paths = [path for path in sorted(args.folder.rglob("*")) if not path.is_dir()]
    visible = [path for path in paths if "/." not in f"/{path.relative_to(args.folder).as_posix()}"]
    if not any(path.suffix.lower() == ".ipynb" for path in visible):
        raise ValueError(f"FOLDER is {args.folder}; it takes a folder with notebooks in it")
    reason = "" if args.unsealed else _grade_run.problem()
    if reason:
        raise ValueError(f"no sandbox, so nothing ran: {reason}. Or --unsealed: see INSTRUCTORS.md")
    return [path for path in visible if os.path.abspath(path) != os.path.abspath(args.out)]


def grade_all(paths, args):
    """Return the lines of the table, `args.jobs` files at once; shows how far it is and the time left."""
    if args.unsealed:
        print("Not sealed: notebooks can read, change and send whatever you can.", flush=True)
    stopping = threading.Event()
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(grade_one, path, args, stopping) for path in paths]
        try:
            return [future.result() for future in tqdm(waiting, unit="file")]
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)


def grade_one(path, args, stopping):
    """Return a line of the table, {column: text}: points, notes, each exercise's outcome and its reason."""
    row = dict.fromkeys(("submission", "lesson", "points", "of", "note", "review"), "")
    row["submission"] = path.relative_to(args.folder)
    try:
        row["lesson"], cells = read(path)
    except ValueError as error:
        return {**row, "note": error}
    events, stopped = run_cells(cells, args, stopping)
    words = {f"uses {word}" for word in DOUBTFUL.findall("\n".join(cells))}
    words |= {str(event["review"]) for event in events if "review" in event}
    row["review"] = "; ".join(sorted(words))[:400]
    places = {0: "it did not start", len(cells) + 1: "the checks called again stopped"}
    notes = [f"{places.get(n, f'cell {n} stopped')}: {reason}" for n, reason in stopped.items()]
    row["note"] = "; ".join(notes)
    keys = all_keys()[row["lesson"]]
    for key in keys:
        row[key], reason = outcome(key, cells, events, stopped)
        row[f"{key} reason"] = reason[:400]
    return {**row, "points": sum(row[key] == CORRECT for key in keys), "of": len(keys)}


def read(path):
    """Return (lesson, sources of the code cells); ValueError where the file is no lesson's notebook."""
    if path.suffix.lower() != ".ipynb":
        raise ValueError("its name does not end in .ipynb: unpack or rename it")
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 20e6:
        raise ValueError("a link, no regular file, or larger than 20 MB")
    try:
        cells = [str(c.source) for c in _notebooks.read(path).cells if c.cell_type == "code"]
    except Exception as error:
        raise ValueError(f"not a notebook ({type(error).__name__}: {str(error)[:80]})") from None
    checked = {name for cell in cells for name in CHECK.findall(cell)}
    counts = {n: len({key[3:] for key in keys} & checked) for n, keys in all_keys().items()}
    lesson = max(counts, key=counts.get)
    if not counts[lesson]:
        raise ValueError("no lesson's notebook: it checks no exercise of the course")
    return lesson, cells


def run_cells(cells, args, stopping):
    """Return the events of all runs, and {number of a cell that ended its kernel: why}; 0 is before the first cell."""
    all_events = []
    stopped = {}
    for attempt in range(1, 5):  # a cell that ends its kernel is left out of the next
        harmless = ["" if number in stopped else cell for number, cell in enumerate(cells, 1)]
        events, reason = _grade_run.run(harmless, args, args.seconds / 2**attempt, stopping)
        all_events += events
        begun = [event["begin"] for event in events if event.get("begin") in range(len(cells) + 2)]
        if stopping.is_set() or any("end" in event for event in events):
            break
        stopped[begun[-1] if begun else 0] = reason or "it took too long or ended the kernel"
    return all_events, stopped


def outcome(key, cells, events, stopped):
    """Return (status, text): what the check said, or why it said nothing. Solved once is solved."""
    pairs = [(str(e.get("status")), str(e.get("message"))) for e in events if e.get("key") == key]
    solved = [pair for pair in pairs if pair[0] == CORRECT]
    if pairs:
        return solved[0] if solved else pairs[-1]
    places = [number for number, cell in enumerate(cells, 1) if key[3:] in CHECK.findall(cell)]
    if not places:
        return NOT_ATTEMPTED, f"no call of ex{key[2:]}.check in the notebook"
    errors = [str(event.get("error")) for event in events if event.get("cell") == places[-1]]
    if errors and places[-1] not in stopped:
        return ERROR, errors[-1]
    return "stopped", stopped.get(places[-1], "its check did not run")
