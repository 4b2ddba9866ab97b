"""How long a card would need for a kernel, by the clock's rules, from the bytes and operations that a run counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from practice_gpus.cards import find_card, get_card

if TYPE_CHECKING:
    from practice_gpus.kernels.result import Result

SAME = {"A100": "A100 80", "H100": "H100 SXM"}  # the card that a short name means
UNITS = ("tf32", "bf16", "f16")  # of products on tensor cores


@dataclass(frozen=True)
class Forecast:
    """Seconds on `card`: `low` if caches keep whatever is touched twice, `high` if they keep nothing; and the `bound`."""

    card: str
    low: float
    high: float
    bound: str

    def __str__(self):
        return f"forecast: {1e6 * self.low:.3g} to {1e6 * self.high:.3g} µs on {self.card}, {self.bound}-bound"


def forecast(result: Result, card: str) -> Forecast:
    """Return the `Forecast` of one launch of the kernel that made `result`, a `Result`.

    The larger of operations at the card's peak, bytes at its bandwidth (each with the clock's share of the data sheet), and
    the shortest kernel. What no count has isn't in it: latency, few blocks, bank conflicts.
    """
    chosen = get_card(find_card(SAME.get(card, card)))
    work = {"flops": result.tensor_flops or result.flops, "unit": _unit(result)}
    least = _limits(work, result.once(), chosen)
    most = _limits(work, result.moved(), chosen)
    bound = max(least, key=least.get)
    return Forecast(chosen.name, max(least.values()), max(most.values()), bound)


def _limits(work, count, card):
    # not at the top: the clock imports PyTorch's flop counter, that imports Triton, and Triton is given a driver from this room
    from practice_gpus.clock import Work, limits

    return limits(Work("kernel", [(0, count)], [], **work), card)


def _unit(result):
    """Return the number format of most operations: that of the tensor cores where they work, else float32."""
    if not result.tensor_flops:
        return "fp32"
    parts = next(each.parts for each in result.compiled.module.instructions if each.name == "mma")
    kind = next((each for each in UNITS if each in parts), "f16")
    return {"f16": "fp16"}.get(kind, kind)
