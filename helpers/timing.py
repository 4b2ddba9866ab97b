"""Honest timing of work that a device may do after the call returned. Lesson 07 builds `time_ms` and says why."""

import logging
import statistics
import time
import timeit
from dataclasses import dataclass

from helpers.devices import pick_device, synchronize


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call: median, interquartile range, and the samples, each the mean of `calls` calls in a row."""

    median_ms: float
    iqr_ms: float
    samples_ms: tuple
    calls: int
    device: str

    def __str__(self):
        return f"{self.median_ms:.3g} ms (IQR {self.iqr_ms:.2g}, {len(self.samples_ms)} samples of {self.calls})"


def time_ms(fn, device=None, repeats=5, warmup=3, seconds=0.2):
    """Time `fn()`: `warmup` calls first, then at least `repeats` samples and about `seconds` of them, as a Timing.

    Short work is called many times a sample, so that reading the clock takes about a thousandth of it. Before each
    reading the work on `device` is done (None: the best device there is). The loop is that of Python's `timeit`, as in
    `torch.utils.benchmark.Timer`, whose `blocked_autorange` wants a clock that takes a ten-thousandth: with one that
    waits for a GPU, that means seconds for each measurement.

    Errors of `fn` pass through. Raises TypeError or ValueError for arguments that do not fit.
    """
    device = _checked(fn, device, repeats, warmup, seconds)
    silence_missing_runtime()
    for _ in range(warmup):
        fn()
    sample = timeit.Timer(fn, timer=wall_clock(device)).timeit
    reading = statistics.median(sample(0) for _ in range(5))
    least = min(max(1000 * reading, seconds / 100), seconds / repeats)
    # two, since one may be disturbed
    calls = 1
    samples = [sample(1), sample(1)]
    while min(samples) < least:
        calls *= max(2, min(10, int(1.2 * least / max(min(samples), 1e-9))))
        samples = [sample(calls), sample(calls)]
    total = sum(samples)
    while len(samples) < repeats or total < seconds:
        samples.append(sample(calls))
        total += samples[-1]
    samples = tuple(1e3 * passed / calls for passed in samples)
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(middle, high - low, samples, calls, str(device))


def silence_missing_runtime():
    """Drop one log line: PyTorch's own Timer warns at its import where a CUDA compiler is without a GPU."""
    log = logging.getLogger("torch.utils.cpp_extension")
    if _worth_reading not in log.filters:
        log.addFilter(_worth_reading)


def _worth_reading(record):
    return "No CUDA runtime" not in record.getMessage()


def wall_clock(device):
    """A clock in seconds that first waits until the work on `device` is done; a CPU has nothing to wait for."""
    if device.type == "cpu":
        return time.perf_counter

    def read():
        synchronize(device)
        return time.perf_counter()

    return read


def _checked(fn, device, repeats, warmup, seconds):
    if not callable(fn):
        raise TypeError(
            f"fn is {fn!r}; it takes a function without arguments, such as lambda: a @ b"
        )
    for name, value, least in (("repeats", repeats, 1), ("warmup", warmup, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r}; it takes a whole number from {least}")
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 < seconds < float("inf")
    ):
        raise ValueError(f"seconds is {seconds!r}; it takes a number above 0")
    return pick_device("auto" if device is None else str(device))


def profile_lanes(profile, longest=6):
    """Return (lanes for `plots.lanes`, names) of a torch.profiler profile: the outermost calls and the GPU's kernels.

    Times are milliseconds from the first call; names other than the `longest` become "other". Lesson 07 draws one.
    """
    spans = [_profile_span(event) for event in profile.events() if _is_drawn(event)]
    total = {}
    for _, name, start, end in spans:
        total[name] = total.get(name, 0) + end - start
    names = sorted(total, key=total.get, reverse=True)[:longest]
    zero = min(start for _, _, start, _ in spans)
    lanes = [
        (lane, name if name in names else "other", (start - zero) / 1e3, (end - zero) / 1e3)
        for lane, name, start, end in spans
    ]
    return lanes, names


def _is_drawn(event):
    """Return whether a profile's event is a kernel of a GPU or an outermost call on the CPU."""
    optimizer = event.name.startswith("Optimizer.")  # a note around all that the optimizer does
    if _on_gpu(event):
        return not optimizer
    call = optimizer or event.name.startswith(("aten::", "autograd::"))
    return call and event.cpu_parent is None


def _on_gpu(event):
    return "CUDA" in str(event.device_type)


def _profile_span(event):
    """Return (lane, name, start, end) of a profile's event, in microseconds."""
    name = event.name.split("<")[0].split(":")[-1].split("#")[0].strip()
    name = name.replace("Backward0", " backward").replace("WithIndices", "")
    name = name if len(name) <= 24 else f"{name[:23]}…"
    lane = "GPU" if _on_gpu(event) else "CPU"
    return lane, name, event.time_range.start, event.time_range.end
