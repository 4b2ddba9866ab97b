"""Grade a class: every notebook runs whole in a container of its own, and what its checks say there is the grade."""

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from course.checks import CORRECT, ERROR, NOT_ATTEMPTED
from course.tools import ROOT, _bounds, _graded, _notebooks, _sheets
from course.tools._arguments import positive

HELP = "grade submitted notebooks: FOLDER --out grades.csv, one line for each file"
CHECK = re.compile(r"\b(\w+)\.check\(")  # the exercise's name in ex.NAME.check(
LARGEST, MOST_PARTS = 20_000_000, 300_000  # bytes and braces of a notebook
READING = Lock()  # one at a time: a notebook takes many times its size while it is read
SEALED = f"""run --rm --interactive --network=none --read-only --tmpfs=/tmp:rw,exec,size=1g,mode=1777 --shm-size=256m
    --user=65534:65534 --cap-drop=ALL --security-opt=no-new-privileges --pids-limit={_bounds.TASKS} --cpus=1 --workdir=/tmp"""


ASK = "import json; from course.checks.core import all_keys; print(json.dumps(all_keys()))"


@functools.cache
def all_keys() -> dict[str, list[str]]:
    """Return the keys of each page's exercises; another process imports them, with PyTorch, and its 600 MB."""
    line, variables = [sys.executable, "-c", ASK], {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(line, env=variables, capture_output=True, text=True, check=True).stdout
    return {page: keys for page, keys in json.loads(said).items() if keys}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `grade`."""
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="the notebooks, also in folders below it")
    add("--out", type=Path, required=True, metavar="FILE.csv", help="the table, written whole")
    add("--force", action="store_true", help="replace the table that is there")
    add("--image", default="gpus-in-pytorch", help="of the container (see INSTRUCTORS.md)")
    add("--jobs", type=positive, default=os.cpu_count() or 1, help="notebooks at once (one a core)")
    add("--seconds", type=positive, default=600, help="for one notebook; a quarter for one cell")
    add("--memory", type=positive, default=3, help="GB for one notebook (3)")
    add("--unsealed", action="store_true", help="run without a container, for people you trust")


def run(args: argparse.Namespace) -> int:
    """Grade all files and write the table. Returns 0, 2 where that cannot be."""
    from tqdm import tqdm

    try:
        _sheets.check(args.out, args.force)
        container = [] if args.unsealed else sealed(args)
    except ValueError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    if args.unsealed:
        print("Not sealed: notebooks can read, change and send whatever you can.", flush=True)
    paths = [path for path in sorted(args.folder.rglob("[!.]*")) if is_submission(path)]
    if not paths:
        print(f"grade: FOLDER is {args.folder}; it takes one with notebooks in it", file=sys.stderr)
        return 2
    all_keys()  # before any run starts
    with _bounds.orphans_adopted() as end_all, ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(grade_one, path, args, container) for path in paths]
        try:
            rows = [future.result() for future in tqdm(waiting, unit="file")]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise
    columns = list(dict.fromkeys(name for row in rows for name in row))
    _sheets.save(args.out, [columns, *[[row.get(n, "") for n in columns] for row in rows]])
    return 0


def is_submission(path: Path) -> bool:
    """Tell whether a path gets a line in the table: all but tables and plain folders."""
    folder = path.is_dir() and not path.is_symlink() and path.suffix.lower() != ".ipynb"
    return not folder and path.suffix != ".csv"


def sealed(args: argparse.Namespace) -> list:
    """Return the words that put Python into a container; ValueError where there is none."""
    engine = shutil.which("docker") or shutil.which("podman")
    if not engine:
        raise ValueError("no docker or podman, so nothing ran. See INSTRUCTORS.md; or --unsealed")
    if subprocess.run([engine, "image", "inspect", args.image], capture_output=True).returncode:
        build = f"{Path(engine).name} build -t {args.image} -f course/tools/Dockerfile ."
        raise ValueError(f"no image {args.image!r}, so nothing ran. Make it once: {build}")
    memory = [f"--memory={args.memory}g", f"--memory-swap={args.memory}g"]
    variables = [
        f"--env={name}={value}" for name, value in _graded.environment("/course", "/tmp").items()
    ]
    return [engine, *SEALED.split(), *memory, *variables, f"-v{ROOT}:/course:ro", args.image]


def grade_one(path: Path, args: argparse.Namespace, container: list) -> dict:
    """Return a line of the table, {column: text}: points, a note, each exercise's outcome and its reason."""
    row = dict.fromkeys(("submission", "lesson", "points", "of", "note", "review"), "")
    row["submission"] = path.relative_to(args.folder).as_posix()
    try:
        with READING:
            row["lesson"], cells = read(path)
        job = {"cells": cells, "seconds": args.seconds, "memory": args.memory}
        events, row["note"] = _graded.run(job, container)
    except (ValueError, OSError) as error:
        return {**row, "note": f"{error}"}
    except Exception as error:  # costs this file, and not the table
        return {**row, "note": f"not graded ({type(error).__name__}: {str(error)[:80]})"}
    checked = [set(CHECK.findall(cell)) for cell in cells]
    events = [event for event in events if event.cell in range(len(cells))]
    lone = {e.key for e in events if e.key and e.key[3:] not in checked[e.cell]}
    own = {e.key for e in events if e.own}
    row["review"] = "; ".join(
        [f"{key} was noted where no check of it stands" for key in sorted(lone)]
        + [f"the course's own answer to {key}" for key in sorted(own)]
    )
    keys = all_keys()[row["lesson"]]
    for key in keys:
        row[key], row[f"{key} reason"] = outcome(key, checked, events, row["note"])
    return {**row, "points": sum(row[key] == CORRECT for key in keys), "of": len(keys)}


def read(path: Path) -> tuple[str, list[str]]:
    """Return (lesson, sources of the code cells); ValueError where the file is no lesson's notebook."""
    if path.is_symlink() or not path.is_file() or path.suffix.lower() != ".ipynb":
        raise ValueError("a link, a folder, or no .ipynb: not read")
    data = path.read_bytes() if path.stat().st_size <= LARGEST else b""
    if not data or data.count(b"{") + data.count(b"[") > MOST_PARTS:
        raise ValueError(
            f"empty, larger than {LARGEST // 10**6} MB, or of more parts than any lesson: not read"
        )
    try:
        cells = [str(c.source) for c in _notebooks.read(path).cells if c.cell_type == "code"]
    except Exception as error:  # nbformat raises many kinds
        raise ValueError(f"not a notebook ({type(error).__name__}: {str(error)[:80]})") from None
    names = {name for cell in cells for name in CHECK.findall(cell)}
    counts = {n: len({key[3:] for key in keys} & names) for n, keys in all_keys().items()}
    lesson = max(counts, key=lambda number: counts[number])
    if not counts[lesson]:
        raise ValueError("no lesson's notebook: it checks no exercise of the course")
    return lesson, cells


def outcome(key: str, checked: list[set], events: list, stopped: str) -> tuple[str, str]:
    """Return (status, text): what the check said, or why it said nothing. Solved once is solved."""
    places = [number for number, names in enumerate(checked) if key[3:] in names]
    said = [event for event in events if event.cell in places]
    pairs = [(event.status, event.message) for event in said if event.key == key]
    if pairs:
        return next((pair for pair in pairs if pair[0] == CORRECT), pairs[-1])
    if not places:
        return NOT_ATTEMPTED, f"no call of ex.{key[3:]}.check in the notebook"
    errors = [event.message for event in said if not event.key]
    return (ERROR, errors[-1]) if errors else ("stopped", stopped or "its check did not run")
