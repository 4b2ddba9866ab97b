"""Honest timing of work that a device may still be doing when the call has returned.

`time_ms(lambda: a @ b, "cuda").median_ms`: warm-up first, then the median of several samples, each with the device's
queue empty before the clock is read. Lesson 07 builds this function and says why.
"""

import logging
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import torch

from helpers.devices import pick_device, synchronize


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call: median, interquartile range, and the samples, each the mean of `calls` calls in a row."""

    median_ms: float
    iqr_ms: float
    samples_ms: tuple[float, ...]
    calls: int
    device: str

    def __str__(self) -> str:
        samples = f"{len(self.samples_ms)} samples of {self.calls}"
        return f"{self.median_ms:.3g} ms (IQR {self.iqr_ms:.2g}, {samples})"


def time_ms(
    fn: Callable[[], object],
    device: str | torch.device | None = None,
    repeats: int = 5,
    warmup: int = 3,
    seconds: float = 0.2,
) -> Timing:
    """Time `fn()`: `warmup` calls first, then at least `repeats` samples and about `seconds` of them, as a Timing.

    Short work is called many times a sample, so that reading the clock takes about a thousandth of it. Before each
    reading the work on `device` is done (None: the best device there is). The loop is that of Python's `timeit`, as in
    `torch.utils.benchmark.Timer`, whose `blocked_autorange` wants a clock that takes a ten-thousandth: with one that
    waits for a GPU, that means seconds for each measurement.

    On practice GPUs with `clock=True` the times are forecast, and `device` ends in " (forecast)": a call is a sample.

    Errors of `fn` pass through. Raises TypeError or ValueError for arguments that do not fit.
    """
    place = _checked(fn, device, repeats, warmup, seconds)
    if place.type == "cuda" and _on_a_clock():
        return _forecast(fn, place, repeats, warmup)
    _silence_missing_runtime()
    for _ in range(warmup):
        fn()
    sample = timeit.Timer(fn, timer=_wall_clock(place)).timeit
    reading = statistics.median(sample(0) for _ in range(5))
    least = min(max(1000 * reading, seconds / 100), seconds / repeats)
    calls = 1
    samples = [sample(1), sample(1)]  # two, since one may be disturbed
    while min(samples) < least:
        calls *= max(2, min(10, int(1.2 * least / max(min(samples), 1e-9))))
        samples = [sample(calls), sample(calls)]
    while len(samples) < repeats or sum(samples) < seconds:
        samples.append(sample(calls))
    samples_ms = tuple(1e3 * passed / calls for passed in samples)
    low, middle, high = statistics.quantiles(samples_ms, n=4, method="inclusive")
    return Timing(middle, high - low, samples_ms, calls, str(place))


def _on_a_clock() -> bool:
    session = sys.modules.get("practice_gpus.session")
    return session is not None and session.forecast_seconds() is not None


def _forecast_seconds() -> float:
    """The clock of practice GPUs; 0 where none is on."""
    session = sys.modules.get("practice_gpus.session")
    seconds = session.forecast_seconds() if session is not None else None
    return seconds or 0.0


def _forecast(fn: Callable[[], object], place: torch.device, repeats: int, warmup: int) -> Timing:
    """What practice GPUs forecast for `fn()`, a sample a call."""
    samples = []
    for _ in range(min(warmup, 1) + repeats):
        synchronize(place)
        begin = _forecast_seconds()
        fn()
        synchronize(place)
        samples.append(1e3 * (_forecast_seconds() - begin))
    samples_ms = tuple(samples[-repeats:])
    spread = max(samples_ms) - min(samples_ms)
    return Timing(statistics.median(samples_ms), spread, samples_ms, 1, f"{place} (forecast)")


def _silence_missing_runtime() -> None:
    """Drop one log line: PyTorch's own Timer warns at its import where a CUDA compiler is without a GPU."""
    log = logging.getLogger("torch.utils.cpp_extension")
    if _worth_reading not in log.filters:
        log.addFilter(_worth_reading)


def _worth_reading(record: logging.LogRecord) -> bool:
    return "No CUDA runtime" not in record.getMessage()


def _wall_clock(device: torch.device) -> Callable[[], float]:
    """A clock in seconds that first waits until the work on `device` is done; a CPU has nothing to wait for."""
    if device.type == "cpu":
        return time.perf_counter

    def read() -> float:
        synchronize(device)
        return time.perf_counter()

    return read


def _checked(
    fn: object, device: str | torch.device | None, repeats: int, warmup: int, seconds: float
) -> torch.device:
    if not callable(fn):
        words = "it takes a function without arguments, such as lambda: a @ b"
        raise TypeError(f"fn is {fn!r}; {words}")
    for name, value, least in (("repeats", repeats, 1), ("warmup", warmup, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r}; it takes a whole number from {least}")
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not 0 < seconds < float("inf"):
        raise ValueError(f"seconds is {seconds!r}; it takes a number above 0")
    return pick_device("auto" if device is None else str(device))
