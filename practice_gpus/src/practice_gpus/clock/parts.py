"""What a forecast lists: kernels, places where the CPU stops, and how long any of several things runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from practice_gpus.clock.log import Launch
from practice_gpus.clock.queue import Span


@dataclass(frozen=True)
class Kernel:
    """One operator's kernel: ``start`` and ``ms`` in milliseconds, ``bound`` what limits it, ``line`` as "train.py:41"."""

    name: str
    line: str
    bytes: int
    flops: int
    start: float
    ms: float
    bound: str
    stream: int
    device: int


@dataclass(frozen=True)
class Stop:
    """Waits of the CPU at one line: how many in all, how long it waits, and what the step would gain without them."""

    line: str
    count: int
    ms: float
    gain_ms: float


def kernel_of(span: Span) -> Kernel:
    """The kernel that a span of a stream is."""
    entry = cast(Launch, span.entry)
    work = entry.work
    start, end = 1e3 * span.start, 1e3 * span.end
    where = entry.stream, entry.device
    return Kernel(
        work.name, entry.place, work.bytes, work.flops, start, end - start, span.bound, *where
    )


def total(spans: list[tuple[float, float]]) -> float:
    """How long at least one of the (start, end) is running."""
    covered, reached = 0.0, 0.0
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
