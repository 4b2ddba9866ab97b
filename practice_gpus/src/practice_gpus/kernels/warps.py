"""Instructions of a whole warp: shuffles, votes, reductions, and matrices on their way to the tensor cores.

Source: NVIDIA, "PTX ISA", "shfl.sync", "ldmatrix", "stmatrix".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels.errors import BarrierError

if TYPE_CHECKING:
    from practice_gpus.kernels.lanes import Lanes

WARP = 32


def shuffle(mode: str, values: np.ndarray, amount: np.ndarray, clamp: np.ndarray) -> tuple:
    """Return (values of other threads, whether each had such a thread, the lane that it reads); arrays of all threads."""
    lane: Any = np.arange(len(values)) % WARP
    segment = (clamp >> 8) & 31
    limit = (lane & segment) | (clamp & 31 & ~segment)
    first = lane & segment
    wanted = {
        "up": lane - amount,
        "down": lane + amount,
        "bfly": lane ^ amount,
        "idx": first | (amount & ~segment),
    }[mode]
    inside = wanted >= limit if mode == "up" else wanted <= limit
    source = np.where(inside, wanted, lane)
    return values[np.arange(len(values)) - lane + source], inside, source


def undefined(
    machine: Any, lanes: Lanes, source: np.ndarray, mask: Any, found: np.ndarray, line: Any
) -> np.ndarray:
    """Return what a shuffle finds, undefined values where a thread reads one that doesn't take part; notes the first."""
    on = lanes.active(mask)
    if on is None:
        return found
    asleep = on & ~on[lanes.index - lanes.index % WARP + source]
    if asleep.any() and not machine.unset:
        thread = int(asleep.argmax())
        words = (
            f"a shuffle reads lane {source[thread]}, which takes no part: the value is undefined"
        )
        machine.unset = BarrierError, words, lanes.place(thread), line
    return np.where(asleep, found.dtype.type(machine.fill * 0x01010101), found)


def ballot(predicate: np.ndarray, on: np.ndarray) -> np.ndarray:
    """Return for each thread the 32 bits of its warp's predicate."""
    rows = (predicate & on).reshape(-1, WARP)
    bits = (rows.astype("u8") << np.arange(WARP, dtype="u8")).sum(1).astype("u4")
    return np.repeat(bits, WARP)


def equals(values: np.ndarray, on: np.ndarray) -> np.ndarray:
    """Return for each thread the 32 bits that say which active threads of its warp have its value."""
    rows, active = values.reshape(-1, WARP), on.reshape(-1, WARP)
    same = (rows[:, :, None] == rows[:, None, :]) & active[:, None, :]
    return (same.astype("u8") << np.arange(WARP, dtype="u8")).sum(2).astype("u4").reshape(-1)


def vote(mode: str, predicate: np.ndarray, on: np.ndarray) -> np.ndarray:
    """Return for each thread whether all, any or none differ in its warp."""
    rows, active = predicate.reshape(-1, WARP), on.reshape(-1, WARP)
    every = (rows | ~active).all(1)
    some = (rows & active).any(1)
    found = {"all": every, "any": some, "uni": every | ~some}[mode]
    return np.repeat(found, WARP)


def reduce(mode: str, values: np.ndarray, on: np.ndarray) -> np.ndarray:
    """Return for each thread the reduction of its warp's numbers."""
    function = {"add": np.add, "min": np.minimum, "max": np.maximum}
    function |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    if values.dtype.kind == "f":
        function |= {"min": np.fmin, "max": np.fmax}
        function |= {"min with NaN": np.minimum, "max with NaN": np.maximum}
        neutral = np.inf if "min" in mode else -np.inf
    else:
        limits = np.iinfo(values.dtype)
        neutral = {"min": limits.max, "max": limits.min, "and": -1}.get(mode, 0)
    rows = np.where(on, values, np.array(neutral).astype(values.dtype)).reshape(-1, WARP)
    return np.repeat(function[mode].reduce(rows, axis=1, dtype=values.dtype), WARP)


def load_matrices(memory: np.ndarray, places: np.ndarray, count: int, transposed: bool) -> list:
    """Return the registers of ldmatrix: `count` matrices of 8 × 8 16-bit numbers; `places` of the rows, by thread."""
    warps = len(places) // WARP
    rows: Any = places.reshape(warps, WARP)[:, : 8 * count] // 2
    matrices = memory[rows[:, :, None] + np.arange(8)].reshape(warps, count, 8, 8)
    if transposed:
        matrices = matrices.swapaxes(2, 3)
    pairs = np.ascontiguousarray(matrices).view("u4").reshape(warps, count, WARP)
    return [np.ascontiguousarray(pairs[:, place]).reshape(-1) for place in range(count)]


def rows_of_matrices(values: list, turned: bool) -> list:
    """Return what stmatrix stores: for each lane the two halves of a row of 8 numbers, the reverse of `load_matrices`."""
    count = len(values)
    pairs = np.stack(
        [np.ascontiguousarray(each).view("u4").reshape(-1, WARP) for each in values], axis=1
    )
    matrices = pairs.view("u2").reshape(-1, count, 8, 8)
    matrices = np.ascontiguousarray(matrices.swapaxes(2, 3) if turned else matrices)
    rows = matrices.view("u8").reshape(len(matrices), count * 8, 2)
    whole: Any = np.zeros((len(matrices), WARP, 2), "u8")
    whole[:, : count * 8] = rows
    return [np.ascontiguousarray(whole[:, :, half]).reshape(-1) for half in (0, 1)]


def transposed(values: np.ndarray) -> np.ndarray:
    """Return the registers of movmatrix: an 8 × 8 matrix of 16-bit numbers in each warp, turned."""
    matrices = np.ascontiguousarray(values).view("u2").reshape(-1, 8, 8).swapaxes(1, 2)
    return np.ascontiguousarray(matrices).view("u4").reshape(-1)
