"""Numbers to read out of a timeline: how busy the GPU is, what the CPU does meanwhile, what communication costs.

Each is written out in the lesson that teaches it. They take a `measurements.traces.Trace`; times are microseconds.
"""

import ast
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable

from course.measurements.traces import Trace
from course.measurements.traces.intervals import idle, innermost, merged

COPIES = ("copy", "memset")


def total(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the sum of the lengths of `intervals`, which don't overlap."""
    return sum(end - start for start, end in intervals)


def busy_share(trace: Trace) -> float:
    """Return the share of the window in which the GPU runs anything, from 0 to 1."""
    return total(merged(trace.gpu, trace.length)) / trace.length


def gaps(trace: Trace) -> list[tuple[float, float]]:
    """Return the idle stretches (start, length) of the GPU, the longest first."""
    found = idle(merged(trace.gpu, trace.length), trace.length)
    return sorted(((begin, end - begin) for begin, end in found), key=lambda gap: -gap[1])


def exposed(trace: Trace) -> float:
    """Return the share of the window in which the GPU does nothing but communicate with other GPUs."""
    work = [event for event in trace.gpu if event.kind != "communication"]
    alone = total(merged(trace.gpu, trace.length)) - total(merged(work, trace.length))
    return alone / trace.length


def on_cpu(trace: Trace, begin: float, end: float) -> dict[str, float]:
    """Return {what the CPU did: µs} between two times, the innermost spans, the longest first."""
    times: dict[str, float] = defaultdict(float)
    near = [span for span in trace.cpu if span.end > begin and span.start < end]
    for span in innermost(near):
        inside = min(end, span.end) - max(begin, span.start)
        if inside > 0:
            times[span.name] += inside
    return dict(sorted(times.items(), key=lambda pair: -pair[1]))


def product_flops(rows: int, inner: int, columns: int, batch: int = 1) -> int:
    """Return the floating-point operations of `batch` products [rows, inner] @ [inner, columns]."""
    return 2 * batch * rows * inner * columns


def per_second(amount: float, microseconds: float) -> float:
    """Return `amount` a second, for bytes or operations done in so many microseconds."""
    return amount / (microseconds * 1e-6)


def kernels_by_shape(trace: Trace) -> list[tuple[float, float]]:
    """Return [(operations per byte, FLOP/s)] of the matmuls and of additions and products of equal tensors in 16 bits.

    A point for each shape, the median of its kernels. Bytes are counted as if each input were read once from memory.
    """
    times, works = defaultdict(list), {}
    for event in trace.gpu:
        work = _work(event)
        if work:
            works[event.operator, event.shapes] = work
            times[event.operator, event.shapes].append(event.length)
    return [
        (flops / size, per_second(flops, statistics.median(times[key])))
        for key, (flops, size) in works.items()
    ]


def _work(event):
    """(operations, bytes) of a kernel that reads and writes 16-bit numbers; None where its shapes don't tell."""
    shapes = ast.literal_eval(event.shapes) if event.shapes else []
    if event.kind == "matmul" and event.operator in ("aten::mm", "aten::addmm", "aten::bmm"):
        (*batch, m, k), (*_, n) = shapes[-2:]
        count = batch[0] if batch else 1
        return product_flops(m, k, n, count), 2 * count * (m * k + k * n + m * n)
    if event.operator in ("aten::add", "aten::mul") and len(shapes) == 2 and shapes[0] == shapes[1]:
        elements = math.prod(shapes[0])
        return elements, 3 * 2 * elements
    return None
