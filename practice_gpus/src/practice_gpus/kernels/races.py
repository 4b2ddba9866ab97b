"""Shared memory of the blocks that run: its bytes, and who touched which since the last barrier.

Two accesses of different threads to the same bytes race unless both read, or a barrier lies between them: a block's
barrier for threads of different warps, a warp's for threads of one. Writing the value that is there already is no race.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from practice_gpus.kernels.errors import Misaligned, OutOfBounds, Race
from practice_gpus.kernels.formats import UNSIGNED

TABLES = ("written", "read", "read too", "added")
WORDS = {"written": "wrote", "read": "read", "read too": "read", "added": "added to"}


class Shared:
    """Shared memory of `blocks` blocks with `threads` threads each (whole warps); `grain`: the finest access in bytes."""

    def __init__(self, size, blocks, threads, grain, variables, name):
        self.size = size
        self.stride = -(-max(size, 16) // 16) * 16
        self.bytes = np.zeros(self.stride * blocks, np.uint8)
        self.views = {size: self.bytes.view(kind) for size, kind in UNSIGNED.items()}
        self.names = variables  # name → address
        self.name = name  # thread of a block → words
        self.grain = grain
        self.thread = np.arange(blocks * threads)
        self.begin = (self.thread // threads) * self.stride
        self.threads = threads
        self.tables = {name: np.zeros(len(self.bytes) // grain, np.int64) for name in TABLES}
        self.lines = {}  # step → line
        self.block_barrier = np.zeros(
            blocks * threads, np.int64
        )  # the step of the last one, for each thread
        self.warp_barrier = np.zeros(blocks * threads, np.int64)

    def places(
        self,
        addresses: np.ndarray,
        size: int,
        active: np.ndarray | None,
        kind: str,
        blame: Callable,
    ) -> np.ndarray:
        """Return indices into the bytes; raises where an access is outside or misaligned."""
        wrong = (addresses < 0) | (addresses + size > self.size)
        wrong &= True if active is None else active
        if wrong.any():
            thread = int(wrong.argmax())
            words = f"shared address {addresses[thread]}, and the block has {self.size:,} bytes"
            blame(
                thread,
                OutOfBounds,
                f"out-of-bounds {kind} of {size} bytes in shared memory: {words}",
            )
        odd = addresses % size != 0
        odd &= True if active is None else active
        if odd.any():
            thread = int(odd.argmax())
            words = f"misaligned {kind} of {size} bytes at shared address {addresses[thread]}"
            blame(thread, Misaligned, words)
        found = addresses + self.begin
        return found if active is None else np.where(active, found, self.begin)

    def note(
        self,
        places: np.ndarray,
        size: int,
        active: np.ndarray | None,
        kind: str,
        step: Any,
        line: int,
        blame: Callable,
        values: list | None = None,
    ) -> None:
        """Look for races of an access, then note it. `values` that are stored, to tell whether they change anything."""
        self.lines[step] = line
        threads = self.thread if active is None else self.thread[active]
        cells = (places if active is None else places[active]) // self.grain
        for part in range(max(1, size // self.grain)):
            self._note_one(cells + part, threads, kind, step, blame, values)

    def _note_one(self, cells, threads, kind, step, blame, values):
        stamp = step << 11 | (threads % self.threads + 1)
        against = {"load": ("written", "added"), "store": TABLES, "atomic": TABLES[:3]}[kind]
        for name in against:
            self._judge(name, self.tables[name][cells], threads, kind, blame, values)
        if kind == "load":
            self.tables["read"][cells] = stamp
            others = self.tables["read"][cells] != stamp
            self.tables["read too"][cells[others]] = stamp[others]
            return
        self.tables["added" if kind == "atomic" else "written"][cells] = stamp

    def _judge(self, name, stamps, threads, kind, blame, values):
        """Raise a Race where one of `stamps` (step and thread of an earlier access) has no barrier after it."""
        if not stamps.any():
            return
        steps, others = stamps >> 11, (stamps & 2047) - 1
        mine = threads % self.threads
        same_warp = others // 32 == mine // 32
        barrier = np.where(same_warp, self.warp_barrier[threads], self.block_barrier[threads])
        racing = (stamps > 0) & (others != mine) & (steps > barrier)
        if values is not None:
            racing &= values
        if racing.any():
            first = int(racing.argmax())
            verb = {"load": "reads", "store": "writes", "atomic": "adds to"}[kind]
            where = str(self.lines[int(steps[first])]).split(":")[0]
            words = (
                f"race in shared memory: this thread {verb} what thread {self.name(int(others[first]))} {WORDS[name]} in "
                f"{where}, and no barrier lies between them"
            )
            blame(int(threads[first]), Race, words)
