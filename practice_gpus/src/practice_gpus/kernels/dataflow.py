"""What a kernel's instructions could do with what, read off the code without running it: which value comes of which."""

from __future__ import annotations

from functools import cached_property
from typing import Any

WITHOUT_RESULT = (
    "st",
    "red",
    "stmatrix",
    "bra",
    "ret",
    "exit",
    "trap",
    "call",
    "membar",
    "fence",
    "cp",
)
ASKED = {
    "volatile",
    "acquire",
    "relaxed",
    "release",
    "cv",
}  # an access that means to meet other threads


class Flow:
    """Where the registers of a module's instructions come from, whatever the order in which they run."""

    def __init__(self, module):
        self.module = module
        self.makers = {}  # register → instructions that write it
        for each in module.instructions:
            if each.name not in WITHOUT_RESULT and each.operands:
                for word in words_of(each.operands[:1]):
                    self.makers.setdefault(word, []).append(each)

    def behind(self, operands: list) -> list:
        """Return the instructions that operands come of, back to loads; what an address of a load comes of isn't asked."""
        found: dict = {}
        todo = list(words_of(operands))
        while todo:
            for each in self.makers.get(todo.pop(), ()):
                if id(each) not in found:
                    found[id(each)] = each
                    if each.name not in ("ld", "atom") or each.space == "param":
                        todo += words_of(each.operands[1:])
        return list(found.values())

    def parameters(self, instruction: Any) -> set:
        """Return the kernel's parameters that the address of a load or store may come of; {None}: from memory, any."""
        address = next(each for each in instruction.operands if isinstance(each, tuple))
        found = set()
        for each in self.behind([address]):
            if each.space == "param":
                found.add(each.operands[1][1])
            elif each.name in ("ld", "atom") and each.type.endswith("64"):
                found.add(None)
        return found

    @cached_property
    def stored(self) -> set:
        """The parameters whose tensors may be written without an atomic."""
        stores = (
            each for each in self.module.instructions if each.name == "st" and each.moves_global
        )
        return set().union(*map(self.parameters, stores))

    def shares(self, instruction: Any) -> bool:
        """True where a load or store of global memory may touch a tensor that the kernel also writes."""
        if (
            not instruction.moves_global
            or instruction.name not in ("ld", "st")
            or ASKED & set(instruction.parts)
        ):
            return False
        found = self.parameters(instruction)
        return bool(found & self.stored) or None in found | self.stored

    def updates(self, store: Any) -> bool:
        """True where what is stored comes of what a load found at the same address: x += 1."""
        address, *values = store.operands
        return any(
            each.name == "ld" and each.operands[1] == address for each in self.behind(values[:1])
        )

    @cached_property
    def deciding(self) -> set:
        """The loads and atomics on whose result a branch hangs, as ids."""
        guards = [
            each.guard[0] for each in self.module.instructions if each.name == "bra" and each.guard
        ]
        return {id(each) for each in self.behind(guards)}

    def waits(self, instruction: Any) -> bool:
        """True for an atomic, or a load that means to meet other threads, on which a branch hangs: a lock, a flag."""
        asked = instruction.name == "atom" or ASKED & set(instruction.parts)
        return bool(asked) and id(instruction) in self.deciding


MANTISSA = {"f64": 52, "f32": 23, "tf32": 10, "f16": 10, "bf16": 7, "e4m3": 3, "e5m2": 2}
MANTISSA |= {f"{kind}x2": MANTISSA[kind] for kind in ("f16", "bf16", "e4m3", "e5m2")}


ROUNDED = ("-8192", "0xFFFFE000", "4294959104")  # a mask that leaves the bits of tf32


def _bits(instruction):
    """Return the bits of mantissa of the types to and from which a conversion is made; 99 where it isn't one of floats."""
    found = [MANTISSA[part] for part in instruction.parts if part in MANTISSA]
    return tuple(found) if instruction.name == "cvt" and len(found) == 2 else (99, 99)


def fewer_bits(module: Any, executed: Any, least: int) -> dict:
    """Return {line: (type, bits)} of arithmetic with fewer bits of mantissa than `least`, and of numbers cut to so few and back.

    A product on tensor cores of which the rest of the rounding is taken along (three products for one) isn't among it.
    """
    flow = Flow(module)
    found: dict[Any, Any] = {}
    differences = (
        i for i in module.instructions if i.parts == ("sub", "f32") or i.parts[:2] == ("sub", "rn")
    )
    taken_along = any(
        "tf32" in part.parts
        or part.name == "and"
        and part.operands[-1] in ROUNDED
        or part.name == "cvt"
        and _bits(part)[0] > _bits(part)[1]
        for each in differences
        for part in flow.behind(each.operands[1:])
    )
    pairs = list(zip(module.instructions, executed, strict=True))
    cut = {_bits(each)[0] for each, count in pairs if count and each.name == "cvt"}
    for each, count in pairs:
        if not count or each.name not in ("mma", "add", "sub", "mul", "fma", "cvt"):
            continue
        target, origin = _bits(each)
        if each.name == "cvt" and (taken_along or origin not in cut or target <= origin):
            continue
        kinds = [part for part in each.parts[1:] if part in MANTISSA]
        kind = min(kinds, key=MANTISSA.__getitem__, default=None)
        if kind is None or MANTISSA[kind] >= least:
            continue
        if each.name != "mma" or not taken_along:
            found.setdefault(each.line, (kind, MANTISSA[kind]))
    return found


def words_of(operands: Any) -> list:
    """Return the registers and names in operands."""
    found: list = []
    for each in operands:
        if isinstance(each, list):
            found += words_of(each)
        elif isinstance(each, tuple):
            found.append(each[1])
        else:
            found += [word.removeprefix("!") for word in str(each).split("|")]
    return found
