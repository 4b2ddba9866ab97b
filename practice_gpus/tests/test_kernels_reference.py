"""Each scalar instruction that is executed, in every combination of its words, against what PTX says in plain Python."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
import ptx_reference as ptx  # noqa: E402

from practice_gpus.kernels import arithmetic, warps  # noqa: E402
from practice_gpus.kernels.errors import Line  # noqa: E402
from practice_gpus.kernels.forms import FORMS  # noqa: E402
from practice_gpus.kernels.instructions import translate  # noqa: E402
from practice_gpus.kernels.lanes import Lanes  # noqa: E402
from practice_gpus.kernels.ptx_parser import Instruction, Module  # noqa: E402

COUNT = 64  # threads, each with operands of its own
REGISTERS = {"%p": 1, "%h": 16, "%r": 32, "%d": 64}
MODULE = Module(prefixes=dict(REGISTERS, CC=1))
MACHINE = SimpleNamespace(module=MODULE, names={}, accesses=[], parameters={})
NAMES = sorted((set(arithmetic.MAKERS) | {"cvt"}) & set(FORMS))
CHAINED = {"addc", "subc", "madc"}
APPROXIMATE = {"ex2", "lg2", "sin", "cos", "tanh", "rsqrt"}
FUNCTIONS = {"ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh}
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.25, 3.0, -7.3, 255.5, 256.0, 65504.0, 65519.0, 65520.0, 448.0, 463.9, 464.0, -464.1]  # fmt: skip
NUMBERS += [57344.0, 61440.0, 2.0**31, -(2.0**31) - 1, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e30, 3e38, -3e38, 1e-39, -3e-39, 1.2e-38, 1e-45, 6e-8]  # fmt: skip
NUMBERS += [np.inf, -np.inf, np.nan, -130.0, 127.5, -128.5, 1e308, 5e-324, 2.0**-1022, 1e-310, 1 + 2.0**-12, 1 - 2.0**-24, 0.1, 2.0**-14, 2.0**-15]  # fmt: skip
WHOLE = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]  # fmt: skip
WHOLE += [0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF80, 0xFFFF8000]  # fmt: skip


def combinations(name):
    """Every instruction of a name that the table takes: (words, how many operands)."""
    for low, high, slots in FORMS[name]:
        for words in product(*[(("",) if often else ()) + each for often, each in slots]):
            for operands in range(low, high + 1):
                yield tuple(part for each in words if each for part in each.split(".")), operands


def kinds_of(name, words, operands):
    """The types of the result and of the operands."""
    kind = words[-1]
    if name == "cvt":
        target, origin = words[-2:]
        return target, [origin] * (operands - 1)
    if name in ("setp", "testp"):
        return "pred", [kind, kind, "pred"][: operands - 1] if name == "setp" else [kind]
    if name == "set":
        return words[-2], [kind, kind]
    if name == "selp":
        return kind, [kind, kind, "pred"]
    if name in ("popc", "clz", "bfind"):
        return "u32", [kind]
    if name in ("shl", "shr"):
        return kind, [kind, "u32"]
    if name == "bfe":
        return kind, [kind, "u32", "u32"]
    if name == "bfi":
        return kind, [kind, kind, "u32", "u32"]
    if name == "lop3":
        return kind, [kind] * 3 + ["table"]
    if name == "prmt":
        return "b32", ["b32"] * 3
    if name in ("dp4a", "dp2a") or name[:4] in ("vabs", "vmin", "vmax", "vadd", "vsub"):
        return "b32", ["b32"] * 3
    if "wide" in words:
        wide = kind[0] + str(2 * ptx.width(kind))
        return wide, [kind, kind, wide][: operands - 1]
    return kind, [kind] * (operands - 1)


def bits_of(kind, generator):
    """COUNT registers: every special value, and any bits."""
    if kind == "pred":
        return generator.integers(0, 2, COUNT).tolist()
    size = ptx.width(kind)
    one = ptx.PAIRS.get(kind, kind)
    if one in ptx.FLOATS:
        exact = np.array(NUMBERS)
        with np.errstate(all="ignore"):
            code = {"f64": exact.view("u8"), "f16": exact.astype("f2").view("u2")}.get(one, exact.astype("f4").view("u4"))  # fmt: skip
        code = (code >> 16 if one == "bf16" else code >> 24 if one[0] == "e" else code).tolist()
    else:
        code = [each & (1 << ptx.width(one)) - 1 for each in WHOLE]
    anything = [int(x) >> 64 - ptx.width(one) for x in generator.integers(0, 2**64, 4 * COUNT, dtype="u8")]  # fmt: skip
    pool = [code[i] if i < len(code) else anything[i] for i in generator.integers(0, 2 * len(code), 2 * COUNT)]  # fmt: skip
    if kind == one:
        return pool[:COUNT]
    return [low | high << size // 2 for low, high in zip(pool[:COUNT], pool[COUNT:], strict=True)]


def register(kind, number):
    size = max(ptx.width(kind), 16) if kind != "pred" else 1
    return f"{next(name for name, bits in REGISTERS.items() if bits == size)}{number}"


def execute(name, words, target, kinds, given, carry):
    """The bits that the interpreter leaves in the target's registers."""
    lanes = Lanes(MODULE, (1, 1, 1), (COUNT, 1, 1), 0, 1)
    sources = [register(kind, at + 1) if kind != "table" else str(given[at][0]) for at, kind in enumerate(kinds)]  # fmt: skip
    for name_, kind, values in zip(sources, kinds, given, strict=True):
        if kind != "table":
            dtype = bool if kind == "pred" else f"u{MODULE.bits(name_) // 8}"
            lanes.registers[name_] = np.array(values, dtype)
    lanes.registers["CC"] = np.array(carry, bool)
    out = "%p8|%p9" if name == "setp" else register(target, 9)
    step = translate(Instruction((name, *words), [out, *sources], None, Line(1, "x"), ""), MACHINE)
    with np.errstate(all="ignore"):
        step[1](MACHINE, lanes, None)
    found = [np.ascontiguousarray(np.broadcast_to(lanes.registers[each], COUNT)) for each in out.split("|")]  # fmt: skip
    return [(each if each.dtype == bool else each.view(f"u{each.itemsize}")).tolist() for each in found]  # fmt: skip


