"""Lesson 00: what flips while it trains, what its questions answer, and a cat that is whole only when it's right."""

import pytest
import torch

from course.lesson00 import exercises as lesson00
from course.lesson00 import figures as figures00
from course.show import figures
from helpers.training import SmallCNN


def test_the_slider_of_cards_shows_what_the_lesson_says():
    """A tie with one photo at a time, three times as fast with 256; up to 8 photos take the V100 10 to 11 ms."""
    answer = figures00.compare_cards()
    assert answer["actual"] == "about as many"
    assert "98 photos per second on the T4" in answer["because"]
    assert "3" not in answer["because"], "the slider's answer, before anyone has moved it"
    spec = answer["chart"].spec
    took = {(row["nth"], row["card"]): row["speed"] for row in spec["data"]["values"]}
    assert took[0, "V100"] == pytest.approx(took[0, "T4"], rel=0.05)
    assert took[8, "V100"] == pytest.approx(3 * took[8, "T4"], rel=0.05)
    assert all(10 < 1000 * 2**n / took[n, "V100"] < 11.5 for n in range(4))
    assert "256 photos at a time: the V100 is 3.0× as fast" in spec["title"]["text"]["expr"]
    assert spec["params"][0]["bind"]["max"] == 8


@pytest.mark.parametrize(
    ("speeds", "actual"),
    [
        ({1: 430, 25: 2800}, "less than half"),
        ({1: 50, 25: 100}, "fewer, but at least half"),
        ({1: 100, 25: 100}, "as many or more"),
    ],
)
def test_the_answer_about_one_image_is_that_of_the_learners_cpu(speeds, actual):
    """Else a fast or a busy machine would be told another one's answer."""
    assert figures00.compare_sizes(speeds)["actual"] == actual


@pytest.mark.parametrize("sizes", [(1, 25, 100, 400), (400, 1, 25), (100, 400), (8,)])
def test_whoever_changes_the_sizes_sees_a_bar_for_each(sizes):
    """The page says to add sizes; a cell that only knows 1 and 25 would fail there, or say to add them again."""
    answer = figures00.compare_sizes({size: 100.0 + size for size in sizes})
    figure, words = answer["figure"]
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == [f"{size} per step" for size in sorted(sizes)]
    assert all(f"{100 + size} with {size} per step" in words for size in sizes)
    assert figure.get_suptitle().startswith(f"{max(sizes)} images per step")
    assert "Now add" not in answer["because"]


def test_more_sizes_leave_the_answer_about_one_and_25():
    """A reader who was right with two sizes would be told otherwise with four."""
    two = figures00.compare_sizes({1: 60.0, 25: 100.0})
    four = figures00.compare_sizes({1: 60.0, 25: 100.0, 100: 400.0, 400: 300.0})
    assert two["actual"] == four["actual"] == "fewer, but at least half"
    assert "Now add 100 and 400" in two["because"]


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ({1: 60.0, 25: 100.0, 100: 400.0, 400: 420.0}, "From 100 images per step on"),
        ({1: 60.0, 25: 100.0, 100: 400.0, 400: 300.0}, "From 100 images per step on"),
        ({1: 60.0, 25: 100.0, 100: 400.0, 400: 600.0}, "At 400 images per step, the CPU is still"),
    ],
)
def test_where_the_cpu_stops_getting_faster_is_answered_from_what_was_measured(speeds, said):
    """The page asks it, and nothing answered; the answer comes with the sizes that it asks for, not before."""
    assert said in figures00.compare_sizes(speeds)["because"]
    few = {1: 60.0, 25: 100.0}
    assert "images per step on" not in figures00.compare_sizes(few)["because"]


class Asked:
    def __init__(self, guess):
        self.guess = guess


def test_verdicts_change_in_one_place_while_it_trains(monkeypatch):
    """Else the learner sees the last epoch only, or a column of pictures."""
    pages = []

    class Place:
        update = staticmethod(lambda bundle, raw: pages.append(bundle["text/plain"]))

    monkeypatch.setattr(figures00.show, "page", lambda page, text: pages.append(text) or Place)
    board = figures00.Board(SmallCNN(), Asked("16 to 20"))
    board.update()
    board.update()
    assert len(pages) == 3 and "after each epoch" not in pages[0]
    before = len(board.history)
    assert before == 3 and pages[2].count(",") == 2
    assert "figure" not in board.answer(), "it would stand there twice"


def test_nothing_of_the_twenty_is_shown_before_the_guess(capsys):
    """Whoever runs the cell without a guess would see the answer to a question still open, or nothing for a while."""
    board = figures00.Board(SmallCNN(), Asked(None))
    board.update()
    told = capsys.readouterr().out
    assert "What is your guess?" in told and "right" not in told
    answer = board.answer()
    figure, words = answer["figure"]
    assert "right before training" in words and "after each epoch" in words
    assert "cell again" in answer["because"]


def test_a_guess_made_while_it_trains_shows_the_verdicts_from_the_next_epoch_on(capsys):
    """Whoever presses Shift+Enter once too often would miss the one thing there is to watch."""
    asked = Asked(None)
    board = figures00.Board(SmallCNN(), asked)
    asked.guess = "16 to 20"
    board.update()
    assert "after each epoch" in capsys.readouterr().out
    assert "figure" not in board.answer(), "it would stand there twice"


def test_the_class_that_came_last_is_the_one_no_earlier_epoch_got_right():
    """Else a learner on another CPU would be told of hearts that the network knew all along."""
    board = figures00.Board(SmallCNN(), Asked(None))
    labels = figures00.twenty()[1]
    hearts = labels == figures00.CLASSES.index("heart")
    board.history = [torch.where(hearts, -1, labels), labels]
    assert "Hearts came last." in board.answer()["because"]
    board.history = [torch.full_like(labels, -1), labels]
    assert "came last" not in board.answer()["because"]


@pytest.mark.parametrize(
    ("right", "said"), [(0, "0 to 5"), (5, "0 to 5"), (6, "6 to 10"), (20, "16 to 20")]
)
def test_the_score_falls_into_the_choice_that_names_it(right, said):
    """Else a guess of 16 to 20 would be called wrong at 16."""
    board = figures00.Board(SmallCNN(), Asked(None))
    labels = figures00.twenty()[1]
    board.history.append(torch.where(torch.arange(20) < right, labels, -1))
    assert board.answer()["actual"] == said


@pytest.mark.parametrize(
    ("join", "title"),
    [
        (lesson00.join, "The cat is whole again"),
        (lesson00.starter, "Half a cat on each GPU"),
        (lambda left, right: torch.cat([right.to("cuda:0"), left], 2), "That isn't the cat yet"),
        (lambda left, right: torch.cat([left.cpu(), right.cpu()], 2), "but on the CPU"),
    ],
)
def test_the_title_above_the_cat_says_what_is_seen_below_it(join, title, monkeypatch):
    """'Half a cat' stood above a whole one that was only on the wrong device."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append(words))
    figures00.show_cat(join)
    assert title in shown[0].partition(":")[0]
