"""Charts in the look of the course: bars, lines and dots, a color for each meaning, each kind of number told apart.

`bars`, `dots` and `lines` return a `matplotlib.figure.Figure` (`figure.savefig("times.png")`), `draw_bars` and `draw_dots`
draw into axes of your own; pyplot and rcParams are left alone:

    times = [plots.here({"this CPU": 2.4}), plots.forecast({"T4": (0.1, 0.2, 0.3)}, "the clock of practice_gpus")]
    figure = plots.bars(times, "By forecast, a T4 takes 0.2 s for what this CPU takes 2.4 s for", "seconds")

What was measured here, recorded or published is solid; a forecast is hollow and says so. Colors go by meaning: a label
with "CPU" is blue, one with "GPU" or the name of a card green, "copy" amber, "wait" gray, "all-reduce" violet; where
the words don't tell, name the color: `colors={"fused": plots.GPU}`. What means none of these is drawn in ink.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Text

Series = Mapping[str, Any] | Sequence[Mapping[str, Any]]  # by label, or groups of such
Colors = Mapping[str, str] | str | None  # of labels, or one for all

# One meaning a color, in the whole course
CPU = "#3B6FB6"
GPU = "#1B8A5A"
COPY = "#C77700"
WAIT = "#8A9099"
COMM = "#7A52A1"
TROUBLE = "#C2344A"
GREENS = ("#0B4F33", "#1B8A5A", "#4FAE83", "#8CCBAE", "#BFE0D0")  # five steps of the GPU's green
MEMORY = dict(
    zip(("parameters", "gradients", "optimizer", "activations", "batch"), GREENS, strict=True)
)
KERNELS = dict(
    zip(("matmul", "attention", "normalization", "elementwise", "other"), GREENS, strict=True)
)
INK = "#1F2530"  # text, and lines that mean none of these
FAINT = "#59616E"  # notes, ticks; 5.9 to 1 on the card
RULE = "#D5DAE1"  # the grid
CARD = "#F7F8FA"  # the paper: a light card on a light page and on a dark one
RIGHT = "#3F7D12"  # a verdict only; TROUBLE is its opposite
FONT = "DejaVu Sans"  # matplotlib brings it; Verdana is its sister in a browser

MEANINGS = {
    r"\bCPUs?\b|Xeon|EPYC|Ryzen|\bhost\b|\bloader\b": CPU,
    r"\bcop(y|ies|ying)\b|\bbus\b|PCIe|\bpinned\b|\bpageable\b": COPY,
    r"\bwait|\bidle\b": WAIT,
    r"all-reduce|all-gather|reduce-scatter|\bcommunication\b|NVLink|\bring\b": COMM,
    r"\bGPUs?\b|\bcuda|\bkernels?\b|Tesla|GeForce|RTX|GTX|\b[ABHLPTV]\d{1,4}S?\b": GPU,
    **{rf"^{part}$": color for part, color in (MEMORY | KERNELS).items()},
}


def meaning(label: object) -> str | None:
    """The color that the words of `label` mean; None where they mean none."""
    return next((c for pattern, c in MEANINGS.items() if re.search(pattern, str(label))), None)


def number(value: float, digits: int = 3) -> str:
    """`value` with so many significant digits; from a thousand on with commas, without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    if not 1000 <= abs(rounded) < float("inf"):
        return f"{rounded:.{max(digits, 3)}g}"
    text = f"{rounded:,.{max(0, digits - len(str(int(abs(rounded)))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


SMALL = 8  # points, the smallest text: 13 pixels as displayed
TITLE = 11
PIXELS = 120  # as displayed, for an inch of a figure

# --- four kinds of numbers

KINDS = {  # as the legend says it
    "here": "measured here",
    "yours": "your GPU",
    "recorded": "recorded",
    "published": "published",
    "forecast": "forecast",
}


class Group(dict):
    """Numbers of one kind: label to value, or to (xs, ys). `sources`: lines to print under the figure."""

    def __init__(self, kind: str, values: Mapping[str, Any], sources: Iterable[str] = ()) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; it takes one of {list(KINDS)}")
        super().__init__(values)
        self.kind = kind
        self.sources = tuple(sources)

    def renamed(self, labels: Mapping[str, str]) -> Group:
        """The group with other labels: `labels` is a dict of old to new; the others stay."""
        unknown = [label for label in labels if label not in self]
        if unknown:
            raise ValueError(f"labels has {unknown[0]!r}; the group has {list(self)}")
        renamed = {labels.get(label, label): value for label, value in self.items()}
        return Group(self.kind, renamed, self.sources)