def wanted(name, words, target, kinds, operands, carry):
    """What PTX says of one thread: bits, NAN where any will do, (near, value), or None where it says nothing."""
    if name == "cvt":
        return converted(words, target, kinds, operands)
    if name == "setp":
        return pairwise_setp(words, kinds[0], operands)
    if name == "testp":
        return property_of(words[0], kinds[0], operands[0])
    if name == "selp":
        return operands[0] if operands[2] else operands[1]
    if kinds[0] in ptx.PAIRS:
        return pairwise(name, words, target, kinds[0], operands)
    if name == "set":
        return chosen(words, target, kinds[0], operands)
    if kinds[0] == "pred":
        a, b = (*operands, 0)[:2]
        return {"and": a & b, "or": a | b, "xor": a ^ b, "not": 1 - a}[name]
    return single(name, words, target, kinds[0], operands, carry)


def single(name, words, target, kind, operands, carry):
    if kind in ptx.FLOATS:
        if name in APPROXIMATE or "approx" in words or "full" in words:
            return near(name, words, kind, operands)
        return ptx.float_value(name, words, kind, operands)
    base = {"addc": "add", "subc": "sub", "madc": "mad"}.get(name, name)
    found = ptx.whole_value(base, words, kind, operands)
    if name in CHAINED:
        found += -carry if name == "subc" else carry
    return None if found is None else found & (1 << ptx.width(target)) - 1


def near(name, words, kind, operands):
    values = [ptx.number(each, kind) for each in operands]
    if "ftz" in words:
        values = [ptx.flushed(each, kind) for each in values]
    x = [float(ptx.plain(each)) * (1 if each[1] or not each[0] else -1) if each[1] != ptx.NAN else np.nan for each in values]  # fmt: skip
    x = [-0.0 if s and not v else float(v) for (s, _), v in zip(values, x, strict=True)]
    with np.errstate(all="ignore"):
        if name == "div" and "approx" in words and 2.0**126 < abs(x[1]) < np.inf:
            found = np.nan if np.isinf(x[0]) else 0.0
        else:
            wide = np.float64(x[0])
            found = {"div": lambda: wide / np.float64(x[1]), "rcp": lambda: 1 / wide, "sqrt": lambda: np.sqrt(wide), "rsqrt": lambda: 1 / np.sqrt(wide)}.get(name, lambda: FUNCTIONS[name](wide))()  # fmt: skip
    return (ptx.NEAR, float(found))


def chosen(words, target, kind, operands):
    true = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(target, (1 << ptx.width(target)) - 1)  # fmt: skip
    return true if ptx.compared(words, kind, *operands, "ftz" in words) else 0


def halves(operands, kind):
    size = ptx.width(kind) // 2
    return [[each >> size * part & (1 << size) - 1 for each in operands] for part in (0, 1)]


def pairwise(name, words, target, kind, operands):
    one = ptx.PAIRS[kind]
    part = ptx.PAIRS.get(target, f"u{ptx.width(target) // 2}")
    found = [wanted(name, (*words[:-1], one), part, [one] * 3, each, 0) for each in halves(operands, kind)]  # fmt: skip
    return ("pair", one, *found)


def pairwise_setp(words, kind, operands):
    *both, c = operands if len(operands) == 3 else (*operands, None)
    ftz = "ftz" in words
    if kind in ptx.PAIRS:
        found = [ptx.compared(words, ptx.PAIRS[kind], *each, ftz) for each in halves(both, kind)]
    else:
        found = [ptx.compared(words, kind, *both, ftz)]
        found.append(not found[0])
    return tuple(int(ptx.joined(words, each, c)) for each in found)


