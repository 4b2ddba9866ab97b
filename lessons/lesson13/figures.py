"""The picture at the top of lesson 13, and the strips that it consists of."""

import re

from helpers import figures
from lessons import reading
from lessons.lesson13.patients import PATIENTS
from measurements import traces

CARD = re.compile("V100|A100|H100|MI300X|RTX 2080 Ti")
COLORS = {"copies": figures.COPY, "communicates": figures.COMM, "computes": figures.GPU}
WAITS = ("waits for the loader", "waits for the CPU", "only communicates")
COLORS_OF_WAITS = (figures.WAIT, figures.CPU, figures.COMM, figures.GPU)
KINDS = {"communication": "communicates", "copy": "copies", "memset": "copies"}


def first_picture():
    """Return (Figure, alternative text) of what the twelve GPUs do."""
    cases = {str(number): patient.case for number, patient in enumerate(PATIENTS, 1)}
    title = "Ten of these twelve GPUs are sick, some of the busiest among them"
    words = (
        "Twelve strips, one for each GPU, colored where it computes, copies or communicates: six are busy for less "
        "than half of the time, two for 99%."
    )
    return strips(cases, title), words


def strips(cases, title, size=(7.4, 3.3)):
    """Return a Figure with a strip for each of `cases`, {name: case}, all of one length."""
    figure, axes = figures.new_figure(title, size=size)
    labels = []
    for row, (name, case) in enumerate(cases.items()):
        trace = traces.case(case)
        labels.append(f"{name}  {CARD.search(trace.device)[0]}{_one_of(trace)}")
        _strip(axes, row, one_rank(trace))
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set(xlim=(0, 1), xticks=[])
    axes.spines["bottom"].set_visible(False)
    _legend(figure, axes)
    return figure


def one_rank(trace):
    """Return `trace`, or its rank 0 if several were recorded."""
    return trace if len(trace.ranks) == 1 else trace.rank(0)


def _one_of(trace):
    return "" if len(trace.ranks) == 1 else f", 1 of {len(trace.ranks)}"


def ward(triage):
    """Return (Figure, alternative text): the share of its time that each patient loses, and to what."""
    title = "Nine of twelve wait; for the other three, look at the kernels"
    figure, axes = figures.new_figure(title, "% of the recorded time", size=(7.2, 4.4))
    parts, words = dict.fromkeys([*WAITS, "works"], 0), []
    rows = [one_rank(traces.case(patient.case)) for patient in PATIENTS]
    shares = [_shares(triage(trace), trace.length) for trace in rows]
    labels = [f"{n}  {CARD.search(trace.device)[0]}" for n, trace in enumerate(rows, 1)]
    left = [0.0] * len(rows)
    for part, color in zip(parts, COLORS_OF_WAITS, strict=True):
        own = [share[part] for share in shares]
        axes.barh(labels, own, 0.7, left, color=color, label=part)
        left = [a + b for a, b in zip(left, own, strict=True)]
    for label, share in zip(labels, shares, strict=True):
        worst = max(WAITS, key=share.get)
        words.append(f"{label}: {share[worst]:.0f}% {worst}")
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.grid(visible=False)
    figure.legend(loc="outside lower left", frameon=False, fontsize=9, ncols=4)
    return figure, "Bars of twelve patients and the largest loss of each. " + ", ".join(words) + "."


def _shares(lost, length):
    waits = dict(zip(WAITS, (100 * us / length for us in lost.values()), strict=True))
    return waits | {"works": 100 - sum(waits.values())}


def _strip(axes, row, trace):
    axes.barh(row, 1, 0.7, color=figures.WAIT, alpha=0.2, label="does nothing")
    for what, color in COLORS.items():
        own = [event for event in trace.gpu if KINDS.get(event.kind, "computes") == what]
        bars = [(event.start / trace.length, event.length / trace.length) for event in own]
        look = {"facecolors": color, "linewidth": 0, "antialiased": False, "label": what}
        if bars:
            axes.broken_barh(bars, (row - 0.35, 0.7), **look)
    text = f"{figures.number(trace.length / 1000)} ms, {reading.busy_share(trace):.0%} busy"
    where = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
    axes.annotate(text, (1, row), **where)


def _legend(figure, axes):
    handles, labels = axes.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    names = [f"GPU {what}" for what in first]
    look = {"frameon": False, "fontsize": 9, "ncols": 4}
    figure.legend(first.values(), names, loc="outside lower left", **look)
