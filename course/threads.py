"""How many threads PyTorch computes with here, and how long a thread spins while it waits. Lesson 08 shows why.

OpenMP's threads spin while they wait for each other. Where another program has taken a core, they spin for one that is not
running: a training step of the lessons' network then takes up to fifty times as long. So the environment of every kernel
(`python3 lab.py`, Binder's start) asks for a short spin and leaves one core to the other programs.
"""

import os
import statistics
import time
from pathlib import Path

from helpers.host import cpu_cores

# Rounds that a waiting thread spins (GNU, https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html) and milliseconds
# (Intel's and LLVM's, https://openmp.llvm.org/design/Runtimes.html); the defaults are 300,000 or more, and 200 ms.
SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
THREADS = "OMP_NUM_THREADS"
CGROUPS = Path("/sys/fs/cgroup")


def quota(root: Path = CGROUPS, own: str | Path = "/proc/self/cgroup") -> float | None:
    """How many cores' worth of time the container may use, such as 0.5 or 2.0; None without a limit.

    Looks at the process's control group and those above it, of version 2 (cpu.max) and 1 (cpu.cfs_quota_us).
    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html and .../scheduler/sched-bwc.html
    """
    limits = []
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            places = [root, root / "unified"]
            read = _quota_of_version_2
        elif "cpu" in controllers.split(","):
            places = [root / controllers, root / "cpu"]
            read = _quota_of_version_1
        else:
            continue
        relative = Path(path.lstrip("/"))
        for folder in (relative, *relative.parents):
            limits += [read(place / folder) for place in places]
    return min((limit for limit in limits if limit), default=None)


def _quota_of_version_2(folder):
    words = _read(folder / "cpu.max").split()
    if len(words) != 2 or not words[0].isdigit():
        return None
    return int(words[0]) / int(words[1])


def _quota_of_version_1(folder):
    allowed = _read(folder / "cpu.cfs_quota_us")
    period = _read(folder / "cpu.cfs_period_us")
    if not allowed.strip() or not period.strip() or int(allowed) <= 0:
        return None
    return int(allowed) / int(period)


def _read(path):
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""  # another system, or no such limit


def fitting(cores: int, limit: float | None = None) -> int:
    """How many threads leave one of `cores` to other programs and stay within a container's `limit` of cores."""
    within = cores if limit is None else min(cores, int(limit))
    return max(1, min(within, cores - 1))


def variables(environment: dict | None = None) -> dict:
    """What to add to the `environment` (os.environ) of a new Python, as a dict; what a person set there stays."""
    given = os.environ if environment is None else environment
    wanted = {**SPIN, THREADS: str(fitting(cpu_cores(), quota()))}
    return {name: value for name, value in wanted.items() if name not in given}


def complaint() -> str:
    """What is wrong with this process's threads, cause and fix in a sentence; "" where nothing is. Half a second."""
    import torch

    threads = torch.get_num_threads()
    limit = quota()
    if limit is not None and threads > max(1, limit):
        return (
            f"PyTorch computes with {threads} threads where this container may use {limit:g} cores: "
            f"set {THREADS}={fitting(cpu_cores(), limit)} before Python starts."
        )
    together = _step_ms(threads)
    alone = _step_ms(1)
    if threads > 1 and together > 4 * alone:
        return (
            f"{threads} threads take {together / alone:.0f} times as long as one, since other programs use the cores: "
            "set GOMP_SPINCOUNT=1000 before Python starts, or call torch.set_num_threads(1)."
        )
    return ""


def _step_ms(threads, repeats=15):
    """Median milliseconds of a small convolution with so many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    images = torch.rand(32, 16, 32, 32)
    filters = torch.rand(16, 16, 3, 3)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.conv2d(images, filters)
        times.append(1000 * (time.perf_counter() - start))
    torch.set_num_threads(before)
    return statistics.median(times)
