"""Which card to rent: forecasts of a step on the cards that have a listed price, and what an epoch of it costs there."""

import json
from dataclasses import dataclass
from typing import Any

from course.measurements import prices
from course.show import vega
from course.show.vega import calculate
from helpers import plots
from helpers.plots import INK
from practice_gpus.cards import GIB, get_card
from practice_gpus.clock import Forecast

IMAGENET = 1_281_167  # images for training in ILSVRC 2012
EPOCH = "the 1.28 million images of ImageNet"
CAPTION = (
    "The line through a bar is the forecast's range; loading data isn't in it. After each card's name: its price per hour "
    "and what limits the job (mixed: two limits come close). Prices: the lowest in The Full Stack's list, August 2022 to June 2023."
)


@dataclass(frozen=True)
class Job:
    """What the explorer asks about: the `forecast` of one step, which works on `samples` images."""

    name: str
    forecast: Forecast
    samples: int

    def rows(self) -> list[dict[str, Any]]:
        """One dict a card, the cheapest epoch first: minutes and dollars of an epoch, low, middle and high."""
        rows = [_row(self, get_card(name), price) for name, price in prices.lowest().items()]
        return sorted(rows, key=lambda row: (not row["fits"], row["usd"]))


def _row(job: Job, card, price: prices.Price) -> dict[str, Any]:
    there = job.forecast.on(card.name)
    low, middle, high = (
        IMAGENET / job.samples * ms / 60e3 for ms in (there.low_ms, there.ms, there.high_ms)
    )
    name = f"{card.short}, {card.gigabytes} GB" if "GB" not in card.short else card.short
    fits = job.forecast.peak_bytes <= card.memory * GIB
    return {
        "job": job.name,
        "card": name,
        "named": f"{name} · ${price.usd_per_h:.2f}/h" + (f" · {there.bound}" if fits else ""),
        "low": _short(low),
        "minutes": _short(middle),
        "high": _short(high),
        "usd": _short(middle * price.usd_per_h / 60),
        "usd_low": _short(low * price.usd_per_h / 60),
        "usd_high": _short(high * price.usd_per_h / 60),
        "per_hour": price.usd_per_h,
        "listed": str(price),
        "bound": there.bound,
        "need": _short(job.forecast.peak_bytes / GIB),
        "fits": fits,
    }


def _short(value: float) -> float:
    """`value` with four digits: the chart's data stays small."""
    return float(f"{value:.4g}")


def explore(jobs: list[Job]) -> None:
    """Show each card's minutes and dollars of one of `jobs` at a time, the cheapest card first.

    Needs no kernel: the job is chosen in the chart. Raises ValueError without a job.
    """
    if not jobs:
        raise ValueError("jobs is empty; it takes a list of Job")
    rows = [row for job in jobs for row in job.rows()]
    first = [row for row in rows if row["job"] == jobs[0].name]
    told = "; ".join(f"{row['card']} {_told(row)}" for row in first)
    alt = f"Forecast: {jobs[0].name}, {EPOCH}: {told}."
    vega.show(_spec(rows, jobs), _draw(first, "\n".join(_title(first))), alt, CAPTION)


def _title(rows):
    """The two lines above the bars of one job: what they show, and of what they are a forecast."""
    return [_finding(rows), f"Forecast: {rows[0]['job']}, {EPOCH}"]


def _finding(rows):
    """Which card costs least per hour, and which per epoch."""
    rows = [row for row in rows if row["fits"]]
    if not rows:
        return "The job fits none of these cards"
    hour, epoch = (min(rows, key=lambda row: row[key]) for key in ("per_hour", "usd"))
    cheapest, better = (row["card"].split(",")[0] for row in (hour, epoch))
    if hour is epoch:
        return f"The {cheapest} costs least, per hour and per epoch"
    if hour["usd_low"] < epoch["usd_high"]:
        return f"The {cheapest} costs least per hour, but probably more than the {better} per epoch"
    times = plots.number(hour["usd"] / epoch["usd"], 2)
    return f"The {cheapest} costs least per hour, but about {times}× the {better} per epoch"


