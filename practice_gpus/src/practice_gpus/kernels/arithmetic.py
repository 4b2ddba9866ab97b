"""The arithmetic of PTX on NumPy lanes: for each instruction, a function of its operands' values.

`make(parts)` returns (function, types of the operands, type of the result). Semantics: NVIDIA, "PTX ISA", chapter 9.7.
"""

from __future__ import annotations

import numpy as np

from practice_gpus.kernels import bits, exact
from practice_gpus.kernels.formats import PAIRS, is_float

COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
COMPARE |= {"gt": np.greater, "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal}
COMPARE |= {"hi": np.greater, "hs": np.greater_equal}
LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _same(function):
    return lambda parts: (function, parts[-1], parts[-1])


def _add(sign):
    def build(parts):
        kind = parts[-1]
        if "sat" in parts and not is_float(kind):
            return exact.saturating(lambda a, b: a + sign * b), kind, kind
        return (np.add if sign > 0 else np.subtract), kind, kind

    return build


def _multiply(parts):
    kind = parts[-1]
    if is_float(kind):
        return np.multiply, kind, kind
    return _wide(parts, lambda a, b: a * b)


def _multiply_add(parts):
    kind = parts[-1]
    if is_float(kind):
        return exact.fused(kind), kind, kind
    function, _, result = _wide(parts, lambda a, b: a * b)
    if "sat" in parts:
        return exact.saturating(lambda a, b, c: (a * b >> 32) + c), kind, kind
    return (lambda a, b, c: function(a, b) + c), [kind, kind, result], result


def _multiply24(parts):
    """mul24, mad24: the lower or the upper 32 of the 48 bits of a product of 24-bit numbers."""
    kind = parts[-1]

    def function(a, b, c=None):
        x, y = ((each << each.dtype.type(8) >> each.dtype.type(8)).astype("i8") for each in (a, b))
        product = (x * y >> (16 if "hi" in parts else 0)).astype(a.dtype)
        if "sat" in parts:
            return exact.saturating(np.add)(product, c)
        return product if c is None else product + c

    return function, kind, kind


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
    kind = parts[-1]
    if "approx" in parts:
        return _quick_quotient, kind, kind
    return (np.true_divide if is_float(kind) else _integer_quotient), kind, kind


def _quick_quotient(a, b):
    """div.approx: a × (1 / b); 1 / b is 0 for b above 2^126, so that infinity over it is no number."""
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    return np.where(huge, np.copysign(np.float32(0), b) * a, a / b)


def _integer_quotient(a, b):
    """Rounded towards zero; by zero, all bits are set, as on the GPU."""
    quotient = a // np.where(b == 0, 1, b).astype(b.dtype)
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def _remainder(a, b):
    return (a - _integer_quotient(a, b) * b).astype(a.dtype)


def _extreme(name):
    def build(parts):
        kind = parts[-1]
        choose = (
            exact.extreme(name, "NaN" in parts) if is_float(kind) else getattr(np, f"{name}imum")
        )

        def signed(a, b):
            return np.copysign(choose(np.abs(a), np.abs(b)), np.copysign(1, a) * np.copysign(1, b))

        def function(a, *rest):
            for each in rest:
                a = choose(a, each)
            return a

        return (signed if "xorsign" in parts else function), kind, kind

    return build


def _compare(parts):
    """setp: two predicates, of the comparison and of its opposite, each joined with a third operand where there is one.

    Of a pair of halves the two predicates are those of its halves.
    """
    order, kind = parts[1], parts[-1]
    kind = kind.replace("b", "u") if kind[0] == "b" and kind[1:].isdigit() else kind
    join = next((LOGIC[each] for each in parts[2:-1] if each in LOGIC), None)

    def function(a, b, c=None):
        found = _ordered(order, a, b)
        both = (found[:, 0], found[:, 1]) if kind in PAIRS else (found, ~found)
        return both if c is None else tuple(join(each, c) for each in both)

    return function, [kind, kind, "pred"], "pred"


def _set(parts):
    """set: a comparison whose result is a number, 1.0 or all bits."""
    order, target, kind = parts[1], parts[-2], parts[-1]
    true = 1.0 if is_float(target) else -1
    target = "u16x2" if kind in PAIRS and not is_float(target) else target

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


def _test(parts):
    """testp: what sort of number it is; zeros count as normal."""
    finite, subnormal = np.isfinite, lambda a: (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)
    tests = {"finite": finite, "infinite": np.isinf, "notanumber": np.isnan, "subnormal": subnormal}
    tests |= {"number": lambda a: ~np.isnan(a)}
    tests |= {"normal": lambda a: finite(a) & ~subnormal(a)}
    return tests[parts[1]], parts[-1], "pred"


def _copy_sign(a, b):
    return np.copysign(b, a)


def _dot(parts):
    """dp4a: four products of bytes, added to a 32-bit number; dp2a: two of 16 bits with the lower or the upper bytes."""
    count = int(parts[0][2])
    first, second = ("i" if kind == "s32" else "u" for kind in parts[-2:])
    bytes_ = slice(2, 4) if "hi" in parts else slice(count)

    def function(a, b, c):
        x = np.ascontiguousarray(a).view(f"{first}{4 // count}").reshape(-1, count).astype("i4")
        y = np.ascontiguousarray(b).view(f"{second}1").reshape(-1, 4)[:, bytes_].astype("i4")
        return (x * y).sum(1, dtype="i4") + c.view("i4")

    return function, "u32", "s32"


def _difference(a, b, c):
    return np.where(a > b, a - b, b - a) + c


MAKERS = {
    "add": _add(1), "sub": _add(-1), "mul": _multiply, "mad": _multiply_add,
    "fma": _multiply_add, "div": _divide, "rem": _same(_remainder), "neg": _same(np.negative),
    "abs": _same(np.abs), "min": _extreme("min"), "sad": _same(_difference),
    "max": _extreme("max"), "rcp": _same(np.reciprocal), "sqrt": _same(np.sqrt),
    "ex2": _same(np.exp2), "rsqrt": _same(lambda a: 1 / np.sqrt(a)), "lg2": _same(np.log2),
    "sin": _same(np.sin), "cos": _same(np.cos), "tanh": _same(np.tanh), "testp": _test,
    "addc": _add(1), "subc": _add(-1), "madc": _multiply_add, "copysign": _same(_copy_sign), "setp": _compare, "set": _set, "selp": _select, "dp4a": _dot, "dp2a": _dot, "mul24": _multiply24, "mad24": _multiply24,
    **bits.MAKERS,
}  # fmt: skip


def make(parts: tuple) -> tuple | None:
    """Return (function, types of operands, type of the result); None where the instruction is no arithmetic."""
    if parts[0] not in MAKERS:
        return None
    function, kinds, result = MAKERS[parts[0]](parts)
    way = next((each for each in ("rz", "rm", "rp") if each in parts), None)
    function = exact.directed(parts[0], way) if way else function
    if "relu" in parts:
        function = _after(exact.relu, function)
    if "sat" in parts and is_float(parts[-1]):
        function = _after(exact.to_unit, function)
    if "ftz" in parts:
        function = _flushing(function, kinds if isinstance(kinds, str) else kinds[0], result)
    return function, kinds, result


def _after(last, function):
    return lambda *x: last(function(*x))


def _flushing(function, kind, result):
    """.ftz: numbers below the normal range count as zeros, before and after."""

    def run(*operands):
        clean = [exact.flush(each, kind) if each.dtype.kind == "f" else each for each in operands]
        found = function(*clean)
        return exact.flush(found, kind) if result == kind else found

    return run


def operations(parts: tuple) -> int:
    """Return how many floating-point operations an arithmetic instruction is for each thread."""
    if not is_float(parts[-1]) or parts[0] not in ("add", "sub", "mul", "fma", "mad", "div"):
        return 0
    return (2 if parts[0] in ("fma", "mad") else 1) * (2 if parts[-1] in PAIRS else 1)
