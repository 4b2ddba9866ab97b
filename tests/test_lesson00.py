"""Lesson 00: the slider of cards shows what the page says."""

import pytest

from course.lesson00 import figures as figures00
from course.show import vega


def test_the_slider_of_cards_shows_what_the_lesson_says(monkeypatch):
    """A tie at 25 images per step; ten times as fast at 1,600, in a step that takes the B200 no longer."""
    shown = []
    monkeypatch.setattr(vega, "show", lambda *words: shown.append(words))
    assert figures00.show_cards(5.0)[0] == "about the same"
    rows = shown[0][0]["data"]["values"]
    took = {(row["size"], row["card"][:2]): row["seconds"] for row in rows}
    faster = {size: took[size, "T4"] / took[size, "B2"] for size in figures00.SIZES}
    assert faster[25] < 1.15 and faster[800] < 10 < faster[1600]
    assert 1600 * took[1600, "B2"] == pytest.approx(25 * took[25, "B2"], rel=0.01)
