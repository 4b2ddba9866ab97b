"""cvt of PTX: from one type to another, with its rounding and limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from practice_gpus.kernels import exact
from practice_gpus.kernels.formats import DTYPES, NARROW, decode, encode, is_float, to_tf32

KINDS = {*DTYPES, "bf16", "f16x2", "bf16x2", *NARROW, *(f"{each}x2" for each in NARROW)}
ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(parts: tuple) -> Callable:
    """Return a function from the operands' bits to the result's bits."""
    target, origin = [each for each in parts[1:] if each in KINDS]
    if target[-2:] != "x2":
        return lambda bits: _one(bits, parts, target, origin)
    one = target.removesuffix("x2")
    if origin[-2:] == "x2":
        return lambda both: _one(both, parts, target, origin)
    return lambda high, low: _joined(_one(low, parts, one, origin), _one(high, parts, one, origin))


def _joined(low, high):
    size = low.itemsize
    low, high = (encoded.view(f"u{size}").astype(f"u{2 * size}") for encoded in (low, high))
    return low | (high << low.dtype.type(8 * size))


def _one(bits, parts, target, origin):
    values = decode(bits, origin)
    if "ftz" in parts and origin == "f32":
        values = exact.flush(values, "f32")
    if "relu" in parts:
        values = exact.relu(values)
    rounding = next((ROUND[each] for each in parts if each in ROUND), None)
    if target == "tf32":
        return to_tf32(values, parts[1])
    if is_float(target):
        if is_float(origin) and rounding:
            values = rounding(values)
        values = exact.to_unit(values.astype("f8")) if "sat" in parts else values
        found = _towards_zero(values, target) if "rz" in parts else encode(values, target)
        return exact.flush(found, target) if "ftz" in parts and target == "f32" else found
    if is_float(origin):
        return _to_integer(rounding(values), DTYPES[target], origin)
    if "sat" in parts:
        limits = np.iinfo(DTYPES[target])
        values = np.clip(
            values,
            max(limits.min, np.iinfo(values.dtype).min),
            min(limits.max, np.iinfo(values.dtype).max),
        )
    return values.astype(DTYPES[target])


def _towards_zero(values, target):
    """Return the bits of floats cut to a shorter type: never larger than they were."""
    if target == "bf16":
        cut = (np.ascontiguousarray(values, "f4").view("u4") >> 16).astype("u2")
        return np.where(np.isnan(values), np.uint16(0x7FFF), cut)
    rounded = values.astype(DTYPES[target])
    below = np.nextafter(rounded, rounded.dtype.type(0))
    return np.where(np.abs(rounded.astype("f8")) > np.abs(values.astype("f8")), below, rounded)


def _to_integer(values, dtype, origin):
    """Integers of whole floats, limited to what the type holds; of NaN 0, or the highest bit where f64 or 64 bits take part."""
    limits = np.iinfo(dtype)
    high = values >= float(limits.max)
    low = values <= float(limits.min)
    inside = np.where(high | low | np.isnan(values), 0, values).astype(dtype)
    if origin == "f64" or dtype.itemsize == 8:
        top = np.array(1 << 8 * dtype.itemsize - 1, "u8").astype(dtype)
        inside = np.where(np.isnan(values), top, inside)
    return np.where(high, limits.max, np.where(low, limits.min, inside)).astype(dtype)
