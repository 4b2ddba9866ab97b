"""The card's memory during a run: the tensors' bytes in one array, at addresses that are checked at each access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from practice_gpus.kernels.errors import Contract, Misaligned, OutOfBounds, Unsupported
from practice_gpus.kernels.formats import UNSIGNED

BASE = 0x7F0000000000
FAR = 2**40  # bytes; no index goes so far
GAP = 4096  # bytes between two tensors
ALIGN = 512  # as PyTorch's allocator


class Region:
    """A tensor, or a variable of the kernel: its bytes are at addresses `start` to `end`."""

    def __init__(self, name, start, size, tensor=None):
        self.name = name
        self.start = start
        self.end = start + size
        self.tensor = tensor

    def where(self, address: int) -> str:
        """Say in words where an address is: "x[1000], 0 elements behind the end of x (1000 elements)"."""
        element = self.tensor.element_size() if self.tensor is not None else 1
        count = (self.end - self.start) // element
        index = (address - self.start) // element
        beyond = index - count + 1 if index >= 0 else -index
        side = "past the end" if index >= 0 else "before the start"
        noun = "element" if beyond == 1 else "elements"
        kind = str(self.tensor.dtype).removeprefix("torch.") if self.tensor is not None else "bytes"
        return f"{self.name}[{index}], {beyond} {noun} {side} of {self.name} ({count:,} of {kind})"


class Memory:
    """Holds copies of the tensors' storages; `give_back` writes what the kernel wrote into the tensors."""

    def __init__(self, tensors, variables):
        self.regions = []
        self.storages = {}  # address on the host → (address here, a tensor that uses it)
        self.names = {}  # variables of the kernel → their addresses
        place = 0
        for name, tensor in tensors:
            storage = tensor.untyped_storage()
            host = storage.data_ptr()
            if host not in self.storages:
                self.storages[host] = (BASE + place, tensor)
                place += -(-(storage.nbytes() + GAP) // ALIGN) * ALIGN
            start = self.storages[host][0] + tensor.data_ptr() - host
            self.regions.append(Region(name, start, _extent(tensor), tensor))
        for each in variables:
            self.names[each.name] = BASE + place
            self.regions.append(Region(each.name, BASE + place, each.size))
            place += -(-(each.size + GAP) // ALIGN) * ALIGN
        self.bytes = np.zeros(max(place, ALIGN), np.uint8)
        self.views = {size: self.bytes.view(kind) for size, kind in UNSIGNED.items()}
        self.sectors = {kind: np.zeros(len(self.bytes) // 32, bool) for kind in ("load", "store")}
        for address, tensor in self.storages.values():
            self._of(address, tensor)[:] = _bytes(tensor)
        for each in variables:
            start = self.names[each.name] - BASE
            self.bytes[start : start + len(each.start)] = np.frombuffer(each.start, np.uint8)
            for place, size, name, more, shift in each.links:
                if name not in self.names:
                    raise Unsupported(
                        f"{each.name} holds the address of {name}, which isn't known here"
                    )
                address = (self.names[name] + more) >> shift & (1 << 8 * size) - 1
                data = address.to_bytes(size, "little")
                self.bytes[start + place : start + place + size] = np.frombuffer(data, np.uint8)
        self._join()
        self.fresh = None  # bytes of outputs that nobody has written, where the outputs were named
        self.kept = None  # bytes that must not be written
        self.unset = (
            None  # (words for the thread, line) of the first that read what nobody has written
        )

    def promise(self, outputs: tuple, inplace: tuple, fill: int) -> None:
        """Note that the kernel writes `outputs` whole and reads nothing of them before, and writes no other but `inplace`."""
        self.fresh = np.zeros(len(self.bytes), bool)
        self.kept = np.ones(len(self.bytes), bool)
        for region in self.regions:
            here = slice(region.start - BASE, region.end - BASE)
            self.kept[here] &= region.tensor is not None and region.name not in (*outputs, *inplace)
            if region.name in outputs:
                self.fresh[here] = True
                self.bytes[here] = fill if fill else self.bytes[here]

    def keep_contract(
        self, reach: Any, lanes: Any, places: np.ndarray, threads: np.ndarray
    ) -> None:
        """Note an access; raise where it writes what the kernel may only read."""
        for byte in range(0, reach.size):
            here: Any = places + byte
            if reach.kind != "store" and self.unset is None and self.fresh[here].any():
                self.unset = lanes.place(int(threads[self.fresh[here].argmax()])), reach.line
            if reach.kind == "load":
                continue
            if self.kept[here].any():
                first = int(self.kept[here].argmax())
                words = f"{self._inside(int(here[first]) + BASE)} is written, and it isn't among the outputs"
                lanes.fail(int(threads[first]), Contract, words, reach.line)
            self.fresh[here] = False

    def check_outputs(self) -> None:
        """Raise where a part of the outputs was never written."""
        if self.fresh is None:
            return
        for region in self.regions:
            left = self.fresh[region.start - BASE : region.end - BASE]
            if left.any():
                size = region.tensor.element_size()
                first, count = int(left.argmax()) // size, int(left.sum()) // size
                total = len(left) // size
                words = f"{count:,} of {total:,} elements of {region.name} are never written, the first {region.name}[{first}]"
                raise Contract(words)

    def _of(self, address, tensor):
        start = address - BASE
        return self.bytes[start : start + tensor.untyped_storage().nbytes()]

    def _join(self):
        """Make intervals of valid addresses, those that overlap joined."""
        spans = []
        for region in sorted(self.regions, key=lambda each: each.start):
            if spans and region.start <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], region.end)
            else:
                spans.append([region.start, region.end])
        self.starts = np.array([start for start, _ in spans] or [0], np.int64)
        self.ends = np.array([end for _, end in spans] or [0], np.int64)

    def set(self, label: str, data: bytes, name: str) -> None:
        """Give a variable of the kernel its value; raises ValueError for more bytes than it has."""
        region = next((each for each in self.regions if each.name == label), None)
        if region is None:
            return  # the kernel doesn't use it
        if len(data) > region.end - region.start:
            raise ValueError(
                f"{name} is {len(data):,} bytes; the variable has {region.end - region.start:,}"
            )
        start = region.start - BASE
        self.bytes[start : start + len(data)] = np.frombuffer(data, np.uint8)

    def address(self, tensor: torch.Tensor) -> int:
        """Return the address of a tensor's first element."""
        host = tensor.untyped_storage().data_ptr()
        return self.storages[host][0] + tensor.data_ptr() - host

    def offset(self, address: int) -> int:
        """Return the place of an address among the bytes."""
        return address - BASE

    def give_back(self) -> None:
        """Copy every storage back into its tensor."""
        for address, tensor in self.storages.values():
            new = torch.from_numpy(self._of(address, tensor).copy())
            tensor.untyped_storage().copy_(new.untyped_storage())

    def places(
        self,
        addresses: np.ndarray,
        size: int,
        active: np.ndarray | None,
        kind: str,
        blame: Callable,
        extent: Any = None,
    ) -> np.ndarray:
        """Return indices into the bytes, for threads that are on; raises where an access is outside or misaligned.

        `extent`: bytes that each thread touches, where not all of its `size`.
        `blame(thread, kind of error, words)` raises the error with line, block and thread.
        """
        used = addresses if active is None else addresses[active]
        if not used.size:
            return np.zeros(addresses.shape, np.int64)
        low, high = used.min(), used.max()
        place = np.searchsorted(self.starts, low, side="right") - 1
        if place < 0 or high + size > self.ends[place]:
            self._check(addresses, size if extent is None else extent, active, kind, blame)
        if (used % size).any():
            off = addresses % size != 0
            thread = int((off if active is None else off & active).argmax())
            words = f"{kind} of {size} bytes at an address that is {addresses[thread] % size} more than a multiple of {size}"
            blame(thread, Misaligned, f"misaligned {words}: {self._inside(int(addresses[thread]))}")
        found: Any = addresses - BASE
        return found if active is None else np.where(active, found, 0)

    def _inside(self, address):
        region = min(self.regions, key=lambda each: _distance(each, address))
        element = region.tensor.element_size() if region.tensor is not None else 1
        return f"{region.name}[{(address - region.start) // element}]"

    def _check(self, addresses, size, active, kind, blame):
        place = np.searchsorted(self.starts, addresses, side="right") - 1
        outside = (place < 0) | (addresses + size > self.ends[np.maximum(place, 0)])
        outside &= True if active is None else active
        if outside.any():
            thread = int(outside.argmax())
            address = int(addresses[thread])
            size = int(np.broadcast_to(size, addresses.shape)[thread])
            region = min(self.regions, key=lambda each: _distance(each, address), default=None)
            if address < GAP:
                blame(thread, OutOfBounds, f"{kind} of {size} bytes through a null pointer")
            if region and _distance(region, address) > FAR:
                words = "pointers that are stored in tensors aren't followed here"
                blame(
                    thread, Unsupported, f"{kind} at {address:#x}, which no argument holds: {words}"
                )
            where = (
                region.where(address + (0 if address < region.start else size - 1))
                if region
                else "no tensor"
            )
            count = len(np.unique(addresses[outside]))
            others = f"; {count} such addresses at once" if count > 1 else ""
            blame(thread, OutOfBounds, f"out-of-bounds {kind} of {size} bytes: {where}{others}")


def _distance(region, address):
    return max(region.start - address, address - region.end + 1, 0)


def _extent(tensor):
    """Return the bytes from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return 0
    steps = sum(step * (size - 1) for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


def _bytes(tensor):
    flat = torch.empty(0, dtype=torch.uint8).set_(tensor.detach().untyped_storage())
    return flat.numpy()
