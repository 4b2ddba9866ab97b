"""Figures for the lessons: one style, readable without color, and a printed sentence that says what each one shows.

Each function returns a `matplotlib.figure.Figure`; nothing here touches pyplot's state or rcParams. A lesson draws
numbers of one kind as a dict, and numbers of several kinds as a list of groups, each with its own look, and with the
sources in the last line of the figure:

    times = [plots.here({"this CPU": seconds}), plots.published("gan_epoch_colab", "epoch_s")]
    figure = plots.bars(times, "A T4 needs 34 s for what Colab's CPU needs 24 minutes for", "seconds")
    plots.show(figure, "…")

Palette: Okabe and Ito (https://jfly.uni-koeln.de/color/), with brown and violet in place of their two light colors, so
that each has a contrast of 3 to 1 or more against white. A marker, a line style or a hatch stands beside each color.
"""

from helpers.figures import (
    SMALL,
    blank_figure,
    new_figure,
    number,
    panels,
    pictures,
    plain_ticks,
    png,
    show,
    sources,
    tidy,
)
from helpers.gpu_code import recorded, yours
from measurements.groups import KINDS, Group, here, published

__all__ = [
    "KINDS",
    "Group",
    "blank_figure",
    "here",
    "panels",
    "pictures",
    "png",
    "published",
    "recorded",
    "show",
    "tidy",
    "yours",
]
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#604A20", "#7F20DF", "#000000")
MARKERS = "osD^vPX"
STYLES = ("-", "--", "-.", ":", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")
LINES = {"here": "-", "yours": "-.", "recorded": "--", "published": ":"}  # a kind's style
WIDTHS = {"here": 2.4, "yours": 2.4, "recorded": 1.6, "published": 1.6}


def lines(series, title, xlabel, ylabel, logx=False, logy=False):
    """Lines of `series`: a dict of label to (xs, ys), two sequences of equal length, or a list of groups of such.

    Raises ValueError where the lengths differ, a label comes twice, or `series` is empty.
    """
    labelled, sources_of = _labelled(series, "series", "(xs, ys)")
    size = (6.4, 3.6) if len(labelled) <= 5 else (6.4, 3.6 + 0.1 * len(labelled))
    figure, axes = new_figure(title, xlabel, ylabel, size)
    kinds = {kind for _, kind, _ in labelled}
    for i, (label, kind, (xs, ys)) in enumerate(labelled):
        if len(xs) != len(ys):
            raise ValueError(
                f"series[{label!r}] has {len(xs)} xs and {len(ys)} ys; both take the same length"
            )
        axes.plot(xs, ys, label=_with_kind(label, kind, kinds), **_line_look(i, kind))
    if logx:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if logy:
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    if len(labelled) > 5:
        _outside_legend(figure, axes, 2)
    elif len(labelled) > 1:
        axes.legend(frameon=False, fontsize=SMALL)
    return sources(figure, *sources_of)


def _labelled(values, name, takes):
    """(label, kind, value) of a dict (kind None) or of groups, and the lines that name their sources."""
    groups = [values] if isinstance(values, dict) else list(values)
    labelled = []
    for group in groups:
        kind = getattr(group, "kind", None)
        for label, value in group.items():
            if (label, kind) in [(other, its) for other, its, _ in labelled]:
                raise ValueError(f"{name} has {label!r} twice; give one another name")
            labelled.append((label, kind, value))
    if not labelled:
        raise ValueError(f"{name} is empty; it takes a dict of label to {takes}, or groups of such")
    found = [line for group in groups for line in getattr(group, "sources", ())]
    return labelled, list(dict.fromkeys(found))


def _line_look(i, kind):
    """Colour and marker of series `i`; style, width and filling of its kind."""
    look = {"color": COLORS[i % 7], "marker": MARKERS[i % 7], "markersize": 5}
    if kind is None:
        return {**look, "linestyle": STYLES[_other(i)]}
    look |= {"linestyle": LINES[kind], "linewidth": WIDTHS[kind]}
    if kind in ("recorded", "published"):
        look["markerfacecolor"] = "white"
    return look


def _with_kind(label, kind, kinds):
    """The label, with its kind in words where the figure has several."""
    return f"{label} ({KINDS[kind]})" if kind and len(kinds) > 1 else label


def _outside_legend(figure, axes, columns):
    """A legend above the axes."""
    figure.legend(
        *axes.get_legend_handles_labels(),
        frameon=False,
        fontsize=SMALL,
        loc="outside upper left",
        ncols=columns,
    )


def _bar_look(i):
    return {"color": COLORS[i % 7], "hatch": HATCHES[_other(i)], "edgecolor": "white"}


def _other(i):
    """The place of the style or hatch of series `i`: no pair of color and style returns with more than seven."""
    return (i + i // 7) % 7


def bars(values, title, unit, digits=3):
    """Horizontal bars, one a label: `values` is a dict of label to number, or a list of groups of such.

    `unit` names what is measured. Groups stand in their order, each kind with its own colour and hatch.
    """
    labelled, sources_of = _labelled(values, "values", "number")
    figure, axes = new_figure(title, unit, size=(6.4, 1.3 + 0.36 * len(labelled)))
    kinds = list(dict.fromkeys(kind for _, kind, _ in labelled))
    for y, (_, kind, value) in enumerate(labelled):
        axes.barh(-y, value, **_bar_look(kinds.index(kind)))
        axes.annotate(f" {number(value, digits)}", (value, -y), va="center", fontsize=9)
    axes.set_yticks([-y for y in range(len(labelled))], [label for label, _, _ in labelled])
    axes.margins(x=0.12)
    if len(kinds) > 1:
        _legend_of_kinds(figure, axes, kinds)
    return sources(figure, *sources_of)


def _legend_of_kinds(figure, axes, kinds):
    for i, kind in enumerate(kinds):
        axes.barh(0, 0, label=KINDS.get(kind, "here"), **_bar_look(i))
    _outside_legend(figure, axes, 4)


def dots(series, title, unit, log=False):
    """Points for things without an order: `series` is a dict of label to {thing: number}, or groups of (things, numbers).

    One row a thing, with a point for each label. Raises ValueError where `series` is empty or a label comes twice.
    """
    labelled, sources_of = _labelled(series, "series", "{thing: number}")
    pairs = [
        value if isinstance(value, dict) else dict(zip(*value, strict=True))
        for _, _, value in labelled
    ]
    things = list(dict.fromkeys(thing for pair in pairs for thing in pair))
    figure, axes = new_figure(title, unit, size=(6.4, 1.5 + 0.3 * len(things)))
    for y, thing in enumerate(things):
        there = [pair[thing] for pair in pairs if thing in pair]
        axes.plot([min(there), max(there)], [-y, -y], color="#b0b0b0", linewidth=1, zorder=1)
    kinds = {kind for _, kind, _ in labelled}
    for i, ((label, kind, _), pair) in enumerate(zip(labelled, pairs, strict=True)):
        look = _line_look(i, kind) | {"linestyle": "none", "markersize": 7}
        ys = [-things.index(thing) for thing in pair]
        axes.plot(list(pair.values()), ys, label=_with_kind(label, kind, kinds), **look)
    axes.set_yticks([-y for y in range(len(things))], things)
    if log:
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
    _outside_legend(figure, axes, 2)
    return sources(figure, *sources_of)


def stacked(rows, title, unit, digits=3):
    """Horizontal bars made of parts: `rows` is a dict of label to {part: number}; the total stands at the end."""
    if not rows:
        raise ValueError("rows is empty; it takes a dict of label to {part: number}")
    figure, axes = new_figure(title, unit, size=(6.4, 1.2 + 0.42 * len(rows)))
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    labels = list(rows)[::-1]
    left = [0.0] * len(labels)
    for i, part in enumerate(parts):
        sizes = [float(rows[label].get(part, 0)) for label in labels]
        axes.barh(labels, sizes, left=left, label=part, **_bar_look(i))
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    for y, total in enumerate(left):
        axes.annotate(f" {number(total, digits)}", (total, y), va="center", fontsize=9)
    axes.margins(x=0.12)
    if len(parts) > 1:
        _outside_legend(figure, axes, min(4, len(parts)))
    return figure


def lanes(events, title):
    """Who works when: `events` is a list of (lane, label, start, end) in ms; the first lane is at the top."""
    names = list(dict.fromkeys(lane for lane, *_ in events))
    labels = list(dict.fromkeys(label for _, label, *_ in events))
    looks = {label: _bar_look(i) for i, label in enumerate(labels)}
    figure, axes = new_figure(title, "milliseconds", size=(6.4, 1.3 + 0.5 * len(names)))
    for lane, label, start, end in events:
        axes.barh(lane, end - start, left=start, height=0.6, **looks[label])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    for label, look in looks.items():
        axes.barh(names[0], 0, label=label, **look)
    _outside_legend(figure, axes, min(4, len(labels)))
    return figure