def _told(row):
    if not row["fits"]:
        return f"does not fit, it needs {plots.number(row['need'])} GiB"
    return f"{plots.number(row['minutes'], 2)} minutes, ${row['usd']:.2f}, {row['bound']}"


def _draw(rows, title):
    """The picture of one job, for pages that draw no chart."""
    figure, (left, right) = plots.panels(title, 1, 2, (7.3, 2.9), sharey=True)
    rows = sorted(rows, key=lambda row: not row["fits"])
    for axes, name, fields, words in (
        (left, "minutes per epoch", ("low", "minutes", "high"), "{:.2g}"),
        (right, "dollars per epoch", ("usd_low", "usd", "usd_high"), "${:.2f}"),
    ):
        forecasts = {
            row["named"]: tuple(row["fits"] * row[each] for each in fields) for row in rows
        }
        told = {row["named"]: words.format(row[fields[1]]) if row["fits"] else "" for row in rows}
        plots.draw_bars(axes, forecasts, colors=plots.GPU, words=told)
        axes.set(xlabel=name, xticks=())
        axes.margins(x=0.3)
    return figure


def _spec(rows: list[dict], jobs: list[Job]) -> dict[str, Any]:
    """The explorer as Vega-Lite: hollow bars of minutes and of dollars with their ranges."""
    options = [job.name for job in jobs]
    bind = {"input": "select", "options": options, "name": "job "}
    order = {"field": "order", "op": "min", "order": "ascending"}
    axis = {"labelLimit": 280, "labelPadding": 10, "title": None}
    y = {"field": "named", "type": "nominal", "axis": axis, "sort": order}
    minutes = "datum.fits ? format(datum.minutes, ',.2~r') : 'needs ' + datum.need + ' GiB'"
    common = [
        {"filter": "datum.job == job"},
        *calculate(
            order="datum.fits ? datum.usd : 1e9",
            least="datum.fits ? datum.low : 0",
            middle="datum.fits ? datum.minutes : 0",
            most="datum.fits ? datum.high : 0",
            cheap="datum.fits ? datum.usd_low : 0",
            cost="datum.fits ? datum.usd : 0",
            dear="datum.fits ? datum.usd_high : 0",
            timed=minutes,
            priced="datum.fits ? format(datum.usd, '$.2f') : ''",
        ),
    ]
    bare = {**y, "axis": None}
    left = _panel(y, "minutes per epoch", ("least", "middle", "most"), "timed", common)
    right = _panel(bare, "dollars per epoch", ("cheap", "cost", "dear"), "priced", common)
    found = {job: _title([row for row in rows if row["job"] == job]) for job in options}
    told = f"({json.dumps(found, ensure_ascii=False)})[job]"
    return {
        "title": {"text": {"expr": told}},
        "params": [{"name": "job", "value": options[0], "bind": bind}],
        "data": {"values": rows},
        "hconcat": [left, right],
        "spacing": 24,
    }


def _panel(y, name, fields, words, transform):
    """A panel of hollow bars with their ranges, `fields` (low, bar, high), and the text `words` behind them."""
    low, bar, end = fields
    axis = {"labels": False, "ticks": False, "grid": False, "domain": False, "title": name}
    x = {"type": "quantitative", "axis": axis}
    hollow = {"type": "bar", "fill": None, "stroke": plots.GPU, "strokeDash": [4, 3]}
    tip = [{"field": field, "type": "nominal"} for field in ("bound", "per_hour", "listed")]
    text = {"type": "text", "align": "left", "dx": 6, "color": INK}
    room = calculate(room=f"1.5 * datum.{end}")
    return {
        "width": 300,
        "height": {"step": 28},
        "transform": [*transform, *room],
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "point", "opacity": 0},
                "encoding": {"x": {"field": "room", **x}},
            },
            {
                "mark": {**hollow, "height": 17},
                "encoding": {"x": {"field": bar, **x}, "tooltip": tip},
            },
            {
                "mark": text,
                "encoding": {"x": {"field": end, **x}, "text": {"field": words}},
            },
            {
                "mark": {"type": "rule", "color": plots.GPU, "strokeWidth": 1.5},
                "encoding": {"x": {"field": low, **x}, "x2": {"field": end}},
            },
        ],
    }
