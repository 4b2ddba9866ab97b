"""Boxes and grids of cells: memory, tensors and tiles, drawn to be counted."""

from collections.abc import Iterable
from typing import Any

from helpers import plots

DARK = (plots.CPU, plots.GPU, plots.TROUBLE, *plots.GREENS[:2])  # white text stands on these


def box(
    axes: Any,
    x: float,
    y: float,
    width: float,
    height: float,
    color: str,
    text: str = "",
    **look: Any,
) -> None:
    """Draw a filled rectangle with `text` in its middle; `look` as of a Rectangle, and `fontsize` of the text."""
    from matplotlib.patches import Rectangle

    size = look.pop("fontsize", 9)
    axes.add_patch(Rectangle((x, y), width, height, **{"facecolor": color, "linewidth": 0, **look}))
    if text:
        place = {"ha": "center", "va": "center", "fontsize": size}
        ink = "white" if color in DARK else plots.INK
        axes.text(x + width / 2, y + height / 2, text, color=ink, **place)


def grid(
    axes: Any,
    left: float,
    top: float,
    colors: Iterable[Iterable[str]],
    size: float = 0.9,
    **look: Any,
) -> None:
    """Draw rows of cells, each in its color, from (left, top) to the right and down (with y growing downwards)."""
    for row, line in enumerate(colors):
        for column, color in enumerate(line):
            box(axes, left + column, top + row, size, size, color, **look)
