"""Numbers to read out of a timeline: those of `practice_gpus.traces`, and what matmuls of each shape reach.

Each is written out in the lesson that teaches it. They take a `Trace`; times are microseconds.
"""

import ast
import math
import statistics
from collections import defaultdict

from practice_gpus.traces import COPIES, Trace, busy_share, exposed, gaps, on_cpu, total

__all__ = [
    "COPIES",
    "busy_share",
    "exposed",
    "gaps",
    "kernels_by_shape",
    "on_cpu",
    "per_second",
    "product_flops",
    "total",
]


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
