"""How many blocks of a kernel one SM can hold at a time, and what keeps it from holding more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from practice_gpus.kernels.cards import Multiprocessor

WARP = 32
SCHEDULERS = 4  # an SM is divided into four, each with a quarter of the registers
REGISTERS_AT_ONCE = 256  # a warp's registers are handed out in this unit


@dataclass(frozen=True)
class Occupancy:
    """`blocks` on an SM, their `warps`, the `share` of the SM's warps, and the `limiter`: what runs out first."""

    blocks: int
    warps: int
    share: float
    limiter: str

    def __str__(self):
        return f"{self.share:.0%} ({self.blocks} blocks, {self.warps} warps; limited by {self.limiter})"


def occupancy(sm: Multiprocessor, threads: int, registers: int, shared: int) -> Occupancy:
    """Return the `Occupancy` of blocks of `threads`, with `registers` for each thread and `shared` bytes for each block.

    `sm` is a `cards.Multiprocessor`. The rules are those of NVIDIA's cuda_occupancy.h.
    """
    warps = _up(threads, WARP) // WARP
    limits = {
        "warps": sm.threads // WARP // warps,
        "blocks": sm.blocks,
        "registers": _by_registers(sm, warps, registers),
        "shared memory": _by_shared(sm, shared),
    }
    if threads > 1024:
        limits["warps"] = 0
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps * WARP / sm.threads, limiter)


def _by_registers(sm, warps, registers):
    if registers == 0:
        return sm.blocks
    each = _up(registers * WARP, REGISTERS_AT_ONCE)
    if registers > 256 or _up(warps, SCHEDULERS) * each > sm.registers:
        return 0
    of_scheduler = sm.registers // SCHEDULERS // each
    return of_scheduler * SCHEDULERS // warps


def _by_shared(sm, shared):
    each = _up(shared + sm.shared_reserved, 256 if sm.capability < 80 else 128)
    if shared > sm.shared_of_block:
        return 0
    return sm.shared // each if each else sm.blocks


def _up(value, unit):
    return -(-value // unit) * unit
