"""cvt of PTX: from one type to another, with its rounding and limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from practice_gpus.kernels.formats import DTYPES, decode, encode, is_float, to_tf32

ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(parts: list) -> Callable | None:
    """Return a function from the operands' bits to the result's bits, or None where the types aren't known here."""
    known = [each for each in parts[1:] if each in DTYPES or each in ("bf16", "f16x2", "bf16x2")]
    if len(known) != 2:
        return None
    target, origin = known
    directed = {"rm", "rp"} & set(parts) or ("rz" in parts and not is_float(origin))
    if is_float(target) and directed:
        return None
    if target in ("f16x2", "bf16x2"):
        half = target.removesuffix("x2")
        return lambda high, low: _joined(
            _one(low, parts, half, origin), _one(high, parts, half, origin)
        )
    return lambda bits: _one(bits, parts, target, origin)


def _joined(low, high):
    low, high = (encoded.view("u2").astype("u4") for encoded in (low, high))
    return low | (high << np.uint32(16))


def _one(bits, parts, target, origin):
    values = decode(bits, origin)
    if "relu" in parts:
        values = np.maximum(values, 0)
    rounding = next((ROUND[each] for each in parts if each in ROUND), None)
    if target == "tf32":
        return to_tf32(values)
    if is_float(target):
        if is_float(origin) and rounding:
            values = rounding(values)
        if "rz" in parts:
            return _towards_zero(values, target)
        values = np.clip(values, 0, 1) if "sat" in parts else values
        return encode(values, target)
    if is_float(origin):
        return _to_integer((rounding or np.rint)(values), DTYPES[target])
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
        return (np.ascontiguousarray(values, "f4").view("u4") >> 16).astype("u2")
    rounded = values.astype(DTYPES[target])
    below = np.nextafter(rounded, rounded.dtype.type(0))
    return np.where(np.abs(rounded.astype("f8")) > np.abs(values), below, rounded)


def _to_integer(values, dtype):
    """Integers of whole floats, limited to what the type holds; 0 for what isn't a number."""
    limits = np.iinfo(dtype)
    high = values >= float(limits.max)
    low = values <= float(limits.min)
    inside = np.where(high | low | np.isnan(values), 0, values).astype(dtype)
    return np.where(high, limits.max, np.where(low, limits.min, inside)).astype(dtype)
