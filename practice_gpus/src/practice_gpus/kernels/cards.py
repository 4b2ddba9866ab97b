"""What a compiler and an occupancy calculation need to know about a card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KB = 1024
# NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
# Compute capability: threads, blocks, shared bytes for each SM; shared bytes at most for, and reserved by, each block.
MULTIPROCESSORS = {
    75: (1024, 16, 64 * KB, 64 * KB, 0),
    80: (2048, 32, 164 * KB, 163 * KB, KB),
    86: (1536, 16, 100 * KB, 99 * KB, KB),
    89: (1536, 24, 100 * KB, 99 * KB, KB),
    90: (2048, 32, 228 * KB, 227 * KB, KB),
    100: (2048, 32, 228 * KB, 227 * KB, KB),
    120: (1536, 24, 100 * KB, 99 * KB, KB),
}
CAPABILITIES = {"T4": 75, "A100": 80, "A10": 86, "A10G": 86, "A6000": 86, "RTX 3090": 86}
CAPABILITIES |= {
    "L4": 89,
    "L40": 89,
    "L40S": 89,
    "RTX 4090": 89,
    "H100": 90,
    "H200": 90,
    "B200": 100,
    "RTX 5090": 120,
}


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of one SM of a card; sizes in bytes."""

    card: str
    capability: int
    threads: int
    blocks: int
    shared: int
    shared_of_block: int
    shared_reserved: int
    registers: int = 65536


def multiprocessor(card: Any) -> Multiprocessor:
    """Return the limits of an SM of `card`, such as "H100"; raises ValueError where the card isn't known."""
    if card not in CAPABILITIES:
        raise ValueError(f"card is {card!r}; known here: {', '.join(CAPABILITIES)}")
    capability = CAPABILITIES[card]
    return Multiprocessor(card, capability, *MULTIPROCESSORS[capability])
