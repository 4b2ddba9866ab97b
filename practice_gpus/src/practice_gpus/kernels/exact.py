"""Floating-point arithmetic rounded once, in the direction that an instruction names.

An inexact sum is kept with its error (Knuth's two-sum, Dekker's product) and "rounded to odd", so that the last rounding
is the only one: Boldo and Melquiond, "Emulation of a FMA and Correctly Rounded Sums", IEEE Transactions on Computers 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

TINY = {"f16": 2.0**-14, "f16x2": 2.0**-14, "f64": 2.0**-1022}
SAFE = 2.0**400  # within it (and above its inverse) no part of a product of doubles is lost


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple:
    """Return a + b rounded, and what the rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def to_odd(total: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Return `total`, whose last bit is made 1 where something was lost."""
    even = np.ascontiguousarray(total).view(f"i{total.itemsize}") & 1 == 0
    change = even & (lost != 0) & np.isfinite(total) & np.isfinite(lost)
    towards = np.where(lost > 0, np.inf, -np.inf).astype(total.dtype)
    return np.where(change, np.nextafter(total, towards), total)


def fused(kind: str) -> Callable:
    """Return the function a × b + c of a floating-point type, rounded once."""
    if kind == "f64":
        return _fused64
    return _fused32 if kind == "f32" else _fused16


def _fused16(a, b, c):
    return to_odd(*two_sum(a.astype("f8") * b, c.astype("f8")))


def _fused32(a, b, c):
    """In double precision the product is exact; the sum's last bits matter where they lie halfway between two floats."""
    product = a.astype("f8") * b
    total = product + c
    doubt = np.ascontiguousarray(total).view("i8") & 0x1FFFFFFF == 0x10000000
    small = np.abs(total) < 2.0**-126
    if doubt.any() or (small.any() and total[small].any()):
        total = to_odd(*two_sum(product, c.astype("f8")))
    return total.astype("f4")


def _fused64(a, b, c):
    a, b, c = np.broadcast_arrays(a, b, c)
    plain = a * b + c
    high, low = _product(a, b)
    total, lost = two_sum(c, low)
    upper, rest = two_sum(high, total)
    found = upper + to_odd(*two_sum(lost, rest))
    size, other = np.abs(a * b), np.abs(c)
    inside = (size < SAFE) & (size > 1 / SAFE) & (other < SAFE) & ((other > 1 / SAFE) | (c == 0))
    inside &= (np.abs(a) < SAFE) & (np.abs(b) < SAFE)
    special = ~np.isfinite(plain) & ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    special |= (a == 0) | (b == 0)
    found = np.where(inside, found, plain)
    for place in np.flatnonzero(~inside & ~special):
        found[place] = _by_fractions(*(float(each[place]) for each in (a, b, c)))
    return found


def _by_fractions(a, b, c):
    total = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(total)
    except OverflowError:
        return np.copysign(np.inf, float(np.sign(total)))


def _product(a, b):
    """Return a × b rounded, and what the rounding lost."""
    high = a * b
    (a1, a2), (b1, b2) = _split(a), _split(b)
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def _split(a):
    scaled = a * 134217729.0  # 2^27 + 1
    upper = scaled - (scaled - a)
    return upper, a - upper


def directed(name: str, way: str) -> Callable:
    """Return add, sub, mul or fma of float32 rounded towards zero ("rz"), down ("rm") or up ("rp")."""

    def function(a, b, *rest):
        a, b, *rest = (each.astype("f8") for each in (a, b, *rest))
        if name == "mul":
            total, lost = a * b, np.zeros(1)
        else:
            first, second = {"add": (a, b), "sub": (a, -b)}.get(name) or (a * b, rest[0])
            total, lost = two_sum(first, second)
            if way == "rm":  # where a sum is zero and not of two equal zeros, it is -0
                total = np.where(
                    (total == 0) & (np.signbit(first) | np.signbit(second)), -0.0, total
                )
        nearest = total.astype("f4")
        above = (nearest > total) | ((nearest == total) & (lost < 0))
        below = (nearest < total) | ((nearest == total) & (lost > 0))
        past = {"rm": above, "rp": below, "rz": np.where(total > 0, above, below)}[way]
        limit = {"rm": -np.inf, "rp": np.inf, "rz": 0}[way]
        return np.where(past, np.nextafter(nearest, np.float32(limit)), nearest)

    return function


def saturating(function: Callable) -> Callable:
    """Return a function of int32 whose result is limited to what int32 holds."""
    return lambda *x: np.clip(function(*(each.astype("i8") for each in x)), -(2**31), 2**31 - 1)


def to_unit(x: np.ndarray) -> np.ndarray:
    """Return `x` limited to 0..1; what isn't a number becomes 0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def relu(x: np.ndarray) -> np.ndarray:
    """Return `x` with 0 in place of what is below it; a zero comes out as +0, NaN stays."""
    zero = x.dtype.type(0)
    return np.where(x < 0, zero, x) + zero


def extreme(name: str, with_nan: bool) -> Callable:
    """Return min or max of floats, where +0 > -0; of a number and NaN the number, or NaN (PTX ISA, min and max)."""
    choose = getattr(np, f"{name}imum" if with_nan else f"f{name}")

    def function(a, b):
        zero = a + b if name == "max" else -(-a - b)
        return np.where((a == 0) & (b == 0), zero, choose(a, b))

    return function


def flush(x: np.ndarray, kind: str) -> np.ndarray:
    """Return `x` with zeros of the same sign for numbers below the normal range of type `kind`."""
    small = np.abs(x) < TINY.get(kind, 2.0**-126)
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if small.any() else x
