"""The arithmetic of PTX on NumPy lanes: for each instruction, a function of its operands' values.

`make(parts)` returns (function, types of the operands, type of the result). Semantics: NVIDIA, "PTX ISA", chapter 9.7.
"""

from __future__ import annotations

import numpy as np

from practice_gpus.kernels import bits
from practice_gpus.kernels.formats import PAIRS, is_float

COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
COMPARE |= {"gt": np.greater, "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal}
COMPARE |= {"hi": np.greater, "hs": np.greater_equal}
LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _float(function):
    """An instruction on floats: `function`, limited to 0..1 by .sat."""

    def build(parts):
        kind = parts[-1]
        if "sat" in parts:
            return (lambda *x: np.clip(function(*x), 0, 1)), kind, kind
        return function, kind, kind

    return build


def _same(function):
    return lambda parts: (function, parts[-1], parts[-1])


def _fma(a, b, c):
    """a × b + c rounded once: in double precision the product of two floats is exact."""
    if a.dtype == np.float64:
        return a * b + c
    return (a.astype("f8") * b + c).astype(np.result_type(a, b, c))


def _multiply(parts):
    kind = parts[-1]
    if is_float(kind):
        return _float(np.multiply)(parts)
    return _wide(parts, lambda a, b: a * b)


def _multiply_add(parts):
    kind = parts[-1]
    if is_float(kind):
        return _float(_fma)(parts)
    if "wide" in parts:
        double = kind[0] + str(2 * int(kind[1:]))
        return (lambda a, b, c: _widened(a) * b + c), [kind, kind, double], double
    function, _, _ = _wide(parts, lambda a, b: a * b)
    return (lambda a, b, c: function(a, b) + c), kind, kind


def _widened(a):
    return a.astype(f"{a.dtype.kind}{2 * a.itemsize}")


def _wide(parts, multiply):
    """The product of integers: its lower half, its upper half, or the whole."""
    kind = parts[-1]
    if "wide" in parts:
        return (lambda a, b: _widened(a) * b), kind, kind[0] + str(2 * int(kind[1:]))
    if "hi" in parts:
        high = _high64 if kind.endswith("64") else _high
        return high, kind, kind
    return multiply, kind, kind


def _high(a, b):
    return ((_widened(a) * b) >> (8 * a.itemsize)).astype(a.dtype)


def _high64(a, b):
    """The upper 64 bits of a 128-bit product."""
    x, y = a.view("u8"), b.view("u8")
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> shift, y & low, y >> shift
    middle = x1 * y0 + (x0 * y0 >> shift)
    carry = (middle & low) + x0 * y1
    found = x1 * y1 + (middle >> shift) + (carry >> shift)
    if a.dtype.kind == "i":
        found = found - np.where(a < 0, y, 0) - np.where(b < 0, x, 0)
    return found.view(a.dtype)


def _divide(parts):
    if is_float(parts[-1]):
        return _float(np.true_divide)(parts)
    return _integer_quotient, parts[-1], parts[-1]


def _integer_quotient(a, b):
    """Rounded towards zero; by zero, all bits are set, as on the GPU."""
    quotient = a // np.where(b == 0, 1, b).astype(b.dtype)
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def _remainder(a, b):
    return (a - _integer_quotient(a, b) * b).astype(a.dtype)


def _least(parts):
    return _extreme(parts, np.fmin, np.minimum)


def _largest(parts):
    return _extreme(parts, np.fmax, np.maximum)


def _extreme(parts, without_nan, plain):
    kind = parts[-1]
    function = without_nan if is_float(kind) and "NaN" not in parts else plain
    if "relu" in parts:
        return (lambda a, b: np.maximum(function(a, b), 0)), kind, kind
    return function, kind, kind


def _compare(parts):
    """setp: compares, and joins with a predicate where there is a third operand."""
    order, kind = parts[1], parts[-1]
    kind = kind.replace("b", "u") if kind[0] == "b" and kind[1:].isdigit() else kind
    join = next((LOGIC[each] for each in parts[2:-1] if each in LOGIC), None)

    def function(a, b, c=None):
        found = _ordered(order, a, b)
        return found if c is None else join(found, c)

    return function, [kind, kind, "pred"], "pred"


def _set(parts):
    """set: a comparison whose result is a number, 1.0 or all bits."""
    order, target, kind = parts[1], parts[-2], parts[-1]
    true = 1.0 if is_float(target) else -1

    def function(a, b):
        return np.where(_ordered(order, a, b), true, 0)

    return function, kind, target


def _ordered(order, a, b):
    if order == "num":
        return ~(np.isnan(a) | np.isnan(b))
    if order == "nan":
        return np.isnan(a) | np.isnan(b)
    if len(order) == 3 and a.dtype.kind == "f":  # equ, ltu …: true where one isn't a number
        return COMPARE[order[:2]](a, b) | np.isnan(a) | np.isnan(b)
    found = COMPARE[order](a, b)
    if order == "ne" and a.dtype.kind == "f":
        return found & ~(np.isnan(a) | np.isnan(b))
    return found


def _select(parts):
    return (lambda a, b, p: np.where(p, a, b)), [parts[-1], parts[-1], "pred"], parts[-1]


def _copy_sign(a, b):
    return np.copysign(b, a)


def _dot4(parts):
    """dp4a: four products of bytes, added to a 32-bit number."""
    first, second = ("i1" if kind == "s32" else "u1" for kind in parts[1:3])

    def function(a, b, c):
        x = np.ascontiguousarray(a).view(first).reshape(-1, 4).astype("i4")
        y = np.ascontiguousarray(b).view(second).reshape(-1, 4).astype("i4")
        return (x * y).sum(1, dtype="i4") + c.view("i4")

    return function, "u32", "s32"


def _difference(a, b, c):
    return np.where(a > b, a - b, b - a) + c


MAKERS = {
    "add": _float(np.add), "sub": _float(np.subtract), "mul": _multiply, "mad": _multiply_add,
    "fma": _float(_fma), "div": _divide, "rem": _same(_remainder), "neg": _same(np.negative),
    "abs": _same(np.abs), "min": _least, "max": _largest, "sad": _same(_difference),
    "rcp": _float(np.reciprocal), "sqrt": _float(np.sqrt), "ex2": _float(np.exp2),
    "rsqrt": _float(lambda a: 1 / np.sqrt(a)), "lg2": _float(np.log2), "sin": _float(np.sin),
    "cos": _float(np.cos), "tanh": _float(np.tanh), "copysign": _same(_copy_sign),
    "setp": _compare, "set": _set, "selp": _select, "dp4a": _dot4,
    **bits.MAKERS,
}  # fmt: skip


EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "fma": lambda a, b, c: a * b + c}


