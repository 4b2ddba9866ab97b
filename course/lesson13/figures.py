"""The figures of lesson 13: six strips, what each patient loses, one before and after its cure, numbers that grow."""

import re

import torch
from torch import nn

from course.lesson13.patients import PATIENTS
from course.lesson13.running import overflowing
from course.lesson13.triage import triage as ours
from course.measurements import traces
from course.timeline import reading
from helpers import plots

CARD = re.compile("V100|A100|H100|MI300X")
COLORS = {"copies": plots.COPY, "communicates": plots.COMM, "computes": plots.GPU}
PARTS = {
    "waits for the loader": plots.WAIT,
    "waits for the CPU": plots.CPU,
    "only communicates": plots.COMM,
    "works": plots.GPU,
}
WAITS = tuple(PARTS)[:3]
SMALL_LOSS = 10  # % of the time
FREED = (  # for `reveal`
    "allocator",
    "Each of 330 hipFree calls, AMD's cudaFree, waits until the queue is empty.",
)
FASTER = "4 times", "By forecast, 12.9 ms per layer become about 3."
LOOK = {"frameon": False, "fontsize": 9, "ncols": 4}
KINDS = {"communication": "communicates", "copy": "copies", "memset": "copies"}


def first_picture():
    """Return (Figure, alternative text) of what the six GPUs do: a strip for each, all of one length."""
    title = "Six GPUs at work: busy for 13% to 99% of the time"
    figure, axes = plots.new_figure(title, size=(7.4, 2.3))
    for row, patient in enumerate(PATIENTS):
        trace = traces.case(patient.case)
        _strip(axes, row, trace, 1 / trace.length)
    axes.set_yticks(range(len(PATIENTS)), _labels())
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set(xlim=(0, 1), xticks=[])
    axes.spines["bottom"].set_visible(False)
    _key(figure, axes)
    return figure, (
        "Six strips, one for each GPU, colored where it computes, copies or communicates: one is busy for 13% of the "
        "time, two for 99%."
    )


def _key(figure, axes):
    handles, labels = axes.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    names = [f"GPU {what}" for what in first]
    figure.legend(first.values(), names, loc="outside lower left", **LOOK)


def _labels():
    cards = [CARD.search(traces.case(patient.case).device)[0] for patient in PATIENTS]
    return [f"{n}  {card}" for n, card in enumerate(cards, 1)]


def ward(triage):
    """Return (Figure, alternative text): the share of its time that each patient loses, and to what."""
    rows = [traces.case(patient.case) for patient in PATIENTS]
    shares = [_shares(triage(trace), trace.length) for trace in rows]
    lost = dict(sorted(zip(_labels(), shares, strict=True), key=lambda row: row[1]["works"]))
    worst = {label: _worst(share) for label, share in lost.items()}
    parts = {label: {part: share[part] for part in PARTS} for label, share in lost.items()}
    title = "Four of six wait. For patients 1 and 4, look at the kernels"
    figure = plots.bars(parts, title, "% of the recorded time", 3, PARTS, worst, (7.2, 2.7))
    [axes] = figure.axes
    axes.set_xlim(0, 100)
    axes.grid(visible=False)
    keys = [axes.barh(0, 0, color=color, label=part) for part, color in PARTS.items()]
    figure.legend(handles=keys, loc="outside lower left", **LOOK)
    words = [f"{label}: {told}" for label, told in worst.items()]
    return figure, "Bars of six patients and the largest loss of each. " + ", ".join(words) + "."


def _worst(share):
    """Return the largest loss of a patient in words; where it's small, its time goes into the kernels."""
    part = max(WAITS, key=share.get)
    if share[part] < SMALL_LOSS:
        return f"{share['works']:.0f}% works"
    return f"{share[part]:.0f}% {part}"


def _shares(lost, length):
    waits = dict(zip(WAITS, (100 * us / length for us in lost.values()), strict=True))
    return waits | {"works": 100 - sum(waits.values())}


def recovery():
    """Return (Figure, alternative text): the starved patient without workers and with four, and the least that was possible."""
    before, after = traces.case("1a"), traces.case("1b")
    limit = (before.length - ours(before)["loader"]) / 1000
    title = f"Four workers cut {before.length / 1000:.0f} ms to {after.length / 1000:.0f}; the limit is {limit:.0f}"
    figure, axes = plots.new_figure(title, "ms", size=(7.4, 1.9))
    for row, trace in enumerate((before, after)):
        _strip(axes, row, trace, 1 / 1000)
    axes.axvline(limit, color=plots.INK, linestyle="dashed", linewidth=1)
    plots.note(axes, "without any wait for the loader", (limit - 2, -0.45), (-1, 0), va="bottom")
    axes.set(xlim=(0, before.length / 1000), ylim=(1.5, -0.85))
    axes.set_yticks((0, 1), ("no workers", "4 workers"))
    axes.grid(visible=False)
    plots.sources(figure, before.source)
    return figure, f"Two strips of one V100: {title}. Its busy share rises from 57% to 80%."


def first_picture_b():
    """Return (Figure, alternative text) of page 13b's network: the largest number out of each linear layer."""
    model, x = overflowing()
    largest = []
    with torch.inference_mode():
        for layer in model:
            x = layer(x)
            if isinstance(layer, nn.Linear):
                largest.append(x.abs().max().item())
    limit = torch.finfo(torch.float16).max
    title = "The numbers grow with every layer, until float16 can't hold them"
    labels = "linear layer", "largest output in float32"
    figure, axes = plots.new_figure(title, *labels, size=(7.2, 2.9))
    plots.limit(axes, limit, f"float16 ends at {limit:,.0f}", left=True)
    places = range(1, len(largest) + 1)
    axes.plot(places, largest, "o-", color=plots.INK)
    for place, value in zip(places, largest, strict=True):
        plots.note(axes, plots.number(value), (place, value), (-6, 5))
    axes.set(yscale="log", ylim=(10, 1e6), xlim=(0.6, 5.2), xticks=places)
    axes.minorticks_off()
    told = ", ".join(plots.number(value) for value in largest)
    return figure, f"A line that climbs from layer to layer: {told}; float16 ends at {limit:,.0f}."


def _strip(axes, row, trace, scale):
    axes.barh(row, trace.length * scale, 0.7, color=plots.WAIT, alpha=0.2, label="does nothing")
    for what, color in COLORS.items():
        own = [event for event in trace.gpu if KINDS.get(event.kind, "computes") == what]
        bars = [(event.start * scale, event.length * scale) for event in own]
        look = {"facecolors": color, "linewidth": 0, "antialiased": False, "label": what}
        if bars:
            axes.broken_barh(bars, (row - 0.35, 0.7), **look)
    text = f"{plots.number(trace.length / 1000)} ms, {reading.busy_share(trace):.0%} busy"
    plots.note(axes, text, (trace.length * scale, row))
