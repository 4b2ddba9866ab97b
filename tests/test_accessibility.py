"""Lessons without eyes for pictures and colors: text for each figure, headings in order, contrast, no color alone.

What JupyterLab shows of each lesson is checked in tests/browser, with the rules of axe-core.
"""

import itertools
import re
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from course import show
from course.checks import panel
from course.show import contrast as words
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


def contrast(one, other):
    """Contrast of two colors as they are, 1 to 21."""
    return words.ratio(to_rgb(one), to_rgb(other))


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
    assert shown and min(words.contrast(text.get_color(), plots.CARD) for text in shown) >= 4.5
    shrunk = min(1, figures.WIDEST / (plots.PIXELS * figure.get_figwidth()))
    assert min(t.get_fontsize() for t in shown) * plots.PIXELS / 72 * shrunk >= 11


@pytest.mark.parametrize("ground", [*plots.COLORS, *plots.GREENS, plots.WAIT, plots.TROUBLE])
@pytest.mark.parametrize("color", ["white", plots.INK])
def test_words_in_a_box_read_in_both_themes(color, ground):
    """White on the GPU's green had 4.1 to 1; ink on a lighter green 3.2 in the dark theme."""
    figure = plots.blank_figure((3, 1))
    box = figure.add_artist(Rectangle((0, 0), 1, 1, color=ground))
    text = figure.text(0.5, 0.5, "L2", color=color, ha="center", va="center")
    figures.png(figure)
    assert words.contrast(text.get_color(), box.get_facecolor()) >= 4.5


@pytest.mark.parametrize("color", [plots.INK, plots.FAINT, plots.WAIT, plots.GPU, plots.TROUBLE])
def test_words_beside_photos_read_in_both_themes(color):
    """A gray that stands between a white page and a black one has 4.4 to 1 on both."""
    figure = plots.blank_figure((3, 1))
    figure.add_axes((0, 0, 0.5, 1)).imshow([[[0, 0, 0]]])
    text = figure.text(0.7, 0.5, "a cat", color=color)
    figures.png(figure)
    assert contrast(text.get_color(), figure.get_facecolor()) >= 7


def test_the_dark_theme_is_the_one_that_contrasts_are_computed_for():
    css = (Path(__file__).parents[1] / "course/tools/labconfig/custom.css").read_text()
    used = f"brightness({words.BRIGHTER}) invert({words.INVERTED}) hue-rotate(180deg)"
    assert set(re.findall("filter: (.*invert.*);", css)) == {used}
