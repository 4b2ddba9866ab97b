"""Which card for which job: forecasts of a step on many cards, their memory, and what an epoch of it costs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helpers import figures, plots
from helpers.palette import INK
from helpers.vega import calculate
from measurements import prices
from practice_gpus.cards import GIB, get_card
from practice_gpus.clock import Forecast

CARDS = (
    *("T4", "V100", "L4", "A10G", "RTX 3090", "RTX 4090", "A100 40 GB", "L40S", "A100 80 GB"),
    *("H100 PCIe", "H100 SXM", "H200", "B200"),
)
CAPTION = (
    "Forecasts, not measurements: hollow bars, with their range. Prices: the lowest in The Full Stack's list, each with the "
    "month in which the list got it. Data loading isn't in it."
)


@dataclass(frozen=True)
class Job:
    """What the explorer asks about: the `forecast` of one step, which works on `samples` of `unit` ("images")."""

    name: str
    forecast: Forecast
    samples: int
    unit: str

    def rows(self) -> list[dict[str, Any]]:
        """One dict a card: what the step takes there in ms, whether it fits, and what an hour costs."""
        listed = prices.lowest()
        need = self.forecast.peak_bytes
        return [_row(self, get_card(name), need, listed) for name in CARDS]


def _row(job: Job, card, need: int, listed: Mapping[str, prices.Price]) -> dict[str, Any]:
    there = job.forecast.on(card.name)
    price = listed.get(card.name)
    return {
        "job": job.name,
        "card": f"{card.short}, {card.gigabytes} GB" if "GB" not in card.short else card.short,
        "ms": _short(there.ms),
        "low": _short(there.low_ms),
        "high": _short(there.high_ms),
        "bound": there.bound,
        "samples": job.samples,
        "need": _short(need / GIB),
        "fits": need <= card.memory * GIB,
        "usd": price and price.usd_per_h,
        "listed": str(price or ""),
    }


def _short(value: float) -> float:
    """`value` with four digits: the chart's data stays small."""
    return float(f"{value:.4g}")


def explore(jobs: list[Job], thousands: int = 50) -> None:
    """Show each card's forecast for one of `jobs` at a time: minutes and dollars of an epoch of `thousands` of samples.

    Needs no kernel: job and epoch are chosen in the chart. Raises ValueError without a job.
    """
    if not jobs:
        raise ValueError("jobs is empty; it takes a list of Job")
    rows = [row for job in jobs for row in job.rows()]
    first = [row for row in rows if row["job"] == jobs[0].name]
    minutes = {
        row["card"]: tuple(_minutes(row, thousands, ms) for ms in ("low", "ms", "high"))
        for row in first
        if row["fits"]
    }
    minutes = dict(sorted(minutes.items(), key=lambda pair: pair[1][1]))
    title = f"{jobs[0].name}: minutes for {thousands:,},000 {jobs[0].unit}"
    figure = plots.bars([plots.forecast(minutes)], title, "minutes")
    told = ", ".join(f"{card} {figures.number(each[1])}" for card, each in minutes.items())
    figures.show_vega(_spec(rows, jobs, thousands), figure, f"Forecast, {title}: {told}.", CAPTION)


def _minutes(row: Mapping[str, Any], thousands: int, ms: str) -> float:
    return row[ms] * 1000 * thousands / row["samples"] / 60e3


def _spec(rows: list[dict], jobs: list[Job], thousands: int) -> dict[str, Any]:
    """The explorer as Vega-Lite: hollow bars of minutes with their range, and in words the bound, memory and price."""
    units = json.dumps({job.name: job.unit for job in jobs})
    epoch = "1e3 * thousands / datum.samples / 6e4"
    count = "format(thousands, ',') + ',000 '"
    dollars = "format(datum.usd * datum.minutes / 60, '$,.2f') + ' (' + datum.listed + ')'"
    bound = "(datum.bound == 'mixed' ? 'mixed' : datum.bound + '-bound')"
    words = f"format(datum.minutes, ',.3~r') + ' min, ' + {bound} + ', ' + (datum.listed ? {dollars} : 'no price listed')"
    small = "'does not fit: it needs ' + format(datum.need, '.3~r') + ' GiB'"
    order = {"field": "order", "op": "min", "order": "ascending"}
    y = {"field": "card", "type": "nominal", "title": None, "sort": order}
    x = {"type": "quantitative", "title": "minutes, by forecast", "axis": {"format": ",~r"}}
    bar = {"type": "bar", "fill": None, "stroke": figures.GPU, "strokeDash": [4, 3], "height": 15}
    label = {"type": "text", "align": "left", "dx": 6, "color": INK}
    return {
        "title": {"text": {"expr": f"'Forecast: ' + job + ', ' + {count} + {units}[job]"}},
        "params": [
            _choice("job", [job.name for job in jobs]),
            _slider("thousands", thousands, 1300),
        ],
        "data": {"values": rows},
        "width": 800,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "height": {"step": 25},
        "transform": [
            {"filter": "datum.job == job"},
            *calculate(
                minutes=f"datum.fits ? datum.ms * {epoch} : 0",
                least=f"datum.fits ? datum.low * {epoch} : 0",
                most=f"datum.fits ? datum.high * {epoch} : 0",
                order="datum.fits ? datum.minutes : 1e9",
                room="1.8 * datum.most",
                told=f"datum.fits ? {words} : {small}",
            ),
        ],
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "point", "opacity": 0}, "encoding": {"x": {"field": "room", **x}}},
            {"mark": bar, "encoding": {"x": {"field": "minutes", **x}}},
            {
                "mark": {"type": "rule", "color": figures.GPU, "strokeWidth": 1.5},
                "encoding": {"x": {"field": "least", **x}, "x2": {"field": "most"}},
            },
            {
                "mark": label,
                "encoding": {"x": {"field": "most", **x}, "text": {"field": "told"}},
            },
        ],
    }


def _choice(name: str, options: list[str]) -> dict[str, Any]:
    bind = {"input": "select", "options": options, "name": f"{name} "}
    return {"name": name, "value": options[0], "bind": bind}


def _slider(name: str, value: int, high: int) -> dict[str, Any]:
    bind = {"input": "range", "min": 1, "max": high, "step": 1, "name": "thousands an epoch "}
    return {"name": name, "value": value, "bind": bind}
