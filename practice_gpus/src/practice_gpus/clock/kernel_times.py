"""How fast a card does one kernel's work: a roofline with one set of constants for all cards, none of them fitted."""

from __future__ import annotations

from practice_gpus.cards import COMPUTE, MEMORY, Card
from practice_gpus.clock.log import Reduce
from practice_gpus.clock.work import Work

CHANNELS_LAST = 0.8  # of the bandwidth (`MEMORY`), for images whose channels are next to each other
SHORTEST = 3e-6  # seconds of the shortest kernel
LOW_POWER = 0.6  # of its peak that a card of 75 W or less sustains: it cannot hold its boost clock
WATTS = 75


def sustained(card: Card) -> float:
    """The share of its peak rates that a card's power lets it hold."""
    return LOW_POWER if card.watts <= WATTS else 1.0


# Seconds until an exchange is under way between machines: 32 B200, 1 MiB: 380 µs; 1 GiB goes at 362 GB/s there, near the 400 of
# a machine's eight network cards (all_reduce_nodes, stas00/ml-engineering@744d01e). In a machine it takes at least 44 µs: 32 KiB
# between eight A100 (the same).
NEAR, FAR = 44e-6, 350e-6


def limits(work: Work, card: Card, shortest: float = SHORTEST) -> dict[str, float]:
    """Seconds that each limit alone would allow: {"compute", "memory", "launch"}."""
    share = CHANNELS_LAST if work.channels_last else MEMORY
    compute = 0.0
    if work.flops:
        compute = work.flops / (COMPUTE * sustained(card) * card.peak(work.unit))
    memory = work.bytes / (share * card.bandwidth * 1e9)
    return {"compute": compute, "memory": memory, "launch": shortest * work.launches}


def copy_seconds(size: int, card: Card, pinned: bool) -> float:
    """Seconds of a copy of ``size`` bytes between CPU and GPU."""
    rate = MEMORY * card.pcie if pinned else min(card.pageable, MEMORY * card.pcie)
    return SHORTEST + size / (rate * 1e9)


def link_seconds(size: int, card: Card) -> float:
    """Seconds of a copy between two GPUs: by NVLink, else by the bus."""
    return SHORTEST + size / (MEMORY * (card.nvlink or card.pcie) * 1e9)


def exchange_seconds(sent: Reduce, card: Card) -> float:
    """Seconds of an all-reduce, a gather or a scatter: its share of the bytes at the rate of the slowest link, after a start."""
    rate = card.bus or MEMORY * (card.nvlink or card.pcie)
    moved = sent.times * (sent.gpus - 1) / sent.gpus * sent.bytes / 1e9
    if sent.gpus > sent.per_node:
        return FAR + moved / min(rate, sent.nic * sent.per_node)
    return max(NEAR, moved / rate)
