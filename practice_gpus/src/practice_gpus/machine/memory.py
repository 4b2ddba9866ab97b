"""The memory of one practice GPU: PyTorch's caching allocator, replayed on paper.

The rules are those of CUDACachingAllocator (https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management):
requests are rounded up to 512 bytes; those of at most 1 MiB come from 2 MiB segments (the small pool), larger ones from
20 MiB segments or, from 10 MiB on, from segments of their own size rounded up to 2 MiB (the large pool); the smallest
free block that fits is taken and split; a freed block joins its free neighbors; whole free segments go back to the
device on ``empty_cache`` and before an allocation fails.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import defaultdict, deque
from time import perf_counter
from typing import Any

import torch

from practice_gpus.machine import interrupts
from practice_gpus.machine.blocks import Block, Counter
from practice_gpus.machine.errors import EXABYTE, OUT_OF_MEMORY
from practice_gpus.machine.observers import Observer

MIB = 1 << 20
ROUND = 512
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB
SEGMENT_ROUND = 2 * MIB
BYTES = {
    "allocation": "allocated_bytes",
    "segment": "reserved_bytes",
    "inactive_split": "inactive_split_bytes",
}
POOLS = ("small_pool", "large_pool")
NOWHERE = -1  # the address of a block for which there was no room
NOTHING = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}


def show_size(count: int) -> str:
    """``count`` bytes as PyTorch prints them."""
    power = min(3, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.2f} {'KMG'[power - 1]}iB" if power else f"{count} bytes"


class Allocator:
    """The caching allocator of practice device ``index`` with ``capacity`` bytes.

    What is taken and given back is noted in a log, and replayed when somebody looks, or when the device may be full:
    a training step then pays little for the books. ``timeline`` gets (seconds, device index, allocated, reserved,
    label) for each entry.
    """

    def __init__(
        self, index: int, capacity: int, timeline: Any, observers: list[Observer] | None = None
    ) -> None:
        self.index = index
        self.capacity = capacity
        self.limit = capacity
        self.fraction = 1.0
        self.timeline = timeline
        self.log: deque = deque()  # blocks: the first time one is taken, the second time given back
        self.growth = 0  # how much more may be reserved by what is in the log
        self.streams: set = set()  # of the blocks in the log
        self.shelves: defaultdict = defaultdict(
            list
        )  # (pool, stream) → its free blocks: (size, address, block)
        self.segments: dict = {}  # address → the first block
        self.lock = threading.RLock()
        self.observers = [] if observers is None else observers  # the machine's
        self.next_address = (index + 1) << 40
        self.retries = 0
        self.ooms = 0
        self.emptied = 0
        names = (*BYTES, *BYTES.values(), "requested_bytes")
        self.counts = {name: {pool: Counter() for pool in ("all", *POOLS)} for name in names}
        self.used = self.counts["allocated_bytes"]["all"]
        self.reserved = self.counts["reserved_bytes"]["all"]
        self.ledgers = {(kind, pool): self._ledger(kind, pool) for kind in BYTES for pool in POOLS}

    def _ledger(self, kind, pool):
        """The counters that change with a block: of blocks, of bytes, and of bytes that were asked for."""
        names = [kind, BYTES[kind]]
        if kind == "allocation":
            names.append("requested_bytes")
        return [tuple(self.counts[name][column] for name in names) for column in ("all", pool)]

    def now(self, name: str) -> int:
        """Current value of a counter such as "allocated_bytes"."""
        self.settle()
        return self.counts[name]["all"].now

    def has_room(self, count: float) -> bool:
        """Whether ``count`` more bytes fit for certain; False when that takes a look into the books."""
        return self.reserved.now + self.growth + count <= self.limit

    def _change(self, kind, pool, blocks, size):
        """Count segments, or split parts that are free."""
        for counted, sizes in self.ledgers[kind, pool]:
            if blocks:
                counted.add(blocks)
            if size:
                sizes.add(size)

    def _count(self, block):
        """Count a block that is taken, as `blocks.Counter.add` does: each tensor passes here."""
        size, requested = block.size, block.requested
        for blocks, sizes, asked in self.ledgers["allocation", block.pool]:
            blocks.taken += 1
            sizes.taken += size
            asked.taken += requested
            blocks.now = now = blocks.now + 1
            if now > blocks.peak:
                blocks.peak = now
            sizes.now = now = sizes.now + size
            if now > sizes.peak:
                sizes.peak = now
            asked.now = now = asked.now + requested
            if now > asked.peak:
                asked.peak = now

    def take(self, request: int, stream: int = 0, label: str = "", owner: Any = None) -> Block:
        """Take a block for ``request`` bytes; raises ``torch.OutOfMemoryError`` when the device is full.

        Its ``owner`` has it before the books do, and gives it back in either case: an interrupt may come between.

        A segment is added only where no free block fits: then each one added before it is more than half in use. So
        the device grows by twice what is taken at most, and by one segment of each pool for each stream.
        """
        if request >= 1 << 60:
            raise torch.OutOfMemoryError(EXABYTE)
        size = -(-request // ROUND) * ROUND or ROUND
        pool = "small_pool" if size <= SMALL else "large_pool"
        block = Block(pool, stream, size, request, label)
        prompt = False
        for observer in self.observers:
            observer.taking(self, block)
            prompt |= observer.prompt
        if owner is not None:
            owner.block = block
        self.growth += 2 * size
        if stream not in self.streams:
            self.streams.add(stream)
            self.growth += SMALL_SEGMENT + LARGE_SEGMENT
        self.log.append(block)
        block.noted = True
        if prompt or len(self.log) > 2000 or not self.has_room(0):
            self.settle()
        return block

    def release(self, block: Block) -> None:
        """Give a block back. Safe to call from a destructor."""
        if block.address == NOWHERE or (not block.noted and not self.holds(block)):
            return  # an interrupt came before it was taken, or there was no room
        for observer in self.observers:
            observer.releasing(self, block)
        block.given = perf_counter()
        self.log.append(block)

    def holds(self, block: Block) -> bool:
        """Whether a block is taken and not given back, in the books or in the log: slow, for after an interrupt."""
        with self.lock:
            settled = 0 if block.address is None else 1 + block.free
            return settled + self.log.count(block) == 1

    def settle(self) -> None:
        """Bring the books up to date."""
        with self.lock, interrupts.held_back():
            before = self.growth
            self.growth = 0  # first: another thread may add to the log meanwhile
            self.streams.clear()
            while self.log:
                block = self.log.popleft()
                try:
                    if block.address is None:
                        self._place(block)
                    elif block.address != NOWHERE:
                        self._give_back(block)
                except torch.OutOfMemoryError:
                    if block.given is None:  # else an interrupt came before this was looked up
                        self.growth += before  # the rest of the log is still to come
                        raise

    def _place(self, block):
        """Find room for a block: the smallest free block that fits, or a new segment."""
        shelf = self.shelves[block.pool, block.stream]
        position = bisect_left(shelf, (block.size,))
        room = shelf.pop(position)[2] if position < len(shelf) else self._segment(block)
        was_part = room.is_part()
        block.address = room.address
        block.before = room.before
        remainder = room.size - block.size
        splits = remainder >= ROUND if block.pool == "small_pool" else remainder > SMALL
        if splits:
            block.after = room
            room.address += block.size
            room.size = remainder
            insort(shelf, (remainder, room.address, room))
            change = -block.size if was_part else remainder
            self._change("inactive_split", block.pool, int(not was_part), change)
        else:
            block.size = room.size
            block.after = room.after
            if was_part:
                self._change("inactive_split", block.pool, -1, -block.size)
        self._link(block)
        self._count(block)
        for observer in self.observers:
            observer.placed(self, block)
        self._mark(block.label, block.taken)

    def _link(self, block):
        """Tell the neighbors of a block that it is there."""
        if block.before is not None:
            block.before.after = block
        else:
            self.segments[block.address] = block
        if block.after is not None:
            block.after.before = block

    def _segment(self, block):
        """A new segment that ``block`` fits into."""
        size = -(-block.size // SEGMENT_ROUND) * SEGMENT_ROUND
        if block.size < OWN_SEGMENT:
            size = SMALL_SEGMENT if block.pool == "small_pool" else LARGE_SEGMENT
        if self.reserved.now + size > self.limit:
            self.retries += 1
            self._return_segments()
        free = self.capacity - self.reserved.now
        if self.reserved.now + size > self.limit:
            self.ooms += 1
            block.address = NOWHERE
            self._segment_is("oom", Block(block.pool, block.stream, size, address=free))
            raise torch.OutOfMemoryError(self._message(size))
        room = Block(block.pool, block.stream, size, address=self.next_address)
        room.free = True
        self.next_address += size
        self._change("segment", block.pool, 1, size)
        self._segment_is("segment_alloc", room)
        return room

    def _give_back(self, block):
        for blocks, sizes, asked in self.ledgers["allocation", block.pool]:
            blocks.now -= 1
            sizes.now -= block.size
            asked.now -= block.requested
        for observer in self.observers:
            observer.freed(self, block)
        self._merge(block)
        self._mark("free", block.given)

    def _segment_is(self, action, block):
        for observer in self.observers:
            observer.segment(self, action, block)

    def _merge(self, block):
        """Join a block with its free neighbors, and put it on its shelf."""
        shelf = self.shelves[block.pool, block.stream]
        blocks = size = 0  # that are free parts of a segment: how many more, how many bytes more
        for neighbor in (block.before, block.after):
            if neighbor is not None and neighbor.free:
                self._take_off(shelf, neighbor)
                blocks -= 1
                size -= neighbor.size
                block.size += neighbor.size
                if neighbor is block.before:
                    block.address = neighbor.address
                    block.before = neighbor.before
                else:
                    block.after = neighbor.after
        self._link(block)
        if block.before is not None or block.after is not None:
            blocks += 1
            size += block.size
        if size:
            self._change("inactive_split", block.pool, blocks, size)
        block.free = True
        insort(shelf, (block.size, block.address, block))

    def _take_off(self, shelf, block):
        del shelf[bisect_left(shelf, (block.size, block.address))]

    def release_cached(self) -> None:
        """``empty_cache``: whole free segments go back to the device; parts of a segment in use stay reserved."""
        with self.lock, interrupts.held_back():
            self.settle()
            self._return_segments()
            self._mark("empty_cache", perf_counter())

    def _return_segments(self):
        self.emptied += 1
        for shelf in self.shelves.values():
            for block in [block for _, _, block in shelf if not block.is_part()]:
                self._take_off(shelf, block)
                self._change("segment", block.pool, -1, -block.size)
                del self.segments[block.address]
                self._segment_is("segment_free", block)

    def set_fraction(self, fraction: float) -> None:
        """``set_per_process_memory_fraction``: reserve at most this part of the device."""
        with self.lock:
            self.settle()  # what was taken before was taken under the old limit
            self.fraction = fraction
            self.limit = int(fraction * self.capacity)

    def reset(self, peak: bool) -> None:
        """``reset_peak_memory_stats`` (``peak`` True) or ``reset_accumulated_memory_stats``."""
        self.settle()
        for pools in self.counts.values():
            for count in pools.values():
                if peak:
                    count.peak = count.now
                else:
                    count.taken = 0
                    count.start = count.now
        if not peak:
            self.retries = 0
            self.ooms = 0

    def stats(self) -> dict:
        """Every counter, laid out as ``torch.cuda.memory_stats_as_nested_dict``."""
        self.settle()
        table = {
            name: {pool: count.kinds() for pool, count in pools.items()}
            for name, pools in self.counts.items()
        }
        segments = table["segment"]["all"]
        return table | {
            "active": table["allocation"],
            "active_bytes": table["allocated_bytes"],
            "oversize_allocations": NOTHING,
            "oversize_segments": NOTHING,
            "num_ooms": self.ooms,
            "num_alloc_retries": self.retries,
            "max_split_size": -1,
            "num_sync_all_streams": self.emptied,
            "num_device_alloc": segments["allocated"],
            "num_device_free": segments["freed"],
        }

    def _mark(self, label, seconds):
        self.timeline.append((seconds, self.index, self.used.now, self.reserved.now, label))

    def _message(self, request):
        reserved = self.reserved.now
        allocated = self.used.now
        allowed = f"{show_size(self.limit)} allowed; " if self.fraction < 1 else ""
        return OUT_OF_MEMORY.format(
            show_size(request),
            self.index,
            show_size(self.capacity),
            show_size(self.capacity - reserved),
            allowed,
            show_size(reserved),
            show_size(allocated),
            show_size(reserved - allocated),
        )
