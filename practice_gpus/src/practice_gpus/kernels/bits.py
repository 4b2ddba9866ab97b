"""Instructions of PTX on bits: logic, shifts, fields, bytes, counts, each as `arithmetic` has them.

Semantics: NVIDIA, "PTX ISA", chapter 9.7.
"""

import numpy as np


def _bits(function):
    return lambda parts: (
        function,
        "pred" if parts[-1] == "pred" else f"u{parts[-1][1:]}",
        parts[-1],
    )


def _invert(a):
    return ~a


def _shift_left(parts):
    kind = f"u{parts[-1][1:]}"
    bits = int(kind[1:])

    def shift(a, count):
        moved = a << np.minimum(count, bits - 1).astype(a.dtype)
        return np.where(count < bits, moved, 0).astype(a.dtype)

    return shift, [kind, "u32"], kind


def _shift_right(parts):
    kind = parts[-1].replace("b", "u")
    bits = int(kind[1:])

    def shift(a, count):
        moved = a >> np.minimum(count, bits - 1).astype(a.dtype)
        return moved if a.dtype.kind == "i" else np.where(count < bits, moved, 0).astype(a.dtype)

    return shift, [kind, "u32"], kind


def _funnel(parts):
    left = parts[1] == "l"

    def shift(low, high, count):
        count = (count & 31 if "wrap" in parts else np.minimum(count, 32)).astype("u8")
        both = (high.astype("u8") << np.uint64(32)) | low
        moved = (both << count) >> np.uint64(32) if left else both >> count
        return moved.astype("u4")

    return shift, "u32", "u32"


def _lookup3(parts):
    """lop3: any function of three bits, given as a table of eight."""

    def function(a, b, c, table):
        table = int(table.flat[0])
        found = np.zeros(1, a.dtype)
        for place in range(8):
            if table >> place & 1:
                found = found | (
                    (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
                )
        return found

    return function, "u32", "u32"


def _extract(parts):
    """bfe: `length` bits from `start` on, filled with the sign where the type has one."""
    kind = parts[-1]
    bits = int(kind[1:])

    def function(a, start, length):
        start, length = (start & 255).astype("i8"), np.minimum(length & 255, bits).astype("i8")
        left = np.clip(bits - start - length, 0, bits - 1)
        keep = np.minimum(left + start, bits - 1)
        moved = (a << left.astype(a.dtype)) >> keep.astype(a.dtype)
        beyond = (start >= bits) & (kind[0] == "u")  # nothing but zeros; or the sign, which is left
        return np.where((length == 0) | beyond, 0, moved).astype(a.dtype)

    return function, [kind, "u32", "u32"], kind


def _insert(parts):
    """bfi: the lowest `length` bits of a number, put into another from `start` on."""
    kind = f"u{parts[-1][1:]}"
    bits = int(kind[1:])

    def function(a, b, start, length):
        start, length = ((each & 255).astype("u8") for each in (start, length))
        kept = (np.uint64(bits) - np.clip(length, 1, bits)).astype(a.dtype)
        ones = np.where(length == 0, 0, np.array(-1).astype(a.dtype) >> kept).astype(a.dtype)
        inside, place = start < bits, np.minimum(start, bits - 1).astype(a.dtype)
        mask = np.where(inside, ones << place, 0).astype(a.dtype)
        return (b & ~mask) | ((a << place) & mask)

    return function, [kind, kind, "u32", "u32"], kind


MODES = {  # of prmt: the places of the four bytes, from the two lowest bits of its choice
    "f4e": lambda at: [at + place for place in range(4)],
    "b4e": lambda at: [(at - place) & 7 for place in range(4)],
    "rc8": lambda at: [at] * 4,
    "ecl": lambda at: [np.maximum(at, place) for place in range(4)],
    "ecr": lambda at: [np.minimum(at, place) for place in range(4)],
    "rc16": lambda at: [2 * (at & 1), 2 * (at & 1) + 1] * 2,
}


def _permute(parts):
    """prmt: four bytes chosen among eight, one by one or by a mode."""
    mode = MODES.get(parts[-1])

    def function(a, b, choice):
        if mode:
            found = mode((choice & 3).astype("i8"))
            choice = sum(each << 4 * place for place, each in enumerate(found)).astype("u4")
        both = (b.astype("u8") << np.uint64(32)) | a
        found = np.zeros(1, "u4")
        for place in range(4):
            pick = (choice >> np.uint32(4 * place)) & 15
            byte = (both >> (8 * (pick & 7)).astype("u8")) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), 255, 0).astype("u8")
            found = found | (np.where(pick & 8, sign, byte).astype("u4") << np.uint32(8 * place))
        return found

    return function, "u32", "u32"


