"""A training step of a whole program: its forecast, and that as plain data for a page."""

from __future__ import annotations

from practice_gpus.cards import get_card
from practice_gpus.clock.forecast import Forecast
from practice_gpus.clock.log import Copy, Entry, Host, Launch

PAGE_CARDS = "T4|RTX 3060|RTX 4090|L4|A10G|A100 80|H100 SXM|H200".split("|")
FINEST = 1500  # parts of a step's length: shorter gaps are not drawn


def forecast(steps: list[list[Entry]], card: str, peak_bytes: int = 0) -> Forecast | None:
    """What a step takes on ``card``, of the ``steps`` recorded the one without an evaluation; None where none used a GPU."""
    used = [step for step in steps if any(isinstance(entry, Launch) for entry in step)]
    return Forecast(get_card(card), min(used, key=len), 1, peak_bytes) if used else None


def summary(step: Forecast) -> dict:
    """A forecast as JSON can hold it: time and range, causes, waits by line, other cards, and the timeline in ms."""
    places = PAGE_CARDS if step.card.name in [get_card(name).name for name in PAGE_CARDS] else None
    cards = step.on_cards(places or [step.card.name, *PAGE_CARDS])
    waits = [
        {"line": stop.line, "count": stop.count, "ms": stop.ms, "gain_ms": stop.gain_ms}
        for stop in step.waits
    ]
    return {
        "card": step.card.name,
        "ms": step.ms,
        "low_ms": step.low_ms,
        "high_ms": step.high_ms,
        "bound": step.bound,
        "cause": step.cause,
        "gains": step.gains,
        "idle": step.idle,
        "kernels": len(step.kernels),
        "waits": waits,
        "cards": cards,
        "timeline": timeline(step),
    }


def timeline(step: Forecast) -> dict:
    """{"CPU", "copies", "kernels": [[start, end, kind], …]} in ms; kinds: issue, host, wait, copy, kernel."""
    rows: dict[str, list] = {"CPU": [], "copies": [], "kernels": []}
    for span in sorted(step.spans, key=lambda span: span.start):
        kind = _kind(span)
        row = rows["CPU" if span.row == "cpu" else "copies" if kind == "copy" else "kernels"]
        start, end = 1e3 * span.start, 1e3 * span.end
        if row and row[-1][2] == kind and start - row[-1][1] < step.ms / FINEST:
            row[-1][1] = max(end, row[-1][1])
        else:
            row.append([start, end, kind])
    return rows


def _kind(span) -> str:
    if span.row != "cpu":
        return "copy" if isinstance(span.entry, Copy) else "kernel"
    if isinstance(span.entry, Host):
        return "host"
    return "issue" if span.name.startswith("launch") else "wait"