def property_of(word, kind, bits):
    _, size = ptx.number(bits, kind)
    special = size in (ptx.NAN, ptx.INF)
    small = not special and ptx.flushed((0, size), kind)[1] != size
    return int({"finite": not special, "infinite": size == ptx.INF, "number": size != ptx.NAN, "notanumber": size == ptx.NAN, "normal": not special and not small, "subnormal": small}[word])  # fmt: skip


def converted(words, target, kinds, operands):
    if target in ptx.PAIRS:
        one, origin = ptx.PAIRS[target], ptx.PAIRS.get(kinds[0], kinds[0])
        parts = operands[::-1] if len(operands) == 2 else [each[0] for each in halves(operands, kinds[0])]  # fmt: skip
        return ("pair", one, *[ptx.convert(words, one, origin, each) for each in parts])
    found = ptx.convert(words, target, kinds[0], operands[0])
    if found == ptx.NAN or target in ptx.FLOATS:
        return found
    size = max(16, ptx.width(target))  # a register: a smaller result is filled up, by its sign
    return found & (1 << size) - 1 if target[0] == "s" else found & (1 << ptx.width(target)) - 1


def agrees(found, expected, kind):
    """True where a register holds what was expected of it."""
    if expected is None:
        return True
    if isinstance(expected, tuple) and expected[0] == "pair":
        size = ptx.width(expected[1])
        return all(agrees(found >> size * i & (1 << size) - 1, each, expected[1]) for i, each in enumerate(expected[2:]))  # fmt: skip
    if expected == ptx.NAN:
        return ptx.number(found, kind)[1] == ptx.NAN
    if isinstance(expected, tuple):
        value = ptx.number(found, kind)
        exact = expected[1]
        if exact != exact or value[1] == ptx.NAN:
            return exact != exact and value[1] == ptx.NAN
        value = float(ptx.plain(value))
        slack = {"f32": 2.0**-19, "f64": 2.0**-19, "f16": 2.0**-9, "bf16": 2.0**-6}[kind]
        least = {"f16": 2.0**-14, "f64": 2.0**-1022}.get(kind, 2.0**-126)
        top = {"f16": 65504.0, "f64": 1.7e308}.get(kind, 3.3e38)
        return value == exact or abs(value - exact) <= slack * abs(exact) + 2 * least or abs(exact) > top and abs(value) > top  # fmt: skip
    return found == expected


def differences(name):
    """What the interpreter and PTX disagree on: (instruction, operands, found, expected), the first of each instruction."""
    generator = np.random.default_rng(7)
    for words, operands in combinations(name):
        target, kinds = kinds_of(name, words, operands)
        given = [bits_of("b32" if kind == "table" else kind, generator) for kind in kinds]
        if "table" in kinds:
            given[-1] = [int(generator.integers(256))] * COUNT
        if name == "fns":  # a base beyond the last bit isn't defined
            given[1:] = [[x % 32 for x in given[1]], [(x % 9 - 4) % 2**32 for x in given[2]]]
        if name in ("shl", "shr", "bfe", "bfi", "shf"):
            given[-1] = [x % 70 if i % 8 else x for i, x in enumerate(given[-1])]
            given[-2] = [x % 70 if name == "bfi" and i % 8 else x for i, x in enumerate(given[-2])]
        carry = generator.integers(0, 2, COUNT).tolist()
        found = execute(name, words, target, kinds, given, carry)
        for thread, row in enumerate(zip(*given, strict=True)):
            expected = wanted(name, words, target, kinds, list(row), carry[thread])
            each = [one[thread] for one in found]
            pairs = zip(each, expected, strict=False) if name == "setp" else [(each[0], expected)]
            if not all(agrees(int(x), y, target) for x, y in pairs):
                yield f"{name}.{'.'.join(words)}", [hex(x) for x in row], each, expected
                break


@pytest.mark.parametrize("name", NAMES)
def test_every_form_gives_what_ptx_says(name):
    """A rounding, a limit or a special value that is off is a wrong number without an error."""
    assert not list(differences(name))


def source_of(mode, lane, b, c):
    """PTX ISA, shfl.sync: (the lane that is read, whether it lies in the segment)."""
    segment, most = c >> 8 & 31, (lane & c >> 8 & 31) | (c & 31 & ~(c >> 8 & 31))
    place = {"up": lane - b, "down": lane + b, "bfly": lane ^ b}.get(
        mode, lane & segment | b & ~segment
    )
    inside = place >= most if mode == "up" else place <= most
    return (place if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_read_the_lane_that_ptx_names(mode):
    """Tiles of 2 to 16 threads, and clamps of any kind, are in the third operand."""
    generator = np.random.default_rng(7)
    b, c = generator.integers(0, 32, COUNT), generator.integers(0, 1 << 13, COUNT)
    c[::2] = (32 - 2 ** generator.integers(0, 6, COUNT // 2)) << 8 | 31 * (mode != "up")
    values = generator.integers(0, 2**32, COUNT, dtype="u4")
    found, inside, _ = warps.shuffle(mode, values, b, c)
    for thread in range(COUNT):
        lane, within = source_of(mode, thread % 32, int(b[thread]), int(c[thread]))
        assert inside[thread] == within and found[thread] == values[thread - thread % 32 + lane]
