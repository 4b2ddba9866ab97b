"""The picture at the top of lesson 13, and the strips that it consists of."""

import re

from helpers import figures
from lessons import reading
from lessons.lesson13.patients import PATIENTS
from measurements import traces

CARD = re.compile("V100|A100|H100|MI300X|RTX 2080 Ti")
COLORS = {"copies": figures.COPY, "communicates": figures.COMM, "computes": figures.GPU}
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


def strips(cases, title, size=(7.4, 3.3), same=False):
    """Return a Figure with a strip for each of `cases`, {name: case}; `same`: all to one scale, in ms."""
    figure, axes = figures.new_figure(title, "ms" if same else "", size=size)
    labels = []
    for row, (name, case) in enumerate(cases.items()):
        trace = traces.case(case)
        labels.append(f"{name}  {CARD.search(trace.device)[0]}")
        _strip(axes, row, trace if len(trace.ranks) == 1 else trace.rank(0), same)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False)
    if not same:
        axes.set(xlim=(0, 1), xticks=[])
        axes.spines["bottom"].set_visible(False)
    _legend(figure, axes)
    return figure


def _strip(axes, row, trace, same):
    scale = 1000 if same else trace.length
    axes.barh(row, trace.length / scale, 0.7, color=figures.WAIT, alpha=0.2, label="does nothing")
    for what, color in COLORS.items():
        own = [event for event in trace.gpu if KINDS.get(event.kind, "computes") == what]
        bars = [(event.start / scale, event.length / scale) for event in own]
        if own:
            axes.broken_barh(
                bars,
                (row - 0.35, 0.7),
                facecolors=color,
                linewidth=0,
                antialiased=False,
                label=what,
            )
    busy = reading.busy_share(trace)
    text = f"{figures.number(trace.length / 1000)} ms, {busy:.0%} busy"
    where = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
    axes.annotate(text, (trace.length / scale, row), **where)


def _legend(figure, axes):
    handles, labels = axes.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    names = [f"GPU {what}" for what in first]
    look = {"frameon": False, "fontsize": 9, "ncols": 4}
    figure.legend(first.values(), names, loc="outside lower left", **look)
