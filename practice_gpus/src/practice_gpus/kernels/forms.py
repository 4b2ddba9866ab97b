"""Every form of instruction that is executed here: its words and how many operands it takes. What isn't here is refused.

A line: operands, name, then its words. `a|b` is one of them, `[a|b]` one or none, `{a|b}` any of them in any order; capital
names stand for a set. Written after NVIDIA, "PTX ISA", chapter 9.7. A maker must obey every word of its forms.
"""

from __future__ import annotations

import re
from functools import cache

SETS = {
    "I": "u16|u32|u64|s16|s32|s64",
    "C": "u32|s32|u64|s64",
    "B": "b16|b32|b64",
    "ANY": "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64",
    "CVT": "u8|u16|u32|u64|s8|s16|s32|s64",
    "HALF": "f16|f16x2",
    "BRAIN": "bf16|bf16x2",
    "F8": "e4m3x2|e5m2x2",
    "ORDERED": "eq|ne|lt|le|gt|ge",
    "UNORDERED": "equ|neu|ltu|leu|gtu|geu|num|nan",
    "LOGIC": "and|or|xor",
    "SPACE": "global|shared|shared::cta|local|const",
    "SCOPE": "weak|volatile|relaxed|acquire|release|acq_rel|cta|cluster|gpu|sys",
    "CACHE": "ca|cg|cs|cv|lu|nc|wb|wt|L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
    "|L2::cache_hint|L2::evict_first|L2::evict_last|L2::evict_normal|L2::64B|L2::128B|L2::256B",
}
SETS["LAYOUT"] = "row|col"
SETS["TILE"] = "m16n16k16|m32n8k16|m8n32k16"

