"""The charts of the lessons: bars, lines, points, stacked parts and lanes, in the look of `helpers.figures`.

Each function returns a `matplotlib.figure.Figure`; nothing here touches pyplot's state or rcParams. A lesson draws
numbers of one kind as a dict, and numbers of several kinds as a list of groups:

    times = [plots.here({"this CPU": seconds}), plots.published("gan_epoch_colab", "epoch_s")]
    figure = plots.bars(times, "A T4 needs 34 s for what Colab's CPU needs 24 minutes for", "seconds")
    plots.show(figure, "Bars of three devices: …")

What was measured here, recorded or published is solid; a forecast is hollow and says so. Colors go by meaning: a label
with "CPU" is blue, one with "GPU" or the name of a card green, "copy" amber, "wait" gray, "all-reduce" violet; where
the words don't tell, name the color: `colors={"fused": figures.GPU}`. What means none of these is drawn in ink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course.measurements.groups import KINDS, Group, forecast, here, published
from helpers.figures import (
    blank_figure,
    new_figure,
    panels,
    pictures,
    plain_ticks,
    png,
    set_title,
    show,
    show_vega,
    sources,
    tidy,
)
from helpers.palette import (
    CARD,
    COMM,
    COPY,
    CPU,
    GPU,
    GREENS,
    INK,
    KERNELS,
    MEMORY,
    duration,
    meaning,
    number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = Mapping[str, Any] | Sequence[Mapping[str, Any]]  # by label, or groups of such
Colors = Mapping[str, str] | None  # of labels

__all__ = [
    "KINDS",
    "Group",
    "blank_figure",
    "duration",
    "forecast",
    "here",
    "panels",
    "pictures",
    "png",
    "published",
    "set_title",
    "show",
    "show_vega",
    "tidy",
]
NEUTRAL = "#566073"  # bars that mean nothing else
COLORS = (CPU, COPY, GPU, COMM, NEUTRAL, "#3F9A72", INK)  # by place, for a lesson's own drawings
GREEN_LINES = (GPU, GREENS[0], "#3F9A72")  # steps that stand out from the card as thin lines
MARKERS = "osD^vPX"
WIDTHS = {"here": 2.6, "yours": 2.6}  # other kinds are thinner
DIRECT = 6  # so many lines carry their names at their ends; more take a legend


def _color(label, colors, otherwise=INK):
    return (colors or {}).get(label) or meaning(label) or otherwise


def _line_colors(labels, colors):
    """A color for each line: by meaning; lines of one meaning in steps of lightness."""
    used, chosen = {}, []
    for label in labels:
        color = _color(label, colors)
        place = used[color] = used.get(color, -1) + 1
        steps = {GPU: GREEN_LINES, INK: (INK, NEUTRAL)}.get(color, (color, _darker(color)))
        chosen.append(color if label in (colors or {}) else steps[place % len(steps)])
    return chosen


def _darker(color):
    """`color`, "#RRGGBB", with half of its light."""
    return "#" + "".join(f"{int(color[i : i + 2], 16) // 2:02X}" for i in (1, 3, 5))


def lines(
    series: Series,
    title: str,
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    logy: bool = False,
    colors: Colors = None,
) -> Figure:
    """Lines of `series`: a dict of label to (xs, ys), two sequences of equal length, or a list of groups of such.

    Up to six carry their names at their ends. `colors` maps a label to its color where its words don't tell it.
    Raises ValueError where the lengths differ, a label comes twice, or `series` is empty.
    """
    labelled, sources_of = _labelled(series, "series", "(xs, ys)")
    direct = len(labelled) <= DIRECT
    figure, axes = new_figure(title, xlabel, ylabel, (7.2, 3.7 + (0 if direct else 0.12) * 9))
    kinds = {kind for _, kind, _ in labelled}
    looks = _line_colors([label for label, _, _ in labelled], colors)
    for i, ((label, kind, (xs, ys)), color) in enumerate(zip(labelled, looks, strict=True)):
        if len(xs) != len(ys):
            raise ValueError(
                f"series[{label!r}] has {len(xs)} xs and {len(ys)} ys; both take the same length"
            )
        axes.plot(xs, ys, label=_with_kind(label, kind, kinds), **_line_look(i, kind, color))
    if logx:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,g}")
    if logy:
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    if not direct:
        legend(figure, axes, 2)
    elif len(labelled) > 1:
        label_ends(axes)
    return sources(figure, *sources_of)


def label_ends(axes: Axes, gap: float = 13) -> None:
    """Write each labelled line's name at its right end, in its color, `gap` points apart at least."""
    from matplotlib.patheffects import withStroke

    figure: Any = axes.figure
    figure.draw_without_rendering()
    halo = {"path_effects": [withStroke(linewidth=3, foreground=CARD)]}  # over other lines
    ends = []
    for line in axes.get_lines():
        if len(line.get_xdata()) and not str(line.get_label()).startswith("_"):
            point = line.get_xdata()[-1], line.get_ydata()[-1]
            ends.append((axes.transData.transform(point)[1] * 72 / figure.dpi, point, line))
    below = float("-inf")
    for height, point, line in sorted(ends, key=lambda end: end[0]):
        place = max(height, below + gap)
        below = place
        words = {"color": line.get_color(), "fontsize": 9, "va": "center", **halo}
        axes.annotate(
            str(line.get_label()), point, (8, place - height), textcoords="offset points", **words
        )


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


