"""Predictions, quizzes and explorers, driven without a browser."""

import asyncio
import importlib
import queue
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from course import show
from course.checks import core, predictions, progress
from course.checks.core import Question
from course.show import figures, vega, widgets
from helpers import plots
from practice_gpus import practice_gpus

pytestmark = pytest.mark.usefixtures("home")


def test_a_prediction_is_kept_and_scored(capsys):
    guess = widgets.predict("t", "Heads?", ["yes", "no"])
    assert "Heads?" in capsys.readouterr().out
    guess.reveal("no")
    assert capsys.readouterr().out == "Answer: no.\n"
    guess.choose("no")
    guess.reveal("no", because="It fell on the other side.")
    told = "✓ Right! You predicted “no”.\nIt fell on the other side.\n"
    assert capsys.readouterr().out == told
    assert progress.load()["predict.t"] == {"guess": "no", "right": True}


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (2.0, "✗ 10 times too low: You predicted 2 ms. It is 20 ms."),
        (70.0, "✗ 3.5 times too high: You predicted 70 ms. It is 20 ms."),
        (30.0, "✓ Close! You predicted 30 ms. It is 20 ms."),
        (21.0, "✓ Spot on! You predicted 21 ms. It is 20 ms."),
    ],
)
def test_a_number_is_placed_beside_the_truth_on_a_scale(capsys, chosen, told):
    guess = widgets.predict("n", "How long?", unit="ms")
    guess.choose(chosen)
    capsys.readouterr()
    guess.reveal(20.0)
    words, scale = capsys.readouterr().out.splitlines()
    assert words == told
    assert scale.startswith("0.001 ") and " 1,000 " in scale and "?" in scale and "!" in scale


def test_the_first_guess_stays_the_verdict(displayed):
    guess = widgets.predict("t", "Heads?", ["yes", "no"])
    guess.choose("yes")
    guess.choose("no")
    guess.reveal("yes")
    guess.choose("yes")
    again = widgets.predict("t", "Heads?", ["yes", "no"])
    again.choose("yes")
    again.reveal("yes")
    assert texts(displayed)[-1].startswith("✗ Not this time: You predicted “no”.")
    radios = predictions._prediction_widget(again).children[1]
    assert radios.value == "no" and radios.disabled, "it shows the guess that counts"
    assert "The first guess counts" in texts(displayed)[1]


def test_an_answer_of_an_earlier_day_counts():
    widgets.predict("t", "Heads?", ["yes", "no"]).choose("no")
    widgets.predict("n", "How long?", unit="ms").choose(20.0)
    again = widgets.predict("t", "Heads?", ["yes", "no"])
    assert again.guess == "no" and predictions._prediction_widget(again).children[1].value == "no"
    number = widgets.predict("n", "How long?", unit="ms")
    assert number.guess == 20.0
    assert predictions._prediction_widget(number).children[1].value == pytest.approx(20, rel=0.12)
    assert widgets.predict("t", "Heads?", ["a", "b"]).guess is None, "the choices have changed"


def test_predict_refuses_unclear_calls():
    with pytest.raises(ValueError, match="either choices"):
        widgets.predict("k", "?")
    with pytest.raises(ValueError, match="guess is 'maybe'"):
        widgets.predict("k", "?", ["a", "b"]).choose("maybe")
    with pytest.raises(ValueError, match="low and high"):
        widgets.predict("k", "?", unit="ms", low=0)
    with pytest.raises(ValueError, match="number above 0"):
        widgets.predict("k", "?", unit="ms").choose(-1)


@pytest.fixture
def displayed(monkeypatch):
    """Be in a notebook; give what is displayed as a list of (MIME bundle, metadata), updates in place."""
    outputs = []

    class Handle:
        def __init__(self, place):
            self.place = place

        def update(self, bundle, metadata=None, raw=True):
            outputs[self.place] = bundle, metadata

    def display(bundle, metadata=None, raw=True, display_id=None):
        outputs.append((bundle, metadata))
        return Handle(len(outputs) - 1)

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(show, "inside_notebook", lambda: True)
    return outputs


def texts(displayed):
    """Return the plain words of what was displayed."""
    return [bundle.get("text/plain") for bundle, _ in displayed]


def test_without_a_guess_the_answer_stays_folded_until_there_is_one(displayed):
    guess = widgets.predict("t", "Heads?", ["yes", "no"])
    guess.reveal("no")
    page = displayed[-1][0]["text/html"]
    before, _, folded = page.partition("<details>")  # the panel asks, without the answer
    assert "Guess before you look" in before and "Answer" not in before
    assert "Show anyway" in folded and "Answer: no." in folded
    guess.choose("yes")
    assert texts(displayed)[-1] == "✗ Not this time: You predicted “yes”. The answer is “no”."