def here(values: Mapping[str, Any]) -> Group:
    """The group of what was measured on this machine, now: `values` is a dict of label to value or (xs, ys)."""
    return Group("here", values)


def forecast(values: Mapping[str, Any], *sources: str) -> Group:
    """The group of what was calculated, drawn hollow: label to value, (low, middle, high) or (xs, ys); `sources`: its rules."""
    return Group("forecast", values, sources)


# --- paper and type


def new_figure(
    title: str, xlabel: str = "", ylabel: str = "", size: tuple[float, float] = (6.4, 3.6)
) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, in the look of the lessons.

    `title` states the finding; `xlabel` and `ylabel` name quantity and unit; `size` in inches. Returns (Figure, Axes).
    """
    figure = blank_figure(size)
    axes = figure.add_subplot()
    set_title(figure, title)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    tidy(axes)
    return figure, axes


def panels(
    title: str, rows: int, columns: int, size: tuple[float, float], **shared: Any
) -> tuple[Figure, Any]:
    """A figure of `rows` × `columns` axes under one `title`: (Figure, array of Axes); `shared` as for `subplots`."""
    figure = blank_figure(size)
    set_title(figure, title)
    return figure, figure.subplots(rows, columns, **shared)


def drawing(title: str, size: tuple[float, float] = (7.3, 3.0)) -> tuple[Figure, Axes]:
    """A figure for shapes and words of your own: (Figure, Axes without ticks, frame and grid)."""
    figure, axes = new_figure(title, size=size)
    axes.set_axis_off()
    return figure, axes


def set_title(figure: Figure, title: str) -> Text:
    """Write the finding at the upper left of the whole figure, over as many lines as it takes; returns its Text."""
    style = {"fontsize": TITLE, "fontweight": "bold", "color": INK, "family": FONT}
    return figure.suptitle(title, x=0.02, ha="left", wrap=True, **style)


def tidy(axes: Axes) -> None:
    """Give `axes` the look of the course: no frame but a base line, a pale grid behind, dark type."""
    axes.set_facecolor("none")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=FAINT, labelsize=9)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=FAINT, fontsize=9)


def blank_figure(size: tuple[float, float]) -> Figure:
    """A figure without axes, `size` in inches, for what you draw yourself."""
    # colors and numbers need no PyTorch, so it is imported here
    from practice_gpus.machine import held_back

    # an import that is broken off leaves half a module, which only a new kernel repairs
    with held_back():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.12)
    figure = Figure(figsize=size, layout=layout, facecolor=CARD)
    FigureCanvasAgg(figure)
    return figure


def note(
    axes: Axes,
    words: str,
    place: tuple[Any, Any],
    offset: tuple[float, float] = (6, 0),
    **look: Any,
) -> None:
    """Write `words` at the point `place`, `offset` points to its right (left where negative); `look` as of a text."""
    side = "center" if not offset[0] else "left" if offset[0] > 0 else "right"
    style = {"ha": side, "va": "center", "fontsize": 9, "color": INK, "annotation_clip": False}
    halo = {} if look.get("color") in ("white", CARD) else _halo()
    axes.annotate(words, place, offset, textcoords="offset points", **{**style, **halo, **look})


def _halo():
    """The look of a text that stays readable across lines of a grid or of data."""
    from matplotlib.patheffects import withStroke

    return {"path_effects": [withStroke(linewidth=3, foreground=CARD)]}


def split(axes: Axes, x: float, left: str, right: str) -> None:
    """Part `axes` at `x` by a dashed line, with the words `left` and `right` beside its foot."""
    axes.axvline(x, color=FAINT, linewidth=1, linestyle=(0, (2, 2)), label="_split")
    for words, side in ((left, -6), (right, 6)):
        place = {"xycoords": ("data", "axes fraction"), "va": "bottom"}
        note(axes, words, (x, 0.03), (side, 0), color=FAINT, **place)


def limit(axes: Axes, y: float, words: str, color: str = TROUBLE, left: bool = False) -> None:
    """Draw what cannot be passed as a line across `axes`, with `words` above its right end, or its `left` one."""
    axes.axhline(y, color=color, linewidth=1.8, label="_limit")
    place = {"xycoords": ("axes fraction", "data"), "va": "bottom"}
    note(axes, words, (1 - left, y), (4 if left else -4, 3), color=color, **place)


def plain_ticks(axis: Axis) -> None:
    """Label a logarithmic `axis` with plain numbers, closer together the fewer powers of ten it spans."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if low < 1e-4 or high >= 1e6:
        return  # powers of ten are shorter
    parts = range(1, 10) if high < 8 * low else (1, 2, 5) if high < 500 * low else (1,)
    axis.set_major_locator(LogLocator(subs=parts))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,g}")


