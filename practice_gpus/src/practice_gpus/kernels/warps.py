"""Instructions of a whole warp: shuffles, votes, reductions, and the tensor cores' small matrix product.

Layouts: NVIDIA, "PTX ISA", chapters "Warp Level Matrix Multiply-Accumulate Instructions" and "shfl.sync".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels.errors import BarrierError
from practice_gpus.kernels.formats import decode

if TYPE_CHECKING:
    from practice_gpus.kernels.lanes import Lanes

WARP = 32
SHAPE = re.compile(r"m16n8k(\d+)")


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


def check_source(lanes: Lanes, source: np.ndarray, mask: np.ndarray | None, line: int) -> None:
    """Raise BarrierError where a thread reads the register of one that doesn't take part."""
    on = lanes.active(mask)
    if on is None:
        return
    asleep = on & ~on[lanes.index - lanes.index % WARP + source]
    if asleep.any():
        thread = int(asleep.argmax())
        words = (
            f"a shuffle reads lane {source[thread]}, which takes no part: the value is undefined"
        )
        lanes.fail(thread, BarrierError, words, line)


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
    """Return for each thread the reduction of its warp's integers."""
    function = {"add": np.add, "min": np.minimum, "max": np.maximum}
    function |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    limits = np.iinfo(values.dtype)
    neutral = {"min": limits.max, "max": limits.min, "and": -1}.get(mode, 0)
    rows = np.where(on, values, np.array(neutral).astype(values.dtype)).reshape(-1, WARP)
    return np.repeat(function[mode].reduce(rows, axis=1, dtype=values.dtype), WARP)


def multiply(parts: list, a: list, b: list, c: list) -> list:
    """Return the registers of d = a × b + c of every warp: lists of arrays, one of each register.

    a is 16 × k, b is k × 8, c and d are 16 × 8. Lane l holds rows l/4 and l/4 + 8 of a and c, and column l/4 of b.
    """
    kinds = [each for each in parts if each in KINDS]
    result_kind, kind = kinds[0], kinds[1]
    left = np.stack([_elements(each, kind) for each in a], axis=2)  # warp, lane, register, element
    right = np.stack([_elements(each, kind) for each in b], axis=2)
    warps, _, _, count = left.shape
    group, inside = np.divmod(np.arange(WARP), 4)
    k = inside[:, None] * count + np.arange(count)
    matrix_a = np.zeros((warps, 16, 4 * count * len(b)), left.dtype)
    for place in range(len(a)):
        row = group[:, None] + 8 * (place & 1)
        matrix_a[:, row, k + 4 * count * (place >> 1)] = left[:, :, place]
    matrix_b = np.zeros((warps, 4 * count * len(b), 8), left.dtype)
    for place in range(len(b)):
        matrix_b[:, k + 4 * count * place, group[:, None]] = right[:, :, place]
    product = matrix_a @ matrix_b
    return _add(product, c, result_kind, group, inside)


KINDS = ("f32", "f16", "bf16", "tf32", "s32", "s8", "u8", "f64")


def _add(product, c, kind, group, inside):
    """Return c plus the product in c's layout: two neighbors of a row, then those of the row eight below."""
    packed = kind == "f16"
    found = []
    for place in range(2 if packed else 4):
        row = group + 8 * (place if packed else place >> 1)
        columns = [2 * inside, 2 * inside + 1] if packed else [2 * inside + (place & 1)]
        parts = np.stack([product[:, row, column].reshape(-1) for column in columns], axis=1)
        old = decode(c[place], "f16x2" if packed else kind).reshape(parts.shape)
        total = (old + parts).astype(old.dtype)
        found.append(
            np.ascontiguousarray(total).view("u4").reshape(-1) if packed else total.reshape(-1)
        )
    return found


def _elements(bits, kind):
    """Return the elements that a register packs, as [warp, lane, element] of floats or integers."""
    bits = np.ascontiguousarray(bits).view("u4").reshape(-1, WARP)
    if kind == "tf32":
        values = bits.view("f4")[:, :, None]
        return (values.view("u4") & np.uint32(0xFFFFE000)).view("f4")
    if kind in ("s8", "u8"):
        return bits.view("i1" if kind == "s8" else "u1").reshape(*bits.shape, 4).astype("i4")
    halves = bits.view("u2").reshape(*bits.shape, 2)
    return decode(halves, kind).astype("f4")


def size(parts: list) -> int | None:
    """Return k of a product m16n8k…, or None where the shape isn't executed here."""
    found = next((SHAPE.fullmatch(each) for each in parts if SHAPE.fullmatch(each)), None)
    return int(found[1]) if found else None


def load_matrices(memory: np.ndarray, places: np.ndarray, count: int, transposed: bool) -> list:
    """Return the registers of ldmatrix: `count` matrices of 8 × 8 16-bit numbers; `places` of the rows, by thread."""
    warps = len(places) // WARP
    rows: Any = places.reshape(warps, WARP)[:, : 8 * count] // 2
    matrices = memory[rows[:, :, None] + np.arange(8)].reshape(warps, count, 8, 8)
    if transposed:
        matrices = matrices.swapaxes(2, 3)
    pairs = np.ascontiguousarray(matrices).view("u4").reshape(warps, count, WARP)
    return [np.ascontiguousarray(pairs[:, place]).reshape(-1) for place in range(count)]
