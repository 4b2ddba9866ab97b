"""What PTX says that its scalar instructions give, one thread at a time: Python integers and fractions, after NVIDIA, "PTX ISA", 9.7.

Nothing of the interpreter is used: a register is an int, a number a `Fraction`, or one of the words below with its sign.
"""

from fractions import Fraction
from math import isqrt

FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "tf32": (8, 23), "f64": (11, 52), "e4m3": (4, 3), "e5m2": (5, 2)}  # fmt: skip
PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "s16x2": "s16", "u16x2": "u16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}  # fmt: skip
NAN = "NaN"
INF = float("inf")
NEAR = "near"  # approximate instructions: the result may be off by some bits


def width(kind):
    if kind == "pred":
        return 1
    if kind in PAIRS:
        return 2 * width(PAIRS[kind])
    return 1 + sum(FLOATS[kind]) if kind in FLOATS else int(kind[1:])


def signed(bits, size):
    bits &= (1 << size) - 1
    return bits - (1 << size) if bits >> (size - 1) else bits


def integer(bits, kind):
    size = width(kind)
    return signed(bits, size) if kind[0] == "s" else bits & (1 << size) - 1


def limits(kind):
    size = width(kind)
    return (-(1 << size - 1), (1 << size - 1) - 1) if kind[0] == "s" else (0, (1 << size) - 1)


def clip(value, kind):
    low, high = limits(kind)
    return min(max(value, low), high)


def number(bits, kind):
    """(sign, size): size is a Fraction, INF or NAN."""
    exponent_bits, mantissa_bits = FLOATS[kind]
    sign = bits >> (exponent_bits + mantissa_bits) & 1
    exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = bits & (1 << mantissa_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if kind == "e4m3" and exponent == 15 and mantissa == 7:
        return sign, NAN
    if kind != "e4m3" and exponent == (1 << exponent_bits) - 1:
        return sign, NAN if mantissa else INF
    whole = mantissa + (1 << mantissa_bits if exponent else 0)
    return sign, Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)


def bits_of(sign, size, kind, way="rn"):
    """A number rounded to a type, as bits: NAN stays the word."""
    exponent_bits, mantissa_bits = FLOATS[kind]
    if kind == "tf32":
        mantissa_bits = 10
    if size == NAN:
        return NAN
    bias = (1 << exponent_bits - 1) - 1
    top = sign << (exponent_bits + FLOATS[kind][1])
    shift = FLOATS[kind][1] - mantissa_bits
    infinite = (1 << exponent_bits) - 1 << mantissa_bits
    if size == INF:
        return top | infinite << shift
    if size == 0:
        return top
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, 1 - bias)
    exponent += size >= Fraction(2) ** (exponent + 1)
    unit = Fraction(2) ** (exponent - mantissa_bits)
    whole, rest = divmod(size, unit)
    half = 2 * rest - unit
    up = {"rz": False, "rm": sign and rest > 0, "rp": not sign and rest > 0, "rna": half >= 0}.get(
        way, half > 0 or half == 0 and whole & 1
    )
    whole = int(whole) + bool(up)
    found = whole if exponent == 1 - bias and whole < 1 << mantissa_bits else whole + (exponent + bias - 1 << mantissa_bits)  # fmt: skip
    if found >= infinite and kind != "e4m3":
        away = way in ("rn", "rna") or way == ("rm" if sign else "rp")
        found = infinite if away else infinite - 1
    return top | found << shift


def flushed(value, kind):
    sign, size = value
    exponent_bits, _ = FLOATS[kind]
    least = Fraction(2) ** (2 - (1 << exponent_bits - 1))
    return (sign, Fraction(0)) if size not in (NAN, INF) and size < least else value


def plain(value):
    """A signed Fraction, ±INF or NAN of (sign, size)."""
    sign, size = value
    return size if size == NAN or not sign else -size


def back(value, sign_of_zero=0):
    if value == NAN:
        return 0, NAN
    return (1, -value) if value < 0 else (0 if value else sign_of_zero, value)


