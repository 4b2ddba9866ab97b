"""Which block of a kernel touched which elements of which tensor: noted during a run where that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from practice_gpus.kernels.errors import Line

if TYPE_CHECKING:
    import numpy as np

    from practice_gpus.kernels.counters import Access
    from practice_gpus.kernels.lanes import Lanes


@dataclass(frozen=True)
class Touch:
    """One load or store of one block: `places` are elements of the tensor `name`, in storage order from its first.

    `off` are the places at which threads that a mask (or a branch) rules out would have gone.
    """

    block: tuple
    kind: str  # "load", "store" or "atomic"
    name: str
    places: list
    off: list
    line: Line


class Notes:
    """Collects the touches of a run."""

    def __init__(self, machine):
        self.grid = machine.grid
        self.regions = [each for each in machine.memory.regions if each.tensor is not None]
        self.found = []

    def add(
        self,
        access: Access,
        lanes: Lanes,
        addresses: np.ndarray,
        active: np.ndarray | None,
    ) -> None:
        """Note one instruction of all threads."""
        on = lanes.exists if active is None else active
        for block in range(lanes.blocks):
            here = slice(block * lanes.padded, (block + 1) * lanes.padded)
            inside = addresses[here][on[here]]
            if not len(inside):
                continue
            region = next(each for each in self.regions if each.start <= inside[0] < each.end)
            outside = addresses[here][lanes.exists[here] & ~on[here]]
            self._add(int(lanes.block_number[here][0]), access, region, inside, outside)

    def _add(self, block, access, region, inside, outside):
        size = region.tensor.element_size()
        wide = range(max(1, access.bytes // size))  # elements that one thread takes at once
        inside, outside = (
            {place + more for place in ((at - region.start) // size).tolist() for more in wide}
            for at in (inside, outside)
        )
        places, off = sorted(inside), sorted(outside - inside)
        x, y, _ = self.grid
        where = (block % x, block // x % y, block // (x * y))
        self.found.append(Touch(where, access.kind, region.name, places, off, access.line))