def _nth_one(parts):
    """fns: the place of the n-th bit that is set, counted up or down from a base; all bits where there is none."""

    def function(a, base, n):
        bits = _bits_of(a).astype("i8")
        places, n = np.arange(32), n.astype("i8")[:, None]
        base = base.astype("i8")[:, None]
        inside = np.where(n > 0, places >= base, np.where(n < 0, places <= base, places == base))
        bits = bits * inside
        up, down = bits.cumsum(1), bits[:, ::-1].cumsum(1)[:, ::-1]
        here = (bits == 1) & (np.where(n < 0, down, up) == np.where(n == 0, 1, np.abs(n)))
        return np.where(here.any(1), here.argmax(1), 0xFFFFFFFF).astype("u4")

    return function, ["u32", "u32", "s32"], "u32"


def _count_ones(parts):
    return (lambda a: _bits_of(a).sum(1).astype("u4")), f"u{parts[-1][1:]}", "u32"


def _leading_zeros(parts):
    bits = int(parts[-1][1:])

    def function(a):
        found = np.full(a.shape, bits, "u4")
        for place in range(bits):
            found = np.where(a >> np.array(place, a.dtype) != 0, bits - 1 - place, found)
        return found.astype("u4")

    return function, f"u{bits}", "u32"


def _highest_one(parts):
    """bfind: the place of the highest bit that isn't the sign's, or how far to shift it to the top; all bits for none."""
    count, _, _ = _leading_zeros(parts)
    bits = int(parts[-1][1:])

    def function(a):
        zeros = count(np.where(a < 0, ~a, a).astype(a.dtype).view(f"u{a.itemsize}"))
        place = zeros if "shiftamt" in parts else (bits - 1 - zeros.astype("i8")).astype("u4")
        return np.where(zeros == bits, np.uint32(0xFFFFFFFF), place)

    return function, parts[-1], "u32"


def _bits_of(a):
    """Return one row of bits for each element, the lowest first."""
    rows = np.ascontiguousarray(a).view("u1").reshape(-1, a.itemsize)
    return np.unpackbits(rows, axis=1, bitorder="little")


def _reverse(parts):
    def function(a):
        flipped = np.packbits(_bits_of(a)[:, ::-1], axis=1, bitorder="little")
        return flipped.reshape(-1).view(a.dtype)

    return function, f"u{parts[-1][1:]}", f"u{parts[-1][1:]}"


def _video(parts):
    """vadd4 and its like: on each byte (or 16 bits) by itself; "add" adds up what each gave, and the third operand."""
    count = int(parts[0][-1])
    kind = f"{'i' if parts[1][0] == 's' else 'u'}{4 // count}"
    limits = np.iinfo(kind)
    work = {
        "vabsdiff": lambda a, b: np.abs(a - b),
        "vmin": np.minimum,
        "vmax": np.maximum,
        "vadd": np.add,
        "vsub": np.subtract,
    }[parts[0][:-1]]

    def function(a, b, c):
        a, b = (np.ascontiguousarray(x).view(kind).reshape(-1, count).astype("i8") for x in (a, b))
        found = work(a, b)
        if "add" in parts:
            return (found.sum(1) + c).astype("u4")
        found = np.clip(found, limits.min, limits.max) if "sat" in parts else found
        return np.ascontiguousarray(found.astype(kind)).view("u4").reshape(-1)

    return function, "u32", "u32"


MAKERS = {
    "and": _bits(np.bitwise_and), "or": _bits(np.bitwise_or), "xor": _bits(np.bitwise_xor),
    "not": _bits(_invert), "shl": _shift_left, "shr": _shift_right, "shf": _funnel,
    "bfind": _highest_one, "lop3": _lookup3, "bfe": _extract, "bfi": _insert, "prmt": _permute,
    **{f"{name}{count}": _video for name in ("vabsdiff", "vmin", "vmax", "vadd", "vsub") for count in (2, 4)},
    "popc": _count_ones, "fns": _nth_one, "clz": _leading_zeros, "brev": _reverse,
}  # fmt: skip
