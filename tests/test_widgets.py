"""Predictions, quizzes and explorers, driven without a browser."""

import pytest

from helpers import plots, widgets
from helpers.checks import progress
from helpers.checks.core import Question


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "_memory", {})


def test_a_prediction_is_kept_and_scored(capsys):
    guess = widgets.predict("t", "Heads?", ["yes", "no"])
    assert "( ) no" in capsys.readouterr().out
    guess.reveal("no")
    assert capsys.readouterr().out == "Answer: no.\n"
    guess.choose("no")
    guess.reveal("no")
    assert "right" in capsys.readouterr().out
    assert progress.load()["predict.t"] == {"guess": "no", "right": True}


def test_a_numeric_prediction_says_how_far_off(capsys):
    guess = widgets.predict("n", "How long?", unit="ms")
    guess.choose(2.0)
    guess.reveal(20.0)
    _, told, scale = capsys.readouterr().out.splitlines()
    assert "a factor of 10 apart, too low" in told
    assert scale.startswith("0.001 ") and " 1,000 " in scale
    assert 6 <= scale.index("!") - scale.index("?") <= 7, (
        "a factor of 10 is a sixth of the scale's 40 steps"
    )


@pytest.mark.parametrize(("guess", "actual"), [(1e-6, 5.0), (5.0, 1e6), (2.0, 2.0), (3.0, 0.0)])
def test_the_scale_holds_any_guess_and_answer(guess, actual, capsys):
    asked = widgets.predict("n", "How long?", unit="ms", low=1, high=10)
    asked.choose(guess)
    asked.reveal(actual)
    assert "You predicted" in capsys.readouterr().out


def test_an_answer_of_an_earlier_day_counts():
    widgets.predict("t", "Heads?", ["yes", "no"]).choose("no")
    widgets.predict("n", "How long?", unit="ms").choose(20.0)
    again = widgets.predict("t", "Heads?", ["yes", "no"])
    assert again.guess == "no" and widgets._prediction_widget(again).children[1].value == "no"
    number = widgets.predict("n", "How long?", unit="ms")
    assert number.guess == 20.0 and widgets._prediction_widget(number).children[
        1
    ].value == pytest.approx(20, rel=0.12)
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
    with pytest.raises(ValueError, match="actual is 'c'"):
        widgets.predict("k", "?", ["a", "b"]).reveal("c")


def test_the_prediction_widget_stores_what_is_clicked():
    guess = widgets.Prediction("w", "?", ("a", "b"), None)
    box = widgets._prediction_widget(guess)
    box.children[1].value = "b"
    assert guess.guess == "b" and progress.load()["predict.w"]["guess"] == "b"


def test_the_number_slider_starts_without_a_guess_and_keeps_what_is_chosen():
    guess = widgets.Prediction("s", "?", None, "ms", (1, 100))
    slider = widgets._prediction_widget(guess).children[1]
    assert slider.value == "" and guess.guess is None and progress.load() == {}
    slider.index = len(slider.options) - 1
    assert guess.guess == pytest.approx(100) and progress.load()["predict.s"][
        "guess"
    ] == pytest.approx(100)
    slider.index = 0
    assert guess.guess == pytest.approx(100), "going back to the start is no guess"


QUESTION = Question("02.q1", "2 + 2?", ("3", "4"), ("too few", "yes"), 1)


def test_quiz_gives_feedback_and_wrong_ones_come_back(monkeypatch):
    monkeypatch.setattr("exercises.lesson02.QUIZ", (QUESTION,))
    row = widgets._question_widget(QUESTION, "1.")
    row.children[1].index = 0
    assert "too few" in row.children[2].value and "Not quite" in row.children[2].value
    assert progress.load()["quiz.02.q1"] == {"right": False, "answer": "3"}
    assert widgets._to_repeat(set()) == [QUESTION]
    assert widgets._to_repeat({"02.q1"}) == []
    row.children[1].index = 1
    assert "Right" in row.children[2].value and progress.load()["quiz.02.q1"] == {
        "right": True,
        "answer": "4",
    }
    assert widgets._to_repeat(set()) == []


def test_questions_come_back_after_a_code_and_those_that_are_gone_do_not():
    from helpers.checks import codes

    progress.restore(codes.encode({"quiz.02.alone": codes.NOT_YET, "quiz.03.stays": codes.NOT_YET}))
    progress.record("quiz.02.gone", right=False)
    progress.record("quiz.77.gone", right=False)
    assert [question.key for question in widgets._to_repeat(set())] == ["02.alone", "03.stays"]


def test_the_quiz_of_a_later_lesson_begins_with_what_was_wrong(monkeypatch):
    shown = []
    monkeypatch.setattr(widgets, "inside_notebook", lambda: True)
    monkeypatch.setattr(widgets, "display_widget", lambda widget, text: shown.append(widget))
    progress.record("quiz.02.alone", right=False)
    widgets.quiz([QUESTION])
    titles = [row.children[0].value for row in shown[0].children]
    assert "Once more:" in titles[0] and "After the line x.to" in titles[0] and "1." in titles[1]


def test_a_question_needs_feedback_for_each_choice():
    with pytest.raises(ValueError, match="one feedback"):
        Question("q", "?", ("a", "b"), ("only one",), 0)


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
    import base64

    def render(size, color):
        figure, sentence = _draw(size, color)
        return base64.b64encode(plots.png(figure)).decode(), sentence

    box = widgets._explorer_widget(render, CONTROLS)
    first = box.children[2].value
    assert 'alt="size 2 in red"' in first
    box.children[0].index = 0
    assert 'alt="size 1 in red"' in box.children[2].value and box.children[2].value != first
    box.children[1].value = "blue"
    assert "size 1 in blue" in box.children[2].value
    box.children[0].index = 2
    assert "no such size" in box.children[2].value and "Traceback" not in box.children[2].value


def test_the_stored_picture_of_an_explorer_says_what_it_shows(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda bundle, **more: shown.append((bundle, more))
    )
    monkeypatch.setattr(widgets, "inside_notebook", lambda: True)
    widgets.explore(_draw, **CONTROLS)
    ((bundle, more),) = shown
    assert "image/png" in bundle and more["metadata"] == {"image/png": {"alt": "size 2 in red"}}


def test_an_explorer_without_widgets_shows_its_first_picture(capsys):
    widgets.explore(_draw, **CONTROLS)
    assert capsys.readouterr().out == "size 2 in red\n"


def test_a_start_outside_the_values_is_refused():
    with pytest.raises(ValueError, match="start is 9"):
        widgets.slider("s", (1, 2), 9)


def test_the_lesson_map_counts_solved_exercises(capsys):
    progress.record("01.a", status="correct")
    widgets.lesson_map({"01": ("01.a", "01.b")})
    line = next(text for text in capsys.readouterr().out.splitlines() if text.startswith("01"))
    assert " 1 of  2 exercises" in line
