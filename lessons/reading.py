"""Numbers to read out of a timeline: how busy the GPU is, how far ahead the CPU runs, what communication costs.

Each is written out in the lesson that teaches it. They take a `measurements.traces.Trace`; times are microseconds.
"""

import math
import statistics
from collections import Counter

COPIES = ("copy", "memset")


def merged(events, length):
    """Return the intervals (start, end) in which at least one of `events` runs, cut to 0 … `length`, in their order."""
    intervals = []
    for event in sorted(events, key=lambda e: e.start):
        start = max(0.0, event.start)
        end = min(length, event.end)
        if intervals and start <= intervals[-1][1]:
            intervals[-1][1] = max(intervals[-1][1], end)
        elif end >= start:
            intervals.append([start, end])
    return [tuple(interval) for interval in intervals]


def total(intervals):
    """Return the sum of the lengths of `intervals`, which don't overlap."""
    return sum(end - start for start, end in intervals)


def busy_share(trace):
    """Return the share of the window in which the GPU runs anything, from 0 to 1."""
    return total(merged(trace.gpu, trace.length)) / trace.length


def gaps(trace):
    """Return the idle stretches (start, length) of the GPU, the longest first."""
    edges = [
        0.0,
        *(edge for pair in merged(trace.gpu, trace.length) for edge in pair),
        trace.length,
    ]
    found = [(begin, end - begin) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    return sorted((gap for gap in found if gap[1] > 0), key=lambda gap: -gap[1])


def launch_delay(trace):
    """Return the median µs between a kernel's launch by the CPU and its start on the GPU.

    Short (some 10 µs): the GPU waits for the CPU. Long: kernels wait in the queue, the CPU is ahead. None where no
    launch is recorded.
    """
    delays = [
        e.start - e.launch for e in trace.gpu if e.launch is not None and e.kind not in COPIES
    ]
    return statistics.median(delays) if delays else None


def exposed(trace):
    """Return the share of the window in which the GPU does nothing but communicate with other GPUs."""
    work = [event for event in trace.gpu if event.kind != "communication"]
    alone = total(merged(trace.gpu, trace.length)) - total(merged(work, trace.length))
    return alone / trace.length


def overlap(trace):
    """Return the share of the communication's time in which the GPU computes or copies too; None without any."""
    communication = [event for event in trace.gpu if event.kind == "communication"]
    spent = total(merged(communication, trace.length))
    return 1 - exposed(trace) * trace.length / spent if spent else None


def share_by_kind(trace):
    """Return {kind: share of all kernel time}, the largest first; kernels side by side count twice."""
    times = Counter()
    for event in trace.gpu:
        times[event.kind] += min(event.end, trace.length) - max(0.0, event.start)
    whole = sum(times.values())
    return {kind: time / whole for kind, time in times.most_common()}


def on_cpu(trace, begin, end):
    """Return {what the CPU did: µs} between two times, the innermost spans, the longest first."""
    times = Counter()
    for span in innermost(trace.cpu):
        inside = min(end, span.end) - max(begin, span.start)
        if inside > 0:
            times[span.name] += inside
    return dict(times.most_common())


def innermost(spans):
    """Return pieces of `spans` such that in each thread only the innermost span of each moment is left."""
    pieces = []
    threads = {}
    for span in sorted(spans, key=lambda s: (s.start, -s.length)):
        threads.setdefault((span.rank, span.thread), []).append(span)
    for own in threads.values():
        pieces += _innermost_of_one(own)
    return sorted(pieces, key=lambda piece: piece.start)


def _innermost_of_one(spans):
    pieces, stack, now = [], [], -math.inf
    for span in [*spans, None]:
        until = math.inf if span is None else span.start
        while stack and stack[-1].end <= until:
            now = _add(pieces, stack.pop(), now)
        if span is not None:
            now = _add(pieces, stack[-1], now, until) if stack else until
            stack.append(span)
    return pieces


def _add(pieces, span, start, end=math.inf):
    """Append the piece of `span` from `start` to `end`, if any, and return where the next one begins."""
    start, end = max(start, span.start), min(end, span.end)
    if end > start:
        pieces.append(span._replace(start=start, length=end - start))
    return max(start, end)


def product_flops(rows, inner, columns, batch=1):
    """Return the floating-point operations of `batch` products [rows, inner] @ [inner, columns]."""
    return 2 * batch * rows * inner * columns


def per_second(amount, microseconds):
    """Return `amount` a second, for bytes or operations done in so many microseconds."""
    return amount / (microseconds * 1e-6)
