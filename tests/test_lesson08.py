"""Lesson 08: ladders, a climb by forecast, and the decision tree."""

import copy
import re

import pytest
import torch
from torch.nn import functional as F

from course import photos
from course.lesson08 import figures, sketches, steps, tree
from course.show import figures as drawn
from course.tools import ROOT, _notebooks
from helpers.plots import SMALL


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
    [((), None), ((1.4, 1.0, 1.0), "launches"), ((2.0, 1.0, 0.5), "memory")],
)
def test_the_tree_shows_the_path_to_the_limit_and_only_its_ratios(tests, limit):
    """A learner reads off it where the tests have led, and what helps there."""
    figure, alt = tree.draw_tree("title", tests, limit)
    apart(figure)
    words = {text.get_text(): text for text in figure.axes[0].texts if text.get_text()}
    for name in tree.LIMITS:
        head = next(text for word, text in words.items() if word.startswith(name))
        assert (head.get_color() == "white") is (limit in (None, name))
    ratios = [word for word in words if word.startswith("×")]
    assert ratios == [f"× {test:.2f}" for test in tests[: len(ratios)]]
    assert len(ratios) == {None: 0, "launches": 1, "memory": 3}[limit]
    assert all(ratio in alt for ratio in ratios)


class Step:
    """A forecast of `ms` on an A100."""

    def __init__(self, ms, cause="memory"):
        self.ms, self.range, self.cause = ms, (ms / 2, 2 * ms), cause


def test_a_climb_shows_each_gain_and_says_that_it_is_a_forecast(monkeypatch):
    """Which change helped is what the page tells; a solid bar would be a measurement."""
    monkeypatch.setattr(figures, "forecast_step", lambda make_step, **given: make_step(**given))
    steps = {"as it is": (4, 8.0, "cpu work"), "lean": (4, 4.0), "large": (16, 8.0)}
    rungs = {name: {"batch": given[0], "given": given[1:]} for name, given in steps.items()}
    figure, alt = figures.draw_climb(lambda batch, given: Step(*given), rungs)
    axes = figure.axes[0]
    words = [text.get_text() for text in axes.texts]
    assert {
        "500   copies, or the CPU",
        "1,000   × 2.00   memory",
        "2,000   × 2.00   memory",
    } <= set(words)
    assert "about 4 times the photos" in alt and "forecast" in axes.get_xlabel()
    assert all(bar.get_facecolor()[3] < 0.5 for bar in axes.patches)
    assert [list(line.get_xdata()) for line in axes.get_lines()][0] == [250, 1000]


@pytest.mark.parametrize("draw", [sketches.draw_limits, sketches.formats, sketches.launching])
def test_nothing_in_a_sketch_covers_anything(draw):
    """The five limits, four formats and three ways to launch are read, not guessed."""
    apart(draw()[0])


def test_the_photo_step_of_08b_is_the_one_that_08_writes_out():
    """A learner climbs on with the step whose limits they have found; another would begin elsewhere."""
    [cell] = [
        cell.source
        for cell in _notebooks.read(ROOT / "notebooks/08_find_the_limit.ipynb").cells
        if "def make_step(" in cell.source
    ]
    room = {"copy": copy, "torch": torch, "F": F, "photos": photos}
    exec(cell, room)  # noqa: S102 - our own page
    written, kept = (
        tree.forecast_step(make, 12).kernels for make in (room["make_step"], steps.photo_step)
    )
    assert [(k.name, k.bytes) for k in written] == [(k.name, k.bytes) for k in kept]