def sources(figure: Figure, *lines_of: str) -> Figure:
    """Keep `lines_of` text as the sources that `show` writes below `figure`; returns the figure.

    A line with `measurements.published(name).source` becomes a link. A figure of groups has its sources already.
    """
    told = [*getattr(figure, "sources", ()), *lines_of]
    figure.sources = told  # type: ignore[attr-defined]  # an attribute of ours
    return figure


# --- charts

NEUTRAL = "#566073"  # bars that mean nothing else
COLORS = (CPU, COPY, GPU, COMM, NEUTRAL, "#3F9A72", INK)  # by place, for a lesson's own drawings
GREEN_LINES = (GPU, GREENS[0], "#3F9A72")  # steps that stand out from the card as thin lines
MARKERS = "osD^vPX"
WIDTHS = {"here": 2.6, "yours": 2.6}  # other kinds are thinner
DIRECT = 6  # so many lines carry their names at their ends; more take a legend


def _color(label, colors, otherwise=INK):
    if isinstance(colors, str):
        return colors
    return (colors or {}).get(label) or meaning(label) or otherwise


def _line_colors(labels, colors):
    """A color for each line: by meaning; lines of one meaning in steps of lightness."""
    used, chosen = {}, []
    for label in labels:
        color = _color(label, colors)
        place = used[color] = used.get(color, -1) + 1
        steps = {GPU: GREEN_LINES, INK: (INK, NEUTRAL)}.get(color, (color, _darker(color)))
        chosen.append(color if colors and label in colors else steps[place % len(steps)])
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
        _legend(axes, 2)
    elif len(labelled) > 1:
        label_ends(axes)
    return sources(figure, *sources_of)


def label_ends(axes: Axes, gap: float = 13) -> None:
    """Write each labelled line's name at its right end, in its color, `gap` points apart at least."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    ends = []
    for line in axes.get_lines():
        if len(line.get_xdata()) and not str(line.get_label()).startswith("_"):
            point = line.get_xdata()[-1], line.get_ydata()[-1]
            ends.append((axes.transData.transform(point)[1] * 72 / figure.dpi, point, line))
    below = float("-inf")
    for height, point, line in sorted(ends, key=lambda end: end[0]):
        place = max(height, below + gap)
        below = place
        words = {"color": line.get_color(), "fontsize": 9, "va": "center", **_halo()}
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


def _legend(axes, columns):
    """A legend between title and axes, for what cannot be labelled directly."""
    handles, labels = axes.get_legend_handles_labels()
    look = {"frameon": False, "fontsize": 9, "labelcolor": INK, "borderaxespad": 0.2}
    axes.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, **look)


def bars(
    values: Series,
    title: str,
    unit: str,
    digits: int = 3,
    colors: Colors = None,
    words: Mapping[str, str] | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Horizontal bars as of `draw_bars`, in a figure of their own; `unit` names what is measured."""
    labelled, sources_of = _labelled(values, "values", "number")
    kinds = {kind for _, kind, _ in labelled}
    unit += " (forecast)" * (kinds == {"forecast"} and "forecast" not in unit)
    figure, axes = new_figure(title, unit, size=size or (7.2, 1.4 + 0.42 * len(labelled)))
    draw_bars(axes, values, digits, colors, words)
    axes.margins(x=0.16 if len(kinds) < 2 else 0.26)
    return sources(figure, *sources_of)


