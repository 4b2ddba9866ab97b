"""Lesson 00: what flips while it trains, what the slider says, and a cat that is whole only when it's right."""

import pytest

from course.lesson00 import exercises as lesson00
from course.lesson00 import figures as figures00
from course.show import figures
from helpers.training import SmallCNN


def test_the_slider_of_cards_shows_what_the_lesson_says():
    """A tie at 25 images per step; ten times as fast at 1,600, in a step that takes the B200 no longer."""
    answer = figures00.compare_cards(5.0)
    assert answer["actual"] == "about the same" and "0.24 to 1.9 s" in answer["because"]
    spec = answer["chart"].spec
    took = {(row["size"], row["card"][:2]): row["seconds"] for row in spec["data"]["values"]}
    faster = {size: took[size, "T4"] / took[size, "B2"] for size in figures00.SIZES}
    assert faster[25] < 1.15 and faster[1000] < 10 < faster[1600]
    assert 1600 * took[1600, "B2"] == pytest.approx(25 * took[25, "B2"], rel=0.01)
    bind = spec["params"][0]["bind"]
    assert (bind["min"], bind["max"]) == (25, 1600) and "25 … 1,600" in bind["name"]


def test_verdicts_change_in_one_place_while_it_trains(monkeypatch):
    """Else the learner sees the last epoch only, or a column of pictures."""
    pages = []

    class Place:
        update = staticmethod(lambda bundle, raw: pages.append(bundle["text/plain"]))

    monkeypatch.setattr(figures00.show, "page", lambda page, text: pages.append(text) or Place)
    board = figures00.Board(SmallCNN())
    board.update()
    board.update()
    assert len(pages) == 3 and "after each epoch" not in pages[0]
    before = len(board.history)
    assert before == 3 and pages[2].count(",") == 2


@pytest.mark.parametrize("name", ["reference", *range(len(lesson00.warm_up.slips))])
def test_the_cat_is_whole_only_where_the_check_says_so(name, monkeypatch):
    """'Not yet' below 'the cat is whole again' would leave a learner without a verdict."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append(words))
    wrong = [answer for _, answer in lesson00.warm_up.wrong_answers()]
    figures00.show_cat(lesson00.join if name == "reference" else wrong[name])
    assert ("whole again" in shown[0]) == (name == "reference")