def add(a, b, way):
    x, y = plain(a), plain(b)
    if NAN in (x, y) or (abs(x) == abs(y) == INF and x != y):
        return 0, NAN
    if INF in (abs(x), abs(y)):
        return back(x if abs(x) == INF else y)
    zero = a[0] if a[0] == b[0] and x == y == 0 else int(way == "rm")
    return back(x + y, zero)


def mul(a, b):
    sign = a[0] ^ b[0]
    sizes = (a[1], b[1])
    if NAN in sizes or (INF in sizes and 0 in sizes):
        return 0, NAN
    return sign, INF if INF in sizes else a[1] * b[1]


def divide(a, b):
    sign = a[0] ^ b[0]
    if NAN in (a[1], b[1]) or a[1] == b[1] and a[1] in (0, INF):
        return 0, NAN
    if a[1] == INF or b[1] == 0:
        return sign, INF
    return sign, Fraction(0) if b[1] == INF else a[1] / b[1]


def root(a):
    """A square root with enough bits, and an odd last one where something is left."""
    sign, size = a
    if size in (NAN, 0) or (size == INF and not sign):
        return a
    if sign:
        return 0, NAN
    scaled = size.numerator * size.denominator << 400
    found = isqrt(scaled)
    return 0, Fraction(2 * found + (found * found != scaled), 2 * size.denominator << 200)


def ordered(order, a, b):
    word = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(order, order)
    missing = NAN in (a, b)
    if word in ("num", "nan"):
        return missing == (word == "nan")
    if missing:
        return len(word) == 3
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[word[:2]]  # fmt: skip


def less(a, b):
    """Of two numbers, the smaller: -0 is less than +0."""
    x, y = plain(a), plain(b)
    return a if x < y or x == y and a[0] else b


def extreme(name, words, values):
    sizes = [size for _, size in values]
    if NAN in sizes and ("NaN" in words or set(sizes) == {NAN}):
        return 0, NAN
    sizes = [each for each in sizes if each != NAN]
    if "xorsign" in words:
        return values[0][0] ^ values[1][0], min(sizes) if name == "min" else max(sizes)
    values = [each for each in values if each[1] != NAN]
    found = values[0]
    for each in values[1:]:
        smaller = less(found, each)
        found = smaller if name == "min" else each if smaller is found else found
    return found


def float_value(name, words, kind, given):
    """The number that an arithmetic instruction of one floating-point type gives, as bits or NAN."""
    way = next((each for each in ("rz", "rm", "rp") if each in words), "rn")
    values = [number(each, kind) for each in given]
    if "ftz" in words:
        values = [flushed(each, kind) for each in values]
    a, *rest = values
    if name in ("add", "sub"):
        found = add(a, (rest[0][0] ^ (name == "sub"), rest[0][1]), way)
    elif name == "mul":
        found = mul(a, rest[0])
    elif name in ("fma", "mad"):
        found = add(mul(a, rest[0]), rest[1], way)
    elif name == "div":
        found = divide(a, rest[0])
    elif name == "rcp":
        found = divide((0, Fraction(1)), a)
    elif name == "sqrt":
        found = root(a)
    elif name == "rsqrt":
        found = divide((0, Fraction(1)), root(a))
    elif name in ("neg", "abs"):
        found = (a[0] ^ 1 if name == "neg" else 0, a[1])
    elif name == "copysign":
        found = a[0], rest[0][1]
    else:
        found = extreme(name, words, values)
    return finished(found, words, kind, way)


def finished(found, words, kind, way="rn"):
    if "relu" in words and found[1] != NAN and found[0]:
        found = (0, Fraction(0))
    if "sat" in words:
        found = (0, Fraction(0)) if found[1] == NAN or found[0] else (0, min(found[1], Fraction(1)))
    bits = bits_of(*found, kind, way)
    if "ftz" in words and bits != NAN:
        bits = bits_of(*flushed(number(bits, kind), kind), kind)
    return bits


