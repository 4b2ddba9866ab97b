"""Pictures one steps through with a slider that needs no kernel: what moves in a GPU, and between GPUs.

`show(ring_all_reduce())` displays one. A picture is a list of frames, each with a sentence and boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course.pictures.moving import Picture
from course.show import vega
from course.show.vega import Texts, calculate, csv, slider
from helpers import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Still = int | tuple[int, ...] | None
WIDE, HIGH = 848, 30  # pixels of the picture with the names of its rows, and of one row
LIGHT = [plots.CARD, plots.WAIT, *plots.GREENS[2:]]  # dark text stands on these


def chart(picture: Picture, still: Still = None, caption: str = "", start: int = 0) -> vega.Chart:
    """Return `picture` as a chart, at frame `start`; a page without Vega-Lite shows `still` (None: the middle).

    Where `still` is several frames, they stand in two columns.
    """
    place = len(picture.frames) // 2 if still is None else still
    look = spec(picture, start)
    figure = draw(picture, place) if isinstance(place, int) else draw_several(picture, place)
    return vega.Chart(look, figure, picture.alt, caption, colors=32)


def show(picture: Picture, still: Still = None, caption: str = "", start: int = 0) -> None:
    """Display the `chart` of these."""
    chart(picture, still, caption, start).show()


def spec(picture: Picture, start: int = 0) -> dict:
    """Return `picture` as a Vega-Lite 5 spec whose slider chooses the frame, at first frame `start`."""
    colors, labels = Texts(), Texts()
    table = [
        (step, *box[:4], colors.index(box.color), labels.index(box.label))
        for step, (_, boxes) in enumerate(picture.frames)
        for box in boxes
    ]
    sentences = Texts()
    rows = [(step, sentences.index(words)) for step, (words, _) in enumerate(picture.frames)]
    wide = WIDE - 15 - 5 * max(map(len, picture.labels)) if picture.labels else WIDE
    middle = {"x": _place("cx", picture.columns), "y": _place("cy", picture.rows, picture.labels)}
    return {
        "title": {"text": picture.title},
        "params": [
            slider("step", len(picture.frames) - 1, step=1, start=start, label=picture.slider)
        ],
        "spacing": 4,
        "vconcat": [
            {
                "width": wide,
                "height": HIGH * picture.rows,
                **csv("t,x,y,w,h,c,l", table),
                "transform": [
                    {"filter": "datum.t === step"},
                    *calculate(
                        right="datum.x + datum.w",
                        bottom="datum.y + datum.h",
                        cx="datum.x + datum.w / 2",
                        cy="datum.y + datum.h / 2",
                        color=f"{colors.list}[datum.c]",
                        label=f"{labels.list}[datum.l]",
                    ),
                ],
                "layer": [
                    {
                        "mark": {"type": "rect", "stroke": plots.CARD, "strokeWidth": 1},
                        "encoding": {
                            "x": _place("x", picture.columns),
                            "x2": {"field": "right"},
                            "y": _place("y", picture.rows, picture.labels),
                            "y2": {"field": "bottom"},
                            "color": {"field": "color", "type": "nominal", "scale": None},
                        },
                    },
                    {
                        "mark": {"type": "text", "fontSize": 12},
                        "encoding": {**middle, "text": {"field": "label"}, "color": _ink()},
                    },
                ],
            },
            {
                "width": wide,
                "height": 20,
                **csv("t,s", rows),
                "transform": [
                    {"filter": "datum.t === step"},
                    *calculate(words=f"{sentences.list}[datum.s]"),
                ],
                "mark": {"type": "text", "align": "left", "x": 0, "fontSize": 13, "limit": wide},
                "encoding": {"text": {"field": "words"}},
            },
        ],
    }


def _ink():
    dark = {"test": f"indexof({LIGHT}, datum.color) >= 0", "value": plots.INK}
    return {"condition": dark, "value": "white"}


def _place(name, end, labels=None):
    """Return the encoding of a place on a scale from 0 to `end`; with `labels`, one stands beside each row."""
    down = name in ("y", "cy")
    scale = {"domain": [end, 0] if down else [0, end], "nice": False, "zero": False}
    axis = None
    if labels:
        code = f"{labels}[floor(datum.value)] || ''"
        values = [place + 0.5 for place in range(len(labels))]
        axis = {"values": values, "labelExpr": code, "title": None, "grid": False, "domain": False}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": axis}


def draw(picture: Picture, step: int) -> Figure:
    """Return frame `step` of `picture` as a matplotlib Figure; IndexError where there is none."""
    size = (7.3, 1.3 + 0.3 * picture.rows)
    figure, axes = plots.new_figure(picture.title, picture.frames[step][0], size=size)
    _draw_frame(axes, picture, step)
    return figure


def draw_several(picture: Picture, steps: tuple[int, ...]) -> Figure:
    """Return some frames of `picture` as one matplotlib Figure, in two columns, each under its sentence."""
    rows = -(-len(steps) // 2)
    size = (7.3, 0.6 + rows * (0.5 + 0.24 * picture.rows))
    figure, panels = plots.panels(picture.title, rows, 2, size)
    for axes, step in zip(panels.flat, steps, strict=True):
        plots.tidy(axes)
        _draw_frame(axes, picture, step)
        axes.set_facecolor("none")
        axes.tick_params(length=0, labelsize=plots.SMALL)
        words = picture.frames[step][0].replace(", reduce-scatter", ",\nreduce-scatter")
        axes.set_title(words, fontsize=plots.SMALL, loc="left", color=plots.INK)
    return figure


def _draw_frame(axes: Any, picture: Picture, step: int) -> None:
    from matplotlib.patches import Rectangle

    for box in picture.frames[step][1]:
        look = {"facecolor": box.color, "edgecolor": plots.CARD, "linewidth": 1}
        axes.add_patch(Rectangle((box.x, box.y), box.width, box.height, **look))
        center = (box.x + box.width / 2, box.y + box.height / 2)
        look = {"ha": "center", "va": "center", "fontsize": plots.SMALL}
        axes.text(*center, box.label, color=plots.INK if box.color in LIGHT else "white", **look)
    axes.set(xlim=(0, picture.columns), ylim=(picture.rows, 0), xticks=[])
    places = [place + 0.5 for place in range(len(picture.labels))]
    axes.set_yticks(places, picture.labels)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
