"""The threads that run at a time: whole blocks, a NumPy lane for each thread, their registers and their masks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from practice_gpus.kernels.errors import BarrierError
from practice_gpus.kernels.formats import decode, resize
from practice_gpus.kernels.ptx_parser import number

WARP = 32
AXES = "xyz"


class Lanes:
    """Threads of the blocks numbered `first` to `first + blocks`; a block takes whole warps, its last may be part empty.

    A mask is an array of bools, or None where every thread that has not returned takes part.
    """

    def __init__(self, module, grid, block, first, blocks):
        self.module = module
        self.grid = grid
        self.block = block
        self.blocks = blocks
        self.threads = block[0] * block[1] * block[2]
        self.padded = -(-self.threads // WARP) * WARP
        self.count = blocks * self.padded
        self.index = np.arange(self.count)
        self.thread = self.index % self.padded
        self.block_number = first + self.index // self.padded
        self.exists = self.thread < self.threads
        self.alive = self.exists.copy()
        self.all_alive = bool(self.alive.all())
        self.registers = {}
        self.step = 0

    def returned(self, mask: np.ndarray | None) -> None:
        """Note that the threads of `mask` are done."""
        self.alive &= False if mask is None else ~mask
        self.all_alive = False

    def active(self, mask: np.ndarray | None) -> np.ndarray | None:
        """Return the threads of a mask that haven't returned; None where that is every lane."""
        if mask is None:
            return None if self.all_alive else self.alive
        return mask

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return `values` with an element for each thread."""
        return values if values.size == self.count else np.broadcast_to(values, (self.count,))

    def read(self, name: str) -> np.ndarray:
        """Return the bits of a register, zero where it was never written."""
        found = self.registers.get(name)
        return np.zeros(1, np.uint64) if found is None else found

    def write(
        self, name: str, bits: np.ndarray, mask: np.ndarray | None, signed: bool = False
    ) -> None:
        """Put `bits` into a register of the threads in `mask`; a smaller value is filled up."""
        size = self.module.bits(name) // 8
        bits = resize(bits, size, signed) if size and bits.dtype != bool else bits
        if mask is not None:
            old = self.read(name)
            old = (
                old.astype(bool)
                if bits.dtype == bool
                else resize(old, bits.itemsize).view(bits.dtype)
            )
            bits = np.where(mask, bits, old)
        self.registers[name] = bits

    def special(self, name: str) -> np.ndarray | None:
        """Return the values of a special register such as %tid.x, or None where the name isn't one."""
        base, _, axis = name.partition(".")
        if base == "%laneid":
            return (self.thread % WARP).astype("u4")
        if base == "%warpid":
            return (self.thread // WARP).astype("u4")
        if base in ("%clock", "%clock64", "%globaltimer"):
            return np.array([self.step], "u8" if base != "%clock" else "u4")
        if base.startswith("%lanemask_"):
            return self._lanemask(base[-2:])
        sizes = {"%ntid": self.block, "%nctaid": self.grid}.get(base)
        place = AXES.index(axis) if axis else 0
        if sizes:
            return np.array([sizes[place]], "u4")
        counted = {"%tid": (self.thread, self.block), "%ctaid": (self.block_number, self.grid)}
        if base not in counted:
            return None
        place_in, sizes = counted[base]
        below = int(np.prod(sizes[:place]))
        found = (place_in // below % sizes[place]).astype("u4")
        return found[:1] if self.blocks == 1 and base == "%ctaid" else found

    def _lanemask(self, order):
        lane = (self.thread % WARP).astype("u8")
        one = np.uint64(1)
        below = (one << lane) - one
        found = {"eq": one << lane, "lt": below, "le": below | one << lane}
        found |= {"gt": ~(below | one << lane), "ge": ~below}
        return found[order].astype("u4")

    def name(self, thread: int) -> str:
        """Write a thread of a block as CUDA counts it: 5, or (5, 0)."""
        return _coordinates(thread, self.block)

    def place(self, thread: int) -> str:
        """Say in words which thread a lane is."""
        block = _coordinates(int(self.block_number[thread]), self.grid)
        return f"thread {self.name(int(self.thread[thread]))} of block {block}"

    def fail(self, thread: int, kind: type, words: str, line: int) -> None:
        """Raise an error of a thread: what, who, where."""
        raise kind(f"{words}. By {self.place(thread)}, in {line}")

    def check_warp(self, name: str, mask: np.ndarray | None, wanted: Any, line: int) -> None:
        """Raise BarrierError where a thread that must take part in a warp's instruction is elsewhere."""
        if mask is None:
            return
        rows: Any = mask.reshape(-1, WARP)
        bits: Any = (
            self.spread(wanted).reshape(-1, WARP)[:, :1] >> np.arange(WARP, dtype="u4")
        ) & 1
        alive = self.alive.reshape(-1, WARP)
        absent: Any = (rows.any(axis=1)[:, None] & alive & ~rows & (bits == 1)).reshape(-1)
        if absent.any():
            words = f"{name} waits for a thread of its warp that took another branch"
            self.fail(int(absent.argmax()), BarrierError, words, line)


def _coordinates(number, sizes):
    found = (number % sizes[0], number // sizes[0] % sizes[1], number // sizes[0] // sizes[1])
    if sizes[1] == sizes[2] == 1:
        return str(found[0])
    return str(found[:2] if sizes[2] == 1 else found)


def reader(operand: str, kind: str, names: dict) -> Callable:
    """Return a function lanes → values of an operand as type `kind`; `names` are addresses of variables."""
    if operand[0] == "!":
        positive = reader(operand[1:], kind, names)
        return lambda lanes: ~positive(lanes)
    if operand in names:
        value = np.array([names[operand]], "u8")
        return lambda lanes: decode(value, kind)
    if re.fullmatch(r"-?\d.*", operand):
        value = _immediate(operand, kind)
        return lambda lanes: value
    if operand.startswith("%") and not lanes_know(operand):
        return lambda lanes: decode(lanes.special(operand), kind)
    return lambda lanes: decode(lanes.read(operand), kind)


SPECIAL = (
    "%tid",
    "%ntid",
    "%ctaid",
    "%nctaid",
    "%laneid",
    "%warpid",
    "%clock",
    "%lanemask_",
    "%globaltimer",
)


def lanes_know(operand: str) -> bool:
    """True where an operand is a register of the kernel, not a special one."""
    return not operand.startswith(SPECIAL)


def _immediate(text, kind):
    if kind == "pred":
        return np.array([number(text) != 0])
    bits = np.array([number(text) & 0xFFFFFFFFFFFFFFFF], "u8")
    return decode(bits, kind)
