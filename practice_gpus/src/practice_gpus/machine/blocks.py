"""A block of a practice GPU's memory, and the counters of ``memory_stats``: what `memory.Allocator` keeps books with."""

from __future__ import annotations

from time import perf_counter
from typing import Any


class Counter:
    """One line of ``memory_stats``: how much is in use now, at most, and was ever taken since ``start`` was."""

    __slots__ = ("now", "peak", "taken", "start")

    def __init__(self) -> None:
        self.now = self.peak = self.taken = self.start = 0

    def add(self, amount: int) -> None:
        """Count what came, or went where ``amount`` is negative."""
        self.now += amount
        if amount > 0:
            self.taken += amount
            if self.now > self.peak:
                self.peak = self.now

    def kinds(self) -> dict:
        """The four numbers under PyTorch's names."""
        freed = self.start + self.taken - self.now
        return {"current": self.now, "peak": self.peak, "allocated": self.taken, "freed": freed}


class Block:
    """``size`` bytes at ``address``, between its neighbors ``before`` and ``after`` in the same segment."""

    __slots__ = (
        *(
            "pool",
            "stream",
            "size",
            "requested",
            "label",
            "frames",
        ),  # what was asked for, and where
        *("taken", "given"),  # when
        "noted",  # that it is in the log
        *("address", "before", "after", "free"),  # its place in the segment
        *("kind", "origin", "step"),  # of a report
    )
    kind: str
    origin: tuple | None
    step: int

    def __init__(
        self,
        pool: str,
        stream: int,
        size: int,
        requested: int = 0,
        label: str = "",
        address: int | None = None,
    ) -> None:
        self.pool = pool
        self.stream = stream
        self.size = size
        self.requested = requested
        self.label = label
        self.taken = perf_counter()
        self.given: float | None = None  # when it was given back
        self.noted = False
        self.address = address  # None until the books are brought up to date
        self.before = self.after = None
        self.free = False
        self.frames: Any = ()  # where it was taken, if that is recorded

    def is_part(self) -> bool:
        """Whether its segment is split."""
        return self.before is not None or self.after is not None
