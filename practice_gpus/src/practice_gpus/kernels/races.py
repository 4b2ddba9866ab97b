"""Who touched which memory, and in which order: races of shared memory and of the card's, and what nobody has written.

Two accesses of different threads to the same bytes race unless both read, or something lies between them: a block's barrier
for threads of different warps, a warp's for threads of one, an atomic or a flag for threads of different blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from practice_gpus.kernels.errors import Misaligned, OutOfBounds, Race
from practice_gpus.kernels.formats import UNSIGNED
from practice_gpus.kernels.lanes import WARP

WORDS = {
    "written": "wrote",
    "altered": "wrote",
    "read": "read",
    "read too": "read",
    "added": "added to",
}
VERBS = {"load": "reads", "store": "writes", "atomic": "adds to"}


class Order:
    """For each thread that runs: the step up to which it sees what others did, by a barrier or by waiting for them.

    `first`: the number of the first thread among those of the whole grid, each block taken as `padded` threads.
    """

    def __init__(self, lanes):
        self.first = int(lanes.block_number[0]) * lanes.padded
        self.padded = lanes.padded
        self.block, self.warp, self.grid = (np.zeros(lanes.count, np.int64) for _ in range(3))

    def meet(self, on: np.ndarray, step: int, block: bool) -> None:
        """Note a barrier of the threads `on`, of their warps or their blocks."""
        width = self.padded if block else WARP
        for each in (self.grid, self.block):
            latest = np.where(on, each, 0).reshape(-1, width).max(axis=1)
            each[on] = np.repeat(latest, width)[on]
        self.warp[on] = step
        if block:
            self.block[on] = step

    def waited(self, on: Any, step: int, all_of_it: bool) -> None:
        """Note that threads read what others left for them; `all_of_it`: and go by it, as with a lock or a flag."""
        self.grid[on] = step
        if all_of_it:
            self.block[on] = self.warp[on] = step

    def since(self, threads: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the step up to which `threads` (places here) see what `others` (numbers in the grid) did."""
        mine = threads + self.first
        apart = np.where(
            others // self.padded == mine // self.padded, self.block[threads], self.grid[threads]
        )
        return np.where(others // WARP == mine // WARP, self.warp[threads], apart)


class Ledger:
    """The last accesses to each cell of a memory, a cell being its finest access: a step and a thread in one number."""

    def __init__(self, cells, place, within, lacking, between_blocks=False):
        self.between_blocks = between_blocks
        self.doubt: Any = None  # a race of a read is one where its value counts
        self.step, self.now = 0, None  # of the access that is being judged
        self.lacking = lacking
        self.tables = {name: np.zeros(cells, np.int64) for name in WORDS}
        self.place = place  # number of a thread in the grid → words
        self.within = within
        self.lines = {}  # step → line

    def judge(
        self,
        name: str,
        cells: Any,
        threads: Any,
        order: Order,
        kind: str,
        blame: Any,
        where: Any = True,
    ) -> None:
        """Raise a Race where an earlier access in table `name` isn't ordered before this one."""
        stamps = self.tables[name][cells]
        if not stamps.any():
            return
        steps, others = stamps >> 32, (stamps & 0xFFFFFFFF) - 1
        racing = (stamps > 0) & (others != threads + order.first) & where
        racing &= steps > order.since(threads, others)
        if self.between_blocks:  # the threads of one of Triton's programs may hold a value twice
            racing &= others // order.padded != (threads + order.first) // order.padded
        for step in np.unique(steps[racing]):
            these = np.flatnonzero(racing & (steps == step))
            earlier = self.lines[int(step)]
            if kind == "load" or name in ("read", "read too"):
                now = (self.step, threads[these] + order.first, self.now)
                if self.doubt.passes((int(step), others[these], earlier), now, kind):
                    continue
            first = int(these[0])
            blame(
                int(threads[first]),
                Race,
                f"race in {self.within}: this thread {VERBS[kind]} what {self.place(int(others[first]))} {WORDS[name]} in "
                f"{str(earlier).split(':')[0]}, and {self.lacking}",
            )

    def stamp(
        self, name: str, cells: Any, threads: Any, order: Order, step: int, line: Any
    ) -> None:
        """Note an access."""
        self.lines[step] = line
        stamps = step << 32 | (threads + order.first + 1)
        self.tables[name][cells] = stamps
        if name == "read":
            others = self.tables["read"][cells] != stamps
            self.tables["read too"][cells[others]] = stamps[others]


class Shared:
    """Shared memory of `blocks` blocks with `threads` threads each (whole warps); `grain`: the finest access in bytes."""

    def __init__(self, size, lanes, grain, variables, order, fill=0):
        blocks, threads = lanes.blocks, lanes.padded
        self.size = size
        self.stride = -(-max(size, 16) // 16) * 16
        self.bytes = np.full(self.stride * blocks, fill, np.uint8)
        self.views = {size: self.bytes.view(kind) for size, kind in UNSIGNED.items()}
        self.names = variables  # name → address
        self.grain = grain
        self.order = order
        self.thread = np.arange(blocks * threads)
        self.begin = (self.thread // threads) * self.stride
        cells = len(self.bytes) // grain
        self.ledger = Ledger(
            cells,
            lambda n: f"thread {lanes.name(n % threads)}",
            "shared memory",
            "no barrier lies between them",
        )
        self.fresh = np.ones(cells, bool)  # cells that nobody has written
        self.unset = None  # (words for the thread, line) of the first that read such a cell

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

    def note(self, reach: Any, lanes: Any, places: Any, threads: Any, changes: Any) -> None:
        """Look for races of an access to `places`, then note it; `changes`: which threads store another value than is there."""
        cells = places // self.grain
        for part in range(max(1, reach.size // self.grain)):
            self._note_one(cells + part, threads, reach, lanes, changes)

    def _note_one(self, cells, threads, reach, lanes, changes):
        self.ledger.step, self.ledger.now = lanes.step, reach.line
        kind, blame = reach.kind, reach.blame(lanes)
        against = {"load": ("written", "added"), "store": ("written", "read", "read too", "added")}
        for name in against.get(kind, ("written", "read", "read too")):
            where = changes if name == "written" else True
            self.ledger.judge(name, cells, threads, self.order, kind, blame, where)
        table = {"load": "read", "store": "written", "atomic": "added"}[kind]
        self.ledger.stamp(table, cells, threads, self.order, lanes.step, reach.line)
        if kind != "store" and self.unset is None and self.fresh[cells].any():
            self.unset = lanes.place(int(threads[self.fresh[cells].argmax()])), reach.line
        if kind != "load":
            self.fresh[cells] = False


class Doubt:
    """Which races of a load with a store are let pass, and which loads find another value, to see if theirs counts."""

    def __init__(self, wanted=None, spoiled=None):
        self.passed: set = set()  # (line of the load, line of the store)
        self.last = None  # the last pair that wasn't
        self.wanted = (
            wanted  # in a trial every race of a load is let pass, and those of this pair are noted
        )
        self.loads: dict = {}  # of that pair: step → numbers of its threads
        self.spoiled = spoiled or {}  # the like: the loads that find another value

    def passes(self, then: tuple, now: tuple, kind: str) -> bool:
        """Judge a race between an access `then` and one `now`, each (step, threads, line); True where it is let pass."""
        load, store = (now, then) if kind == "load" else (then, now)
        pair = load[2], store[2]
        if pair == self.wanted:
            self.loads.setdefault(load[0], []).extend(load[1].tolist())
        if self.wanted or pair in self.passed:
            return True
        self.last = pair
        return False

    def spoil(self, lanes: Any, order: Order, found: np.ndarray) -> np.ndarray:
        """Return what a load found, other values in the places that are to be tried."""
        if lanes.step not in self.spoiled:
            return found
        numbers = np.array(self.spoiled[lanes.step], np.int64) - order.first
        numbers = numbers[(numbers >= 0) & (numbers < len(found))]
        if len(numbers):
            found = found.copy()
            found[np.unique(numbers)] ^= found.dtype.type(
                0x3F7F7F7F7F7F7F7F >> 64 - 8 * found.itemsize
            )
        return found


class Card:
    """Races in the card's memory, among threads that nothing orders."""

    def __init__(self, memory, grain, lanes, triton):
        self.grain = grain
        self.order: Any = None
        self.triton = triton  # Triton's threads may hold a value twice, and store it twice
        self.ledger = Ledger(
            len(memory.bytes) // grain,
            lanes.place_of,
            "global memory",
            "nothing orders the two",
            triton,
        )

    def note(self, reach: Any, lanes: Any, places: Any, threads: Any, changed: Any) -> None:
        """Look for races of a load from, or a store to, `places`; then note it. `changed` as for shared memory."""
        kind, blame, size, order = reach.kind, reach.blame(lanes), self.grain, self.order
        cells = places // size
        self.ledger.step, self.ledger.now = lanes.step, reach.line
        for part in range(max(1, reach.size // size)):
            here = cells + part
            if kind == "load":
                self.ledger.judge("altered", here, threads, order, kind, blame)
                self.ledger.stamp("read", here, threads, order, lanes.step, reach.line)
                continue
            if reach.updates:
                self._check_twice(here, threads, lanes, blame)
                self.ledger.judge("written", here, threads, order, kind, blame)
            self.ledger.judge("written", here, threads, order, kind, blame, changed)
            self.ledger.stamp("written", here, threads, order, lanes.step, reach.line)
            if not reach.constant:
                for name in ("read", "read too"):
                    self.ledger.judge(name, here, threads, order, kind, blame, changed)
                if changed.any():
                    self.ledger.stamp(
                        "altered", here[changed], threads[changed], order, lanes.step, reach.line
                    )

    def _check_twice(self, cells, threads, lanes, blame):
        """Raise where several threads at once write what each computed from the old value: all but one are lost."""
        order = np.argsort(cells, kind="stable")
        same = np.diff(cells[order]) == 0
        if self.triton:
            blocks = lanes.block_number[threads][order]
            same &= np.diff(blocks) != 0
        if same.any():
            first, second = (int(threads[order[int(same.argmax()) + step]]) for step in (0, 1))
            other = self.ledger.place(first + int(lanes.block_number[0]) * lanes.padded)
            words = f"race in global memory: this thread and {other} read a value, change it and write it back at once"
            blame(second, Race, f"{words}, and one of them is lost (an atomic keeps both)")