def _line_look(i, kind, color):
    """Marker of series `i` in `color`; a forecast is dashed with hollow markers, all else solid."""
    look = {"color": color, "marker": MARKERS[i % 7], "markersize": 5.5, "linestyle": "-"}
    look["linewidth"] = WIDTHS.get(kind or "here", 1.8)
    if kind == "forecast":
        look |= {"linestyle": (0, (4, 2.5)), "markerfacecolor": CARD, "markeredgewidth": 1.6}
    return look


def _with_kind(label, kind, kinds):
    """The label, with its kind in words where the figure has several, and for each forecast."""
    told = kind and (len(kinds) > 1 or kind == "forecast")
    return f"{label} ({KINDS[kind]})" if told else label


def legend(figure: Figure, axes: Axes, columns: int) -> None:
    """A legend between title and axes, for what cannot be labelled directly."""
    handles, labels = axes.get_legend_handles_labels()
    look = {"frameon": False, "fontsize": 9, "labelcolor": INK, "borderaxespad": 0.2}
    axes.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, **look)


def bars(values: Series, title: str, unit: str, digits: int = 3, colors: Colors = None) -> Figure:
    """Horizontal bars, one a label: `values` is a dict of label to number, or a list of groups of such.

    `unit` names what is measured. Groups stand in their order. The value of a forecast may be (low, middle, high): its
    bar is hollow and carries that range.
    """
    labelled, sources_of = _labelled(values, "values", "number")
    figure, axes = new_figure(title, unit, size=(7.2, 1.4 + 0.42 * len(labelled)))
    kinds = {kind for _, kind, _ in labelled}
    for y, (label, kind, value) in enumerate(labelled):
        low, middle, high = value if isinstance(value, tuple) else (value,) * 3
        color = _color(label, colors, NEUTRAL)
        axes.barh(-y, middle, **_bar_look(color, kind))
        if high > low:
            axes.plot([low, high], [-y, -y], color=color, linewidth=1.4, marker="|", markersize=9)
        told = number(middle, digits)
        if kind and (len(kinds) > 1 or kind == "forecast"):
            told += f"  {KINDS[kind]}"
        axes.annotate(told, (high, -y), (6, 0), textcoords="offset points", **_NOTE)
    axes.set_yticks([-y for y in range(len(labelled))], [label for label, _, _ in labelled])
    _only_upright_grid(axes)
    axes.margins(x=0.16 if len(kinds) < 2 else 0.26)
    return sources(figure, *sources_of)


_NOTE: dict[str, Any] = {"va": "center", "fontsize": 9, "color": INK}


def _only_upright_grid(axes):
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", labelcolor=INK)
    axes.xaxis.set_major_formatter(lambda x, _: number(x))


def _bar_look(color, kind=None):
    """A solid bar; a hollow one for a forecast."""
    look = {"height": 0.62, "zorder": 2}
    if kind == "forecast":
        return {**look, "facecolor": CARD, "edgecolor": color, "linewidth": 1.6, "linestyle": "--"}
    return {**look, "facecolor": color, "edgecolor": CARD, "linewidth": 0.8}


