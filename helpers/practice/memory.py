"""The memory of one practice GPU: PyTorch's caching allocator, replayed on paper.

The rules are those of ``CUDACachingAllocator`` (https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management):
requests are rounded up to 512 bytes; those of at most 1 MiB come from 2 MiB segments (the small pool), larger ones from
20 MiB segments, or, from 10 MiB on, from segments of their own size rounded up to 2 MiB (the large pool); the smallest
free block that fits is taken and split; a freed block joins its free neighbours; whole free segments go back to the
device on ``empty_cache`` and before an allocation fails.
"""
import re
import threading
import time
from bisect import bisect_left, insort
from collections import deque

import torch

MIB = 1 << 20
ROUND, SMALL, SMALL_SEGMENT, LARGE_SEGMENT, OWN_SEGMENT, SEGMENT_ROUND = 512, MIB, 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB
METRICS = {"allocation": "allocated_bytes", "segment": "reserved_bytes", "inactive_split": "inactive_split_bytes"}
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate {want}. GPU {index} has a total capacity of {total} of which {free} is free. "
    "{allowed}Including non-PyTorch memory, this process has {used} memory in use. Of the allocated memory {allocated} is "
    "allocated by PyTorch, and {cached} is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  ({page})"
)
PAGE = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"


def parse_size(size):
    """Bytes of ``size``: an int, or text such as ``"1 GiB"``, ``"512 MiB"``, ``"2 GB"``. Raises ValueError or TypeError."""
    if isinstance(size, int) and not isinstance(size, bool):
        count = size
    elif isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", size.upper())
        if not match or (match[3] and not match[2]):
            raise ValueError(f"memory={size!r}: give bytes, or a number with a unit, such as '512 MiB' or '1 GiB'")
        count = int(float(match[1]) * (1024 if match[3] or not match[2] else 1000) ** " KMGT".index(match[2] or " "))
    else:
        raise TypeError(f"memory={size!r}: give an int (bytes) or text such as '1 GiB', not {type(size).__name__}")
    if count < SMALL_SEGMENT:
        raise ValueError(f"memory={size!r} is {count} bytes: a practice GPU needs at least 2 MiB (one small segment)")
    return count


def show_size(count):
    """``count`` bytes as PyTorch prints them in its out-of-memory message."""
    for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} bytes"


class Block:
    """A piece of a segment: ``size`` bytes at ``address``, between its neighbours ``before`` and ``after``."""
    __slots__ = ("stream", "size", "address", "before", "after", "requested", "free", "pool")

    def __init__(self, stream, size, address, pool):
        self.stream, self.size, self.address, self.pool = stream, size, address, pool
        self.before = self.after = None
        self.requested, self.free = 0, True

    def key(self):
        return (self.stream, self.size, self.address)


