"""Lessons without eyes for pictures and colors: text for each figure, headings in order, contrast, no color alone.

What JupyterLab shows of each lesson is checked in tests/browser, with the rules of axe-core.
"""

import re

import pytest
import torch

from helpers import plots, show
from helpers.checks import panel
from tools import _notebooks

PATHS = _notebooks.find()
WORDS = 4  # a line that says what a figure shows has at least as many


def unsaid(outputs):
    """Return the places of the pictures among `outputs` that no sentence follows, printed or shown."""
    told = []
    for output in outputs:
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        told.append(text.lstrip().partition("\n")[0])
    return [
        place
        for place, output in enumerate(outputs)
        if any(kind.startswith("image/") for kind in output.get("data", {}))
        and not any(len(line.split()) >= WORDS for line in told[place + 1 : place + 2])
    ]


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_a_sentence_follows_every_picture(path):
    assert {
        i: places
        for i, cell in enumerate(_notebooks.read(path).cells)
        for places in [unsaid(cell.get("outputs", []))]
        if places
    } == {}


def luminance(color):
    """Relative luminance of a color such as "#0072B2" or (red, green, blue) in 0..1: WCAG 2.2, relative luminance."""
    from matplotlib.colors import to_rgb

    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """Contrast of two colors, 1 to 21: WCAG 2.2, contrast ratio."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("color", plots.COLORS)
def test_lines_and_bars_stand_out_from_white(color):
    assert contrast(color, "white") >= 3


@pytest.mark.parametrize("color", [*panel.COLORS.values(), *re.findall("#[0-9a-f]{6}", show.STYLE)])
@pytest.mark.parametrize("ground", ["white", "#111111"])
def test_lines_of_panels_and_of_the_focus_stand_out_in_both_themes(color, ground):
    assert contrast(color, ground) >= 3


def texts(figure):
    """Return the visible texts of a figure that stand on white: titles, labels, ticks, legends, notes."""
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]


SERIES = {f"series {i}": ([1, 2], [i, i + 1]) for i in range(9)}
PARTS = {f"row {i}": {f"part {k}": 1 + k for k in range(9)} for i in range(2)}
EVENTS = [(f"lane {i % 2}", f"label {i}", i, i + 1) for i in range(9)]
FIGURES = {
    "lines": lambda: plots.lines(SERIES, "t", "x", "y"),
    "bars": lambda: plots.bars({"a": 1.0, "b": 2.0}, "t", "ms"),
    "stacked": lambda: plots.stacked(PARTS, "t", "MiB"),
    "lanes": lambda: plots.lanes(EVENTS, "t"),
    "dots": lambda: plots.dots({"a": {"x": 1}}, "t", "ms"),
    "with sources": lambda: plots.bars([plots.published("gan_epoch_colab", "epoch_s")], "t", "s"),
    "pictures": lambda: plots.pictures(torch.zeros(2, 3, 4, 4), ["a", "b"], "t"),
}


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_texts_stand_out_from_white_and_can_be_read_from_afar(make):
    figure = make()
    plots.png(figure)
    shown = texts(figure)
    assert shown and min(contrast(text.get_color(), "white") for text in shown) >= 4.5
    assert min(text.get_fontsize() for text in shown) >= 8, "too small for a projector"


def test_lines_differ_without_color():
    drawn = plots.lines(SERIES, "t", "x", "y").axes[0].get_lines()
    looks = [(line.get_marker(), str(line._dash_pattern), line.get_color()) for line in drawn]
    assert len(set(looks)) == len(SERIES)
    assert len({look[:2] for look in looks[:7]}) == 7


@pytest.mark.parametrize("make", [FIGURES["stacked"], FIGURES["lanes"]], ids=["stacked", "lanes"])
def test_bars_differ_without_color(make):
    bars = [bar for bar in make().axes[0].patches if bar.get_width()]
    looks = list(dict.fromkeys((bar.get_hatch(), bar.get_facecolor()) for bar in bars))
    assert len(looks) == 9 and len({hatch for hatch, _ in looks[:7]}) == 7
    assert all(contrast(bar.get_edgecolor()[:3], bar.get_facecolor()[:3]) >= 3 for bar in bars)
