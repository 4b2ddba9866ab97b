"""Lessons without eyes for pictures and colors: text for each figure, headings in order, contrast, no color alone.

What JupyterLab shows of each lesson is checked in tests/browser, with the rules of axe-core.
"""

import itertools
import re

import pytest

from course import show
from course.checks import panel
from course.show import figures
from course.tools import _notebooks
from helpers import plots

PATHS = _notebooks.find()
WORDS = 4  # the alternative text of a figure has at least as many


def unsaid(outputs):
    """Return the pictures among `outputs` that have no words as their alternative text, or too few."""
    pages = [output.get("data", {}).get("text/html", "") for output in outputs]
    tags = [tag for page in pages for tag in re.findall("<img[^>]*>", page)]
    told = [
        *map(alt_of, tags),
        *(picture for output in outputs for picture in plain_pictures(output)),
    ]
    return [text for text in told if len(text.split()) < WORDS]


def alt_of(tag):
    """Return the alternative text in a tag of HTML; "" where there is none."""
    found = re.search('alt="([^"]*)"', tag)
    return found[1] if found else ""


def plain_pictures(output):
    """Return the alternative text of each picture in the bundle of `output` that is not inside HTML."""
    kinds = [kind for kind in output.get("data", {}) if kind.startswith("image/")]
    return [output.get("metadata", {}).get(kind, {}).get("alt", "") for kind in kinds]


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_every_picture_has_words_for_those_who_cannot_see_it(path):
    assert {
        i: unsaid(cell.get("outputs", []))
        for i, cell in enumerate(_notebooks.read(path).cells)
        if unsaid(cell.get("outputs", []))
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


@pytest.mark.parametrize("color", [*plots.COLORS, *plots.GREEN_LINES, plots.TROUBLE])
def test_lines_stand_out_from_the_card(color):
    assert contrast(color, plots.CARD) >= 3


def test_colors_that_meet_differ_in_lightness():
    """So that the parts of a bar can be told apart in gray and by color-blind eyes."""
    assert all(contrast(a, b) >= 1.3 for a, b in itertools.pairwise([*plots.GREENS, plots.CARD]))


@pytest.mark.parametrize("color", [*panel.COLORS.values(), *re.findall("#[0-9a-f]{6}", show.STYLE)])
@pytest.mark.parametrize("ground", ["white", "#111111"])
def test_bars_of_panels_and_the_focus_stand_out_in_both_themes(color, ground):
    assert contrast(color, ground) >= 3


SERIES = {f"series {i}": ([1, 2], [i, i + 1]) for i in range(9)}
FIGURES = {
    "lines": lambda: plots.lines(SERIES, "t", "x", "y"),
    "few lines": lambda: plots.lines(dict([*SERIES.items()][:3]), "t", "x", "y"),
    "bars": lambda: plots.bars({"a": 1.0, "b": 2.0}, "t", "ms"),
    "forecasts": lambda: plots.bars([plots.forecast({"a": (1, 2, 3)})], "t", "ms"),
    "dots": lambda: plots.dots({"a": {"x": 1}}, "t", "ms"),
}


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_texts_stand_out_from_the_card_and_are_large_enough(make):
    from matplotlib.text import Text

    figure = make()
    figures.png(figure)
    shown = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    assert shown and min(contrast(text.get_color(), plots.CARD) for text in shown) >= 4.5
    shrunk = min(1, figures.WIDEST / (plots.PIXELS * figure.get_figwidth()))
    assert min(t.get_fontsize() for t in shown) * plots.PIXELS / 72 * shrunk >= 11