def draw_bars(
    axes: Axes,
    values: Series,
    digits: int = 3,
    colors: Colors = None,
    words: Mapping[str, str] | None = None,
) -> None:
    """Draw horizontal bars into `axes`, from the top down, each with its name, and behind it its number or its `words`.

    `values`: {label: number}, or groups of such. A number (low, middle, high) is a forecast: hollow, with its range; as is
    a group of forecasts. Of parts, {part: number}, one stands after the other, with the total behind.
    """
    labelled, _ = _labelled(values, "values", "number")
    several = len({kind for _, kind, _ in labelled}) > 1
    for y, (label, kind, value) in enumerate(labelled):
        low, middle, high = _range(value)
        parts = value if isinstance(value, Mapping) else {label: middle}
        left = 0.0
        for part, length in parts.items():
            color = _color(part, colors, NEUTRAL)
            hollow = kind == "forecast" or isinstance(value, tuple)
            axes.barh(y, length, left=left, **_bar_look(color, hollow and length))
            left += length
        if high > low:
            axes.plot([low, high], [y, y], color=color, linewidth=1.4, marker="|", markersize=9)
        told = number(middle, digits) + (f"  {KINDS[kind]}" if kind and several else "")
        note(axes, (words or {}).get(label, told), (high, y))
    _name_rows(axes, [label for label, _, _ in labelled])


def _range(value):
    """(low, middle, high) of a number, of a forecast that is such a tuple, or of a dict of parts."""
    if isinstance(value, tuple):
        return value
    return (sum(value.values()) if isinstance(value, Mapping) else value,) * 3


def _name_rows(axes, labels):
    """Name rows 0, 1, … from the top down; only upright lines of the grid stay."""
    tidy(axes)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", labelcolor=INK)
    axes.xaxis.set_major_formatter(lambda x, _: number(x))


def _bar_look(color, hollow=False):
    look = {"height": 0.62, "zorder": 2}
    if hollow:
        return {**look, "facecolor": color + "22", "edgecolor": color, "linewidth": 1.4}
    return {**look, "facecolor": color}


def draw_dots(
    axes: Axes,
    values: Mapping[str, Any],
    digits: int = 3,
    colors: Colors = None,
    words: Mapping[str, str] | None = None,
) -> None:
    """Draw points into `axes`, a row each: `values` is {label: number}, or (low, middle, high): hollow, with its range.

    For logarithmic axes, where a bar's length means nothing; otherwise as `draw_bars`.
    """
    for y, (label, value) in enumerate(values.items()):
        low, middle, high = _range(value)
        look = {"color": _color(label, colors, NEUTRAL), "linewidth": 1.4}
        axes.plot([low, high], [y, y], marker="|", **look)
        face = CARD if isinstance(value, tuple) else look["color"]
        axes.plot(middle, y, "o", markerfacecolor=face, markersize=8, markeredgewidth=1.6, **look)
        note(axes, (words or {}).get(label, number(middle, digits)), (high, y))
    _name_rows(axes, [*values])


def dots(
    series: Series, title: str, unit: str, log: bool = False, colors: Colors = None, digits: int = 3
) -> Figure:
    """Points to compare: `series` is a dict of label to {thing: number}, or groups of (things, numbers).

    One row a thing, with a point for each label, and its numbers beside the outer ones. Raises ValueError where `series`
    is empty or a label comes twice.
    """
    labelled, sources_of = _labelled(series, "series", "{thing: number}")
    pairs = [
        value if isinstance(value, dict) else dict(zip(*value, strict=True))
        for _, _, value in labelled
    ]
    things = list(dict.fromkeys(thing for pair in pairs for thing in pair))
    figure, axes = new_figure(title, unit, size=(7.2, 1.6 + 0.33 * len(things)))
    for y, thing in enumerate(things):
        there = sorted(pair[thing] for pair in pairs if thing in pair)
        axes.plot([there[0], there[-1]], [y, y], color="#B9C0CA", linewidth=3, zorder=1)
        for x, side in {there[0]: -8, there[-1]: 8}.items():
            note(axes, number(x, digits), (x, y), (side, 0))
    kinds = {kind for _, kind, _ in labelled}
    looks = _line_colors([label for label, _, _ in labelled], colors)
    for i, ((label, kind, _), pair) in enumerate(zip(labelled, pairs, strict=True)):
        look = _line_look(i, kind, looks[i]) | {"linestyle": "none", "markersize": 8}
        ys = [things.index(thing) for thing in pair]
        axes.plot(list(pair.values()), ys, label=_with_kind(label, kind, kinds), **look)
    _name_rows(axes, things)
    if log:
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
    axes.margins(x=0.12)
    _legend(axes, 3)
    return sources(figure, *sources_of)
