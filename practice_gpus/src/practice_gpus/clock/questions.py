"""What people ask of a forecast: how many a second, how long and how much, which card, how many GPUs, and the largest batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from practice_gpus.cards import CARDS, GIB, find_card

if TYPE_CHECKING:
    from practice_gpus.clock.forecast import Forecast

MOST = 1 << 20  # the largest batch that is tried


class Span(NamedTuple):
    """A forecast and its range."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        low, middle, high = map(short, self)
        return f"{middle} ({low} to {high})"


class Rate(Span):
    """Samples or tokens a second."""

    def __str__(self) -> str:
        return f"forecast: {super().__str__()} a second"


class Offer(dict):
    """What a card would take, in one line: its keys are those of `Forecast.on_cards`."""

    def __str__(self) -> str:
        share = (
            f"{self['share']:.0%} of its memory" if self["share"] is not None else "memory unknown"
        )
        factors = [self[name] / self["ms"] for name in ("low_ms", "ms", "high_ms")]
        minutes, usd = self["minutes"], self["usd"]
        text = f"forecast: {Span(*(minutes * each for each in factors))} minutes on {self['card']}"
        if usd is not None:
            text += f", {Span(*(usd * each for each in factors))} dollars"
        return f"{text}; {share}" + ("" if self["fits"] else ", which is too much")


class Job(NamedTuple):
    """A whole training or inference: hours, and dollars where a price was given."""

    hours: Span
    usd: Span | None

    def __str__(self) -> str:
        return f"forecast: {self.hours} hours" + (f", {self.usd} dollars" if self.usd else "")


def short(value: float) -> str:
    """A number with three digits that count; 1,860 and not 1.86e+03."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.3g}"


def above_0(name: str, value: Any) -> None:
    """Raise ValueError unless a count or a price is a finite number above 0."""
    number = isinstance(value, Real) and not isinstance(value, bool)  # NumPy's numbers are, too
    if not number or not 0 < value < math.inf:
        raise ValueError(f"{name}={value!r}: give a number above 0")


def per_second(step: Forecast, count: float) -> Rate:
    """Samples or tokens a second, of ``count`` in a batch: of all GPUs together, each of which has a batch of its own."""
    above_0("count", count)
    batches = 1 if step.plan and step.plan.name == "tp" else step.gpus
    low, middle, high = (1e3 * count * batches / ms for ms in (step.high_ms, step.ms, step.low_ms))
    return Rate(low, middle, high)


def job(step: Forecast, samples: float, batch: float, usd_per_hour: float | None = None) -> Job:
    """Hours for ``samples`` in batches of ``batch`` on each GPU, and dollars at a GPU's price an hour."""
    above_0("samples", samples)
    above_0("batch", batch)
    if usd_per_hour is not None:
        above_0("usd_per_hour", usd_per_hour)
    rate = per_second(step, batch)
    hours = Span(*(samples / each / 3600 for each in reversed(rate)))
    if usd_per_hour is None:
        return Job(hours, None)
    return Job(hours, Span(*(usd_per_hour * step.gpus * each for each in hours)))


def priced(prices: Mapping[str, float] | None) -> dict[str, float]:
    """Prices by the full names of their cards. Raises ValueError for a card that is unknown or not the only one."""
    if prices is not None and not isinstance(prices, Mapping):
        raise ValueError(f"prices={prices!r}: give dollars an hour by card, such as {{'T4': 0.35}}")
    found: dict[str, float] = {}
    for name, price in (prices or {}).items():
        above_0(f"prices[{name!r}]", price)
        try:
            found[find_card(name)] = price
        except ValueError as error:
            raise ValueError(f"prices: {error}") from None
    return found


def rows(step: Forecast, cards: list | None, prices: Mapping | None, steps: int) -> list[Offer]:
    """See `Forecast.on_cards`."""
    above_0("steps", steps)
    if isinstance(cards, str):
        raise ValueError(f"cards={cards!r}: give a list of names, such as ['T4']")
    found = []
    costs = priced(prices)
    for name in cards if cards is not None else CARDS:
        there = step.on(name)
        share = there.rank_bytes / (there.card.memory * GIB) if there.card.memory else None
        minutes = there.ms * steps / 60e3
        price = costs.get(there.card.name)
        found.append(
            Offer(
                card=there.card.name,
                fits=share is None or share <= 1,
                ms=there.ms,
                low_ms=there.low_ms,
                high_ms=there.high_ms,
                bound=there.bound,
                memory_gib=there.card.memory,
                share=share,
                minutes=minutes,
                usd=None if price is None else price * there.gpus * minutes / 60,
            )
        )
    return sorted(found, key=lambda row: row["ms"])


def within(step: Forecast, usd: float, prices: Mapping[str, float], steps: int) -> Offer | None:
    """The fastest of the cards with a price that holds the step and does ``steps`` for at most ``usd``; None: none does."""
    above_0("usd", usd)
    if not prices:
        raise ValueError(f"prices={prices!r}: give dollars an hour by card, such as {{'T4': 0.35}}")
    fitting = rows(step, list(priced(prices)), prices, steps)
    return next((row for row in fitting if row["fits"] and row["usd"] <= usd), None)


def largest_batch(run: Callable[[int], Any], start: int = 1) -> int:
    """The largest batch for which ``run(batch)``, a whole step, fits on the practice GPU, 0 if none does; ``start`` is tried first.

    A program meets memory that is fragmented and a context of half a gigabyte: stay a tenth below.
    """
    if not callable(run):
        raise TypeError(f"run={run!r}: give a function of a batch's size")
    above_0("start", start)
    if not isinstance(start, int):
        raise ValueError(f"start={start!r}: give a whole number, 1 or more")
    fits, too_large = 0, None
    batch = start
    while batch <= MOST and batch > fits and too_large != fits + 1:
        if _runs(run, batch):
            fits = batch
        else:
            too_large = batch
            _runs(run, 1)  # sets free what the other has left, such as gradients
        torch.cuda.empty_cache()  # as in a program that begins with the next batch
        batch = 2 * batch if too_large is None else (fits + too_large) // 2
    return fits


def _runs(run: Callable[[int], Any], batch: int) -> bool:
    try:
        run(batch)
    except torch.OutOfMemoryError:
        return False
    return True