def test_what_comes_with_the_verdict_waits_for_the_guess_too(displayed):
    """A figure, a chart or lines beside the panel would give the answer away."""
    figure = plots.bars({"tails": 1.0}, "Tails it is", "s")
    bar = plots.bars({"tails": 1.0}, "Tails", "s")
    chart = vega.Chart({"mark": "bar"}, bar, "a bar of tails", "Hollow: forecast.")
    guess = widgets.predict("t", "Heads?", ["yes", "no"])
    before = len(displayed)
    guess.reveal("no", figure=(figure, "one bar, tails"), lines=["heads 0", "tails 1"], chart=chart)
    asked, place = (bundle["text/html"] for bundle, _ in displayed[before:])
    panel, _, folded = asked.partition("<details>")
    assert "<img" not in panel + place and "tails" not in panel + place
    assert folded.count("<img") == 2 and "tails 1" in folded
    guess.choose("no")
    told, drawn = (bundle for bundle, _ in displayed[before:])
    assert "Right!" in told["text/html"] and "<details>" not in told["text/html"]
    assert "Hollow: forecast." in told["text/html"], "what a chart's marks mean, and its sources"
    assert told["text/html"].count("<img") == 1 and vega.VEGALITE in drawn
    again = len(displayed)
    guess.reveal("no", figure=(figure, "one bar, tails"), chart=chart)
    assert "<img" in displayed[again][0]["text/html"] and vega.VEGALITE in displayed[again + 1][0]


def test_a_guess_on_the_way_to_another_choice_does_not_count_yet(displayed):
    """Arrow keys and a dragged slider pass other choices before they reach the one that is meant."""

    async def pass_by():
        for choice in ("a", "b", "c"):
            guess.choose(choice)
            await asyncio.sleep(0)
        assert not guess.compared
        assert "The answer follows below." in texts(displayed)[1], "nothing is left to run"
        guess._pause.waiting._run()

    guess = widgets.predict("t", "Which?", ["a", "b", "c"])
    guess.reveal("c")
    asyncio.run(pass_by())
    assert texts(displayed)[-1].startswith("✓ Right!")


def test_a_prediction_leaves_words_that_follow_what_is_chosen(displayed, monkeypatch):
    boxes = []
    make = predictions._prediction_widget
    monkeypatch.setattr(
        predictions, "_prediction_widget", lambda p: boxes.append(make(p)) or boxes[-1]
    )
    widgets.predict("t", "Heads?", ["yes", "no"])
    view, words = displayed
    assert list(view[0]) == [show.VIEW], "it shows nothing where there are no widgets"
    assert words[0]["text/plain"] == "Predict: Heads?\n  - yes\n  - no"
    boxes[0].children[1].value = "no"
    assert "Your guess: no." in texts(displayed)[1] and "Your guess: no." in str(displayed[1])


def test_the_number_slider_starts_without_a_guess_and_keeps_what_is_chosen():
    guess = predictions.Prediction("s", "?", None, "ms", (1, 100))
    slider = predictions._prediction_widget(guess).children[1]
    assert slider.value == "" and guess.guess is None and progress.load() == {}
    slider.index = len(slider.options) - 1
    assert guess.guess == pytest.approx(100)
    assert progress.load()["predict.s"]["guess"] == pytest.approx(100)
    slider.index = 0
    assert guess.guess == pytest.approx(100), "going back to the start is no guess"


QUESTION = Question("02.q1", "2 + 2?", {"3": "too few", "4": "yes"}, right=1)


def test_quiz_gives_feedback_keeps_the_first_answer_and_wrong_ones_come_back(monkeypatch):
    monkeypatch.setattr("course.lesson02.exercises.QUIZ", (QUESTION,))
    row = widgets._question_widget(QUESTION, "1.", {})
    row.children[1].index = 0
    assert "too few" in row.children[2].value and "Not quite" in row.children[2].value
    assert progress.load()["quiz.02.q1"] == {"right": False, "answer": "3", "first": "3"}
    assert widgets._to_repeat([]) == [QUESTION]
    assert widgets._to_repeat([QUESTION]) == []
    row.children[1].index = 1
    assert "Right now. Your first answer was “3”" in row.children[2].value
    assert progress.load()["quiz.02.q1"] == {"right": True, "answer": "4", "first": "3"}
    assert widgets._to_repeat([]) == []


def test_the_place_of_the_right_answer_tells_nothing():
    """Whoever always takes the same place must not pass half of the quizzes."""
    names = [name for name in core.LESSONS.values()]
    places = [q.right for name in names for q in getattr(importlib.import_module(name), "QUIZ", ())]
    assert len(places) > 20
    assert {place: n for place, n in Counter(places).items() if n > len(places) / 2} == {}


def test_the_quiz_of_a_later_lesson_begins_with_what_was_wrong(displayed, monkeypatch):
    boxes = []
    monkeypatch.setattr(show, "widget", lambda box, *words: boxes.append(box))
    progress.record("quiz.02.alone", right=False)
    widgets.quiz([QUESTION])
    titles = [row.children[0].value for row in boxes[0].children]
    assert "Once more:" in titles[0] and "A loop calls part.to" in titles[0] and "1." in titles[1]