class Allocator:
    """The caching allocator of practice device ``index`` with ``capacity`` bytes.

    ``malloc`` and ``release`` are called as storages come and go; ``stats`` has the layout of
    ``torch.cuda.memory_stats_as_nested_dict``. ``timeline`` gets (seconds, device index, allocated, reserved, label).
    """

    def __init__(self, index, capacity, timeline):
        self.index, self.capacity, self.timeline = index, capacity, timeline
        self.limit, self.fraction = capacity, 1.0
        self.pools = {"small_pool": [], "large_pool": []}
        self.dropped = deque()
        self.lock = threading.RLock()
        self.next_address = (index + 1) << 40
        self.retries = self.ooms = 0
        names = [*METRICS, *METRICS.values(), "requested_bytes"]
        self.counts = {name: {pool: [0, 0, 0, 0] for pool in ("all", *self.pools)} for name in names}

    def now(self, name):
        """Current value of a counter such as ``"allocated_bytes"``."""
        self.settle()
        return self.counts[name]["all"][0]

    def _count(self, name, pool, amount):
        for count in (self.counts[name]["all"], self.counts[name][pool]):
            count[0] += amount
            if amount >= 0:
                count[2] += amount
                if count[0] > count[1]:
                    count[1] = count[0]
            else:
                count[3] -= amount

    def _both(self, name, pool, size, sign):
        self._count(name, pool, sign)
        self._count(METRICS[name], pool, sign * size)

    def malloc(self, request, stream=0, label=""):
        """Take a block for ``request`` bytes; raises ``torch.OutOfMemoryError`` when the device is full."""
        with self.lock:
            self.settle()
            size = max(ROUND, -(-request // ROUND) * ROUND)
            pool = "small_pool" if size <= SMALL else "large_pool"
            block = self._find(pool, stream, size) or self._segment(pool, stream, size, request)
            self._split(block, size)
            block.free, block.requested = False, request
            self._both("allocation", pool, block.size, 1)
            self._count("requested_bytes", pool, request)
            self._mark(label)
            return block

    def _find(self, pool, stream, size):
        blocks = self.pools[pool]
        at = bisect_left(blocks, (stream, size, 0), key=Block.key)
        if at == len(blocks) or blocks[at].stream != stream:
            return None
        block = blocks.pop(at)
        if block.before or block.after:
            self._both("inactive_split", pool, block.size, -1)
        return block

    def _segment(self, pool, stream, size, request):
        whole = SMALL_SEGMENT if pool == "small_pool" else LARGE_SEGMENT
        if size >= OWN_SEGMENT:
            whole = -(-size // SEGMENT_ROUND) * SEGMENT_ROUND
        if self.counts["reserved_bytes"]["all"][0] + whole > self.limit:
            self.retries += 1
            self.release_cached()
            if self.counts["reserved_bytes"]["all"][0] + whole > self.limit:
                self.ooms += 1
                raise torch.OutOfMemoryError(self._message(whole))
        block = Block(stream, whole, self.next_address, pool)
        self.next_address += whole + SEGMENT_ROUND
        self._both("segment", pool, whole, 1)
        return block

    def _split(self, block, size):
        rest = block.size - size
        if rest < ROUND if block.pool == "small_pool" else rest <= SMALL:
            return
        other = Block(block.stream, rest, block.address + size, block.pool)
        other.before, other.after, block.size = block, block.after, size
        if other.after:
            other.after.before = other
        block.after = other
        self._both("inactive_split", block.pool, rest, 1)
        insort(self.pools[block.pool], other, key=Block.key)

    def release(self, block, label=""):
        """Give a block back. Safe to call from a destructor: the books are brought up to date at the next look."""
        self.dropped.append((block, label))

    def settle(self):
        """Bring the books up to date with the storages that have died."""
        with self.lock:
            while self.dropped:
                block, label = self.dropped.popleft()
                self._both("allocation", block.pool, block.size, -1)
                self._count("requested_bytes", block.pool, -block.requested)
                self._merge(block)
                self._mark(label)

    def _merge(self, block):
        block.free = True
        for other in (block.before, block.after):
            if other and other.free:
                self.pools[block.pool].remove(other)
                self._both("inactive_split", block.pool, other.size, -1)
                first, second = (other, block) if other is block.before else (block, other)
                first.size, first.after = first.size + second.size, second.after
                if second.after:
                    second.after.before = first
                block = first
        if block.before or block.after:
            self._both("inactive_split", block.pool, block.size, 1)
        insort(self.pools[block.pool], block, key=Block.key)

    def release_cached(self):
        """``empty_cache``: whole free segments go back to the device; parts of a segment in use stay reserved."""
        with self.lock:
            self.settle()
            for pool, blocks in self.pools.items():
                for block in [b for b in blocks if not b.before and not b.after]:
                    blocks.remove(block)
                    self._both("segment", pool, block.size, -1)
            self._mark("empty_cache")

    def set_fraction(self, fraction):
        """``set_per_process_memory_fraction``: reserve at most this part of the device."""
        self.fraction, self.limit = fraction, int(fraction * self.capacity)

    def reset(self, peak):
        """``reset_peak_memory_stats`` (``peak`` True) or ``reset_accumulated_memory_stats``."""
        self.settle()
        for count in (count for pools in self.counts.values() for count in pools.values()):
            count[1:] = [count[0], *count[2:]] if peak else [count[1], 0, 0]
        if not peak:
            self.retries = self.ooms = 0

    def room(self):
        """Bytes that no tensor uses and PyTorch may still reserve or reuse."""
        return self.limit - self.counts["allocated_bytes"]["all"][0]

    def stats(self):
        """Every counter, laid out as PyTorch's nested dictionary."""
        self.settle()
        keys = ("current", "peak", "allocated", "freed")
        table = {name: {pool: dict(zip(keys, count)) for pool, count in pools.items()}
                 for name, pools in self.counts.items()}
        table["active"], table["active_bytes"] = table["allocation"], table["allocated_bytes"]
        none = dict.fromkeys(keys, 0)
        return table | {"oversize_allocations": none, "oversize_segments": dict(none), "num_ooms": self.ooms,
                        "num_alloc_retries": self.retries, "num_sync_all_streams": 0, "num_device_alloc":
                        table["segment"]["all"]["allocated"], "num_device_free": table["segment"]["all"]["freed"],
                        "max_split_size": -1}

    def _mark(self, label):
        allocated, reserved = (self.counts[name]["all"][0] for name in ("allocated_bytes", "reserved_bytes"))
        self.timeline.append((time.perf_counter(), self.index, allocated, reserved, label))

    def _message(self, want):
        allocated, reserved = (self.counts[name]["all"][0] for name in ("allocated_bytes", "reserved_bytes"))
        allowed = f"{show_size(self.limit)} allowed; " if self.fraction < 1 else ""
        return OUT_OF_MEMORY.format(
            want=show_size(want), index=self.index, total=show_size(self.capacity), allowed=allowed,
            free=show_size(self.capacity - reserved), used=show_size(reserved), allocated=show_size(allocated),
            cached=show_size(reserved - allocated), page=PAGE)
