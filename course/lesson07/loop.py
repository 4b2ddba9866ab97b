"""Who works when, CPU and GPU: a loop that is computed here, a forecast's queue, and how both are drawn (07)."""

from collections.abc import Iterable
from typing import Any

from helpers import plots

Span = tuple[str, str, float, float]  # lane, label, start and end in ms

COLORS = {
    "prepare": plots.CPU,
    "prepare images": plots.CPU,
    "launch": plots.CPU,
    "launch kernels": plots.CPU,
    "copy": plots.COPY,
    "blocked": plots.WAIT,
    "blocked in synchronize()": plots.WAIT,
}


def lay_out(work: Iterable) -> tuple[list[Span], float]:
    """Spans (lane, label, start, end) in ms of `work`, and the ms that it takes in all.

    `work`: pieces (lane, label, ms) in the order in which Python asks for them. The GPU does its own in turn, each
    as soon as Python has asked for it; "waits" lets Python wait until the GPU is done (lesson 07).
    """
    spans = []
    now = 0.0  # Python's clock
    free = 0.0  # when the GPU is done with what it was asked for
    for piece in work:
        if piece == "waits":
            spans.append(("Python", "waits", now, free))
            now = max(now, free)
            continue
        lane, label, ms = piece
        if lane == "Python":
            spans.append((lane, label, now, now + ms))
            now += ms
        else:
            begin = max(now, free)
            free = begin + ms
            spans.append((lane, label, begin, free))
    return spans, max(now, free)


def forecast_spans(forecast: Any) -> list[Span]:
    """Spans (lane, label, start, end) in ms of a forecast's queue, the CPU first; neighbors of one kind are joined.

    A lane whose joined kernels run for less than 90% of their spans says so: "kernels and gaps".
    """
    labels = {"cpu": "prepare images", "launch": "launch kernels"}
    lanes: dict[str, list[Span]] = {}
    ran: dict[str, float] = {}  # lane: ms in which its kernels run
    for span in forecast.queue.spans:
        label = "copy" if span.bound == "copy" else "kernels"
        lane = "GPU"
        if span.row == "cpu":
            lane, label = "CPU", labels.get(span.name.split()[0], "blocked")
        elif label == "copy" and span.row[1] != 0:
            lane = "GPU, 2nd stream"
        own = lanes.setdefault(lane, [])
        start, end = 1e3 * span.start, 1e3 * span.end
        if label == "kernels":
            ran[lane] = ran.get(lane, 0) + end - start
        if own and own[-1][1] == label and start - own[-1][3] < 0.1:
            start = own.pop()[2]
        own.append((lane, label, start, end))
    for lane, ms in ran.items():
        own = lanes[lane]
        if ms < 0.9 * sum(end - start for _, label, start, end in own if label == "kernels"):
            lanes[lane] = [
                (lane, "kernels and gaps" if label == "kernels" else label, *ends)
                for _, label, *ends in own
            ]
    return [span for lane in sorted(lanes) for span in lanes[lane]]


def draw_lanes(axes: Any, spans: list[Span], whole: float, hollow: bool = False) -> None:
    """Draw `spans` into `axes`, which reach to `whole` ms; a label stands once, in a bar or above it. `hollow`: a forecast."""
    lanes = list(dict.fromkeys(lane for lane, *_ in spans))
    room: dict[tuple[str, str], tuple[float, float]] = {}
    for lane, label, start, end in spans:
        color = COLORS.get(label.split(",")[0], plots.GPU)
        look = {"facecolor": color, "edgecolor": plots.CARD, "linewidth": 0.8}
        if hollow:
            look = {"facecolor": color + "30", "edgecolor": color, "linewidth": 1.1}
        if label == "kernels and gaps":
            look |= {"facecolor": plots.CARD, "hatch": "||||"}
        axes.barh(lane, end - start, left=start, height=0.56, **look)
        before = room.get((lane, label), (0, 0))
        if end - start > max(1.2 * (before[1] - before[0]), 0.004 * whole):
            room[lane, label] = (start, end)
    for (lane, label), (start, end) in room.items():
        dark = hollow or COLORS.get(label) == plots.WAIT
        inside: dict[str, Any] = {
            "ha": "center",
            "va": "center",
            "color": plots.INK if dark else "white",
        }
        if label == "kernels and gaps":
            inside["bbox"] = {"facecolor": plots.CARD, "edgecolor": "none", "pad": 1.5}
        if end - start > 0.0125 * len(label) * whole:
            axes.text((start + end) / 2, lane, label, fontsize=9, **inside)
        else:
            top = lanes.index(lane) - 0.29
            axes.text(start, top, label, fontsize=8, color=plots.INK, va="bottom")
    axes.set_xlim(0, whole)
    axes.invert_yaxis()
    axes.margins(y=0.12)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", labelcolor=plots.INK)