def test_a_quiz_leaves_the_questions_and_what_was_answered(displayed, monkeypatch):
    rows = []
    make = widgets._question_widget
    monkeypatch.setattr(
        widgets, "_question_widget", lambda *args: rows.append(make(*args)) or rows[-1]
    )
    widgets.quiz([QUESTION])
    assert texts(displayed)[1] == "1. 2 + 2?\n  - 3\n  - 4"
    folded = displayed[1][0]["text/html"].partition("<details>")[2]
    assert "4: yes" in folded, "whoever reads it without a kernel finds the answer, folded"
    rows[0].children[1].index = 0
    assert "✗ Not quite: You answered “3”.\ntoo few" in texts(displayed)[1]
    assert "<b>● 3</b>" in displayed[1][0]["text/html"], "one sees which was chosen"


def test_an_answer_of_yesterday_is_chosen_and_judged_when_the_quiz_runs_again(displayed):
    """On the second day its circles were empty, as if nothing had been answered."""
    progress.record("quiz.02.q1", right=False, answer="3", first="3")
    given = widgets._given_before([QUESTION])
    row = widgets._question_widget(QUESTION, "1.", given)
    assert row.children[1].value == "3" and "too few" in row.children[2].value
    widgets.quiz([QUESTION])
    assert "You answered “3”" in texts(displayed)[1]
    assert "<b>● 3</b>" in displayed[1][0]["text/html"]


def _draw(size, color):
    if size == 3:
        raise ValueError("no such size")
    figure = plots.lines({color: ([1, 2], [size, size])}, "t", "x", "y")
    return figure, f"size {size} in {color}"


CONTROLS = {
    "size": widgets.slider("size", (1, 2, 3), 2),
    "color": widgets.choice("color", ("red", "blue"), "red"),
}


def test_an_explorer_follows_its_controls_and_never_shows_a_traceback():
    def render(size, color):
        figure, sentence = _draw(size, color)
        return figures.page(figure, sentence), sentence

    box = widgets._explorer_widget(render, CONTROLS)
    controls, place = box.children
    size, color = controls.children
    first = place.value
    assert 'alt="size 2 in red"' in first
    size.index = 0
    assert 'alt="size 1 in red"' in place.value and place.value != first
    color.value = "blue"
    assert "size 1 in blue" in place.value
    size.index = 2
    assert "no such size" in place.value and "Traceback" not in place.value


def test_an_explorer_is_drawn_where_cells_run(monkeypatch):
    """JupyterLab moves it in another thread, where practice GPUs that a cell turned on refuse to work."""
    waiting = queue.Queue()
    loop = SimpleNamespace(add_callback=waiting.put)
    monkeypatch.setattr(show, "kernel", lambda: SimpleNamespace(io_loop=loop))

    def render(size, color):
        with practice_gpus(1):
            return "<img>", f"size {size} in {color}"

    box = widgets._explorer_widget(render, CONTROLS)
    control, place = box.children[0].children[0], box.children[1]
    go = threading.Event()
    thread = threading.Thread(target=lambda: go.wait() and setattr(control, "index", 0))
    thread.start()  # before practice GPUs are on: it isn't theirs
    with practice_gpus(1):
        go.set()
        thread.join()
        waiting.get(timeout=10)()
    assert "size 1 in red" in place.value


def test_an_explorer_leaves_its_last_picture_and_says_what_it_shows(displayed, monkeypatch):
    monkeypatch.setattr(widgets, "_left", {})
    boxes = []
    make = widgets._explorer_widget
    monkeypatch.setattr(
        widgets, "_explorer_widget", lambda *args: boxes.append(make(*args)) or boxes[-1]
    )
    widgets.explore(_draw, **CONTROLS)
    _, (first, _) = displayed
    assert 'alt="size 2 in red"' in first["text/html"]
    boxes[0].children[0].children[0].index = 0
    _, (moved, _) = displayed
    assert 'alt="size 1 in red"' in moved["text/html"]
    assert moved["text/plain"].startswith("size 1 in red\n")
    widgets.explore(_draw, **CONTROLS)
    assert 'alt="size 1 in red"' in displayed[-1][0]["text/html"], "run again, it is as one left it"


def test_the_map_has_each_page_in_its_block_with_what_is_left_of_it(capsys, home):
    """A reader finds the path beside what goes deeper, and what was solved yesterday is counted."""
    first, *others = core.all_keys()["01"]
    progress.record(first, status="correct")
    widgets.lesson_map()
    lines = capsys.readouterr().out.splitlines()
    place = {line.split()[0]: n for n, line in enumerate(lines)}
    heads = [place[word] for word in ("The", "Deeper:", "Beyond:", "To")]
    assert heads == sorted(heads) and lines[0].startswith("The path: ")
    assert heads[0] < place["07"] < heads[1] < place["07b"] < heads[2] < place["08"] < heads[3]
    assert f"1 of {1 + len(others)} solved, " in lines[place["01"]]
    assert "min" in lines[place["14"]] and "min" not in lines[place["90"]]


def test_a_folded_output_does_not_tell_its_answer(monkeypatch):
    """JupyterLab shows the first line of the HTML in place of an output that is folded."""
    shown = []
    monkeypatch.setattr(show, "inside_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle))
    figure, _ = plots.new_figure("20 of 20 are right")
    figures.show(figure, "Twenty images, and all twenty guesses are right.")
    assert shown[0]["text/html"].split("\n")[0].strip() == ""
