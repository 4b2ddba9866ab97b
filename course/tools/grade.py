"""Grade a class: every notebook runs whole in a container of its own, and what its checks say there is the grade."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from course.checks.core import CORRECT, ERROR, NOT_ATTEMPTED, Exercise, all_keys
from course.measurements.reader import schema_checker
from course.tools import ROOT, _notebooks, _sheets
from course.tools.execute import positive

HELP = "grade submitted notebooks: FOLDER --out grades.csv, one line for each file"
CHECK = re.compile(r"\b(\w+)\.check\(")  # the exercise's name in ex.NAME.check(
MIME = "application/vnd.gpus-in-pytorch.outcome+json"
SEALED = """run --rm --interactive --network=none --read-only --tmpfs=/tmp:rw,exec,size=1g,mode=1777 --shm-size=256m
    --user=65534:65534 --cap-drop=ALL --security-opt=no-new-privileges --pids-limit=128 --cpus=1 --workdir=/tmp"""


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
    everything = [path for path in sorted(args.folder.rglob("[!.]*")) if path.suffix != ".csv"]
    paths = [path for path in everything if path.is_file() or path.is_symlink()]
    if not paths:
        print(f"grade: FOLDER is {args.folder}; it takes one with notebooks in it", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(grade_one, path, args, container) for path in paths]
        rows = [future.result() for future in tqdm(waiting, unit="file")]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    _sheets.save(args.out, [columns, *[[row.get(n, "") for n in columns] for row in rows]])
    return 0


def sealed(args: argparse.Namespace) -> list:
    """Return the words that put Python into a container; ValueError where there is none."""
    engine = shutil.which("docker") or shutil.which("podman")
    if not engine:
        raise ValueError("no docker or podman, so nothing ran. See INSTRUCTORS.md; or --unsealed")
    if subprocess.run([engine, "image", "inspect", args.image], capture_output=True).returncode:
        build = f"{Path(engine).name} build -t {args.image} -f course/tools/Dockerfile ."
        raise ValueError(f"no image {args.image!r}, so nothing ran. Make it once: {build}")
    memory = [f"--memory={args.memory}g", f"--memory-swap={args.memory}g"]
    variables = [f"--env={name}={value}" for name, value in environment("/course", "/tmp").items()]
    return [engine, *SEALED.split(), *memory, *variables, f"-v{ROOT}:/course:ro", args.image]


def environment(course: str | Path, home: str | Path) -> dict:
    """Return the variables of learners' code that differ from those around it."""
    names = dict.fromkeys(("HOME", "TMPDIR", "GPU_COURSE_HOME", "IPYTHONDIR"), str(home))
    return {**names, "PYTHONPATH": str(course), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def grade_one(path: Path, args: argparse.Namespace, container: list) -> dict:
    """Return a line of the table, {column: text}: points, a note, each exercise's outcome and its reason."""
    row = dict.fromkeys(("submission", "lesson", "points", "of", "note", "review"), "")
    row["submission"] = path.relative_to(args.folder).as_posix()
    try:
        row["lesson"], cells = read(path)
        job = json.dumps({"cells": cells, "seconds": args.seconds, "memory": args.memory})
        result = run_once(job, args.seconds, container)
        events = [event for event in result["events"] if event["cell"] in range(len(cells))]
        noted = [(str(e["key"]), e) for e in events if "key" in e]
        row["note"] = str(result["stopped"])
    except (ValueError, KeyError, TypeError) as error:  # what a run prints may be anything
        return {**row, "note": f"{error}"}
    lone = {key for key, e in noted if key[3:] not in CHECK.findall(cells[e["cell"]])}
    own = {key for key, e in noted if e.get("own")}
    row["review"] = "; ".join(
        [f"{key} was noted where no check of it stands" for key in sorted(lone)]
        + [f"the course's own answer to {key}" for key in sorted(own)]
    )
    keys = all_keys()[row["lesson"]]
    for key in keys:
        row[key], row[f"{key} reason"] = outcome(key, cells, events, row["note"])
    return {**row, "points": sum(row[key] == CORRECT for key in keys), "of": len(keys)}


def read(path: Path) -> tuple[str, list[str]]:
    """Return (lesson, sources of the code cells); ValueError where the file is no lesson's notebook."""
    if path.is_symlink() or path.stat().st_size > 20e6 or path.suffix.lower() != ".ipynb":
        raise ValueError("a link, larger than 20 MB, or no .ipynb: not read")
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


def outcome(key: str, cells: list[str], events: list, stopped: Any) -> tuple[str, str]:
    """Return (status, text): what the check said, or why it said nothing. Solved once is solved."""
    places = [number for number, cell in enumerate(cells) if key[3:] in CHECK.findall(cell)]
    said = [event for event in events if event["cell"] in places]
    pairs = [(str(e["status"]), str(e["message"])) for e in said if e.get("key") == key]
    if pairs:
        return next((pair for pair in pairs if pair[0] == CORRECT), pairs[-1])
    if not places:
        return NOT_ATTEMPTED, f"no call of ex.{key[3:]}.check in the notebook"
    errors = [str(e["error"]) for e in said if "error" in e]
    return (ERROR, errors[-1]) if errors else ("stopped", stopped or "its check did not run")


def run_once(job: str, seconds: float, container: list) -> dict:
    """Run a job; return what it printed last. ValueError where that is nothing after so many seconds."""
    import psutil

    name = f"grade-{uuid.uuid4().hex[:12]}"
    sealed_in = [*container[:2], f"--name={name}", *container[2:], "python"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        variables = {} if container else environment(ROOT, home)
        process = subprocess.Popen(
            [*(sealed_in if container else [sys.executable]), "-m", "course.tools.grade"],
            cwd=home,
            env={**os.environ, **variables},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            said, _ = process.communicate(job, timeout=seconds)
            return json.loads(said.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError, RecursionError):
            raise ValueError(f"no result in {seconds} s, or the whole run was ended") from None
        finally:
            if container:
                subprocess.run([container[0], "kill", name], capture_output=True)
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()


def inside() -> None:
    """In the container: run the cells of the job on the standard input, and print what was noted in which of them."""
    schema_checker()  # nbformat imports it, and would wait for its grammar
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    job, begun, stopped = json.load(sys.stdin), [], ""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (job["memory"] * 10**9,) * 2)
    shutil.copytree(ROOT / "notebooks/scripts", "scripts")
    sources = ["import course.tools.grade; course.tools.grade.record()", *job["cells"]]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    options = {"timeout": job["seconds"] // 4, "interrupt_on_timeout": True, "allow_errors": True}
    client = NotebookClient(nbformat.v4.new_notebook(cells=cells), **options)
    client.on_cell_start = lambda cell, cell_index: begun.append(cell_index)
    try:
        client.execute(cwd=os.getcwd())
    except CellTimeoutError:
        stopped = f"cell {begun[-1]} hung: not done after {client.timeout} s, nor to be interrupted"
    except DeadKernelError:
        stopped = f"cell {begun[-1]} ended its kernel, or took more than {job['memory']} GB"
    events = []
    for number, output in ((n, output) for n, cell in enumerate(cells) for output in cell.outputs):
        if MIME in output.get("data", {}):
            events.append({"cell": number - 1, **output.data[MIME]})
        elif output.output_type == "error":
            error = f"{output.ename}: {output.evalue}"[:400]
            events.append({"cell": number - 1, "error": error})
    print(json.dumps({"stopped": stopped, "events": events}))


def record() -> None:
    """In the kernel: from now on every check also publishes its outcome, and quit() does nothing."""
    from IPython import get_ipython
    from IPython.display import publish_display_data

    check, first_outcome, last = Exercise.check, Exercise.outcome, {}

    def noted(exercise, answer=None):
        last[exercise.key] = first_outcome(exercise, answer)
        return last[exercise.key]

    def published(exercise, answer=None):
        check(exercise, answer)
        result = last[exercise.key]
        own = str(getattr(answer, "__module__", "")).startswith("course.lesson")
        event = {"key": exercise.key, "status": result.status, "message": result.message[:400]}
        publish_display_data({MIME: {**event, "own": own}})

    for name, function in ("outcome", noted), ("check", published):
        setattr(Exercise, name, function)
    get_ipython().user_ns.update(quit=print, exit=print)


if __name__ == "__main__":
    inside()