def dots(series: Series, title: str, unit: str, log: bool = False, colors: Colors = None) -> Figure:
    """Points for things without an order: `series` is a dict of label to {thing: number}, or groups of (things, numbers).

    One row a thing, with a point for each label. Raises ValueError where `series` is empty or a label comes twice.
    """
    labelled, sources_of = _labelled(series, "series", "{thing: number}")
    pairs = [
        value if isinstance(value, dict) else dict(zip(*value, strict=True))
        for _, _, value in labelled
    ]
    things = list(dict.fromkeys(thing for pair in pairs for thing in pair))
    figure, axes = new_figure(title, unit, size=(7.2, 1.6 + 0.33 * len(things)))
    for y, thing in enumerate(things):
        there = [pair[thing] for pair in pairs if thing in pair]
        axes.plot([min(there), max(there)], [-y, -y], color="#B9C0CA", linewidth=3, zorder=1)
    kinds = {kind for _, kind, _ in labelled}
    looks = _line_colors([label for label, _, _ in labelled], colors)
    for i, ((label, kind, _), pair) in enumerate(zip(labelled, pairs, strict=True)):
        look = _line_look(i, kind, looks[i]) | {"linestyle": "none", "markersize": 8}
        ys = [-things.index(thing) for thing in pair]
        axes.plot(list(pair.values()), ys, label=_with_kind(label, kind, kinds), **look)
    axes.set_yticks([-y for y in range(len(things))], things)
    _only_upright_grid(axes)
    if log:
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
    legend(figure, axes, 3)
    return sources(figure, *sources_of)


def stacked(
    rows: Mapping[str, Mapping[str, float]],
    title: str,
    unit: str,
    digits: int = 3,
    colors: Colors = None,
) -> Figure:
    """Horizontal bars made of parts: `rows` is a dict of label to {part: number}; the total stands at the end.

    Parts of memory and kinds of kernels have their own colors (`figures.MEMORY`, `figures.KERNELS`).
    """
    if not rows:
        raise ValueError("rows is empty; it takes a dict of label to {part: number}")
    figure, axes = new_figure(title, unit, size=(7.2, 1.5 + 0.46 * len(rows)))
    parts = _ordered(part for row in rows.values() for part in row)
    left = dict.fromkeys(rows, 0.0)
    for i, part in enumerate(parts):
        look = _bar_look(_color(part, colors, GREENS[i % 5]))
        sizes = [float(row.get(part, 0)) for row in rows.values()]
        axes.barh([*rows], sizes, left=[*left.values()], label=part, **look)
        left = {label: left[label] + size for label, size in zip(rows, sizes, strict=True)}
    axes.invert_yaxis()
    for label, total in left.items():
        axes.annotate(
            number(total, digits), (total, label), (6, 0), textcoords="offset points", **_NOTE
        )
    axes.margins(x=0.12)
    _only_upright_grid(axes)
    if len(parts) > 1:
        legend(figure, axes, min(5, len(parts)))
    return figure


def _ordered(parts):
    """Each of `parts` once: parts of memory and kinds of kernels in their fixed order, others as they come."""
    parts = list(dict.fromkeys(parts))
    fixed = next((each for each in (MEMORY, KERNELS) if set(parts) <= set(each)), parts)
    return [part for part in fixed if part in parts]


def lanes(
    events: Sequence[tuple[str, str, float, float]], title: str, colors: Colors = None
) -> Figure:
    """Who works when: `events` is a list of (lane, label, start, end) in ms; the first lane is at the top.

    A label's color is its meaning's, else a step of its lane's.
    """
    names = list(dict.fromkeys(lane for lane, *_ in events))
    labels = list(dict.fromkeys((label, lane) for lane, label, *_ in events))
    looks = _lane_looks(labels, colors)
    figure, axes = new_figure(title, "milliseconds", size=(7.2, 1.5 + 0.55 * len(names)))
    for lane, label, start, end in events:
        axes.barh(lane, end - start, left=start, **looks[label])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    _only_upright_grid(axes)
    for label, look in looks.items():
        axes.barh(names[0], 0, label=label, **look)
    legend(figure, axes, min(4, len(labels)))
    return figure


def _lane_looks(labels, colors):
    """The look of each label: its own meaning's color, else a step of its lane's."""
    looks, places = {}, {}
    for label, lane in labels:
        color = (colors or {}).get(label) or meaning(label)
        if color is None:
            base = meaning(lane) or GPU
            place = places[lane] = places.get(lane, -1) + 1
            color = base if base != GPU else GREENS[(place + 1) % 5]
        looks.setdefault(label, _bar_look(color) | {"height": 0.6})
    return looks
