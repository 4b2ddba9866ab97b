"""The tensor cores' small products, mma and wmma: which lane holds which element, and the product itself.

Layouts of mma: NVIDIA, "PTX ISA", chapter "Warp Level Matrix Multiply-Accumulate Instructions". PTX leaves the layout of
wmma's fragments open: here element e of a tile is in lane e % 32, and what doesn't fill the registers is there twice.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from practice_gpus.kernels import access
from practice_gpus.kernels.formats import NARROW, decode, encode
from practice_gpus.kernels.lanes import reader
from practice_gpus.kernels.ptx_parser import BITS

WARP = 32
SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
WHOLE_NUMBERS = ("s8", "u8", "s4", "u4", "s32")


def _shape(parts):
    found = next(SHAPE.fullmatch(each) for each in parts if SHAPE.fullmatch(each))
    return tuple(int(each) for each in found.groups())


def _kinds(parts):
    """Return the types of d, a, b and c."""
    found = [each for each in parts if each in BITS]
    return (found[0], "f16", "f16", found[1]) if len(found) == 2 else tuple(found)


def operations(parts: tuple) -> int:
    """Return the floating-point (or integer) operations of one warp's product."""
    return 2 * int(np.prod(_shape(parts)))


def multiply(parts: tuple, a: list, b: list, c: list) -> list:
    """Return the registers of d = a × b + c of every warp: lists of arrays, one of each register.

    a has rows l/4 and l/4 + 8 in lane l, b column l/4, c and d two neighbors of those rows.
    """
    result, left_kind, right_kind, kind = _kinds(parts)
    rows, columns, depth = _shape(parts)
    left = [_elements(each, left_kind) for each in a]  # of each register: warp, lane, element
    right = [_elements(each, right_kind) for each in b]
    warps, _, count = left[0].shape
    group, inside = np.divmod(np.arange(WARP), 4)
    k = inside[:, None] * count + np.arange(count)
    matrix_a = np.zeros((warps, max(rows, 16), depth), left[0].dtype)
    matrix_b = np.zeros((warps, depth, columns), right[0].dtype)
    halves = rows // 8
    for place, each in enumerate(left):
        matrix_a[:, group[:, None] + 8 * (place % halves), k + 4 * count * (place // halves)] = each
    for place, each in enumerate(right):
        matrix_b[:, k + 4 * count * place, group[:, None]] = each
    product = matrix_a @ matrix_b
    packed = 2 if kind == "f16" else 1
    found = []
    for place, old in enumerate(c):
        row = group + 8 * (place * packed // 2)
        pair = [2 * inside + (place * packed + each) % 2 for each in range(packed)]
        parts_ = np.stack([product[:, row, column].reshape(-1) for column in pair], axis=1)
        before = decode(old, "f16x2" if packed == 2 else kind).reshape(parts_.shape)
        found.append(_sum(before, parts_, result, "satfinite" in parts))
    return found


def _sum(before, product, kind, limited):
    """Return the register of before + product, as type `kind`."""
    if kind == "s32":
        total = before.astype("i8") + product
        return (np.clip(total, -(2**31), 2**31 - 1) if limited else total).astype("i4").reshape(-1)
    total = before + product
    return encode(total, "f16x2") if kind == "f16" else encode(total, kind).reshape(-1)


def _elements(bits, kind):
    """Return the elements that a register packs, as [warp, lane, element] of floats or integers."""
    bits = np.ascontiguousarray(bits).reshape(-1, WARP)
    if kind == "f64":
        return bits.view("f8")[:, :, None]
    bits = bits.view("u4")
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view("f4")[:, :, None]
    if kind in ("s4", "u4"):
        nibbles = (bits[:, :, None] >> np.arange(0, 32, 4, dtype="u4")) & 15
        return (nibbles.astype("i4") ^ 8) - 8 if kind == "s4" else nibbles.astype("i4")
    if BITS[kind] == 8:
        found = bits.view("u1").reshape(*bits.shape, 4)
        return (
            decode(found, kind)
            if kind in NARROW
            else found.view("iu"[kind == "u8"] + "1").astype("i4")
        )
    return decode(bits.view("u2").reshape(*bits.shape, 2), kind).astype("f4")


def wmma(instruction: Any, machine: Any) -> tuple:
    """Return the step of wmma.load, wmma.store or wmma.mma."""
    make = {"load": _load, "store": _store, "mma": _product}[instruction.parts[1]]
    return "warp", make(instruction, machine), None


def _tile(instruction):
    """Return (rows, columns) of the tile that a load or store moves, and whether rows lie one after another."""
    m, n, k = _shape(instruction.parts)
    return {"a": (m, k), "b": (k, n)}.get(instruction.parts[2], (m, n)), "row" in instruction.parts


def _elements_of(size, registers, kind):
    """Return for each register of each lane the elements that it holds: [register, lane, element]."""
    each = max(1, 32 // BITS[kind])
    slots = np.arange(registers * each)[:, None] * WARP + np.arange(WARP)
    return (slots % size).reshape(registers, each, WARP).swapaxes(1, 2)


def _reach(instruction, machine, address, stride, kind):
    """Return function(lanes) → what each lane's elements are and their offsets, and the way to memory."""
    (rows, columns), by_rows = _tile(instruction)
    size = BITS[kind] // 8
    found = access.counted(instruction, machine, kind=instruction.parts[1], size=size)
    reach = access.Reach(instruction, machine, address, instruction.parts[1], size, found)
    read = reader(stride, "u32", machine.names)

    def offsets(lanes, elements):
        row, column = np.divmod(elements, columns)
        step = np.int64(read(lanes).flat[0])
        place = row * step + column if by_rows else column * step + row
        return np.tile(place, lanes.count // WARP) * size

    return rows * columns, reach, offsets


def _load(instruction, machine):
    registers, address, stride = instruction.operands
    registers = registers if isinstance(registers, list) else [registers]
    kind = instruction.type
    size, reach, offsets = _reach(instruction, machine, address, stride, kind)
    places = _elements_of(size, len(registers), kind)

    def run(machine, lanes, mask):
        for name, elements in zip(registers, places, strict=True):
            parts = []
            for element in elements.T:
                values = access.fetch(machine, lanes, mask, reach, offsets(lanes, element))
                parts.append(values)
            joined = np.ascontiguousarray(np.stack(parts, axis=1))
            lanes.write(name, joined.view(f"u{joined.itemsize * len(parts)}").reshape(-1), mask)

    return run


def _store(instruction, machine):
    address, registers, stride = instruction.operands
    registers = registers if isinstance(registers, list) else [registers]
    kind = instruction.type
    size, reach, offsets = _reach(instruction, machine, address, stride, kind)
    places = _elements_of(size, len(registers), kind)

    def run(machine, lanes, mask):
        for name, elements in zip(registers, places, strict=True):
            whole = np.ascontiguousarray(lanes.spread(lanes.read(name)))
            parts = whole.view(f"u{BITS[kind] // 8}").reshape(len(whole), -1)
            for column, element in enumerate(elements.T):
                where = offsets(lanes, element)
                memory, at, active = reach.go(machine, lanes, mask, where)
                access.put(
                    machine, lanes, reach, memory, at, active, [parts[:, column]], BITS[kind] // 8
                )

    return run


def _product(instruction, machine):
    target, *sources = [each if isinstance(each, list) else [each] for each in instruction.operands]
    m, n, k = _shape(instruction.parts)
    kinds = _kinds(instruction.parts)
    shapes = [(m, k), (k, n), (m, n)]
    flops = operations(instruction.parts)

    def matrix(lanes, group, kind, shape):
        places = _elements_of(shape[0] * shape[1], len(group), kind)
        found = np.zeros((lanes.count // WARP, shape[0] * shape[1]), _work(kind))
        for name, elements in zip(group, places, strict=True):
            bits = np.ascontiguousarray(lanes.spread(lanes.read(name)))
            values = (
                bits.view(_work(kind)).reshape(-1, WARP, 1)
                if BITS[kind] >= 32 and kind != "tf32"
                else _elements(bits, kind)
            )
            found[:, elements] = values
        return found.reshape(-1, *shape)

    def run(machine, lanes, mask):
        machine.tensor_flops += flops * int(lanes.on(mask).reshape(-1, WARP).any(1).sum())
        a, b, c = (matrix(lanes, *each) for each in zip(sources, kinds[1:], shapes, strict=True))
        total = _sum(
            c, a @ b, kinds[0] if kinds[0] != "f16" else "f32", "satfinite" in instruction.parts
        )
        total = total.reshape(-1, m * n)
        for name, elements in zip(target, _elements_of(m * n, len(target), kinds[0]), strict=True):
            found = total[:, elements]
            if kinds[0] == "f16":
                found = encode(found.reshape(-1, 2), "f16x2")
            lanes.write(name, np.ascontiguousarray(found).reshape(-1), mask)

    return run


def _work(kind):
    return "i4" if kind in WHOLE_NUMBERS else "f8" if kind == "f64" else "f4"
