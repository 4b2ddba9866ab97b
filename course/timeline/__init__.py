"""One timeline for whatever happens over time: real traces, your own profile, a forecast of the clock, memory.

`show(traces.case("4a"), "An H100 that waits")` draws a `measurements.traces.Trace`, a Chrome trace (path or dict), or
a forecast of practice GPUs. The chart is Vega-Lite: it zooms, measures and names things in a reopened notebook and on a
page without a kernel; a picture stands beside it for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.show import vega
from course.timeline.rows import COLORS, Rows, lay_out
from course.timeline.spec import spec
from helpers import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course.measurements.traces import Trace

FORECAST = "forecast"
COLORS_STORED = 40  # of the picture; a timeline has few


def show(
    source: Any,
    title: str,
    alt: str = "",
    measure: tuple[float, float] | None = None,
    detail: int = 200,
    caption: str = "",
    names: bool = True,
) -> None:
    """Display the timeline of `source` under `title`, which states what one sees.

    `measure` (begin, end) in ms is the span that is measured at first (None: everything). `detail` bounds how many
    blocks are drawn; closer ones are joined. `alt` says in words what is seen (None: a sentence of numbers).
    `names` is whether a line says what the CPU did most.
    """
    trace = trace_of(source)
    rows = lay_out(trace, detail)
    forecast = trace.about.get("kind") == FORECAST
    if forecast and FORECAST not in title:
        title = f"{title} ({FORECAST})"
    chart = spec(rows, title, measure, forecast, names)
    picture = draw(rows, title, measure, forecast)
    if trace.source:
        plots.sources(picture, trace.source)
    vega.show(chart, picture, alt or describe(trace, rows), caption, COLORS_STORED)


def trace_of(source: Any) -> Trace:
    """Return the `Trace` of whatever `show` takes; ValueError or TypeError where it takes no such thing."""
    from course.measurements.traces import Trace, load

    if isinstance(source, Trace):
        return source
    if isinstance(source, dict | list | str) or hasattr(source, "__fspath__"):
        return load(source)
    if hasattr(source, "queue") and hasattr(source, "card"):
        from course.timeline.forecasts import trace_of_forecast

        return trace_of_forecast(source)
    raise TypeError(
        f"source is a {type(source).__name__}; it takes a Trace, a Chrome trace (path or dict), or a forecast"
    )


def describe(trace: Trace, rows: Rows | None = None) -> str:
    """Return the sentence that stands in for the timeline of `trace`."""
    rows = rows or lay_out(trace)
    busy = sum(busy for _, _, busy in rows.busy) / trace.length
    gap = max((end - begin for begin, end in rows.gaps), default=0)
    who = "" if rows.ranks == 1 else ", at least one GPU"
    whole, longest = (plots.number(time / 1000) for time in (trace.length, gap))
    return (
        f"{whole} ms of {trace.device}{who}: busy {busy:.0%} of the time, longest gap {longest} ms."
    )


def draw(
    rows: Rows, title: str, measure: tuple[float, float] | None = None, forecast: bool = False
) -> Figure:
    """Return the timeline as a matplotlib Figure, in the colors of the chart."""
    from matplotlib.patches import Patch

    figure, axes = plots.new_figure(
        title, "ms", size=(7.3, max(1.9, 1.2 + 0.27 * len(rows.labels)))
    )
    for kind in rows.kinds:
        _draw_kind(axes, rows, kind, forecast)
    for launch, start, row in rows.arrows(30):
        axes.plot(
            [launch / 1000, start / 1000],
            [(rows.launch_row or 0) + 0.5, row + 0.12],
            color=plots.CPU,
            alpha=0.3,
            linewidth=0.5,
        )
    if rows.memory_row is not None:
        _draw_memory(axes, rows)
    if measure:
        axes.axvspan(*measure, color=plots.WAIT, alpha=0.2, linewidth=0)
    axes.set_xlim(0, rows.length / 1000)
    axes.set_ylim(len(rows.labels), 0)
    axes.set_yticks([place + 0.5 for place in range(len(rows.labels))], rows.labels)
    axes.grid(axis="y", visible=False)
    handles = [Patch(color=COLORS[kind], label=kind) for kind in rows.kinds]
    look = {"frameon": False, "fontsize": plots.SMALL, "columnspacing": 1, "handlelength": 1}
    figure.legend(handles=handles, loc="outside lower left", ncols=5, **look)
    return figure


def _draw_kind(axes, rows, kind, forecast):
    from matplotlib.colors import to_rgba

    color = COLORS[kind]
    edge = {"edgecolors": color, "linewidth": 0.6} if forecast else {"linewidth": 0}
    for row in range(len(rows.labels)):
        own = [b for b in rows.blocks if b.kind == kind and b.row == row]
        bars = [(b.start / 1000, (b.end - b.start) / 1000) for b in own]
        shades = [0.4 if forecast else 0.25 + 0.75 * round(2 * b.density) / 2 for b in own]
        faces = [to_rgba(color, shade) for shade in shades]
        axes.broken_barh(
            bars, (row + 0.12, 0.76), facecolors=faces, antialiased=bool(forecast), **edge
        )


def _draw_memory(axes, rows):
    base = rows.memory_row + 0.95
    peak = max(size for _, size in rows.memory)
    times = [time / 1000 for time, _ in rows.memory]
    tops = [base - 0.85 * size / peak for _, size in rows.memory]
    axes.fill_between(times, tops, base, step="post", color=plots.GPU, alpha=0.5, linewidth=0)
