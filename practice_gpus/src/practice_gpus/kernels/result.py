"""What a run counted, and what a card would need at least for it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from practice_gpus.kernels.arithmetic import operations
from practice_gpus.kernels.counters import SECTOR, Access
from practice_gpus.kernels.dataflow import MANTISSA, fewer_bits
from practice_gpus.kernels.forecast import forecast

if TYPE_CHECKING:
    from practice_gpus.kernels.forecast import Forecast


NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Result:
    """Counts of one run. `accesses`: an `Access` for each memory instruction; `divergent`: {line: warps that parted};
    `printed`: [((x, y, z) of the block, of the thread, text)] of printf and tl.device_print; `touches`: a `Touch` for each access of a block, where the run was asked for them.
    """

    def __init__(self, compiled, machine):
        self.compiled = compiled
        self.accesses = [each for each in machine.accesses if each.requests]
        self.divergent = dict(machine.divergent)
        self.tensor_flops = machine.tensor_flops
        tensors = (each.tensor for each in machine.memory.regions if each.tensor is not None)
        exact = [NAMES[each.dtype] for each in tensors if each.dtype in NAMES]
        self._least = min((MANTISSA[each] for each in exact), default=0)  # bits of mantissa
        self._executed = machine.executed
        self.printed = machine.printed
        pairs = list(
            zip(machine.module.instructions, machine.executed, machine.threads, strict=True)
        )
        self.flops = int(sum(operations(each.parts) * threads for each, _, threads in pairs))
        self.touches = machine.notes.found if machine.notes else []
        self.instructions = Counter()
        for each, warps, _ in pairs:
            self.instructions[_kind(each)] += int(warps)
        self._once = {
            kind: int(flags.sum()) * SECTOR for kind, flags in machine.memory.sectors.items()
        }

    def of(self, space: str = "global", kind: str | None = None) -> list[Access]:
        """Return the accesses of a space, of one kind ("load", "store", "atomic") or all."""
        return [each for each in self.accesses if each.space == space and kind in (None, each.kind)]

    def sectors_per_request(self, kind: str | None = None) -> float:
        """Return how many sectors of 32 bytes a warp's request moves, in the mean."""
        chosen = self.of("global", kind)
        requests = sum(each.requests for each in chosen)
        return sum(each.sectors for each in chosen) / requests if requests else 0.0

    def moved(self, kind: str | None = None) -> int:
        """Return the bytes of the sectors of all requests, each time counted: what the first cache has to deliver."""
        return sum(each.moved for each in self.of("global", kind))

    def useful(self, kind: str | None = None) -> int:
        """Return the bytes that threads asked for, each once a request."""
        return sum(each.useful for each in self.of("global", kind))

    def once(self, kind: str | None = None) -> int:
        """Return the bytes of the sectors that were touched at all: what memory moves if the caches keep the rest."""
        return sum(self._once.values()) if kind is None else self._once[kind]

    @property
    def efficiency(self) -> float:
        """The share of the moved bytes that a thread asked for."""
        return self.useful() / self.moved() if self.moved() else 1.0

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts of shared memory beyond those that would do without conflicts."""
        return sum(each.wavefronts - each.ideal for each in self.of("shared"))

    @property
    def worst_conflict(self) -> int:
        """How many words of one bank the worst request of shared memory wants at once; 1 is no conflict."""
        return max((each.worst for each in self.of("shared")), default=1)

    @cached_property
    def divergent_branches(self) -> int:
        """How often a warp's threads parted at a branch."""
        return sum(self.divergent.values())

    def forecast(self, card: str | None = None) -> Forecast:
        """Return the `Forecast` for `card`, by default the one it was compiled for."""
        return forecast(self, card or self.compiled.card)

    def findings(self) -> list[tuple]:
        """Return [(what, line, words)]: what costs this kernel time that another order of its work would save."""
        found = []
        for each in self.by_line():
            least = max(
                each.requests, -(-each.useful // SECTOR)
            )  # a request moves a sector at least
            if each.space == "global" and each.sectors > 1.5 * least:
                words = f"{each.sectors_per_request:.3g} sectors per request where {least / each.requests:.3g} would do"
                found.append(("uncoalesced", each.line, words))
            if each.space == "shared" and each.worst > 1:
                words = f"{each.worst} words of one bank at once: a {each.worst}-way bank conflict"
                found.append(("bank conflict", each.line, words))
        fewer = fewer_bits(self.compiled.module, self._executed, self._least)
        for line, (kind, bits) in fewer.items():
            words = (
                f"computes in {kind}, {bits} bits of mantissa, and its tensors have {self._least}"
            )
            found.append(("fewer bits", line, words))
        for line, count in self.compiled.spills.items():
            words = f"{count} instructions move registers to the stack and back ({self.compiled.stack:,} bytes)"
            found.append(("spill", line, words))
        return found

    def __str__(self):
        lines = [
            f"{self.moved():,} bytes moved, {self.efficiency:.0%} of them used; {self.sectors_per_request():.1f} sectors "
            f"per request; {self.bank_conflicts:,} bank conflicts; {self.divergent_branches:,} divergent branches"
        ]
        for each in self.by_line():
            told = (
                ", predicted" if each.predicted else ""
            )  # no such access in the machine code's line
            lines.append(
                f"  {each.kind} of {each.space} memory, {_rate(each)}{told}, in {each.line}"
            )
        return "\n".join(lines)

    def by_line(self) -> list[Access]:
        """Return the accesses with those of one line, kind and width added up."""
        found: dict = {}
        for each in self.accesses:
            key = (each.line, each.kind, each.space, each.bytes)
            found.setdefault(key, Access(*key)).add(each)
        return list(found.values())


def _rate(access):
    if access.space == "global":
        return (
            f"{access.bytes} bytes per thread, {access.sectors_per_request:.1f} sectors per request"
        )
    return f"{access.bytes} bytes per thread, {access.wavefronts / access.ideal:.1f} wavefronts per request"


KINDS = {
    "mma": "tensor core",
    "ldmatrix": "shared memory",
    "bar": "synchronization",
    "barrier": "synchronization",
}
KINDS |= {
    "shfl": "shuffle",
    "vote": "shuffle",
    "redux": "shuffle",
    "bra": "control",
    "ret": "control",
    "exit": "control",
}
KINDS |= {"cvt": "conversion", "mov": "move", "cvta": "move", "selp": "move", "setp": "comparison"}


def _kind(instruction):
    if instruction.name in ("ld", "st", "atom", "red", "cp"):
        return f"{instruction.space or 'global'} memory"
    if instruction.name in KINDS:
        return KINDS[instruction.name]
    return (
        "floating point"
        if operations(instruction.parts) or instruction.type[0] == "f"
        else "integer"
    )
