"""Lesson 00: what flips while it trains, what its questions answer, and a cat that is whole only when it's right."""

import pytest
import torch
import torch.nn.functional as F

from course.lesson00 import exercises as lesson00
from course.lesson00 import figures as figures00
from course.show import figures
from helpers.training import SmallCNN
from practice_gpus import practice_gpus


def test_the_slider_shows_this_cpu_beside_what_the_lesson_says_of_two_gpus():
    """A tie with one image per step; at 800 the H100 is far ahead, and both leave the reader's CPU behind."""
    answer = figures00.compare_cards({800: 2000.0, 1: 500.0})
    assert answer["actual"] == "about as many" and "drag the slider" in answer["because"]
    spec = answer["chart"].spec
    rows = {(row["nth"], row["device"]): row for row in spec["data"]["values"]}
    one, many = rows[0, "T4, forecast"], rows[1, "T4, forecast"]
    assert one["speed"] == rows[0, "H100, forecast"]["speed"]
    assert rows[1, "H100, forecast"]["speed"] > 2 * many["speed"] > 2 * 10 * 2000
    assert one["low"] < one["speed"] < one["high"], "a forecast without its range"
    assert rows[0, "this CPU"]["low"] == rows[0, "this CPU"]["high"] == 500
    assert "1 image per step: a T4 is 1.4× as fast as this CPU" in spec["title"]["text"]["expr"]
    assert spec["params"][0]["bind"]["max"] == 1


def test_the_forecast_is_that_of_the_steps_on_the_page():
    """Another optimizer or network would compare the reader's CPU with something that it didn't run."""
    with practice_gpus(1, card="T4", values=False) as gpu:
        model = SmallCNN().cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        images = torch.empty(25, 3, 32, 32, device="cuda")
        labels = torch.zeros(25, dtype=torch.long, device="cuda")

        def step():  # as in the page's loop
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        step()
        ms = gpu.forecast(step).ms
    assert figures00._forecasts(25)["T4"][1] == pytest.approx(25_000 / ms, rel=0.01)


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
    """A cell that only knows the page's sizes would fail for whoever tries others."""
    answer = figures00.compare_sizes({size: 100.0 + size for size in sizes})
    figure, words = answer["figure"]
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == [f"{size} per step" for size in sorted(sizes)]
    assert all(f"{100 + size} with {size} per step" in words for size in sizes)
    assert figure.get_suptitle().startswith(f"{max(sizes)} images per step")


def test_more_sizes_leave_the_answer_about_one_and_25():
    """A reader who was right with two sizes would be told otherwise with four."""
    two = figures00.compare_sizes({1: 60.0, 25: 100.0})
    four = figures00.compare_sizes({1: 60.0, 25: 100.0, 100: 400.0, 400: 300.0})
    assert two["actual"] == four["actual"] == "fewer, but at least half"


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ({1: 60.0, 25: 100.0, 100: 400.0, 400: 420.0}, "From 100 images per step on"),
        ({1: 60.0, 25: 100.0, 100: 400.0, 400: 300.0}, "From 100 images per step on"),
        ({1: 60.0, 25: 100.0, 100: 400.0, 400: 600.0}, "At 400 images per step, the CPU is still"),
    ],
)
def test_where_the_cpu_stops_getting_faster_is_answered_from_what_was_measured(speeds, said):
    """With two sizes, nobody can say."""
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
    board = figures00.Board(SmallCNN(), Asked("all"))
    board.update(1.0)
    board.update(1.0)
    assert len(pages) == 3 and "after each epoch" not in pages[0]
    before = len(board.history)
    assert before == 3 and pages[2].count(",") == 2
    assert "figure" not in board.answer(), "it would stand there twice"


def test_nothing_of_the_twenty_is_shown_before_the_guess(capsys):
    """Whoever runs the cell without a guess would see the answer to a question still open, or nothing for a while."""
    board = figures00.Board(SmallCNN(), Asked(None))
    board.update(1.0)
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
    asked.guess = "all"
    board.update(1.0)
    assert "after each epoch" in capsys.readouterr().out
    assert "figure" not in board.answer(), "it would stand there twice"


def test_the_mistakes_that_are_left_are_named_as_they_are():
    """Else a learner on another CPU would be told of a circle that the network knew all along."""
    board = figures00.Board(SmallCNN(), Asked(None))
    labels = figures00.twenty()[1]
    circle, heart = map(figures00.CLASSES.index, ("circle", "heart"))
    board.history = [torch.where(labels == circle, heart, labels)]
    assert "It still takes a circle for a heart." in board.answer()["because"]
    for guesses in (labels, torch.zeros_like(labels)):
        board.history = [guesses]
        assert "still takes" not in board.answer()["because"]


def test_the_seconds_of_the_training_are_those_of_all_epochs(capsys):
    """How fast the training was is what the next question is about, and nothing told it."""
    board = figures00.Board(SmallCNN(), Asked("all"))
    board.update(1.5)
    board.update(1.0)
    assert "took your CPU 2.5 s" in board.answer()["because"]


@pytest.mark.parametrize(
    ("right", "said"),
    [(0, "at most half"), (10, "at most half"), (11, "most, but not all"), (20, "all")],
)
def test_the_score_falls_into_the_choice_that_names_it(right, said):
    """Else a guess of all would be called right at 19."""
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
