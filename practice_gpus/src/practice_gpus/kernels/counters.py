"""What decides a kernel's speed, counted: sectors of memory for each request, bytes moved and used, bank conflicts.

A request is one memory instruction of one warp. Memory is moved in sectors of 32 bytes; shared memory has 32 banks of
4 bytes, each of which gives one word at a time, so words of one bank need one wavefront each. Sources: NVIDIA, Nsight
Compute documentation, "Memory Tables"; CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory", "Shared Memory".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from practice_gpus.kernels.errors import Line

WARP = 32
SECTOR = 32
BANKS = 32


@dataclass
class Access:
    """One memory instruction and what it did in all warps.

    `bytes` of one thread; `useful`: bytes that some thread asked for, each once a request; `wavefronts` of shared memory
    and how many it would need without conflicts, `ideal`; `worst`: the most words of one bank in one wavefront's turn.
    """

    line: Line
    kind: str  # "load", "store" or "atomic"
    space: str  # "global" or "shared"
    bytes: int
    requests: int = 0
    sectors: int = 0
    useful: int = 0
    wavefronts: int = 0
    ideal: int = 0
    worst: int = 1
    predicted: bool = False  # the machine code has no such access on this line, or several widths
    wide: Wide | None = None

    def add(self, other: Access) -> None:
        """Add the counts of another access."""
        for name in ("requests", "sectors", "useful", "wavefronts", "ideal"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.worst = max(self.worst, other.worst)
        self.predicted |= other.predicted

    @property
    def sectors_per_request(self) -> float:
        """Sectors that a warp's request moves, in the mean."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def moved(self) -> int:
        """Bytes that the sectors have."""
        return self.sectors * SECTOR


class Wide:
    """Accesses that the machine code does in one where PTX has several: neighbors that fill `access.bytes` of each thread.

    They may come one after the other in a loop that the assembler unrolls. What fills no whole goes to the next width
    (`lower`), or is counted as it came.
    """

    def __init__(self, access):
        self.access = access
        self.lower = None
        self.open = {}  # what each thread's bytes are, and which threads → {offset: (access, addresses, threads)}

    def add(
        self, narrow: Access, addresses: np.ndarray, active: np.ndarray | None, more: tuple
    ) -> None:
        """Take in an access of `narrow.bytes`; `more`: blocks and space, as `count` has them."""
        width = self.access.bytes
        offset = addresses % width
        used = offset if active is None else offset[active]
        if not used.size or (used != used[0]).any():
            self._count_narrow(narrow, addresses, active, more)
            return
        active = None if active is None else active.copy()
        key = (addresses - offset).tobytes() + (b"" if active is None else active.tobytes())
        key = hash(key)
        parts = self.open.setdefault(key, {})
        if int(used[0]) in parts:
            self._close(key)
            parts = self.open.setdefault(key, {})
        parts[int(used[0])] = narrow, addresses, active, more
        if len(parts) * narrow.bytes == width:
            del self.open[key]
            count(self.access, addresses - offset, active, *more)
        elif len(self.open) > 64:
            self._close(next(iter(self.open)))

    def close(self) -> None:
        """Count what filled no whole."""
        for key in list(self.open):
            self._close(key)

    def _close(self, key):
        for part in self.open.pop(key).values():
            self._count_narrow(*part)

    def _count_narrow(self, narrow, addresses, active, more):
        if self.lower and self.lower.access.bytes > narrow.bytes:
            self.lower.add(narrow, addresses, active, more)
        else:
            _count(narrow, addresses, active, *more)


def count(
    access: Access, addresses: np.ndarray, active: np.ndarray | None, blocks: int, space: str
) -> None:
    """Count a request of each warp, as the machine code does it."""
    if access.wide:
        access.wide.add(access, addresses, active, (blocks, space))
    else:
        _count(access, addresses, active, blocks, space)


def _count(access, addresses, active, blocks, space):
    if space == "global":
        count_global(access, addresses, active)
    else:
        count_shared(access, addresses, active, access.bytes, blocks)


def count_global(access: Access, addresses: np.ndarray, active: np.ndarray | None) -> None:
    """Add a request of each warp to `access`: `addresses` of all threads, `active` threads or None for all."""
    rows = _rows(addresses, active, WARP)
    if not len(rows):
        return
    steps = np.diff(rows, axis=1)
    if (steps < 0).any():
        rows = np.sort(rows, axis=1)
        steps = np.diff(rows, axis=1)
    access.requests += len(rows)
    access.useful += (len(rows) + int((steps > 0).sum())) * access.bytes
    access.sectors += len(rows) + int((np.diff(rows // SECTOR, axis=1) > 0).sum())


def count_shared(
    access: Access, addresses: np.ndarray, active: np.ndarray | None, size: int, blocks: int
) -> None:
    """Add wavefronts of shared memory; `size` bytes of each thread, all threads of `blocks` blocks."""
    times = 1
    if blocks > 1:
        each = addresses.reshape(blocks, -1)
        masks = None if active is None else active.reshape(blocks, -1)
        if (each == each[0]).all() and (masks is None or (masks == masks[0]).all()):
            addresses, active, times = each[0], None if masks is None else masks[0], blocks
    access.requests += times * len(_rows(addresses, active, WARP))
    lanes = {8: 16, 16: 8}.get(size, WARP)  # 8 and 16 bytes are served by half and quarter warps
    rows = _rows(addresses // 4, active, lanes)
    if not len(rows):
        return
    words = (rows[:, :, None] + np.arange(max(1, size // 4))).reshape(len(rows), -1)
    worst = _most_in_one_bank(np.sort(words, axis=1))
    access.wavefronts += times * int(worst.sum())
    access.ideal += times * len(rows)
    access.worst = max(access.worst, int(worst.max()))


def _most_in_one_bank(words):
    """Return for each row of sorted words how many different ones the fullest bank holds."""
    first = np.ones(words.shape, bool)
    first[:, 1:] = np.diff(words, axis=1) > 0
    places = np.arange(len(words))[:, None] * BANKS + words % BANKS
    counts = np.bincount(places[first], minlength=len(words) * BANKS)
    return counts.reshape(-1, BANKS).max(1)


def _rows(addresses, active, lanes):
    """Return addresses in rows of `lanes`; a thread that is off gets the address of one that is on, rows all off go."""
    rows = addresses.reshape(-1, lanes)
    if active is None:
        return rows
    on = active.reshape(-1, lanes)
    some = on.any(axis=1)
    rows, on = rows[some], on[some]
    stand_in = rows[np.arange(len(rows)), on.argmax(axis=1)]
    return np.where(on, rows, stand_in[:, None])
