"""Grade a class: every notebook in a folder, each exercise checked behind walls, one line of a table for each notebook.

What is defended against hostile notebooks, and what is not, stands in `_grade_judge`; the walls in `_grade_box`.
"""

import csv
import io
import math
import os
import sys
from collections import Counter
from pathlib import Path

from exercises import all_keys
from helpers import files
from helpers.commands._sheets import harmless

HELP = "grade submitted notebooks: FOLDER --out grades.csv, one line for each notebook"
OUTCOMES = ("correct", "not yet", "not attempted", "error in your code", "stopped", "tampered")
WALLS = {
    True: "Each notebook ran sealed off: no network, its own process table, every file read-only but its own.",
    False: "This system does not let processes be sealed off: notebooks ran with limits only, and could read and "
    "write what you can. For strangers' notebooks use a Linux machine or a container of their own.",
}
LENGTH = 400


def add_arguments(parser):
    """Add the options of `grade`."""
    parser.add_argument(
        "folder", metavar="FOLDER", help="the notebooks; folders inside it are searched too"
    )
    parser.add_argument(
        "--out", required=True, metavar="FILE.csv", help="the table, written whole or not at all"
    )
    parser.add_argument(
        "--lesson", metavar="NN", help="grade notebooks of this lesson only (default: any)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="notebooks at once (default: one a core)",
    )
    parser.add_argument(
        "--seconds", type=float, default=120, help="time for one notebook (default 120)"
    )
    parser.add_argument("--memory", type=float, default=2, help="GB for one answer (default 2)")


def run(args):
    """Grade all notebooks, write the table, print a summary. Returns 0, 2 where that cannot be, 130 when stopped."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    try:
        paths = checked(args)
    except ValueError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    text = io.StringIO(newline="")
    try:
        from helpers.commands._grade_watch import grade_all

        answers, sealed = grade_all(paths, args)
        csv.writer(text).writerows(
            table({path.relative_to(args.folder): answers[path] for path in paths})
        )
    except KeyboardInterrupt:
        print(
            f"\nStopped. {args.out} is as it was; the same command begins again.", file=sys.stderr
        )
        return 130
    try:
        files.write(args.out, text.getvalue().encode("utf-8-sig"))
    except OSError as error:
        print(text.getvalue())
        print(
            f"grade: {args.out}: {error.strerror}; the table stands above instead", file=sys.stderr
        )
        return 2
    print(f"{summary(answers)}\n\n{WALLS[sealed]}\n{args.out}: {len(paths)} notebooks")
    return 0


def checked(args):
    """Return the paths of all notebooks in the folder, sorted; ValueError for an argument that will not do."""
    folder, place = args.folder, Path(args.out).absolute().parent
    if not Path(folder).is_dir():
        raise ValueError(
            f"FOLDER is {folder!r}; it takes the folder that holds the notebooks, and there is none"
        )
    if Path(args.out).exists() and not Path(args.out).is_file() or not os.access(place, os.W_OK):
        raise ValueError(
            f"--out is {args.out!r}; it takes the name of a file in a folder that can be written to"
        )
    if args.lesson not in (None, *all_keys()):
        raise ValueError(f"--lesson is {args.lesson!r}; it takes one of {', '.join(all_keys())}")
    for name, most in (("jobs", 1000), ("seconds", 86400), ("memory", 4096)):
        value = getattr(args, name)
        if not (math.isfinite(value) and 0 < value <= most):
            raise ValueError(f"--{name} is {value}; it takes a number above 0, at most {most}")
    paths = sorted(
        Path(base, name)
        for base, _, names in os.walk(folder)
        for name in names
        if name.endswith(".ipynb") and ".ipynb_checkpoints" not in base
    )
    if not paths:
        raise ValueError(f"FOLDER is {folder!r}, and no file in it ends in .ipynb")
    return paths


def table(rows):
    """Return the lines of the table for {name: answer}: points, notes, each exercise's outcome and its reason."""
    keys, lessons = all_keys(), {row["lesson"] for row in rows.values()}
    shown = [key for lesson in keys if lesson in lessons for key in keys[lesson]]
    reasons = [f"{key}{word}" for key in shown for word in ("", " reason")]
    yield ["submission", "lesson", "points", "of", "note", "review", *reasons]
    for name, row in rows.items():
        outcomes = [row["outcomes"].get(key, ("", "")) for key in shown]
        points = (
            sum(status == "correct" for status, _ in outcomes),
            len(keys.get(row["lesson"], ())) or "",
        )
        texts = [row["note"], row["review"], *(text for pair in outcomes for text in pair)]
        yield [cell(name), row["lesson"], *points, *map(cell, texts)]


def cell(text):
    """Return `text` as one printable line that no spreadsheet takes for a formula."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())[:LENGTH]
    return harmless(line)


def summary(rows):
    """Return a table in text: how often each exercise had each outcome, then the notebooks that could not be graded."""
    counts = Counter(
        (key, status) for row in rows.values() for key, (status, _) in row["outcomes"].items()
    )
    lines = [f"{'exercise':16}  " + "  ".join(OUTCOMES)]
    for key in sorted({key for key, _ in counts}):
        lines.append(
            f"{key:16}  "
            + "  ".join(f"{counts[key, status]:>{len(status)}}" for status in OUTCOMES)
        )
    lines += [
        f"not graded: {cell(path)}: {cell(row['note'])}"
        for path, row in rows.items()
        if not row["outcomes"]
    ]
    return "\n".join(lines)
