"""Honest timing of work that a device may do after the call returned. Lesson 07 builds `time_ms` and says why."""
import logging
import time
from dataclasses import dataclass

import torch

from helpers.devices import pick_device, synchronize

CLOCKS = ("wall", "events")


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call: median, interquartile range, and the samples, each the mean of `calls` calls in a row."""
    median_ms: float
    iqr_ms: float
    samples_ms: tuple
    calls: int
    device: str
    clock: str

    def __str__(self):
        return f"{self.median_ms:.3g} ms (IQR {self.iqr_ms:.2g}, {len(self.samples_ms)} samples of {self.calls})"


def time_ms(fn, device=None, repeats=5, warmup=3, seconds=0.2, clock="wall"):
    """Time `fn()`: `warmup` calls first, then at least `repeats` samples and about `seconds` of them, as a Timing.

    `torch.utils.benchmark.Timer` chooses how many calls make a sample, so that reading the clock costs nothing beside
    them. Before each reading of the clock the work on `device` is done (None: the best device there is).

    clock: "wall" is the time that passes for the program, and sees all streams. "events" is the time between two events
    in the current CUDA stream, seen by the device itself (https://docs.pytorch.org/docs/stable/notes/cuda.html).
    Errors of `fn` pass through. Raises TypeError or ValueError for arguments that do not fit.
    """
    device = _checked(fn, device, repeats, warmup, seconds, clock)
    for _ in range(warmup):
        fn()
    read = event_clock(device) if clock == "events" else wall_clock(device)
    benchmark = _benchmark()
    timer = benchmark.Timer("fn()", globals={"fn": fn}, timer=read, num_threads=torch.get_num_threads())
    runs = [timer.blocked_autorange(min_run_time=seconds)]
    while (missing := repeats - sum(len(run.times) for run in runs)) > 0:
        sample = runs[-1].median * runs[-1].number_per_run
        runs.append(timer.blocked_autorange(min_run_time=max(seconds, (missing - 0.5) * sample)))
    merged = benchmark.Measurement.merge(runs)[0]
    samples = tuple(1e3 * t for t in merged.times)
    return Timing(1e3 * merged.median, 1e3 * merged.iqr, samples, runs[0].number_per_run, str(device), clock)


def _benchmark():
    """torch.utils.benchmark, imported late: that is slow, and logs a warning where a CUDA compiler is without a GPU."""
    logger = logging.getLogger("torch.utils.cpp_extension")
    disabled, logger.disabled = logger.disabled, True
    try:
        from torch.utils import benchmark
    finally:
        logger.disabled = disabled
    return benchmark


def wall_clock(device):
    """A clock in seconds that first waits until the work on `device` is done; a CPU has nothing to wait for."""
    if device.type == "cpu":
        return time.perf_counter

    def read():
        synchronize(device)
        return time.perf_counter()
    return read


def event_clock(device):
    """A clock in seconds made of CUDA events in the current stream of `device`; it waits for each event."""
    def event():
        now = torch.cuda.Event(enable_timing=True)
        now.record(torch.cuda.current_stream(device))
        now.synchronize()
        return now
    start = event()
    return lambda: start.elapsed_time(event()) / 1e3


def _checked(fn, device, repeats, warmup, seconds, clock):
    if not callable(fn):
        raise TypeError(f"fn is {fn!r}; it takes a function without arguments, such as lambda: a @ b")
    for name, value, least in (("repeats", repeats, 1), ("warmup", warmup, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r}; it takes a whole number from {least}")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise ValueError(f"seconds is {seconds!r}; it takes a number above 0")
    device = pick_device("auto" if device is None else str(device))
    if clock not in CLOCKS:
        raise ValueError(f"clock is {clock!r}; it takes one of {', '.join(map(repr, CLOCKS))}")
    if clock == "events" and device.type != "cuda":
        raise ValueError(f"clock is 'events' and device {str(device)!r}; events need a CUDA device; take clock='wall'")
    return device
