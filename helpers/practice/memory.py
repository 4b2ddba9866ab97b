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
from collections import deque

import torch

MIB = 1 << 20
ROUND, SMALL, SMALL_SEGMENT, LARGE_SEGMENT, OWN_SEGMENT, SEGMENT_ROUND = 512, MIB, 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB
BYTES = {"allocation": "allocated_bytes", "segment": "reserved_bytes", "inactive_split": "inactive_split_bytes"}
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. {}Including "
    "non-PyTorch memory, this process has {} memory in use. Of the allocated memory {} is allocated by PyTorch, and"
    " {} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)")


def parse_size(size):
    """Bytes of ``size``: an int, or text such as "1 GiB", "512 MiB" or "2 GB". Raises TypeError or ValueError."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(f"memory={size!r}: give an int (bytes) or text such as '1 GiB', not {type(size).__name__}")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B?\s*", str(size).upper())
    if not match:
        raise ValueError(f"memory={size!r}: give bytes, or a number with a unit, such as '512 MiB' or '1 GiB'")
    count = int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))
    if count < SMALL_SEGMENT:
        raise ValueError(f"memory={size!r} is {count} bytes: a practice GPU needs at least 2 MiB (one small segment)")
    return count


def show_size(count):
    """``count`` bytes as PyTorch prints them."""
    power = min(3, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024 ** power:.2f} {'KMG'[power - 1]}iB" if power else f"{count} bytes"


class Block:
    """``size`` bytes of a segment of ``pool``, between its neighbors ``before`` and ``after``."""

    def __init__(self, pool, stream, size, address, before=None, after=None):
        self.pool, self.stream, self.size, self.address = pool, stream, size, address
        self.before, self.after, self.requested, self.free = before, after, 0, True

    def key(self):
        """Order in a pool: by stream, then size, then address."""
        return self.stream, self.size, self.address


class Allocator:
    """The caching allocator of practice device ``index`` with ``capacity`` bytes.

    ``timeline`` gets (seconds, device index, allocated, reserved, label) whenever a block is taken or given back.
    """

    def __init__(self, index, capacity, timeline):
        self.index, self.capacity, self.limit, self.fraction, self.timeline = index, capacity, capacity, 1.0, timeline
        self.pools, self.dropped, self.lock = {"small_pool": [], "large_pool": []}, deque(), threading.RLock()
        self.next_address, self.retries, self.ooms = (index + 1) << 40, 0, 0
        self.counts = {name: {pool: [0, 0, 0, 0] for pool in ("all", *self.pools)}
                       for name in (*BYTES, *BYTES.values(), "requested_bytes")}  # current, peak, all gained, all lost

    def now(self, name):
        """Current value of a counter such as "allocated_bytes"."""
        self.settle()
        return self.counts[name]["all"][0]

    def _count(self, name, pool, amount):
        for count in (self.counts[name]["all"], self.counts[name][pool]):
            count[:2] = count[0] + amount, max(count[1], count[0] + amount)
            count[2 if amount > 0 else 3] += abs(amount)

    def _both(self, name, block, sign):
        self._count(name, block.pool, sign)
        self._count(BYTES[name], block.pool, sign * block.size)

    def malloc(self, request, stream=0, label=""):
        """Take a block for ``request`` bytes; raises ``torch.OutOfMemoryError`` when the device is full."""
        with self.lock:
            self.settle()
            size = max(ROUND, -(-request // ROUND) * ROUND)
            pool = "small_pool" if size <= SMALL else "large_pool"
            block = self._find(pool, stream, size) or self._segment(pool, stream, size)
            self._split(block, size)
            block.free, block.requested = False, request
            self._both("allocation", block, 1)
            self._count("requested_bytes", pool, request)
            self._mark(label)
            return block

    def _find(self, pool, stream, size):
        blocks = self.pools[pool]
        at = bisect_left(blocks, (stream, size, 0), key=Block.key)
        if at < len(blocks) and blocks[at].stream == stream:
            if blocks[at].before or blocks[at].after:
                self._both("inactive_split", blocks[at], -1)
            return blocks.pop(at)

    def _segment(self, pool, stream, size):
        own = -(-size // SEGMENT_ROUND) * SEGMENT_ROUND
        whole = SMALL_SEGMENT if pool == "small_pool" else LARGE_SEGMENT if size < OWN_SEGMENT else own
        if self.now("reserved_bytes") + whole > self.limit:
            self.retries += 1
            self.release_cached()
            if self.now("reserved_bytes") + whole > self.limit:
                self.ooms += 1
                raise torch.OutOfMemoryError(self._message(whole))
        block = Block(pool, stream, whole, self.next_address)
        self.next_address += whole
        self._both("segment", block, 1)
        return block

    def _split(self, block, size):
        rest = block.size - size
        if rest >= ROUND if block.pool == "small_pool" else rest > SMALL:
            other = Block(block.pool, block.stream, rest, block.address + size, block, block.after)
            if other.after:
                other.after.before = other
            block.after, block.size = other, size
            self._both("inactive_split", other, 1)
            insort(self.pools[block.pool], other, key=Block.key)

    def release(self, block):
        """Give a block back. Safe to call from a destructor: the books are brought up to date at the next look."""
        self.dropped.append(block)

    def settle(self):
        """Bring the books up to date with the storages that have died."""
        while self.dropped:
            with self.lock:
                block = self.dropped.popleft()
                self._both("allocation", block, -1)
                self._count("requested_bytes", block.pool, -block.requested)
                self._merge(block)
                self._mark("free")

    def _merge(self, block):
        block.free = True
        for other in (block.before, block.after):
            if other and other.free:
                self.pools[block.pool].remove(other)
                self._both("inactive_split", other, -1)
                block, second = (other, block) if other is block.before else (block, other)
                block.size, block.after = block.size + second.size, second.after
                if second.after:
                    second.after.before = block
        if block.before or block.after:
            self._both("inactive_split", block, 1)
        insort(self.pools[block.pool], block, key=Block.key)

    def release_cached(self):
        """``empty_cache``: whole free segments go back to the device; parts of a segment in use stay reserved."""
        with self.lock:
            self.settle()
            for blocks in self.pools.values():
                for block in [b for b in blocks if not b.before and not b.after]:
                    blocks.remove(block)
                    self._both("segment", block, -1)
            self._mark("empty_cache")

    def set_fraction(self, fraction):
        """``set_per_process_memory_fraction``: reserve at most this part of the device."""
        self.fraction, self.limit = fraction, int(fraction * self.capacity)

    def reset(self, peak):
        """``reset_peak_memory_stats`` (``peak`` True) or ``reset_accumulated_memory_stats``."""
        self.settle()
        for count in (count for pools in self.counts.values() for count in pools.values()):
            count[1:] = [count[0], *count[2:]] if peak else [count[1], 0, 0]
        self.retries, self.ooms = (self.retries, self.ooms) if peak else (0, 0)

    def stats(self):
        """Every counter, laid out as ``torch.cuda.memory_stats_as_nested_dict``."""
        self.settle()
        table = {name: {pool: dict(zip(("current", "peak", "allocated", "freed"), count, strict=True))
                        for pool, count in pools.items()} for name, pools in self.counts.items()}
        none = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
        segments = table["segment"]["all"]
        return table | {
            "active": table["allocation"], "active_bytes": table["allocated_bytes"], "oversize_allocations": none,
            "oversize_segments": none, "num_ooms": self.ooms, "num_alloc_retries": self.retries, "max_split_size": -1,
            "num_sync_all_streams": 0, "num_device_alloc": segments["allocated"], "num_device_free": segments["freed"]}

    def _mark(self, label):
        taken = (self.counts[name]["all"][0] for name in ("allocated_bytes", "reserved_bytes"))
        self.timeline.append((time.perf_counter(), self.index, *taken, label))

    def _message(self, want):
        used, taken = self.now("reserved_bytes"), self.now("allocated_bytes")
        allowed = f"{show_size(self.limit)} allowed; " if self.fraction < 1 else ""
        want, total, left, used, taken, cached = map(
            show_size, (want, self.capacity, self.capacity - used, used, taken, used - taken))
        return OUT_OF_MEMORY.format(want, self.index, total, left, allowed, used, taken, cached)
