"""What a learner's run may take of the teacher's machine, and its end, after which nothing of it runs on."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import psutil

TASKS = 128  # processes and threads of a run, as those of a container
MOST_TASKS = 1000  # that the system lets it start, until it is noticed
DISK = 10**9  # bytes in its folder, as in a container's /tmp
TICK, PATIENCE = 0.2, 10  # seconds between two looks, and to catch what starts anew all the time
ADOPTING = 36  # of Linux's prctl
GROUPS = "/sys/fs/cgroup/pids", "/sys/fs/cgroup"  # of cgroups 1, and 2
STARTING = Lock()
started: set[int] = set()  # the runs, and what was there before


def start(line: list, **options: Any) -> subprocess.Popen:
    """Start a run, which is known from then on."""
    with STARTING:
        process = subprocess.Popen(line, **options)
        started.add(process.pid)
    return process


def end_run(process: subprocess.Popen) -> None:
    """End a run, and all below it."""
    with suppress(psutil.Error):
        end([psutil.Process(process.pid)])
    process.wait()


def watch(listener: Thread, process: subprocess.Popen, home: str, job: dict) -> str:
    """Wait until a run has said all; return what it took too much of, or ''."""
    disk = Path(home).parent  # the run can remove its home
    free, last = shutil.disk_usage(disk).free, time.monotonic() + job["seconds"]
    while listener.is_alive() and time.monotonic() < last:
        listener.join(TICK)
        psutil.wait_procs(end(orphans()), timeout=0)  # else they stay, as zombies
        own = below(process.pid)
        if total(own, psutil.Process.num_threads) > TASKS:
            return f"ended, since it had more than {TASKS} processes and threads"
        if memory(own, most=job["memory"] * 10**9) > job["memory"] * 10**9:
            return f"ended, since its processes took more than {job['memory']} GB"
        if free - shutil.disk_usage(disk).free > DISK and size(home) > DISK:
            return f"ended, since it wrote more than {DISK // 10**9} GB"
    return ""


def below(process: int) -> list[psutil.Process]:
    """Return a process and all below it; this is quicker than `trees`."""
    with suppress(psutil.Error):
        root = psutil.Process(process)
        return [root, *root.children(recursive=True)]
    return []


def trees(roots: Collection[int]) -> list[psutil.Process]:
    """Return processes and all below them, from one look at all that are alive."""
    found, parents, children = [], [*roots], defaultdict(list)
    for number in psutil.pids():  # process_iter takes one for another whose number it has
        with suppress(psutil.Error):
            process = psutil.Process(number)
            children[process.ppid()].append(process)
            if number in roots:
                found.append(process)
    while parents:
        below = children.pop(parents.pop(), ())
        found += below
        parents += [process.pid for process in below]
    return found


def total(processes: list[psutil.Process], question: Callable[[psutil.Process], int]) -> int:
    """Return the sum of what processes answer; one that has ended answers nothing."""
    sum_ = 0
    for process in processes:
        with suppress(psutil.Error):
            sum_ += question(process)
    return sum_


def memory(processes: list[psutil.Process], most: int) -> int:
    """Return how many bytes processes take; where it seems more than `most`, what they share counts once."""

    def share(process: psutil.Process) -> int:
        full = process.memory_full_info()
        return getattr(full, "pss", full.uss)

    taken = total(processes, lambda process: process.memory_info().rss)
    return taken if taken <= most else total(processes, share)


def size(folder: str) -> int:
    """Return how many bytes the files below a folder take."""
    sum_ = 0
    with suppress(RecursionError):
        for path in Path(folder).rglob("*"):
            with suppress(OSError):
                sum_ += path.lstat().st_size
    return sum_


@contextmanager
def home() -> Iterator[str]:
    """Give a folder for a run, and remove it, however deep what is in it may be."""
    made = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        yield made.name
    finally:
        try:
            made.cleanup()
        except RecursionError:
            subprocess.run(["rm", "-rf", made.name], stderr=subprocess.DEVNULL)


@contextmanager
def group() -> Iterator[Path | None]:
    """Make a control group that holds so many tasks, where this user can; at the end nothing in it is left alive."""
    made = next(filter(None, map(new_group, GROUPS)), None)
    try:
        yield made
    finally:
        if made:
            empty(made)
            made.rmdir()


def empty(group: Path) -> None:
    """End all in a control group."""
    (group / "pids.max").write_text("0")  # nothing starts any more
    while members := (group / "cgroup.procs").read_text().split():
        for member in members:
            with suppress(OSError):
                os.kill(int(member), 9)
        time.sleep(0.01)


def new_group(place: str) -> Path | None:
    """Make a control group; None where that cannot be."""
    made = Path(place, f"grade-{uuid.uuid4().hex[:12]}")
    with suppress(OSError):
        made.mkdir()
        with suppress(OSError):
            (made / "pids.max").write_text(f"{MOST_TASKS}")
            return made
        made.rmdir()
    return None


def limit(job: dict) -> None:
    """Bound this process and all that it starts: in memory, in the size of a file, and in tasks.

    Linux counts all tasks of a user, and not where the user is root: there a control group bounds them.
    """
    if job["group"]:
        Path(job["group"], "cgroup.procs").write_text("0")
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource

        user = os.getuid()
        own = [each for each in psutil.process_iter(["uids"]) if user in (each.info["uids"] or ())]
        tasks = total(own, psutil.Process.num_threads) + MOST_TASKS
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        tasks = tasks if most == resource.RLIM_INFINITY else min(tasks, most)
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK,) * 2)
        resource.setrlimit(resource.RLIMIT_DATA, (job["memory"] * 10**9,) * 2)


@contextmanager
def orphans_adopted() -> Iterator[Callable]:
    """In the block, what learners' code leaves running belongs to this process; the function given ends it, as the end does."""
    before = psutil.Process().children()
    started.update(child.pid for child in before)
    control(ADOPTING, 1)
    try:
        yield lambda: end(others(before))
    finally:
        psutil.wait_procs(end(others(before)), timeout=2)
        started.clear()
        control(ADOPTING, 0)


def others(spared: Collection = ()) -> list[psutil.Process]:
    """Return this process's children but those `spared`."""
    return [child for child in psutil.Process().children() if child not in spared]


def orphans() -> list[psutil.Process]:
    """Return this process's children that belonged to a run which has ended."""
    with STARTING:
        return [child for child in others() if child.pid not in started]


def control(option: int, value: int) -> None:
    """Set a property of this process that only Linux has."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end(roots: Collection[psutil.Process]) -> set[psutil.Process]:
    """End processes and all below them, and return them; each is stopped first and starts no other."""
    seen: set[psutil.Process] = set()
    new, last = {*roots}, time.monotonic() + PATIENCE
    while new and time.monotonic() < last:
        seen |= new
        for each in new:
            with suppress(psutil.Error):
                each.suspend()
        new = {*trees([root.pid for root in roots if root.is_running()])} - seen
    for each in seen:
        with suppress(psutil.Error):
            each.kill()
    return seen
