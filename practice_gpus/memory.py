"""The memory of one practice GPU: PyTorch's caching allocator, replayed on paper.

The rules are those of CUDACachingAllocator (https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management):
requests are rounded up to 512 bytes; those of at most 1 MiB come from 2 MiB segments (the small pool), larger ones from
20 MiB segments or, from 10 MiB on, from segments of their own size rounded up to 2 MiB (the large pool); the smallest
free block that fits is taken and split; a freed block joins its free neighbors; whole free segments go back to the
device on ``empty_cache`` and before an allocation fails.
"""

import re
import threading
import time
from bisect import bisect_left, insort
from collections import defaultdict, deque

import torch

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
NOTHING = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. {}Including "
    "non-PyTorch memory, this process has {} memory in use. Of the allocated memory {} is allocated by PyTorch, and {} "
    "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management "
    " (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)


def parse_size(size):
    """Bytes of ``size``: an int, or text such as "1 GiB", "512 MiB" or "2 GB". Raises TypeError or ValueError."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(
            f"memory={size!r}: give an int (bytes) or text such as '1 GiB', not {type(size).__name__}"
        )
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B?\s*", str(size).upper())
    if not match:
        raise ValueError(
            f"memory={size!r}: give bytes, or a number with a unit, such as '512 MiB' or '1 GiB'"
        )
    count = int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))
    if count < SMALL_SEGMENT:
        raise ValueError(
            f"memory={size!r} is {count} bytes: a practice GPU needs at least 2 MiB (one small segment)"
        )
    return count


def show_size(count):
    """``count`` bytes as PyTorch prints them."""
    power = min(3, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.2f} {'KMG'[power - 1]}iB" if power else f"{count} bytes"


class Counter:
    """One line of ``memory_stats``: how much is in use now, at most, and was ever taken since ``start`` was."""

    __slots__ = ("now", "peak", "taken", "start")

    def __init__(self):
        self.now = self.peak = self.taken = self.start = 0

    def kinds(self):
        """The four numbers under PyTorch's names."""
        freed = self.start + self.taken - self.now
        return {"current": self.now, "peak": self.peak, "allocated": self.taken, "freed": freed}


class Block:
    """``size`` bytes at ``address``, between its neighbors ``before`` and ``after`` in the same segment."""

    __slots__ = "pool stream size address before after requested free frames".split()

    def __init__(self, pool, stream, size, address, before=None, after=None):
        self.pool = pool
        self.stream = stream
        self.size = size
        self.address = address
        self.before = before
        self.after = after
        self.requested = 0
        self.free = True
        self.frames = []  # where it was taken, if that is recorded

    def is_part(self):
        """Whether its segment is split."""
        return self.before is not None or self.after is not None


