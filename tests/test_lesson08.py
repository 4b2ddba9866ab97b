"""Lesson 08: ladders, a climb by forecast, and the decision tree."""

import re

import pytest

from course.lesson08 import figures, tree
from course.show import figures as drawn
from helpers.plots import SMALL


@pytest.fixture
def shown(monkeypatch):
    """The figures that a lesson shows, each with its alternative text."""
    found = []
    monkeypatch.setattr(drawn, "show", lambda figure, alt, *_: found.append((figure, alt)))
    return found


def apart(figure):
    """Whether no text of the figure's first axes covers another, or is smaller than the smallest, or cut off."""
    drawn.png(figure)
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    assert all(text.get_fontsize() >= SMALL for text in texts)
    boxes = [text.get_window_extent() for text in texts]
    for i, box in enumerate(boxes):
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_a_ladder_labels_each_gain_and_nothing_covers_anything():
    """Each gain must be readable from the last row of a room."""
    figure, _ = figures.first_picture()
    apart(figure)
    axes = figure.axes[0]
    words = " ".join(text.get_text() for text in axes.texts)
    gains = ["1.00", "2.21", "1.03", "1.00", "1.60", "1.21", "1.66", "1.22", "1.14", "1.12"]
    assert re.findall(r"× (\S+)", words) == gains


@pytest.mark.parametrize(
    ("tests", "limit"),
    [((), None), ((1.4, 1.0, 1.0), "overhead"), ((2.0, 1.0, 0.5), "memory")],
)
def test_the_tree_shows_the_path_to_the_limit_and_only_its_ratios(shown, tests, limit):
    """A learner reads off it where the tests have led, and what helps there."""
    tree.show_tree("title", tests, limit)
    [(figure, alt)] = shown
    apart(figure)
    words = {text.get_text(): text for text in figure.axes[0].texts if text.get_text()}
    for name in tree.LIMITS:
        head = next(text for word, text in words.items() if word.startswith(name))
        assert (head.get_color() == "white") is (limit in (None, name))
    ratios = [word for word in words if word.startswith("×")]
    assert ratios == [f"× {test:.2f}" for test in tests[: len(ratios)]]
    assert len(ratios) == {None: 0, "overhead": 1, "memory": 3}[limit]
    assert all(ratio in alt for ratio in ratios)


class Step:
    """A forecast of `ms` on an A100."""

    def __init__(self, ms, cause="memory"):
        self.ms, self.range, self.cause = ms, (ms / 2, 2 * ms), cause


def test_a_climb_shows_each_gain_and_says_that_it_is_a_forecast(shown, monkeypatch):
    """Which change helped is what the page tells; a solid bar would be a measurement."""
    monkeypatch.setattr(figures, "forecast_step", lambda make_step, **given: make_step(**given))
    steps = {"as it is": (4, 8.0, "cpu work"), "lean": (4, 4.0), "large": (16, 8.0)}
    rungs = {name: {"batch": given[0], "given": given[1:]} for name, given in steps.items()}
    figures.show_climb(lambda batch, given: Step(*given), rungs)
    [(figure, alt)] = shown
    axes = figure.axes[0]
    words = [text.get_text() for text in axes.texts]
    assert {"500   CPU or copies", "1,000   × 2.00   memory", "2,000   × 2.00   memory"} <= set(
        words
    )
    assert "about 4 times the photos" in alt and "forecast" in axes.get_xlabel()
    assert all(bar.get_facecolor()[3] < 0.5 for bar in axes.patches)
    assert [list(line.get_xdata()) for line in axes.get_lines()][0] == [250, 1000]