def _directed(parts, way):
    """Float32 arithmetic rounded towards zero, down or up: computed in double precision, then stepped where it must be."""
    if parts[-1] != "f32" or parts[0] not in EXACT or "sat" in parts:
        return None

    def function(*operands):
        exact = EXACT[parts[0]](*(each.astype("f8") for each in operands))
        nearest = exact.astype("f4")
        limit = {"rm": -np.inf, "rp": np.inf, "rz": 0}[way]
        past = {"rm": nearest > exact, "rp": nearest < exact, "rz": np.abs(nearest) > np.abs(exact)}
        return np.where(past[way], np.nextafter(nearest, np.float32(limit)), nearest)

    return function, "f32", "f32"


def make(parts: list) -> tuple | None:
    """Return (function, types of operands, type of the result); None where the instruction is no arithmetic."""
    if parts[0] not in MAKERS or "cc" in parts:
        return None
    way = next((each for each in ("rz", "rm", "rp") if each in parts), None)
    if way and is_float(parts[-1]):
        return _directed(parts, way)
    return MAKERS[parts[0]](parts)


def operations(parts: list) -> int:
    """Return how many floating-point operations an arithmetic instruction is for each thread."""
    if not is_float(parts[-1]) or parts[0] not in ("add", "sub", "mul", "fma", "mad", "div"):
        return 0
    return (2 if parts[0] in ("fma", "mad") else 1) * (2 if parts[-1] in PAIRS else 1)
