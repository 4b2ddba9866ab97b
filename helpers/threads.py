"""How many threads PyTorch computes with here, and how long a thread spins while it waits. Lesson 08 shows why.

OpenMP's threads spin while they wait for each other. Where another program has taken a core, they spin for one that is not
running: a training step of the lessons' network then takes up to fifty times as long. Three answers: a short spin, no more
threads than the container's share of the processor, and at the start of a lesson no more than there are idle cores.
No torch until `calm` is called.
"""

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from helpers.host import cpu_cores

# Rounds that a waiting thread spins (GNU, https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html) and milliseconds
# (Intel's and LLVM's, https://openmp.llvm.org/design/Runtimes.html); the defaults are 300,000 or more, and 200 ms.
SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
THREADS = "OMP_NUM_THREADS"
STORING = "GPU_COURSE_STORING"  # set where the outputs of lessons are stored or compared
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Choice:
    """How many `threads` to compute with, and `why`, one sentence."""

    threads: int
    why: str


def quota(root=CGROUPS, own="/proc/self/cgroup"):
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


def idle_cores(seconds=0.2):
    """How many cores of this computer were idle during the next `seconds`, such as 1.3."""
    import psutil

    return psutil.cpu_count() * (1 - psutil.cpu_percent(seconds) / 100)


def choose(cores, quota=None, idle=None):
    """The `Choice` for a process with so many `cores`, a container's `quota` and `idle` cores; None: unknown."""
    threads = cores
    why = "one for each core."
    if quota is not None and quota < threads:
        threads = max(1, int(quota))
        why = f"this container may use {quota:g} of {cores} cores."
    if idle is not None and round(idle) < threads:
        threads = max(1, round(idle))
        why = f"other programs keep {cores - idle:.1f} of {cores} cores busy."
    return Choice(threads, why)


def variables(environment=None):
    """What to add to the `environment` (os.environ) of a new Python, as a dict; what a person set there stays."""
    given = os.environ if environment is None else environment
    added = {name: value for name, value in SPIN.items() if name not in given}
    limit = quota()
    if limit is not None and limit < cpu_cores() and THREADS not in given:
        added[THREADS] = str(choose(cpu_cores(), limit).threads)
    return added


def calm():
    """Give PyTorch as many threads as there are idle cores, and return the `Choice`; a person's own number stays.

    Says so where most of the cores are busy, since the lesson is then slow; not while its outputs are stored or compared.
    """
    import torch

    if THREADS in os.environ:
        return Choice(torch.get_num_threads(), f"{THREADS} is set.")
    idle = idle_cores()
    choice = choose(cpu_cores(), quota(), idle)
    torch.set_num_threads(choice.threads)
    if 2 * idle < cpu_cores() and STORING not in os.environ:
        print(f"This lesson will be slow here, and its times too long: {choice.why}")
    return choice


def complaint():
    """What is wrong with this process's threads, cause and fix in a sentence; "" where nothing is. Half a second."""
    import torch

    threads = torch.get_num_threads()
    limit = quota()
    if limit is not None and threads > max(1, limit):
        fits = choose(cpu_cores(), limit).threads
        return (
            f"PyTorch computes with {threads} threads where this container may use {limit:g} cores: "
            f"set {THREADS}={fits} before Python starts."
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