class Allocator:
    """The caching allocator of practice device ``index`` with ``capacity`` bytes.

    ``timeline`` gets (seconds, device index, allocated, reserved, label) whenever a block is taken or given back.
    """

    def __init__(self, index, capacity, timeline):
        self.index = index
        self.capacity = capacity
        self.limit = capacity
        self.fraction = 1.0
        self.timeline = timeline
        self.shelves = defaultdict(list)  # (pool, stream) → its free blocks: (size, address, block)
        self.segments = {}  # address → the first block
        self.dropped = deque()
        self.lock = threading.RLock()
        self.history = None  # a `snapshot.History` that notes what happens, while one is asked for
        self.recorded = None  # the latest of them
        self.next_address = (index + 1) << 40
        self.retries = 0
        self.ooms = 0
        names = (*BYTES, *BYTES.values(), "requested_bytes")
        self.counts = {name: {pool: Counter() for pool in ("all", *POOLS)} for name in names}
        self.used = self.counts["allocated_bytes"]["all"]
        self.reserved = self.counts["reserved_bytes"]["all"]
        self.ledgers = {(what, pool): self._ledger(what, pool) for what in BYTES for pool in POOLS}

    def _ledger(self, what, pool):
        """The counters that change with a block: of blocks, of bytes, and of bytes that were asked for."""
        names = [what, BYTES[what]]
        if what == "allocation":
            names.append("requested_bytes")
        return [self.counts[name][kind] for name in names for kind in ("all", pool)]

    def now(self, name):
        """Current value of a counter such as "allocated_bytes"."""
        if self.dropped:
            self.settle()
        return self.counts[name]["all"].now

    def _change(self, what, pool, blocks, size, asked=0):
        amounts = (blocks, blocks, size, size, asked, asked)
        for counter, amount in zip(self.ledgers[what, pool], amounts):  # noqa: B905
            now = counter.now + amount
            counter.now = now
            if amount > 0:
                counter.taken += amount
                if now > counter.peak:
                    counter.peak = now

    def malloc(self, request, stream=0, label=""):
        """Take a block for ``request`` bytes; raises ``torch.OutOfMemoryError`` when the device is full."""
        with self.lock:
            if self.dropped:
                self.settle()
            size = -(-request // ROUND) * ROUND or ROUND
            pool = "small_pool" if size <= SMALL else "large_pool"
            shelf = self.shelves[pool, stream]
            at = bisect_left(shelf, (size,))
            block = shelf.pop(at)[2] if at < len(shelf) else self._segment(pool, stream, size)
            self._split(block, size, shelf)
            block.free = False
            block.requested = request
            self._change("allocation", pool, 1, block.size, request)
            self._mark(label)
            if self.history is not None:
                self.history.note("alloc", block)
            return block

    def _segment(self, pool, stream, size):
        own = -(-size // SEGMENT_ROUND) * SEGMENT_ROUND
        whole = (
            SMALL_SEGMENT if pool == "small_pool" else LARGE_SEGMENT if size < OWN_SEGMENT else own
        )
        if self.now("reserved_bytes") + whole > self.limit:
            self.retries += 1
            self.release_cached()
        if self.now("reserved_bytes") + whole > self.limit:
            self.ooms += 1
            if self.history is not None:
                free = self.capacity - self.reserved.now
                self.history.note("oom", Block(pool, stream, whole, free))
            raise torch.OutOfMemoryError(self._message(whole))
        block = Block(pool, stream, whole, self.next_address)
        self.next_address += whole
        self.segments[block.address] = block
        self._change("segment", pool, 1, whole)
        if self.history is not None:
            self.history.note("segment_alloc", block)
        return block

    def _split(self, block, size, shelf):
        """Cut ``size`` bytes from a block that was taken from a shelf, and put the rest back."""
        part = block.is_part()
        rest = block.size - size
        if rest >= ROUND if block.pool == "small_pool" else rest > SMALL:
            after = block.after
            other = Block(block.pool, block.stream, rest, block.address + size, block, after)
            if after is not None:
                after.before = other
            block.after = other
            block.size = size
            insort(shelf, (rest, other.address, other))
            self._change("inactive_split", block.pool, int(not part), -size if part else rest)
        elif part:
            self._change("inactive_split", block.pool, -1, -block.size)

    def release(self, block):
        """Give a block back. Safe to call from a destructor: the books are brought up to date at the next look."""
        self.dropped.append(block)

    def settle(self):
        """Bring the books up to date with the storages that have died."""
        with self.lock:
            while self.dropped:
                block = self.dropped.popleft()
                self._change("allocation", block.pool, -1, -block.size, -block.requested)
                if self.history is not None:
                    self.history.note("free_requested", block)
                    self.history.note("free_completed", block)
                self._merge(block)
                self._mark("free")

    def _merge(self, block):
        """Join a block with its free neighbors, and put it on its shelf."""
        shelf = self.shelves[block.pool, block.stream]
        start = block.size
        blocks = 0
        before = block.before
        if before is not None and before.free:
            self._take_off(shelf, before)
            blocks -= 1
            block.size += before.size
            block.address = before.address
            block.before = before.before
            if block.before is not None:
                block.before.after = block
        after = block.after
        if after is not None and after.free:
            self._take_off(shelf, after)
            blocks -= 1
            block.size += after.size
            block.after = after.after
            if block.after is not None:
                block.after.before = block
        if block.before is None:
            self.segments[block.address] = block
        size = start - block.size  # what the neighbors had
        if block.is_part():
            blocks += 1
            size += block.size
        if size:
            self._change("inactive_split", block.pool, blocks, size)
        block.free = True
        insort(shelf, (block.size, block.address, block))

    def _take_off(self, shelf, block):
        del shelf[bisect_left(shelf, (block.size, block.address))]

    def release_cached(self):
        """``empty_cache``: whole free segments go back to the device; parts of a segment in use stay reserved."""
        with self.lock:
            self.settle()
            for shelf in self.shelves.values():
                for block in [block for _, _, block in shelf if not block.is_part()]:
                    self._take_off(shelf, block)
                    self._change("segment", block.pool, -1, -block.size)
                    del self.segments[block.address]
                    if self.history is not None:
                        self.history.note("segment_free", block)
            self._mark("empty_cache")

    def set_fraction(self, fraction):
        """``set_per_process_memory_fraction``: reserve at most this part of the device."""
        self.fraction, self.limit = fraction, int(fraction * self.capacity)

    def reset(self, peak):
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

    def stats(self):
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
            "num_sync_all_streams": 0,
            "num_device_alloc": segments["allocated"],
            "num_device_free": segments["freed"],
        }

    def _mark(self, label):
        now = time.perf_counter()
        self.timeline.append((now, self.index, self.used.now, self.reserved.now, label))

    def _message(self, want):
        used = self.now("reserved_bytes")
        taken = self.now("allocated_bytes")
        allowed = f"{show_size(self.limit)} allowed; " if self.fraction < 1 else ""
        sizes = (want, self.capacity, self.capacity - used, used, taken, used - taken)
        want, total, left, used, taken, cached = map(show_size, sizes)
        return OUT_OF_MEMORY.format(want, self.index, total, left, allowed, used, taken, cached)
