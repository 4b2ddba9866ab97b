"""Grade a class: every notebook in a folder, each exercise checked behind walls, one line of a table for each notebook.

What is defended against hostile notebooks, and what is not, stands in `_grade_judge`; the walls in `_grade_box`.
"""

import csv
import math
import os
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import wait
from pathlib import Path

HELP = "grade submitted notebooks: FOLDER --out grades.csv, one line for each notebook"
CORRECT, OUTCOMES = "correct", ("correct", "not yet", "not attempted", "error in your code", "stopped", "tampered")
LENGTH = 400


def add_arguments(parser):
    """Add the options of `grade`."""
    parser.add_argument("folder", metavar="FOLDER", help="the notebooks; folders inside it are searched too")
    parser.add_argument("--out", required=True, metavar="FILE.csv", help="the table, written whole or not at all")
    parser.add_argument("--lesson", metavar="NN", help="grade notebooks of this lesson only (default: any)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="notebooks at once (default: one a core)")
    parser.add_argument("--seconds", type=float, default=120, help="time for one notebook (default 120)")
    parser.add_argument("--memory", type=float, default=2, help="GB for one answer (default 2)")


def run(args):
    """Grade; return 0, or 2 when wrongly called."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    try:
        paths = find(args.folder)
        check_numbers(args)
        out = tempfile.NamedTemporaryFile("w", dir=place_of(args.out), prefix=".grades.", delete=False,
                                          encoding="utf-8-sig", newline="")
    except ValueError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    try:
        with out:
            rows, walls = grade_all(paths, args)
            csv.writer(out).writerows(table(rows, args.folder))
        os.chmod(out.name, 0o644)
        os.replace(out.name, args.out)
    finally:
        Path(out.name).unlink(missing_ok=True)
    print(f"{summary(rows)}\n\n{walls}\n{args.out}: {len(rows)} notebooks")
    return 0


def find(folder):
    """Return the paths of all notebooks in the folder, sorted; ValueError where there is none."""
    if not Path(folder).is_dir():
        raise ValueError(f"FOLDER is {folder!r}; it takes the folder that holds the notebooks, and there is none")
    paths = sorted(Path(base, name) for base, folders, names in os.walk(folder) for name in names
                   if name.endswith(".ipynb") and ".ipynb_checkpoints" not in base)
    if not paths:
        raise ValueError(f"FOLDER is {folder!r}, and no file in it ends in .ipynb")
    return paths


def check_numbers(args):
    """Raise ValueError for an option that makes no sense."""
    from helpers.exercises import all_keys

    if args.lesson is not None and args.lesson not in all_keys():
        raise ValueError(f"--lesson is {args.lesson!r}; it takes one of {', '.join(all_keys())}")
    for name, most in (("jobs", 1000), ("seconds", 86400), ("memory", 4096)):
        value = getattr(args, name)
        if not (math.isfinite(value) and 0 < value <= most):
            raise ValueError(f"--{name} is {value}; it takes a number above 0, at most {most}")


def place_of(out):
    """Return the folder in which the file `out` can be written; ValueError where it cannot."""
    place = Path(out).absolute().parent
    if Path(out).is_dir() or not place.is_dir() or not os.access(place, os.W_OK):
        raise ValueError(f"--out is {out!r}; it takes the name of a file in a folder that can be written to")
    return place


def grade_all(paths, args):
    """Return ({path: answer} as `_grade_judge.supervise` sends it, a sentence about the walls)."""
    import nbformat  # noqa: F401 - loaded once, before the processes are forked
    import torch
    import torch._dynamo  # noqa: F401 - practice GPUs need it
    from tqdm import tqdm

    from helpers.commands import _grade_box, _grade_judge
    from helpers.exercises import all_keys

    torch.set_num_threads(1)
    tqdm.monitor_interval = 0  # no thread beside the forks
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        os.chmod(work, 0o711)
        sealed, other = _grade_box.possible(work)
        fixed = {"sealed": sealed, "few": other or sealed and os.geteuid() != 0, "lesson": args.lesson,
                 "known": list(all_keys()), "seconds": args.seconds, "memory": int(args.memory * 1e9),
                 "hidden": str(Path(args.folder).resolve())}
        for number in fixed["known"]:
            _grade_judge.exercises_of(number)
        jobs = [dict(fixed, path=str(path.absolute()), folder=tempfile.mkdtemp(dir=work),
                     user=60001 + index % 5000 if other else None) for index, path in enumerate(paths)]
        for job in jobs:
            os.chmod(job["folder"], 0o1777)
        with tqdm(total=len(jobs), unit="notebook") as bar:
            answers = in_parallel(jobs, args.jobs, bar)
    return dict(zip(paths, answers, strict=True)), WALLS[sealed]


WALLS = {True: "Each notebook ran sealed off: no network, its own process table, every file read-only but its own.",
         False: "This system does not let processes be sealed off: notebooks ran with limits only, and could read and "
                "write what you can. For strangers' notebooks use a Linux machine or a container of their own."}


def in_parallel(jobs, count, bar):
    """Run each job in a process of its own, `count` at once; return their answers in order. Leaves no process."""
    from helpers.commands import _grade_judge

    waiting, running, answers = list(enumerate(jobs))[::-1], {}, {}
    try:
        while waiting or running:
            while waiting and len(running) < count:
                index, job = waiting.pop()
                reader, writer = _grade_judge.CONTEXT.Pipe(False)
                process = _grade_judge.CONTEXT.Process(target=_grade_judge.enter, args=(job, writer))
                process.start()
                writer.close()
                running[reader] = index, process, time.monotonic() + job["seconds"] + 30
            for reader in wait(list(running), 0.2) or [r for r in running if time.monotonic() > running[r][2]]:
                index, process, _ = running.pop(reader)
                answers[index] = received(reader)
                end(process)
                bar.update()
    finally:
        for _, process, _ in running.values():
            end(process)
    return [answers[index] for index in range(len(jobs))]


def received(reader):
    """Return the answer that came through the pipe, or one that says why there is none."""
    import json

    with reader:
        try:
            return json.loads(reader.recv_bytes() if reader.poll() else b"")
        except (EOFError, ValueError):
            return {"lesson": "", "note": "stopped: it could not be read in time, or at all", "review": "",
                    "outcomes": {}}


def end(process):
    """Kill a process and all below it."""
    from helpers.commands import _grade_box

    _grade_box.end_below(process.pid)
    process.kill()
    process.join()


def table(rows, folder):
    """Return the lines of the table: points, notes, then the outcome and the reason of each exercise."""
    from helpers.exercises import all_keys

    keys = all_keys()
    shown = [key for lesson in keys if lesson in {row["lesson"] for row in rows.values()} for key in keys[lesson]]
    pairs = [word for key in shown for word in (key, f"{key} reason")]
    lines = [["submission", "lesson", "points", "of", "note", "review", *pairs]]
    for path, row in rows.items():
        outcomes = [row["outcomes"].get(key, ("", "")) for key in shown]
        points = sum(status == CORRECT for status, _ in outcomes)
        lines.append([cell(path.relative_to(folder)), row["lesson"], points, len(keys.get(row["lesson"], ())) or "", cell(row["note"]),
                      cell(row["review"]), *(cell(text) for pair in outcomes for text in pair)])
    return lines


def cell(text):
    """Return `text` as one printable line that no spreadsheet takes for a formula."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())[:LENGTH]
    return "'" + line if line[:1] in tuple("=+-@＝＋－＠") else line


def summary(rows):
    """Return a table in text: how often each exercise had each outcome, then the notebooks that could not be graded."""
    counts = {}
    for row in rows.values():
        for key, (status, _) in row["outcomes"].items():
            counts.setdefault(key, Counter())[status] += 1
    width = max([8, *map(len, counts)])
    lines = [f"{'exercise':<{width}}  " + "  ".join(OUTCOMES)]
    for key in sorted(counts):
        lines.append(f"{key:<{width}}  " + "  ".join(f"{counts[key][name]:>{len(name)}}" for name in OUTCOMES))
    lines += [f"not graded: {cell(path)}: {cell(row['note'])}" for path, row in rows.items() if not row["outcomes"]]
    return "\n".join(lines)
