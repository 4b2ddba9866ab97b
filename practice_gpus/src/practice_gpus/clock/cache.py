"""What a GPU's L2 cache still holds of the storages that its last kernels read and wrote."""

from __future__ import annotations

from practice_gpus.cards import Card
from practice_gpus.clock.work import Work

KEPT = 0.5  # of the L2 cache: what a kernel writes takes its place there, too, and storages aren't dropped in order


class Cache:
    """The storages that were touched last, as many as fit, each whole or not at all."""

    def __init__(self, card: Card) -> None:
        self.free = KEPT * card.device[3] * (1 << 20)
        self.size = self.free
        self.held: dict[int, int] = {}  # storage → bytes, the oldest first

    def found(self, work: Work) -> int:
        """Bytes that a kernel reads from the cache; afterwards it holds what the kernel touched."""
        found = sum(size for mark, size in work.reads if self.touch(mark, size))
        for mark, size in work.writes:
            self.touch(mark, size)
        return found

    def touch(self, mark: int, size: int) -> bool:
        """Hold a storage, in place of the oldest ones; whether as much of it was there."""
        before = self.held.pop(mark, 0)
        self.free += before - size
        self.held[mark] = size
        while self.free < 0:
            self.free += self.held.pop(next(iter(self.held)))
        return 0 < size <= before
