"""Numbers to read out of a trace: how busy the GPU is, what the CPU does meanwhile, what communication costs.

They take a `Trace`; times are microseconds. Of several ranks, shares are the mean: each GPU has a clock of its own to fill.
"""

from collections import defaultdict
from collections.abc import Iterable

from practice_gpus.traces.intervals import idle, innermost, merged
from practice_gpus.traces.trace import GpuEvent, Trace

COPIES = ("copy", "memset")


def total(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the sum of the lengths of `intervals`, which don't overlap."""
    return sum(end - start for start, end in intervals)


def busy_share(trace: Trace) -> float:
    """Return the share of the window in which the GPU runs anything, from 0 to 1."""
    busy = [total(merged(gpu, trace.length)) for gpu in by_rank(trace)]
    return sum(busy) / len(busy) / trace.length


def gaps(trace: Trace) -> list[tuple[float, float]]:
    """Return the stretches (start, length) in which no GPU of the trace runs anything, the longest first."""
    found = idle(merged(trace.gpu, trace.length), trace.length)
    return sorted(((begin, end - begin) for begin, end in found), key=lambda gap: -gap[1])


def exposed(trace: Trace) -> float:
    """Return the share of the window in which the GPU does nothing but communicate with other GPUs."""
    return alone(trace, ("communication",)) / trace.length


def alone(trace: Trace, kinds: tuple[str, ...]) -> float:
    """Return the µs in which the GPU runs nothing but events of `kinds`, the mean of the ranks."""
    found = []
    for gpu in by_rank(trace):
        others = [event for event in gpu if event.kind not in kinds]
        found.append(total(merged(gpu, trace.length)) - total(merged(others, trace.length)))
    return sum(found) / len(found)


def by_rank(trace: Trace) -> list[list[GpuEvent]]:
    """Return the events of each rank."""
    ranks: dict[int, list[GpuEvent]] = {}
    for event in trace.gpu:
        ranks.setdefault(event.rank, []).append(event)
    return [*ranks.values()] or [[]]


def on_cpu(trace: Trace, begin: float, end: float) -> dict[str, float]:
    """Return {what the CPU did: µs} between two times, the innermost spans, the longest first."""
    times: dict[str, float] = defaultdict(float)
    near = [span for span in trace.cpu if span.end > begin and span.start < end]
    for span in innermost(near):
        inside = min(end, span.end) - max(begin, span.start)
        if inside > 0:
            times[span.name] += inside
    return dict(sorted(times.items(), key=lambda pair: -pair[1]))
