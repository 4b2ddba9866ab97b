"""The threads that run at a time: whole blocks, a NumPy lane for each thread, their registers and their masks."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from practice_gpus.kernels.errors import BarrierError, Unsupported
from practice_gpus.kernels.formats import decode, resize
from practice_gpus.kernels.ptx_parser import number

WARP = 32
AXES = "xyz"
NUMBER = re.compile(
    r"-?(0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+|\d+U?|\d+\.\d*)"
)


class Lanes:
    """Threads of the blocks numbered `first` to `first + blocks`; a block takes whole warps, its last may be part empty.

    A mask is an array of bools, or None where every thread that has not returned takes part.
    """

    def __init__(self, module, grid, block, first, blocks, dynamic=0):
        self.module = module
        self.dynamic = dynamic  # bytes of shared memory that the launch gave
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
        self.arguments = {}  # parameter of a function → its bytes, a row for each thread
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

    def on(self, mask: np.ndarray | None) -> np.ndarray:
        """Return the threads that take part, as an array of bools."""
        active = self.active(mask)
        return np.ones(self.count, bool) if active is None else active

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

    def axis(self, what: str, axis: str) -> np.ndarray:
        """Return %tid, %ctaid ("tid", "ctaid"), or the sizes that they count to ("ntid", "nctaid")."""
        sizes = self.block if what.endswith("tid") else self.grid
        place = AXES.index(axis)
        if what[0] == "n":
            return np.array([sizes[place]], "u4")
        number = self.thread if what == "tid" else self.block_number
        found = (number // int(np.prod(sizes[:place])) % sizes[place]).astype("u4")
        return found[:1] if self.blocks == 1 and what == "ctaid" else found

    def lanemask(self, order: str) -> np.ndarray:
        """Return the bits of the lanes of a warp that are "eq", "lt", "le", "gt" or "ge" the thread's own."""
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
        return self.place_of(int(self.block_number[0]) * self.padded + thread)

    def place_of(self, number: int) -> str:
        """Say in words which thread of the whole grid has a number, each block taken as whole warps."""
        block, thread = divmod(number, self.padded)
        return f"thread {self.name(thread)} of block {_coordinates(block, self.grid)}"

    def fail(self, thread: int, kind: type, words: str, line: int) -> None:
        """Raise an error of a thread: what, who, where."""
        raise kind(f"{words}. By {self.place(thread)}, in {line}")

    def absent(self, on: np.ndarray, wanted: Any, line: int) -> np.ndarray:
        """Return which threads a warp's instruction still waits for; `wanted`: bits of lanes, of each thread, or None."""
        rows: Any = on.reshape(-1, WARP)
        alive = self.alive.reshape(-1, WARP)
        if wanted is None:
            return (rows.any(axis=1)[:, None] & alive & ~rows).reshape(-1)
        bits: Any = (self.spread(wanted)[:, None] >> np.arange(WARP, dtype="u4") & 1).astype(bool)
        outside = on & ~bits[self.index, self.index % WARP]
        if outside.any():
            words = "the mask of threads lacks the thread that calls"
            self.fail(int(outside.argmax()), BarrierError, words, line)
        needed = (bits & on[:, None]).reshape(-1, WARP, WARP).any(axis=1)
        return (needed & alive & ~rows).reshape(-1)

    def coordinates(self, thread: int) -> tuple:
        """Return ((x, y, z) of the block, (x, y, z) of the thread) of a lane."""
        found = []
        for numbers, sizes in ((self.block_number, self.grid), (self.thread, self.block)):
            at = int(numbers[thread])
            found.append((at % sizes[0], at // sizes[0] % sizes[1], at // sizes[0] // sizes[1]))
        return tuple(found)


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
    if NUMBER.fullmatch(operand):
        value = _immediate(operand, kind)
        return lambda lanes: value
    if operand in SPECIAL:
        return lambda lanes: decode(SPECIAL[operand](lanes), kind)
    return lambda lanes: decode(lanes.read(operand), kind)


def _given(kind, *values):
    return np.array(values, kind)


SPECIAL: dict[str, Callable] = {
    f"%{what}.{axis}": partial(Lanes.axis, what=what, axis=axis)
    for what in ("tid", "ntid", "ctaid", "nctaid")
    for axis in AXES
}
SPECIAL |= {
    f"%lanemask_{order}": partial(Lanes.lanemask, order=order)
    for order in ("eq", "lt", "le", "gt", "ge")
}
SPECIAL |= {
    "WARP_SZ": lambda lanes: _given("u4", WARP),
    "%laneid": lambda lanes: (lanes.thread % WARP).astype("u4"),
    "%warpid": lambda lanes: (lanes.thread // WARP).astype("u4"),
    "%dynamic_smem_size": lambda lanes: _given("u4", lanes.dynamic),
    "%clock": lambda lanes: _given("u4", lanes.step),
    "%clock64": lambda lanes: _given("u8", lanes.step),
    "%globaltimer": lambda lanes: _given("u8", lanes.step),
    "%globaltimer_lo": lambda lanes: _given("u4", lanes.step),
}
WHY = {  # special registers that have no value here
    "%smid": "which SM a block runs on isn't decided here",
    "%nsmid": "the kernel isn't given SMs",
    "%envreg": "only barriers of a whole grid use them here",
    "%cluster": "clusters of blocks aren't executed here",
    "%ncluster": "clusters of blocks aren't executed here",
    "%is_explicit": "clusters of blocks aren't executed here",
}


def check_operands(operands: list, module: Any, names: Any) -> None:
    """Raise Unsupported for a word that is no register, number, variable or special register known here."""
    for operand in operands:
        if isinstance(operand, list):
            check_operands(operand, module, names)
            continue
        words = operand[1:2] if isinstance(operand, tuple) else operand.split("|")
        for word in words:
            word = word.removeprefix("!")
            if word in SPECIAL or word in names or word == "_" or module.is_register(word):
                continue
            if not NUMBER.fullmatch(word):
                why = next((words for name, words in WHY.items() if word.startswith(name)), "")
                raise Unsupported(f"{word} isn't known here{why and ': ' + why}")


def _immediate(text, kind):
    if kind == "pred":
        return np.array([number(text) != 0])
    bits = np.array([number(text) & 0xFFFFFFFFFFFFFFFF], "u8")
    return decode(bits, kind)
