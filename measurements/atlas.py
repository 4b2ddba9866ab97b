"""What is known about a card, each number with its source: data sheet, published measurements, prices.

    for fact in atlas.about("T4"):
        print(fact)
    atlas.job(tflop=50_000, gigabytes=20_000, memory_gb=12, dtype="float16")

What nobody measured stays empty. Lesson 01 shows `minutes` in an explorer.
"""

from dataclasses import dataclass
from functools import cache

import measurements
from helpers import gpus
from measurements.groups import Group

SHEET = {  # fields of gpus.Card, in the words of the atlas
    "memory_gb": ("memory", "GB"),
    "bandwidth_gb_s": ("memory bandwidth", "GB/s"),
    "fp32": ("float32 products", "TFLOP/s"),
    "tf32": ("tf32 products", "TFLOP/s"),
    "fp16": ("float16 products", "TFLOP/s"),
    "bf16": ("bfloat16 products", "TFLOP/s"),
}


@dataclass(frozen=True)
class Fact:
    """One number: `what` it says, its `value` and `unit`, `kind` ("data sheet", "measured", "listed"), and its source."""

    what: str
    value: float
    unit: str
    kind: str
    source: str
    url: str

    def __str__(self):
        return f"{self.what}: {self.value:,g} {self.unit} ({self.kind}: {self.source})"


def names():
    """Every card of which something is known, those with a data sheet first."""
    sheets = [card.name for card in gpus.CARDS]
    return list(dict.fromkeys([*sheets, *sorted(_published())]))


def about(name):
    """All `Fact`s about the card called `name`, data sheet first. ValueError lists the names."""
    if name not in names():
        raise ValueError(f"name is {name!r}; it takes one of {names()}")
    return [*_sheet(name), *_published().get(name, [])]


def best(name, what):
    """The largest measured `Fact` with these words about a card, or None where nobody published one."""
    facts = [fact for fact in about(name) if fact.what == what and fact.kind == "measured"]
    return max(facts, key=lambda fact: fact.value, default=None)


def _sheet(name):
    for card in gpus.CARDS:
        if card.name == name:
            for field, (what, unit) in SHEET.items():
                value = getattr(card, field)
                if value is not None:
                    yield Fact(what, value, unit, "data sheet", "NVIDIA", card.source)


@cache
def _published():
    """Facts of all published files by card."""
    facts = {}
    for name in measurements.published_names():
        source = measurements.published(name)
        for section, rows in source.sections.items():
            for row in rows:
                card = source.devices[row["device"]]["card"]
                if card is not None:
                    facts.setdefault(card, []).extend(_facts(section, row, source))
    return facts


def _facts(section, row, source):
    """The facts of one row: rates of products, memory, copies; watts and prices."""
    found = []

    def add(what, field, unit, kind="measured"):
        if row.get(field) is not None:
            found.append(Fact(what, row[field], unit, kind, source.source, source.url))

    if section in ("matmul", "best"):
        add(f"{row['dtype']} products", "tflop_per_s", "TFLOP/s")
    if section == "bandwidth" and row.get("where") == "memory":
        add("memory bandwidth", "gb_per_s", "GB/s")
    if section == "copies" and "gb_per_s" in row:
        words = {"h2d": "copies to the card", "d2h": "copies from the card"}[row["direction"]]
        add(f"{words}, {'pinned' if row['pinned'] else 'pageable'}", "gb_per_s", "GB/s")
    if section == "cards":
        add("power", "power_watts", "W", "listed")
        add("price of the card", "price_usd", "$", "listed")
    if section == "prices":
        hourly = f"{row['price_usd_per_h'] / row['gpus']:.3g}"
        words = f"an hour at {row['cloud']}"
        url = source.url
        found.append(Fact(words, float(hourly), "$ a GPU", "listed", source.source, url))
    return found


BOUND = (  # the table is in notebooks/INSTRUCTORS.md, and tests/test_atlas.py computes it
    "at best is a bound: ResNets and a VGG-16 took 1.2 to 1.9 times as long (NVIDIA, pchaberski, rasbt), small networks "
    "much longer, since they wait for launches, copies and loading"
)


@dataclass(frozen=True)
class Answer:
    """A job on one card: whether it fits, seconds at best, dollars at best; None where nobody published what it takes."""

    card: str
    fits: bool | None
    seconds: float | None
    limit: str | None
    usd: float | None
    sources: tuple


def job(tflop, gigabytes, memory_gb, dtype="float16"):
    """`Answer`s of every card for a job: `tflop` (10¹² operations), `gigabytes` read and written, `memory_gb` at once.

    The time is the longer of arithmetic at the best published rate of a product, and of bytes at the best published
    rate of memory: a `BOUND`. The price is that of the cheapest hour listed.
    """
    takes = {"tflop": tflop, "gigabytes": gigabytes, "memory_gb": memory_gb}
    for argument, value in takes.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ValueError(f"{argument} is {value!r}; it takes a number above 0")
    if dtype not in ("float32", "tf32", "float16", "bfloat16"):
        raise ValueError(f"dtype is {dtype!r}; it takes float32, tf32, float16 or bfloat16")
    return [_answer(name, tflop, gigabytes, memory_gb, dtype) for name in names()]


def _answer(name, tflop, gigabytes, memory_gb, dtype):
    sheet = {fact.what: fact for fact in _sheet(name)}
    memory = sheet.get("memory")
    fits = None if memory is None else memory_gb <= memory.value
    rate = best(name, f"{dtype} products")
    bandwidth = best(name, "memory bandwidth")
    hours = [fact for fact in about(name) if fact.what.startswith("an hour at")]
    cheapest = min(hours, key=lambda fact: fact.value, default=None)
    used = [fact for fact in (memory, rate, bandwidth, cheapest) if fact is not None]
    sources = tuple(dict.fromkeys(f"{fact.what}: {fact.source}" for fact in used))
    if fits is False or rate is None or bandwidth is None:
        return Answer(name, fits, None, None, None, sources)
    arithmetic = tflop / rate.value
    moving = gigabytes / bandwidth.value
    seconds = max(arithmetic, moving)
    limit = "arithmetic" if arithmetic >= moving else "memory"
    usd = None if cheapest is None else cheapest.value * seconds / 3600
    return Answer(name, fits, seconds, limit, usd, sources)


def minutes(tflop, gigabytes, memory_gb, dtype="float16"):
    """The group for a figure: minutes at best on each card where the job fits and whose rates somebody measured.

    `plots.bars(atlas.minutes(…), title, "minutes at best")`; the label says the dollars where a price is listed.
    """
    answers = job(tflop, gigabytes, memory_gb, dtype)
    timed = [each for each in answers if each.fits and each.seconds]
    if not timed:
        raise ValueError(f"memory_gb is {memory_gb!r}; no card with published rates has as much")
    timed.sort(key=lambda each: each.seconds)
    labels = {_label(each): each.seconds / 60 for each in timed}
    return Group("published", labels, _short_sources(timed))


def _label(answer):
    price = "" if answer.usd is None else f", ${answer.usd:.2f}"
    return f"{answer.card}{price}"


def _short_sources(answers):
    who = {line.split(": ", 1)[1].split(", ")[0] for each in answers for line in each.sources}
    published = "published: " + ", ".join(sorted(who - {"NVIDIA"}))
    return [published, "memory: NVIDIA's data sheets", BOUND]