TEXT = """
3 add|sub I|u16x2|s16x2
3 add|sub [sat] s32
3 add|sub|addc|subc [cc] C
3 mul lo|hi I
3 mul wide u16|u32|s16|s32
4 mad lo|hi I
4 mad hi sat s32
4 mad wide u16|u32|s16|s32
4 mad|madc lo|hi [cc] C
4 sad I
3 mul24 lo|hi u32|s32
4 mad24 lo|hi u32|s32
4 mad24 hi sat s32
3 div|rem I
2 neg|abs s16|s32|s64
3 min|max I|u16x2|s16x2
3 min|max [relu] s32|s16x2
2 popc|clz|brev b32|b64
2 bfind [shiftamt] C
4 bfe C
5 bfi b32|b64
4 dp4a u32|s32 u32|s32
4 dp2a lo|hi u32|s32 u32|s32
4 vabsdiff4|vmin4|vmax4|vabsdiff2|vmin2|vmax2 u32.u32.u32|s32.s32.s32 [add]
4 vadd4|vsub4|vadd2|vsub2 u32.u32.u32|s32.s32.s32 [sat|add]
3 LOGIC pred|B
2 not pred|B
3 shl B
3 shr B|I
4 shf l|r wrap|clamp b32
5 lop3 b32
4 prmt b32 [f4e|b4e|rc8|ecl|ecr|rc16]
4 fns b32
3 add|sub|mul [rn|rz|rm|rp] [ftz] [sat] f32
3 add|sub|mul [rn] f64|BRAIN
3 add|sub|mul [rn] [ftz] [sat] HALF
4 fma|mad rn|rz|rm|rp [ftz] [sat] f32
4 fma|mad rn f64
4 fma rn [ftz] [sat|relu] HALF
4 fma rn [relu] BRAIN
3 div rn|full|approx [ftz] f32
3 div rn f64
2 rcp|sqrt rn|approx [ftz] f32
2 rcp|sqrt rn f64
2 rcp|rsqrt approx [ftz] f64
2 rsqrt|lg2|ex2|sin|cos approx [ftz] f32
2 ex2 approx HALF
2 ex2 approx ftz BRAIN
2 tanh approx f32|HALF|BRAIN
2 neg|abs [ftz] f32|HALF
2 neg|abs f64|BRAIN
3-4 min|max [ftz] [NaN] f32
3 min|max [ftz] [NaN] xorsign.abs f32
3 min|max f64
3 min|max [ftz] [NaN] [xorsign.abs] HALF
3 min|max [NaN] [xorsign.abs] BRAIN
3 copysign f32|f64
2 testp finite|infinite|number|notanumber|normal|subnormal f32|f64
3 setp ORDERED I
3 setp lo|ls|hi|hs u16|u32|u64
3 setp eq|ne B
3 setp ORDERED|UNORDERED [ftz] f32|HALF
3 setp ORDERED|UNORDERED f64|BRAIN
4 setp ORDERED LOGIC I
4 setp lo|ls|hi|hs LOGIC u16|u32|u64
4 setp eq|ne LOGIC B
4 setp ORDERED|UNORDERED LOGIC [ftz] f32|HALF
4 setp ORDERED|UNORDERED LOGIC f64|BRAIN
3 set ORDERED u32|s32|f32 I
3 set lo|ls|hi|hs u32|s32|f32 u16|u32|u64
3 set ORDERED|UNORDERED [ftz] u32|s32|f32 f32
3 set ORDERED|UNORDERED u32|s32|f32 f64
3 set ORDERED|UNORDERED [ftz] f16|u16 f16
3 set ORDERED|UNORDERED [ftz] f16x2|u32 f16x2
3 set ORDERED|UNORDERED bf16|u16 bf16
3 set ORDERED|UNORDERED bf16x2|u32 bf16x2
4 selp B|I|f32|f64
2 mov pred|B|u16|u32|u64|s16|s32|s64|f16|bf16|f16x2|f32|f64
2 cvta [to] global|shared|shared::cta|local|const u64
2 isspacep global|shared|shared::cta|local
2 cvt [sat] CVT CVT
2 cvt rni|rzi|rmi|rpi [ftz] [sat] CVT f32
2 cvt rni|rzi|rmi|rpi [sat] CVT f16|f64
2 cvt rni|rzi|rmi|rpi CVT bf16
2 cvt rn [sat] f16|f32|f64 CVT
2 cvt rz f32|f64 u8|u16|u32|s8|s16|s32
2 cvt rn bf16 CVT
2 cvt [ftz] [sat] f64 f32
2 cvt rn|rz [ftz] [sat] f32 f64
2 cvt [rni|rzi|rmi|rpi] [ftz] [sat] f32 f32
2 cvt [rni|rzi|rmi|rpi] [sat] f64 f64
2 cvt [rni|rzi|rmi|rpi] [sat] f16 f16
2 cvt [ftz] f32 f16
2 cvt f32|f64 f16|bf16
2 cvt rn|rz [ftz] [sat] f16 f32
2 cvt rn|rz [relu] f16|bf16 f32
2 cvt rn f16|bf16 f64
3 cvt rn|rz [relu] f16x2|bf16x2 f32
2 cvt rna|rn|rz tf32 f32
3 cvt rn.satfinite [relu] F8 f32
2 cvt rn.satfinite [relu] F8 f16x2
2 cvt rn [relu] f16x2 F8
2 ld param [v2|v4] ANY
2-3 ld {SCOPE|SPACE|CACHE} [v2|v4|v8] ANY
2 st param [v2|v4] ANY
2-3 st {SCOPE|SPACE|CACHE} [v2|v4|v8] ANY
3-4 atom {SCOPE|SPACE|CACHE} add {SCOPE|SPACE|CACHE} u32|s32|u64|f32|f64
3-4 atom {SCOPE|SPACE|CACHE} add {SCOPE|SPACE|CACHE|noftz} HALF|BRAIN
3-4 atom {SCOPE|SPACE|CACHE} min|max {SCOPE|SPACE|CACHE} C
3-4 atom {SCOPE|SPACE|CACHE} inc|dec {SCOPE|SPACE|CACHE} u32
3-4 atom {SCOPE|SPACE|CACHE} LOGIC|exch {SCOPE|SPACE|CACHE} b32|b64
4-5 atom {SCOPE|SPACE|CACHE} cas {SCOPE|SPACE|CACHE} B
2-3 red {SCOPE|SPACE|CACHE} add {SCOPE|SPACE|CACHE} u32|s32|u64|f32|f64
2-3 red {SCOPE|SPACE|CACHE} add {SCOPE|SPACE|CACHE|noftz} HALF|BRAIN
2-3 red {SCOPE|SPACE|CACHE} min|max {SCOPE|SPACE|CACHE} C
2-3 red {SCOPE|SPACE|CACHE} inc|dec {SCOPE|SPACE|CACHE} u32
2-3 red {SCOPE|SPACE|CACHE} LOGIC {SCOPE|SPACE|CACHE} b32|b64
3-5 cp async.ca|async.cg shared|shared::cta global {L2::cache_hint|L2::64B|L2::128B|L2::256B}
0 cp async.commit_group|async.wait_all
1 cp async.wait_group
1 cp async.mbarrier.arrive [noinc] shared|shared::cta b64
2-3 createpolicy fractional L2::evict_first|L2::evict_last|L2::evict_normal|L2::evict_unchanged b64
5 shfl sync up|down|bfly|idx b32
3 vote sync all|any|uni pred
3 vote sync ballot b32
3 match any|all sync b32|b64
3 redux sync add|min|max u32|s32
3 redux sync and|or|xor b32
3 redux sync min|max [abs] [NaN] f32
2 elect sync
1 activemask b32
1 bar warp.sync
1-2 bar|barrier [cta] sync [aligned]
2 bar|barrier [cta] arrive [aligned]
3-4 bar|barrier [cta] red popc u32
3-4 bar|barrier [cta] red popc.aligned u32
3-4 bar|barrier [cta] red and|or [aligned] pred
4 mma sync.aligned.m16n8k8|sync.aligned.m16n8k16 row.col f32.f16.f16.f32|f16.f16.f16.f16|f32.bf16.bf16.f32
4 mma sync.aligned.m16n8k4|sync.aligned.m16n8k8 row.col f32.tf32.tf32.f32
4 mma sync.aligned.m8n8k16|sync.aligned.m16n8k16|sync.aligned.m16n8k32 row.col [satfinite] s32 s8|u8 s8|u8 s32
4 mma sync.aligned.m8n8k32|sync.aligned.m16n8k32|sync.aligned.m16n8k64 row.col [satfinite] s32 s4|u4 s4|u4 s32
4 mma sync.aligned.m16n8k16|sync.aligned.m16n8k32 row.col f32|f16 e4m3|e5m2 e4m3|e5m2 f32|f16
4 mma sync.aligned.m8n8k4|sync.aligned.m16n8k4|sync.aligned.m16n8k8|sync.aligned.m16n8k16 row.col f64.f64.f64.f64
2 ldmatrix sync.aligned {m8n8|x1|x2|x4|trans} shared|shared::cta b16
2 stmatrix sync.aligned {m8n8|x1|x2|x4|trans} shared|shared::cta b16
2 movmatrix sync.aligned.m8n8.trans.b16
3 wmma load a|b sync.aligned LAYOUT TILE {global|shared|shared::cta} f16|bf16|s8|u8
3 wmma load a|b sync.aligned LAYOUT m16n16k8 {global|shared|shared::cta} tf32
3 wmma load a|b sync.aligned LAYOUT m8n8k4 {global|shared|shared::cta} f64
3 wmma load c sync.aligned LAYOUT TILE|m16n16k8|m8n8k4 {global|shared|shared::cta} f16|f32|s32|f64
3 wmma store d sync.aligned LAYOUT TILE|m16n16k8|m8n8k4 {global|shared|shared::cta} f16|f32|s32|f64
4 wmma mma sync.aligned LAYOUT LAYOUT TILE f16|f32 f16|f32
4 wmma mma sync.aligned LAYOUT LAYOUT TILE f32.bf16.bf16.f32
4 wmma mma sync.aligned LAYOUT LAYOUT TILE s32.s8.s8.s32|s32.u8.u8.s32 [satfinite]
4 wmma mma sync.aligned LAYOUT LAYOUT m16n16k8 f32.tf32.tf32.f32
4 wmma mma sync.aligned LAYOUT LAYOUT m8n8k4 [rn] f64.f64.f64.f64
2 mbarrier init {shared|shared::cta} b64
1 mbarrier inval {shared|shared::cta} b64
2-3 mbarrier arrive|arrive_drop {release|cta|shared|shared::cta} b64
3 mbarrier test_wait [parity] {acquire|cta|shared|shared::cta} b64
3-4 mbarrier try_wait [parity] {acquire|cta|shared|shared::cta} b64
1 bra [uni]
0 ret|exit [uni]
0 trap
3 call [uni]
0 membar cta|gl|sys
0 fence {sc|acq_rel|acquire|release|cta|cluster|gpu|sys}
1 nanosleep u32
0 griddepcontrol wait|launch_dependents
1-2 prefetch|prefetchu [global|local] L1|L2|L2::evict_last|L2::evict_normal
1-2 prefetch|prefetchu [tensormap]
2 discard|applypriority [global] L2|L2::evict_normal
"""


def _expanded(words):
    return "|".join(SETS.get(each, each) for each in words.split("|")).split("|")


def _slot(word):
    """Return (how often: "?" at most once, "*" any number, "" once; the words) of a word of the table."""
    often = {"[": "?", "{": "*"}.get(word[0], "")
    return often, tuple(_expanded(word.strip("[]{}")))


def _forms():
    found: dict = {}
    for line in TEXT.strip().splitlines():
        counts, names, *words = line.split()
        low, _, high = counts.partition("-")
        for name in _expanded(names):
            entry = int(low), int(high or low), tuple(_slot(each) for each in words)
            found.setdefault(name, []).append(entry)
    return found


FORMS = _forms()  # name → [(fewest operands, most, slots)]


@cache
def _pattern(slots):
    parts = (rf"(?:\.(?:{'|'.join(map(re.escape, words))})){often}" for often, words in slots)
    return re.compile("".join(parts))


def known(parts: tuple, operands: int) -> bool:
    """True where the table has an instruction of these words with so many operands."""
    words = "".join(f".{each}" for each in parts[1:])
    return any(
        low <= operands <= high and _pattern(slots).fullmatch(words)
        for low, high, slots in FORMS.get(parts[0], ())
    )
