"""Which card for which job: published rates and prices of cards, and how long a job takes on them at best.

At best is a bound, the longer of two times: arithmetic at the best published rate of a matmul, and bytes at the best
published rate of memory. A card of which nobody published both is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache

import measurements

BOUND = (  # the table is in notebooks/INSTRUCTORS.md, and tests/test_atlas.py computes it
    "At best is a bound: ResNets and a VGG-16 took 1.2 to 1.9 times as long (NVIDIA, pchaberski, rasbt), small networks "
    "much longer, because they wait for launches, copies and loading."
)


@dataclass(frozen=True)
class Card:
    """A card as published: GB, best TFLOP/s and GB/s; dollars an hour (None: no price listed), where and when listed."""

    name: str
    memory_gb: float
    tflop_per_s: float
    gb_per_s: float
    usd_per_h: float | None
    listed: str
    sources: tuple[str, ...]

    def seconds(self, tflop: float, gigabytes: float) -> float:
        """Seconds at best for `tflop` (10¹² operations) and `gigabytes` moved."""
        return max(tflop / self.tflop_per_s, gigabytes / self.gb_per_s)

    def limit(self, tflop: float, gigabytes: float) -> str:
        """What decides: "arithmetic" or "memory"."""
        return "arithmetic" if tflop / self.tflop_per_s >= gigabytes / self.gb_per_s else "memory"


def cards(dtype: str) -> dict[str, Card]:
    """The `Card`s by name of which a rate in `dtype` ("float32", "tf32", …) and the memory's are published."""
    facts = _published()
    found = {}
    for sheet in measurements.cards():
        name = sheet.name
        if (name, dtype) in facts and (name, "memory") in facts:
            rate, *rate_source = max(facts[name, dtype])
            bandwidth, *bandwidth_source = max(facts[name, "memory"])
            usd, price_source, listed = min(facts.get((name, "$ per hour"), [(None, "", "")]))
            sources = tuple(filter(None, (rate_source[0], bandwidth_source[0], price_source)))
            found[name] = Card(name, sheet.memory_gb, rate, bandwidth, usd, listed, sources)
    return found


@cache
def _published() -> dict[tuple[str, str], list[tuple[float, str, str]]]:
    """(value, source, note) of all published rates and prices by (card, what): a dtype, "memory" or "$ per hour"."""
    facts: dict[tuple[str, str], list[tuple[float, str, str]]] = {}
    for name in measurements.published_names():
        source = measurements.published(name)
        for section, rows in source.sections.items():
            for row in rows:
                for what, value, note in _facts(section, row):
                    card = source.devices[row["device"]]["card"]
                    facts.setdefault((card, what), []).append((value, source.source, note))
    return facts


def _facts(section: str, row: dict) -> Iterator[tuple[str, float, str]]:
    if section in ("matmul", "best") and row["tflop_per_s"] is not None:
        yield row["dtype"], row["tflop_per_s"], ""
    if section == "bandwidth" and row.get("where") == "memory":
        yield "memory", row["gb_per_s"], ""
    if section == "prices":
        day = date.fromisoformat(row["listed"])
        yield "$ per hour", row["price_usd_per_h"] / row["gpus"], f"{row['cloud']}, {day:%b %Y}"
