"""Run all of each lesson from a fresh kernel and print what it takes, alone or beside busy programs; nothing is stored."""

import argparse
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course.tools import _notebooks
from course.tools._arguments import not_negative
from course.tools.execute import execute

HELP = (
    "for authors: seconds, memory and first picture of each lesson, alone or beside busy programs"
)
BUSY = "while True: pass"
GIB = 2**30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `measure`."""
    parser.add_argument("lessons", nargs="*", help="numbers (01) or file names; none: all")
    parser.add_argument(
        "--busy",
        type=not_negative,
        default=0,
        metavar="N",
        help="beside N programs that never rest",
    )


@contextlib.contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep `number` programs computing."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextlib.contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Give a list whose one number is the most bytes that this process's children held, shared pages counted once."""
    import psutil

    most, ended, own = [0], threading.Event(), psutil.Process()

    def look() -> None:
        while not ended.wait(0.3):
            held = 0
            for child in own.children(recursive=True):
                with contextlib.suppress(psutil.Error):  # it has just ended
                    if child.cmdline()[1:] != ["-c", BUSY]:
                        memory = child.memory_full_info()
                        held += getattr(memory, "pss", memory.rss)
            most[0] = max(most[0], held)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def measure(path: Path) -> dict[str, Any]:
    """Return `seconds`, `picture` (seconds until the first), `bytes`, `slowest` (seconds, cell) and `error` of one lesson."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    clock = time.perf_counter
    begun = clock()
    cell_begun = begun
    found: dict[str, Any] = {"picture": None, "slowest": (0.0, 0), "error": ""}

    def before(**_: Any) -> None:
        nonlocal cell_begun
        cell_begun = clock()

    def after(cell: Any, cell_index: int, **_: Any) -> None:
        found["slowest"] = max(found["slowest"], (clock() - cell_begun, cell_index))
        if found["picture"] is None and any(map(is_picture, cell.outputs)):
            found["picture"] = clock() - begun

    notebook = _notebooks.read(path)
    with peak_memory() as most:
        begun = clock()
        try:
            execute(notebook, path.parent, 600, on_cell_execute=before, on_cell_executed=after)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            found["error"] = str(error)
        seconds = clock() - begun
    return {**found, "seconds": seconds, "bytes": most[0]}


def is_picture(output: Any) -> bool:
    """Say whether an output shows a figure or a chart."""
    data = output.get("data", {})
    kinds = any("image/" in kind or "vega" in kind for kind in data)
    return kinds or "<img" in data.get("text/html", "")


def run(args: argparse.Namespace) -> int:
    """Print a line for each lesson and their sum; return 1 when one failed, 2 when wrongly called."""
    paths = _notebooks.find(args.lessons)
    total, failed = 0.0, 0
    print(f"{'lesson':<28}{'seconds':>8}{'picture':>9}{'GiB':>6}  slowest cell")
    with busy(args.busy):
        for path in paths:
            row = measure(path)
            total, failed = total + row["seconds"], failed + bool(row["error"])
            picture = "–" if row["picture"] is None else f"{row['picture']:.1f}"
            slowest = f"{row['slowest'][0]:.1f} s, cell {row['slowest'][1]}"
            line = f"{path.stem:<28}{row['seconds']:>8.1f}{picture:>9}{row['bytes'] / GIB:>6.2f}"
            print(f"{line}  {slowest}", flush=True)
            print(row["error"], end="\n" if row["error"] else "", flush=True)
    print(f"{'together':<28}{total:>8.1f}")
    return int(failed > 0)
