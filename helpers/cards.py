"""What NVIDIA publishes about some well-known cards. Published, not measured: figures must say so.

Rates are dense (without sparsity), in TFLOP/s (10**12 floating-point operations a second); memory in GB (10**9 bytes),
bandwidth in GB/s; `None` where the card has no tensor cores for the format. Sources: the `source` page of each card;
the pages of H100 and H200 give rates with sparsity, which are twice the dense rates used here.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """One card: its published capacity, bandwidth, multiprocessors, compute capability and peak rates."""

    name: str
    memory_gb: float
    bandwidth_gb_s: float
    multiprocessors: int
    capability: tuple
    fp32: float
    tf32: float | None
    fp16: float
    bf16: float | None
    fp8: float | None
    source: str


_SITE = "https://www.nvidia.com/en-us"
CARDS = (
    Card("T4", 16, 320, 40, (7, 5), 8.1, None, 65, None, None, f"{_SITE}/data-center/tesla-t4/"),
    Card("L4", 24, 300, 58, (8, 9), 30.3, 60, 121, 121, 242.5, f"{_SITE}/data-center/l4/"),
    Card("RTX 4090", 24, 1008, 128, (8, 9), 82.6, 82.6, 165.2, 165.2, 330.3,
         f"{_SITE}/geforce/graphics-cards/40-series/rtx-4090/"),
    Card("A100 40 GB", 40, 1555, 108, (8, 0), 19.5, 156, 312, 312, None, f"{_SITE}/data-center/a100/"),
    Card("A100 80 GB", 80, 2039, 108, (8, 0), 19.5, 156, 312, 312, None, f"{_SITE}/data-center/a100/"),
    Card("H100", 80, 3350, 132, (9, 0), 67, 494.5, 989.5, 989.5, 1979, f"{_SITE}/data-center/h100/"),
    Card("H200", 141, 4800, 132, (9, 0), 67, 494.5, 989.5, 989.5, 1979, f"{_SITE}/data-center/h200/"),
)


def card(name):
    """The `Card` called `name`. Raises ValueError that lists the names."""
    for found in CARDS:
        if found.name == name:
            return found
    raise ValueError(f"name is {name!r}; it takes one of {[c.name for c in CARDS]}")
