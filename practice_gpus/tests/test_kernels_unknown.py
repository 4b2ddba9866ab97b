"""No word of an instruction is ever ignored: what the interpreter doesn't know it refuses by name, what it knows it obeys."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
from practice_gpus import kernels  # noqa: E402
from practice_gpus.kernels import arithmetic  # noqa: E402
from practice_gpus.kernels.conversions import convert  # noqa: E402
from practice_gpus.kernels.dataflow import Flow  # noqa: E402
from practice_gpus.kernels.errors import Line  # noqa: E402
from practice_gpus.kernels.formats import decode  # noqa: E402
from practice_gpus.kernels.forms import FORMS, known  # noqa: E402
from practice_gpus.kernels.instructions import translate  # noqa: E402
from practice_gpus.kernels.ptx_parser import Instruction, Module  # noqa: E402

ALL = [(name, form) for name, forms in FORMS.items() for form in forms]


def words_of(slots, optional=False):
    """The first words that a form takes, with or without those that may be left out."""
    return [words[0] for often, words in slots if optional or often != "?" and often != "*"]


def instruction(name, words, operands):
    parts = (name, *(part for word in words for part in word.split(".")))
    return Instruction(parts, operands, None, Line(1, "here"), "")


@pytest.fixture(scope="module")
def machine():
    module = Module(prefixes={"%r": 32, "%rd": 64})
    return SimpleNamespace(module=module, names={}, accesses=[], parameters={}, flow=Flow(module))


def test_invented_words_and_types_are_refused_in_every_form(machine):
    """A modifier that is dropped is a wrong value without an error."""
    for name, (low, _, slots) in ALL:
        for words in (words_of(slots), words_of(slots, optional=True)):
            operands = ["%r1"] * low
            changed = [[*words[:at], "zorp", *words[at:]] for at in range(len(words) + 1)]
            changed += [[*words[:-1], "q32"]] if words else []
            for each in changed:
                with pytest.raises(kernels.Unsupported, match="zorp|q32"):
                    translate(instruction(name, each, operands), machine)


def test_a_wrong_number_of_operands_is_refused_in_every_form():
    for name, (_, high, slots) in ALL:
        assert not known(instruction(name, words_of(slots), []).parts, high + 3), name


@pytest.mark.parametrize("operand", ["%smid", "%zorp", "ZORP_SZ", "%envreg5", "%cluster_ctarank"])
def test_invented_operands_are_refused_in_every_form(machine, operand):
    """An unknown operand that reads as 0 is a wrong value: x / warpSize was -1."""
    for name, (low, _, slots) in ALL:
        if name in ("call", "bra") or "param" in words_of(slots):
            continue
        for at in range(low):
            operands = ["%r1"] * low
            operands[at] = operand
            with pytest.raises(kernels.Unsupported, match=operand):
                translate(instruction(name, words_of(slots), operands), machine)


WITHOUT_EFFECT = {
    "rn",
    "shiftamt",
    "cc",
    "noinc",
    "uni",
    "aligned",
    "cta",
}  # rn: as without; cc: a register
SPECIAL = [-130.0, 1e-310, 1e308, 0.0, -0.0, 1.5, -2.5, 1e-39, -3e-39, 1.2e-38, 3e38, 1e30, np.inf, -np.inf, np.nan, 7.3]  # fmt: skip


def values_of(kind, count, generator):
    if kind == "pred":
        return generator.random(count) < 0.5
    bits = generator.integers(0, 2**64, count, dtype="u8")
    numbers = np.resize(np.array(SPECIAL), count)
    generator.shuffle(numbers)
    if kind in ("f32", "f64"):
        return numbers.astype(kind.replace("f32", "f4").replace("f64", "f8"))
    if kind in ("f16", "f16x2", "bf16", "bf16x2"):
        near = np.where(np.abs(numbers) < 1e-30, 1e-7 * np.sign(numbers), numbers)
        half = (
            near.astype("f2").view("u2") if kind[0] == "f" else near.astype("f4").view("u4") >> 16
        )
        half = half.astype("u4")
        return decode(half | np.roll(half, 1) << np.uint32(16), kind)
    return decode(bits, kind)


@np.errstate(all="ignore")
def outcome(name, words, count=400):
    """What an arithmetic instruction or a conversion gives for many values, as bytes."""
    generator = np.random.default_rng(0)
    parts = instruction(name, words, []).parts
    if name == "cvt":
        origin = parts[-1]
        raw = values_of("f32" if origin == "tf32" else origin, count, generator)
        bits = np.ascontiguousarray(raw if origin[:2] != "bf" else raw.view("u4") >> 16)
        pair = parts[-2][-2:] == "x2" and origin[-2:] != "x2"
        bits = bits.reshape(-1).view("u4") if bits.ndim == 2 else bits
        if origin[0] == "e":
            bits = generator.integers(0, 2**16, count, dtype="u2")
        return np.asarray(convert(parts)(*[bits] * (1 + pair))).tobytes()
    function, kinds, _ = arithmetic.make(parts)
    operands = next(form[0] for form in FORMS[name] if known(parts, form[0])) - 1
    kinds = kinds if isinstance(kinds, list) else [kinds] * operands
    given = [values_of(kind, count, generator) for kind in kinds[:operands]]
    return b"".join(np.asarray(each).tobytes() for each in np.atleast_2d(function(*given)))


def modifiers():
    for name, (_, _, slots) in ALL:
        if name not in arithmetic.MAKERS and name != "cvt":
            continue
        for at, (often, words) in enumerate(slots):
            for word in words if often == "?" else ():
                plain = [w[0] for place, (o, w) in enumerate(slots) if place != at and o == ""]
                place = sum(1 for o, _ in slots[:at] if o == "")
                wider = name == "cvt" and word == "sat" and plain[-2][0] in "us"
                small = name == "cvt" and "f64" not in plain and plain.count("f32") < 2
                tiny = word == "ftz" and (name == "cos" or small)
                if word not in WITHOUT_EFFECT and not tiny and not wider:
                    yield name, plain, [*plain[:place], word, *plain[place:]]


@pytest.mark.parametrize("name", sorted({name for name, _, _ in modifiers()}))
def test_every_modifier_that_is_known_is_obeyed(name):
    """Each word that a form may have changes what comes for some of four hundred values."""
    for _, plain, changed in (each for each in modifiers() if each[0] == name):
        assert outcome(name, plain) != outcome(name, changed), f"{name}.{'.'.join(changed)}"


HEAD = '#include <cuda_fp16.h>\nextern "C" __global__ void k(float* x, float* out) {\n  int t = threadIdx.x;\n  int* o = (int*)out;\n'


def run(body, card="A100", flags=(), size=32, grid=1, threads=32):
    compiled = kernels.compile(f"{HEAD}  {body}\n}}", "k", card, threads=threads, flags=flags)
    x, out = torch.zeros(size), torch.zeros(size)
    kernels.run(compiled, grid, threads, x, out)
    return out


def asm(text, out="r", value="", kind="int"):
    return f'{kind} v; asm("{text}" : "={out}"(v) : {value}); (({kind}*)out)[t] = v;'


MMA = 'int d[4] = {0}; asm("mma.sync.aligned.%s {%%0,%%1,%%2,%%3}, {%%4,%%5%s}, {%%6%s}, {%%0,%%1,%%2,%%3};" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(%s), "r"(%s), "r"(%s)); o[t] = d[0];'


def mma(kind, a, b, wide=True):
    more, other = (",%4,%5", ",%6") if wide else ("", "")
    return MMA % (kind, more.replace("%", "%"), other, a, a, b)


# name → (body, first values of out as int32, as float32, or the words of a refusal)
RIGHT = {
    "warpSize": ("o[t] = (t + 64) / warpSize;", [2, 2]),
    "dynamic_smem_size": (asm("mov.u32 %0, %dynamic_smem_size;"), [0]),
    "integer add.sat": (asm("add.sat.s32 %0, %1, %2;", value='"r"(5), "r"(7)'), [12]),
    "integer sub.sat": (asm("sub.sat.s32 %0, %1, %2;", value='"r"(50), "r"(7)'), [43]),
    "add.sat at the limit": (asm("add.sat.s32 %0, %1, %1;", value='"r"(2000000000)'), [2**31 - 1]),
    "hfma2_relu": ("__half2 a = __float2half2_rn(2.f), b = __float2half2_rn(-10.f);\n  out[t] = __low2float(__hfma2_relu(a, a, b));", [0.0]),
    "xorsign.abs": (asm("min.xorsign.abs.f32 %0, %1, %2;", "f", '"f"(-3.f), "f"(2.f)', "float"), [-2.0]),
    "atomicAdd of floats": ("out[t] = atomicAdd(x + t % 2, t % 2 ? 1.f : 1e9f);", [0.0, 0.0, 1e9, 1.0, 2e9, 2.0]),
    "saturated NaN": ("out[t] = __saturatef(x[t] / x[t]);", [0.0]),
    "fma of doubles": ("double a = 1 + 1e-9 + x[t], b = 1 / 3.0; if (t == 0) ((double*)out)[0] = fma(a, b, -(a * b));", None),
    "fma of floats": ("float a = 1 + 1 / 4096.f + x[t]; o[t] = __float_as_int(fmaf(a, a, 8.27180613e-25f));", [0x3F801001]),
    "setp of pairs": ("__half2 a = __floats2half2_rn(1.f, 5.f), b = __floats2half2_rn(3.f, 3.f);\n  o[t] = __hbgt2(a, b) + 2 * __hblt2(a, b) + 4 * (__hgt2_mask(a, b) == 0xffff0000u);", [4]),
    "u8 by s8": (mma("m16n8k32.row.col.s32.u8.s8.s32", "-1", "-1"), [-255 * 32]),
    "s4 by s4": (mma("m16n8k32.row.col.s32.s4.s4.s32", "0x11111111", "0x11111111", wide=False), [32]),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_was_wrong_once_is_right(name):
    body, expected = RIGHT[name]
    card = "H100" if "xorsign" in name else "A100"
    out = run(body, card)
    if expected is None:
        a, b = 1 + 1e-9, 1 / 3
        exact = float(Fraction(a) * Fraction(b) - Fraction(a * b))
        assert out.view(torch.float64)[0].item() == exact != 0
    else:
        found = out if isinstance(expected[0], float) else out.view(torch.int32)
        assert found[: len(expected)].tolist() == expected


def test_mma_saturates_where_it_is_told():
    body = mma("m16n8k32.row.col.satfinite.s32.s8.s8.s32", "0x7f7f7f7f", "0x7f7f7f7f").replace(
        "{0}", "{2147483000}"
    )
    assert run(body).view(torch.int32)[0] == 2**31 - 1


def test_fast_math_flushes_subnormal_numbers():
    out = run("out[t] = (x[t] + 1.2e-38f) * 0.5f;", flags=("--use_fast_math",))
    assert out[0] == 0 and run("out[t] = (x[t] + 1.2e-38f) * 0.5f;")[0] > 0
    assert run("out[t] = __fdividef(x[t] + 1e38f, 2e38f);")[0] == 0


def test_eight_bit_floats_are_multiplied_as_they_are():
    """0x38 is 1.0 of e4m3, 0x3c is 1.0 of e5m2: 32 products of ones."""
    for kind, one in (("e4m3", "0x38383838"), ("e5m2", "0x3c3c3c3c")):
        body = mma(f"m16n8k32.row.col.f32.{kind}.{kind}.f32", one, one).replace(
            "o[t] = d[0]", "out[t] = __int_as_float(d[0])"
        )
        assert run(body, "L40")[0] == 32


@pytest.mark.parametrize("name", ["%smid", "%nsmid", "%nwarpid", "%gridid", "%total_smem_size"])
def test_what_the_card_decides_is_refused_by_name(name):
    with pytest.raises(kernels.Unsupported, match=name):
        run(asm(f"mov.u32 %0, %{name};"))
