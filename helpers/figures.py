"""The look of every figure: colors and what they mean, paper, type, numbers, and how a figure is shown.

Each function returns a `matplotlib.figure.Figure` or shows one; nothing here touches pyplot's state or rcParams.
`show` takes a figure of matplotlib, `show_vega` a chart of Vega-Lite that stays alive without a kernel.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course import show as outputs
from helpers.palette import (
    CARD,
    COMM,
    COPY,
    CPU,
    FAINT,
    FONT,
    GPU,
    GREENS,
    INK,
    KERNELS,
    MEMORY,
    RULE,
    TROUBLE,
    WAIT,
    duration,
    meaning,
    number,
    vega_config,
)
from practice_gpus.machine import held_back

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# "COMM", "duration" and others: a figure's colors and numbers are reached through this module, too
__all__ = [
    "COMM",
    "COPY",
    "CPU",
    "GPU",
    "GREENS",
    "KERNELS",
    "MEMORY",
    "TROUBLE",
    "WAIT",
    "duration",
    "meaning",
    "number",
]

SMALL = 8  # points, the smallest text: 13 pixels as displayed
TITLE = 11
PIXELS = 120  # as displayed, for an inch of the figure
SHARP = 2  # stored pixels for a displayed one
STAND_IN = 1.5  # the same for the picture beside a chart, seen where no chart is drawn
WIDEST = 880  # pixels as displayed; the column of a notebook has 913 on a screen of 1366
VEGALITE = "application/vnd.vegalite.v5+json"  # what JupyterLab 4 draws without a network


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
    # an import that is broken off leaves half a module, which only a new kernel repairs
    with held_back():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.12)
    figure = Figure(figsize=size, layout=layout, facecolor=CARD)
    FigureCanvasAgg(figure)
    return figure


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


def pictures(
    images: torch.Tensor, titles: Sequence[str] | None = None, title: str = "", columns: int = 8
) -> Figure:
    """A grid of pictures: `images` is a tensor [n, 3, h, w] or [n, 1, h, w] with values in 0..1, on any device."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"images has shape {tuple(images.shape)}; it takes [n, 3, h, w] or [n, 1, h, w]"
        )
    images = images.detach().float().clamp(0, 1).cpu()
    rows = -(-len(images) // columns)
    figure = blank_figure((columns * 0.8, rows * (1.0 if titles else 0.8) + 0.45))
    if title:
        set_title(figure, title)
    for i, image in enumerate(images):
        axes = figure.add_subplot(rows, columns, i + 1)
        shown = image.permute(1, 2, 0).squeeze(-1).numpy()
        axes.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
        if titles:
            axes.set_title(titles[i], fontsize=SMALL, color=INK)
    return figure


def png(figure: Figure, colors: int | None = None, sharp: float = SHARP) -> bytes:
    """The figure as PNG bytes, sharp on a good screen, in few colors so that notebooks stay small.

    `colors`: at most 256; 128 unless told, and 256, chosen with more care, for a figure given to `colorful`.
    """
    import numpy
    from PIL import Image

    figure.set_dpi(sharp * PIXELS)
    canvas: Any = figure.canvas
    canvas.draw()
    buffer = io.BytesIO()
    picture = Image.fromarray(numpy.asarray(canvas.buffer_rgba())).convert("RGB")
    many = colors is None and getattr(figure, "colorful", False)
    few = picture.quantize(colors or (256 if many else 128), kmeans=int(many))
    few.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def colorful(figure: Figure) -> Figure:
    """Have `figure` stored in 256 colors, a sixth larger: with 128, photos turn blotchy and pink to peach; returns it."""
    figure.colorful = True  # type: ignore[attr-defined]  # an attribute of ours
    return figure


def page(figure: Figure, alt: str, caption: str = "") -> str:
    """The figure as HTML: the picture with `alt` as its alternative text, and small below it caption and sources."""
    data = base64.b64encode(png(figure)).decode("ascii")
    width = min(WIDEST, round(PIXELS * figure.get_figwidth()))
    look = "max-width:100%;height:auto;border-radius:10px"
    image = (
        f'<img alt="{html.escape(alt)}" width="{width}" style="{look}" '
        f'src="data:image/png;base64,{data}">'
    )
    kind = "course-figure course-photos" if _photos(figure) else "course-figure"
    return f'<div class="{kind}">{image}{below(figure, caption)}</div>'


def _photos(figure):
    """Whether pictures stand in `figure`, whose colors a dark theme must leave as they are."""
    return any(image.get_array().ndim == 3 for axes in figure.axes for image in axes.images)


def below(figure: Figure, caption: str = "") -> str:
    """HTML of the caption and the sources of `figure`; empty where it has neither."""
    parts = [html.escape(caption)] if caption else []
    named = dict.fromkeys(getattr(figure, "sources", ()))
    if named:
        parts.append("Source: " + " · ".join(map(_source_link, named)))
    small = "font-size:12px;line-height:1.4;margin:4px 0 0 2px"
    return "".join(f'<p style="{small}">{part}</p>' for part in parts)


def _source_link(line):
    """The line as HTML, a link to the page with the numbers where they are published ones."""
    from course.measurements import published, published_names

    known = (published(name) for name in published_names())
    address = next((each.url for each in known if each.source in line), "")
    text = html.escape(line.removeprefix("published: "))
    return f'<a href="{html.escape(address)}">{text}</a>' if address else text


def words(figure: Figure, alt: str, caption: str = "") -> str:
    """The figure in words: `alt`, the caption and the sources."""
    named = dict.fromkeys(getattr(figure, "sources", ()))
    source = [f"Source: {' · '.join(named)}"] if named else []
    return "\n".join(filter(None, [alt, caption, *source]))


def show(figure: Figure, sentence: str, caption: str = "") -> None:
    """Display `figure`. `sentence` says in words what it shows: its alternative text, printed outside a notebook.

    `caption` stands below it, where there is something to add that the title does not say.
    """
    outputs.page(page(figure, sentence, caption), words(figure, sentence, caption))


def show_vega(spec: dict, figure: Figure, alt: str, caption: str = "", colors: int = 128) -> None:
    """Display a Vega-Lite chart that stays alive in a reopened notebook, without a network.

    `spec` is a dict of Vega-Lite 5 (Altair 5.5: `chart.to_dict()`); the look of the course is merged into its config,
    and where it has no width it takes the column's. `figure` is the matplotlib Figure that stands in for it on pages
    that draw no Vega-Lite. `alt` says in words what it shows. Give each mark its color by meaning (`figures.GPU`).
    """
    if not isinstance(spec, dict) or "Figure" not in type(figure).__name__:
        raise TypeError(
            f"show_vega takes a dict and a matplotlib Figure, got {type(spec).__name__} and {type(figure).__name__}"
        )
    text = words(figure, alt, caption)
    if not outputs.inside_notebook():
        print(text)
        return
    from IPython.display import display

    picture = base64.b64encode(png(figure, colors, STAND_IN)).decode("ascii")
    width = min(WIDEST, round(PIXELS * figure.get_figwidth()))
    bundle = {
        VEGALITE: vega_spec(spec, alt),
        "image/png": picture,
        "text/plain": outputs.CLOSED + text,
    }
    metadata = {
        VEGALITE: {"embed_options": _EMBED},
        "image/png": {"alt": alt, "width": width},
    }
    display(bundle, metadata=metadata, raw=True)
    note = below(figure, caption)
    if note:
        outputs.page(note, "")


def vega_spec(spec: dict, alt: str) -> dict:
    """A copy of the Vega-Lite `spec` in the look of the course, with `alt` as its description."""
    spec = json.loads(json.dumps(spec))  # raises TypeError for what a notebook cannot hold
    if not {"hconcat", "vconcat", "concat", "facet", "repeat"} & set(spec):
        spec.setdefault("width", "container")
        spec.setdefault("autosize", {"type": "fit-x", "contains": "padding"})
    config = vega_config()
    for key, value in spec.get("config", {}).items():
        config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
    return {**spec, "description": alt, "config": config}


# How JupyterLab embeds a chart: sharp at any size, without a menu, as wide as its place, with rounded corners
_EMBED = {
    "actions": False,
    "renderer": "svg",
    "defaultStyle": (
        ".vega-embed{display:block!important;width:100%;max-width:880px}"
        ".vega-embed>svg,.vega-embed>.chart-wrapper{border-radius:10px}"
        ".jp-OutputArea-output .vega-embed svg{border-radius:10px;max-width:100%}"
        "#vg-tooltip-element{font:12px Verdana,sans-serif;padding:8px;border-radius:6px;"
        "position:fixed;z-index:1000;visibility:hidden;background:#fff;color:#1f2530;"
        "border:1px solid #d5dae1}#vg-tooltip-element.visible{visibility:visible}"
        "#vg-tooltip-element td.key{color:#59616e;padding-right:8px}"
    ),
}
