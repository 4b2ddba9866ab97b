"""How long a job takes at best on each card: the explorer of lesson 01, from rates and prices that others published.

The time is the longer of two: arithmetic at the best published rate of a product, and bytes at the best published rate
of memory. A card of which nobody published both is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import measurements
from measurements.groups import Group

BOUND = (  # the table is in notebooks/INSTRUCTORS.md, and tests/test_atlas.py computes it
    "at best is a bound: ResNets and a VGG-16 took 1.2 to 1.9 times as long (NVIDIA, pchaberski, rasbt), small networks "
    "much longer, since they wait for launches, copies and loading"
)
DTYPES = ("float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True)
class Answer:
    """A job on one card: `seconds` at best, their `limit`, dollars (None: no price listed), and who published that."""

    card: str
    seconds: float
    limit: str
    usd: float | None
    sources: tuple[str, ...]


@cache
def _published() -> dict[tuple[str, str], list[tuple[float, str]]]:
    """(value, source) of all published rates and prices by (card, what); what is a dtype, "memory" or "$ per hour"."""
    facts: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for name in measurements.published_names():
        source = measurements.published(name)
        for section, rows in source.sections.items():
            for row in rows:
                for what, value in _facts(section, row):
                    card = source.devices[row["device"]]["card"]
                    facts.setdefault((card, what), []).append((value, source.source))
    return facts


def _facts(section: str, row: dict) -> Iterator[tuple[str, float]]:
    if section in ("matmul", "best") and row["tflop_per_s"] is not None:
        yield row["dtype"], row["tflop_per_s"]
    if section == "bandwidth" and row.get("where") == "memory":
        yield "memory", row["gb_per_s"]
    if section == "prices":
        yield "$ per hour", row["price_usd_per_h"] / row["gpus"]


def best_rate(card: str, dtype: str) -> float:
    """The best published TFLOP/s of a product on `card`; KeyError where nobody published one."""
    return max(_published()[card, dtype])[0]


def job(tflop: float, gigabytes: float, memory_gb: float, dtype: str) -> list[Answer]:
    """`Answer`s for a job, fastest card first: `tflop` (10¹² operations), `gigabytes` moved, `memory_gb` at once.

    Only cards whose data sheet names as much memory. ValueError for arguments that do not fit.
    """
    takes = {"tflop": tflop, "gigabytes": gigabytes, "memory_gb": memory_gb}
    for argument, value in takes.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ValueError(f"{argument} is {value!r}; it takes a number above 0")
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; it takes {', '.join(DTYPES)}")
    facts = _published()
    answers = [
        _answer(card.name, tflop, gigabytes, dtype)
        for card in measurements.cards()
        if card.memory_gb >= memory_gb
        and (card.name, dtype) in facts
        and (card.name, "memory") in facts
    ]
    return sorted(answers, key=lambda each: each.seconds)


def _answer(card: str, tflop: float, gigabytes: float, dtype: str) -> Answer:
    facts = _published()
    rate, rate_source = max(facts[card, dtype])
    bandwidth, bandwidth_source = max(facts[card, "memory"])
    price, *price_source = min(facts.get((card, "$ per hour"), [(None,)]))
    arithmetic = tflop / rate
    moving = gigabytes / bandwidth
    seconds = max(arithmetic, moving)
    limit = "arithmetic" if arithmetic >= moving else "memory"
    usd = None if price is None else price * seconds / 3600
    return Answer(card, seconds, limit, usd, (rate_source, bandwidth_source, *price_source))


def minutes(tflop: float, gigabytes: float, memory_gb: float, dtype: str) -> Group:
    """The group for a figure: minutes at best on each card of `job`; the label says the dollars where a price is listed."""
    answers = job(tflop, gigabytes, memory_gb, dtype)
    if not answers:
        raise ValueError(f"memory_gb is {memory_gb!r}; no card with published rates has as much")
    labels = {_label(each): each.seconds / 60 for each in answers}
    who = sorted({source.split(", ")[0] for each in answers for source in each.sources})
    lines = ["published: " + ", ".join(who), "memory: NVIDIA's data sheets", BOUND]
    return Group("published", labels, lines)


def _label(answer: Answer) -> str:
    return answer.card if answer.usd is None else f"{answer.card}, ${answer.usd:.2f}"
