"""The machine, drawn once for the whole course: CPU, bus, GPU with its memories and SMs.

The links are as wide as their bandwidth: one GB/s is the same width everywhere. `highlight` names the part a lesson is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course.show import figures
from helpers import plots
from practice_gpus import cards

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = ("cpu", "memory", "bus", "hbm", "l2", "sms", "sm")
CARD = "H100 SXM (80 GB)"
SCALE = 12 / 3350  # units of the drawing for a GB/s
# Eight channels of DDR5-4800, 38.4 GB/s each (JEDEC JESD79-5).
MEMORY_GB_S = 8 * 38.4


def show(
    highlight: str | tuple[str, ...] | None = None,
    title: str = "Each link is as wide as its bandwidth",
) -> None:
    """Display the machine with the parts `highlight` (a name or several of `PARTS`) in full color."""
    figures.show(draw(highlight, title), words(highlight))


def words(highlight: str | tuple[str, ...] | None = None) -> str:
    """Return the machine in words, with the part that is highlighted."""
    card = cards.get_card(CARD)
    text = (
        f"A CPU with its memory ({MEMORY_GB_S:.0f} GB/s) is joined by PCIe ({card.pcie:.0f} GB/s) to a GPU, whose HBM gives "
        f"{card.bandwidth:,.0f} GB/s through an L2 cache to its SMs."
    )
    return f"{text} Highlighted: {', '.join(_parts(highlight))}." if highlight else text


def _parts(highlight):
    chosen = (highlight,) if isinstance(highlight, str) else tuple(highlight or PARTS)
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise ValueError(f"highlight has {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    return chosen


def draw(highlight: str | tuple[str, ...] | None = None, title: str = "") -> Figure:
    """Return the machine as a matplotlib Figure; ValueError for a part that there is not."""
    chosen = _parts(highlight)
    figure = plots.blank_figure((7.3, 4.2))
    axes = figure.add_subplot()
    axes.set(xlim=(0, 79), ylim=(0, 56))
    axes.set_axis_off()
    plots.set_title(figure, title)
    pen = _Pen(axes, chosen)
    _draw_host(pen)
    _draw_gpu(pen)
    card = cards.get_card(CARD)
    _draw_links(pen, card)
    plots.sources(figure, "H100 SXM: NVIDIA's data sheet, PCIe in one direction · DDR5-4800 × 8")
    return figure


def _draw_host(pen):
    pen.frame(1, 3, 25, 50, plots.CPU, "host")
    pen.box("cpu", 4, 34, 19, 13, plots.CPU, "CPU\nfast cores")
    pen.box("memory", 4, 6, 19, 12, plots.CPU, "host memory")


def _draw_gpu(pen):
    pen.frame(36, 3, 42, 50, plots.GPU, "GPU")
    pen.box("hbm", 39, 6, 36, 7, plots.GPU, "HBM, 80 GB")
    pen.box("l2", 39, 25, 36, 4, plots.GPU, "L2 cache, 50 MB")
    for place in range(66):
        pen.tile("sms", 39.2 + 1.75 * (place % 11), 33 + 2.4 * (place // 11), 1.4, 1.9, plots.GPU)
    pen.text("sms", 48.7, 49, "132 SMs, half drawn", plots.GPU)
    pen.frame(60, 32.5, 15, 18, plots.GPU, "one SM")
    for place in range(32):
        pen.tile("sm", 61 + 1.65 * (place % 8), 40 + 1.9 * (place // 8), 1.2, 1.4, plots.GREENS[2])
    pen.text("sm", 67.5, 48, "32 of its cores", plots.GPU)
    pen.box("sm", 61, 34, 13, 4, plots.GREENS[0], "shared memory")


def _draw_links(pen, card):
    pen.link("memory", 13, 18, 13, 34, MEMORY_GB_S, plots.CPU)
    pen.link("bus", 26, 27, 36, 27, card.pcie, plots.COPY, "PCIe")
    pen.link("hbm", 57, 13, 57, 25, card.bandwidth, plots.GPU)


class _Pen:
    """Draws parts: in full color those that are chosen, pale the others."""

    def __init__(self, axes, chosen):
        self.axes = axes
        self.chosen = chosen

    def shade(self, part):
        """How opaque `part` is."""
        return 1.0 if part in self.chosen else 0.22

    def rectangle(self, x, y, width, height, **look):
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, **look))

    def frame(self, x, y, width, height, color, name):
        """Draw a thin frame with its name above it."""
        self.rectangle(x, y, width, height, fill=False, edgecolor=color, linewidth=1)
        self.axes.text(x, y + height + 0.8, name, fontsize=plots.SMALL, color=plots.FAINT)

    def tile(self, part, x, y, width, height, color):
        """Draw a filled rectangle."""
        look = {"facecolor": color, "alpha": self.shade(part), "linewidth": 0}
        self.rectangle(x, y, width, height, **look)

    def box(self, part, x, y, width, height, color, name):
        """Draw a filled rectangle with its name inside."""
        self.tile(part, x, y, width, height, color)
        ink = "white" if part in self.chosen else plots.FAINT
        center = (x + width / 2, y + height / 2)
        look = {"ha": "center", "va": "center", "fontsize": plots.SMALL}
        self.axes.text(*center, name, color=ink, **look)

    def text(self, part, x, y, words, color):
        """Write `words` around (x, y)."""
        ink = color if part in self.chosen else plots.FAINT
        self.axes.text(x, y, words, ha="center", fontsize=plots.SMALL, color=ink)

    def link(self, part, x, y, to_x, to_y, gb_s, color, name=""):
        """Draw a link as wide as its bandwidth, with its number beside it."""
        wide = SCALE * gb_s
        if x == to_x:
            self.tile(part, x - wide / 2, y, wide, to_y - y, color)
            place, look = (x + wide / 2 + 1, (y + to_y) / 2), {"ha": "left", "va": "center"}
        else:
            self.tile(part, x, y - wide / 2, to_x - x, wide, color)
            place, look = ((x + to_x) / 2, y + wide / 2 + 0.8), {"ha": "center", "va": "bottom"}
        label = f"{name}\n{gb_s:,.0f} GB/s".strip()
        ink = plots.INK if part in self.chosen else plots.FAINT
        self.axes.text(*place, label, fontsize=plots.SMALL, color=ink, **look)