def compared(words, kind, a, b, ftz):
    if kind in FLOATS:
        a, b = ((flushed(number(x, kind), kind) if ftz else number(x, kind)) for x in (a, b))
        return ordered(words[0], plain(a), plain(b))
    if words[0] in ("lo", "ls", "hi", "hs"):
        kind = "u" + kind[1:]
    return ordered(words[0], integer(a, kind), integer(b, kind))


def joined(words, found, c):
    """A predicate joined with a third operand."""
    if c is None:
        return found
    return {"and": found & c, "or": found | c, "xor": found ^ c}[next(w for w in words if w in ("and", "or", "xor"))]  # fmt: skip


def convert(words, target, origin, given):
    way = next((each for each in ("rz", "rm", "rp", "rna") if each in words), "rn")
    whole = next((each for each in words if each in ("rni", "rzi", "rmi", "rpi")), None)
    if target not in FLOATS and origin not in FLOATS:
        value = integer(given, origin)
        return clip(value, target) if "sat" in words else integer(value, target)
    value = number(given, origin) if origin in FLOATS else back(Fraction(integer(given, origin)))
    if "ftz" in words and origin == "f32":
        value = flushed(value, origin)
    if whole and value[1] not in (NAN, INF):
        x = plain(value)
        down = x // 1
        nearest = round(x)
        value = back({"rmi": down, "rpi": -(-x // 1), "rni": nearest, "rzi": down if x > 0 else -(-x // 1)}[whole] * Fraction(1), value[0])  # fmt: skip
    if target not in FLOATS:
        if value[1] == NAN:
            empty = origin != "f64" and width(target) < 64
            return 0 if empty else integer(1 << width(target) - 1, target)
        low, high = limits(target)
        return (low if value[0] else high) if value[1] == INF else clip(int(plain(value)), target)
    if "satfinite" in words and value[1] != NAN:
        most = {"e4m3": 448, "e5m2": 57344}[target]
        value = (value[0], min(value[1], Fraction(most)))
    return finished(value, [each for each in words if each != "ftz" or target == "f32"], target, way)  # fmt: skip


def whole_value(name, words, kind, given):
    """What an instruction on integers or bits gives."""
    size = width(kind)
    v = [integer(each, kind) for each in given]
    if name in ("add", "sub"):
        found = v[0] + v[1] if name == "add" else v[0] - v[1]
        return clip(found, kind) if "sat" in words else found
    if name in ("mul", "mad"):
        product = v[0] * v[1]
        product = product >> size if "hi" in words else product
        if name == "mul":
            return product
        c = integer(given[2], kind[0] + str(2 * size)) if "wide" in words else v[2]
        return clip(product + c, kind) if "sat" in words else product + c
    if name == "sad":
        return abs(v[0] - v[1]) + v[2]
    if name in ("div", "rem"):
        if v[1] == 0:
            return None  # not defined
        quotient = abs(v[0]) // abs(v[1])
        quotient = -quotient if (v[0] < 0) != (v[1] < 0) else quotient
        return quotient if name == "div" else v[0] - quotient * v[1]
    if name in ("min", "max"):
        found = min(v) if name == "min" else max(v)
        return max(found, 0) if "relu" in words else found
    simple = {
        "neg": lambda: -v[0],
        "abs": lambda: abs(v[0]),
        "popc": lambda: v[0].bit_count(),
        "not": lambda: ~v[0],
    }
    simple |= {"and": lambda: v[0] & v[1], "or": lambda: v[0] | v[1], "xor": lambda: v[0] ^ v[1]}
    simple |= {"clz": lambda: size - v[0].bit_length(), "brev": lambda: int(f"{v[0]:0{size}b}"[::-1], 2)}  # fmt: skip
    simple |= {"shl": lambda: v[0] << min(given[1], size), "shr": lambda: v[0] >> min(given[1], size)}  # fmt: skip
    if name in simple:
        return simple[name]()
    if name == "bfind":
        value = ~v[0] if v[0] < 0 else v[0]
        place = value.bit_length() - 1
        return -1 if place < 0 else size - 1 - place if "shiftamt" in words else place
    if name == "bfe":
        start, length = given[1] & 255, given[2] & 255
        fill = v[0] < 0 if length and kind[0] == "s" else 0
        if length and kind[0] == "s":
            fill = given[0] >> min(start + length - 1, size - 1) & 1
        return sum((given[0] >> start + i & 1 if i < length and start + i < size else fill) << i for i in range(size))  # fmt: skip
    if name == "bfi":
        start, length = given[2] & 255, given[3] & 255
        found = given[1]
        for i in range(length):
            if start + i < size:
                found = found & ~(1 << start + i) | (given[0] >> i & 1) << start + i if i < size else found  # fmt: skip
        return found
    if name == "shf":
        a, b, count = given
        count = count & 31 if "wrap" in words else min(count, 32)
        return (b << count | a >> 32 - count) if "l" in words else (b << 32 - count | a >> count)
    if name == "lop3":
        a, b, c, table = given
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))  # fmt: skip
    if name == "prmt":
        return permuted(words, *given)
    if name in ("dp4a", "dp2a"):
        return dot(name, words, given)
    if name in ("mul24", "mad24"):
        a, b = (signed(x, 24) if kind[0] == "s" else x & 0xFFFFFF for x in given[:2])
        product = a * b >> 16 if "hi" in words else a * b
        if name == "mad24":
            product = integer(product, kind) + v[2]
            return clip(product, kind) if "sat" in words else product
        return product
    if name == "fns":
        mask, base, count = given[0], given[1], signed(given[2], 32)
        return nth_set(mask, base, count)
    return video(name, words, given)


def nth_set(mask, base, offset):
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    place, step, found = base, 1 if offset > 0 else -1, 0
    while 0 <= place < 32:
        found += mask >> place & 1
        if found == abs(offset) and mask >> place & 1:
            return place
        place += step
    return 0xFFFFFFFF


def permuted(words, a, b, c):
    data = [(a | b << 32) >> 8 * i & 255 for i in range(8)]
    low = c & 3
    modes = {"f4e": [low + i for i in range(4)], "b4e": [low - i & 7 for i in range(4)]}
    modes |= {"rc8": [low] * 4, "ecl": [max(i, low) for i in range(4)], "ecr": [min(i, low) for i in range(4)]}  # fmt: skip
    modes |= {"rc16": [2 * (c & 1), 2 * (c & 1) + 1] * 2}
    mode = next((each for each in words if each in modes), None)
    picks = modes[mode] if mode else [c >> 4 * i & 15 for i in range(4)]
    found = [data[p & 7] if not p & 8 or mode else (255 if data[p & 7] >> 7 else 0) for p in picks]
    return sum(each << 8 * i for i, each in enumerate(found))


def dot(name, words, given):
    first, second = (each for each in words if each in ("u32", "s32"))
    a, b, c = given
    count, wide = (4, 8) if name == "dp4a" else (2, 16)
    start = 2 if "hi" in words else 0
    part = lambda x, i, bits, kind: signed(x >> bits * i, bits) if kind == "s32" else x >> bits * i & (1 << bits) - 1  # noqa: E731  # fmt: skip
    return c + sum(part(a, i, wide, first) * part(b, start + i, 8, second) for i in range(count))


def video(name, words, given):
    count = int(name[-1])
    size = 32 // count
    kind = f"{words[0][0]}{size}"
    total, found = given[2], 0
    for i in range(count):
        a, b = (integer(x >> size * i, kind) for x in given[:2])
        one = {"vabsdiff": abs(a - b), "vmin": min(a, b), "vmax": max(a, b), "vadd": a + b, "vsub": a - b}[name[:-1]]  # fmt: skip
        one = clip(one, kind) if "sat" in words else one
        total += one
        found |= (one & (1 << size) - 1) << size * i
    return total if "add" in words else found
