"""How a register's bits are read as numbers, and written back: all types of PTX, a NumPy lane for each thread.

A register is an array of one unsigned integer (or float of the same size) for each thread, or of one element where all
threads have the same value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from practice_gpus.kernels import exact

INTEGERS = {
    f"{kind}{bits}": f"{'i' if kind == 's' else 'u'}{bits // 8}"
    for kind in "sub"
    for bits in (8, 16, 32, 64)
}
NUMBERS = {**INTEGERS, "f16": "f2", "f32": "f4", "f64": "f8", "tf32": "f4"}
PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "s16x2": "s16", "u16x2": "u16"}
PAIRS |= {"e4m3x2": "e4m3", "e5m2x2": "e5m2"}
NARROW = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}  # the largest
DTYPES = {name: np.dtype(code) for name, code in NUMBERS.items()} | {"pred": np.dtype(bool)}
UNSIGNED = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}


def resize(bits: np.ndarray, size: int, signed: bool = False) -> np.ndarray:
    """Return an array's bits in elements of `size` bytes: cut, or filled with zeros (`signed`: with the sign)."""
    if bits.dtype.itemsize == size:
        return bits
    if bits.dtype == bool:
        return bits.astype(UNSIGNED[size])
    whole = bits.view(UNSIGNED[bits.dtype.itemsize])
    if signed:
        whole = whole.view(f"i{whole.itemsize}").astype(f"i{size}")
    return whole.astype(UNSIGNED[size])


def decode(bits: np.ndarray, kind: str) -> np.ndarray:
    """Return what `bits` mean as type `kind` of PTX; pairs have a second dimension of 2, bfloat16 becomes float32."""
    if kind in PAIRS:
        size = 2 if kind[0] == "e" else 4
        halves = np.ascontiguousarray(resize(bits, size)).view(f"u{size // 2}").reshape(-1, 2)
        return decode(halves, PAIRS[kind])
    if kind in NARROW:
        table = torch.arange(256, dtype=torch.uint8).view(NARROW[kind][0]).float().numpy()
        return table[resize(bits, 1).view("u1")]
    if kind == "bf16":
        return (resize(bits, 2).view("u2").astype("u4") << 16).view("f4")
    dtype = DTYPES[kind]
    if bits.dtype == dtype:
        return bits
    return resize(bits, dtype.itemsize).view(dtype)


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    """Return the bits of `values` as type `kind`, rounded to nearest even where they must be."""
    if kind in PAIRS:
        halves = encode(values, PAIRS[kind])
        return np.ascontiguousarray(halves).view(f"u{2 * halves.itemsize}").reshape(-1)
    if kind in NARROW:
        dtype, most = NARROW[kind]
        inside = torch.from_numpy(np.ascontiguousarray(np.clip(values, -most, most), "f4"))
        return inside.to(dtype).view(torch.uint8).numpy()
    if kind == "bf16":
        return to_bfloat16(values)
    dtype = DTYPES[kind]
    return values if values.dtype == dtype else values.astype(dtype)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return values rounded to bfloat16, as 16-bit integers."""
    if values.dtype != np.float32:
        short: Any = values.astype("f4")
        values = exact.to_odd(short, (values - short.astype("f8")).astype("f4"))
    bits = np.ascontiguousarray(values, dtype="f4").view("u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype("u2")


def to_tf32(values: np.ndarray, way: str = "rz") -> np.ndarray:
    """Return float32 with the 10 bits of mantissa that a tensor core keeps: ties away ("rna"), to even ("rn"), or cut."""
    bits = np.ascontiguousarray(values, dtype="f4").view("u4")
    more = {"rna": 0x1000, "rn": 0xFFF + (bits >> 13 & 1), "rz": 0}[way]
    found = ((bits + np.asarray(more, "u4")) & np.uint32(0xFFFFE000)).view("f4")
    return np.where(np.isnan(values), values, found)


def is_float(kind: str) -> bool:
    """True where the type is a floating-point one, or a pair of them."""
    return kind[0] in "fe" or kind[:2] in ("bf", "tf")
