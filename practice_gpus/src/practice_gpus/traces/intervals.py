"""Intervals of time: what covers what, whatever lies inside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from practice_gpus.traces.trace import Span


def merged(events: Iterable, length: float) -> list[tuple[float, float]]:
    """Return the intervals (start, end) in which at least one of `events` runs, cut to 0 … `length`, in their order."""
    intervals: list[list[float]] = []
    for event in sorted(events, key=lambda e: e.start):
        start = max(0.0, event.start)
        end = min(length, event.end)
        if intervals and start <= intervals[-1][1]:
            intervals[-1][1] = max(intervals[-1][1], end)
        elif end >= start:
            intervals.append([start, end])
    return [(start, end) for start, end in intervals]


def idle(intervals: Iterable[tuple[float, float]], length: float) -> list[tuple[float, float]]:
    """Return the (start, end) between `intervals`, which don't overlap, within 0 … `length`."""
    edges = [0.0, *(edge for interval in intervals for edge in interval), length]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [(begin, end) for begin, end in pairs if end > begin]


def innermost(spans: Iterable[Span]) -> list[Span]:
    """Return pieces of `spans` such that in each thread only the innermost span of each moment is left."""
    threads: dict[tuple, list[Span]] = {}
    for span in sorted(spans, key=lambda s: (s.start, -s.length)):
        threads.setdefault((span.rank, span.thread), []).append(span)
    pieces = [piece for own in threads.values() for piece in _innermost_of_one(own)]
    return sorted(pieces, key=lambda piece: piece.start)


def _innermost_of_one(spans):
    pieces = []
    around = []
    now = -math.inf
    for span in spans:
        while around and around[-1].end <= span.start:
            now = _add(pieces, around.pop(), now)
        if around:
            _add(pieces, around[-1], now, span.start)
        now = span.start
        around.append(span)
    while around:
        now = _add(pieces, around.pop(), now)
    return pieces


def _add(pieces, span, begin, end=math.inf):
    """Append the piece of `span` from `begin` to `end`, if any, and return where the next one begins."""
    start, end = max(begin, span.start), min(end, span.end)
    if end > start:
        pieces.append(span._replace(start=start, length=end - start))
    return max(start, end)
