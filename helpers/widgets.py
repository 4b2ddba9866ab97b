"""Predictions, quizzes, explorers and the lesson map.

Each is displayed as a widget together with plain text (and a picture) for places that show no widgets, so a lesson
reads the same on paper. Works with ipywidgets 7.7 and 8. A widget never shows a traceback.
"""
import base64
import functools
import html
from dataclasses import dataclass

from helpers.exercises import progress
from helpers.exercises.core import Question
from helpers.exercises.panel import display_widget, inside_notebook


class Prediction:
    """A question asked before a run; `reveal` compares the stored answer with what the run showed."""

    def __init__(self, key, question, choices, unit):
        self.key, self.question, self.choices, self.unit = key, question, choices, unit
        self.guess = None

    def choose(self, guess):
        """Store `guess`: one of the choices, or a number in the prediction's unit."""
        if self.choices and guess not in self.choices:
            raise ValueError(f"guess is {guess!r}; it takes one of {list(self.choices)}")
        self.guess = guess
        progress.record(f"predict.{self.key}", guess=guess)

    def reveal(self, actual):
        """Print how the prediction compares with `actual`: a choice, or a number in the prediction's unit."""
        if self.choices and actual not in self.choices:
            raise ValueError(f"actual is {actual!r}; it takes one of {list(self.choices)}")
        answer = actual if self.choices else f"{actual:.3g} {self.unit}"
        if self.guess is None:
            print(f"Answer: {answer}.")
        elif self.choices:
            right = self.guess == actual
            progress.record(f"predict.{self.key}", right=right)
            print(f"You predicted: {self.guess}. {'That is right.' if right else f'The answer: {actual}.'}")
        else:
            factor = max(self.guess / actual, actual / self.guess) if actual > 0 else float("inf")
            progress.record(f"predict.{self.key}", factor=factor)
            print(f"You predicted {self.guess:.3g} {self.unit}; it was {answer}: a factor of {factor:.2g} apart.")


def predict(key, question, choices=None, unit=None, low=1e-3, high=1e3):
    """Ask `question` before a run and return the `Prediction`, whose `reveal(actual)` the run's cell calls.

    Either `choices` (2 to 5 strings) or `unit` (a number on a log scale from `low` to `high`, both above 0).
    """
    if (choices is None) == (unit is None):
        raise ValueError("predict takes either choices (strings) or unit (for a number), not both and not neither")
    prediction = Prediction(key, question, tuple(choices) if choices else None, unit)
    if choices:
        listed = "\n".join(f"  ( ) {choice}" for choice in choices)
        text = f"Predict: {question}\n{listed}"
    else:
        text = f"Predict: {question}  ___ {unit}"
    if inside_notebook():
        display_widget(_prediction_widget(prediction, low, high), text)
    else:
        print(text)
    return prediction


def _prediction_widget(prediction, low, high):
    import math

    import ipywidgets
    note = ipywidgets.HTML("")
    if prediction.choices:
        control = ipywidgets.RadioButtons(options=prediction.choices, index=None, layout={"width": "auto"})
    else:
        steps = round(10 * math.log10(high / low))
        values = [low * (high / low) ** (k / steps) for k in range(steps + 1)]
        options = [("not chosen yet", ""), *((f"{value:.2g} {prediction.unit}", value) for value in values)]
        control = ipywidgets.SelectionSlider(options=options, description="your guess", layout={"width": "36em"})

    def keep(change):
        if change["new"] == "":
            return
        prediction.choose(change["new"])
        note.value = '<span role="status">Kept. Now run the next cell.</span>'

    control.observe(keep, names="value")
    return ipywidgets.VBox([ipywidgets.HTML(f"<b>Predict:</b> {html.escape(prediction.question)}"), control, note])


def quiz(questions):
    """Show `questions`, with feedback for each answer. A question answered wrongly comes back in later lessons."""
    text = "\n\n".join(f"{n}. {q.text}\n" + "\n".join(f"  ( ) {choice}" for choice in q.choices)
                       for n, q in enumerate(questions, 1))
    if not inside_notebook():
        print(text)
        return
    import ipywidgets
    rows = [_question_widget(q, f"{n}.") for n, q in enumerate(questions, 1)]
    again = [_question_widget(q, "Once more:") for q in _to_repeat({q.key for q in questions})]
    display_widget(ipywidgets.VBox(again + rows), text)


def _question_widget(question, number):
    import ipywidgets
    title = ipywidgets.HTML(f"<b>{number}</b> {html.escape(question.text)}")
    control = ipywidgets.RadioButtons(options=question.choices, index=None, layout={"width": "auto"})
    note = ipywidgets.HTML("")

    def answer(change):
        if control.index is None:
            return
        right = control.index == question.right
        progress.record(f"quiz.{question.key}", right=right, question=vars(question))
        sign = "✓ Right." if right else "✗ Not quite."
        note.value = f'<div role="status"><b>{sign}</b> {html.escape(question.feedback[control.index])}</div>'

    control.observe(answer, names="index")
    return ipywidgets.VBox([title, control, note])


def _to_repeat(present, most=2):
    entries = [e for k, e in progress.load().items() if k.startswith("quiz.") and e.get("right") is False]
    found = []
    for entry in entries:
        try:
            stored = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["question"].items()}
            question = Question(**stored)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # written by another version of the course
        if question.key not in present:
            found.append(question)
    return found[:most]


@dataclass(frozen=True)
class Control:
    """One control of an explorer: `options` is a tuple of (label, value), `start` the index shown first."""

    label: str
    options: tuple
    start: int
    ordered: bool


def slider(label, values, start, text=str):
    """A slider over the ordered `values`, first at `start`; `text(value)` writes each one."""
    return _control(label, values, start, text, ordered=True)


def choice(label, values, start, text=str):
    """A drop-down list of `values`, first at `start`; `text(value)` writes each one."""
    return _control(label, values, start, text, ordered=False)


def _control(label, values, start, text, ordered):
    values = tuple(values)
    if start not in values:
        raise ValueError(f"start is {start!r}; it takes one of {list(values)}")
    return Control(label, tuple((text(v), v) for v in values), values.index(start), ordered)


def explore(draw, **controls):
    """A figure that follows its controls: `draw(**values)` returns (Figure, sentence).

    Each keyword is a `slider` or a `choice` and becomes an argument of `draw`. Without widgets the first figure and
    its sentence are shown, so the lesson makes sense untouched.
    """
    from helpers.plots import png, show

    @functools.lru_cache(maxsize=64)
    def render(*values):
        figure, sentence = draw(**dict(zip(controls, values, strict=True)))
        return base64.b64encode(png(figure, dpi=80)).decode("ascii"), sentence

    first = [control.options[control.start][1] for control in controls.values()]
    if not inside_notebook():
        show(*draw(**dict(zip(controls, first, strict=True))))
        return
    picture, sentence = render(*first)
    display_widget(_explorer_widget(render, controls), "explorer", **{"image/png": picture})
    print(f"At the start: {sentence}")


def _explorer_widget(render, controls):
    import ipywidgets
    place = ipywidgets.HTML()
    parts = []
    for control in controls.values():
        kind = ipywidgets.SelectionSlider if control.ordered else ipywidgets.Dropdown
        parts.append(kind(options=control.options, index=control.start, description=control.label,
                          style={"description_width": "11em"}, layout={"width": "36em"}))

    def update(_=None):
        try:
            picture, sentence = render(*(part.value for part in parts))
        except Exception as error:  # noqa: BLE001 - shown to the learner in place of the picture
            place.value = f'<p role="status">This setting has no picture: {html.escape(str(error))}</p>'
            return
        words = html.escape(sentence, quote=True)
        place.value = (f'<img alt="{words}" src="data:image/png;base64,{picture}" style="max-width:100%">'
                       f'<p role="status" aria-live="polite">{words}</p>')

    for part in parts:
        part.observe(update, names="value")
    update()
    return ipywidgets.VBox([*parts, place])


def lesson_map(exercises):
    """Show all lessons with minutes and progress; `exercises` is a dict of lesson number to its exercises' keys."""
    from helpers.course import LESSONS
    done = {key for key, entry in progress.load().items() if entry.get("status") == "correct"}
    rows = []
    for lesson in LESSONS:
        keys = exercises.get(lesson.number, ())
        solved = sum(key in done for key in keys)
        left = round(lesson.minutes * (1 - solved / len(keys))) if keys else lesson.minutes
        rows.append((lesson, solved, len(keys), left))
    text = "\n".join(f"{lesson.number}  {lesson.title:<34} {solved:>2} of {total:>2} exercises, {left:>2} minutes left"
                     for lesson, solved, total, left in rows)
    body = "".join(f'<tr><td>{r.number}</td><td style="text-align:left">'
                   f'<a href="{r.file}">{html.escape(r.title)}</a></td>'
                   f'<td>{s} of {t}</td><td>{m}</td></tr>' for r, s, t, m in rows)
    head = "<tr><th>Lesson</th><th>Title</th><th>Exercises solved</th><th>Minutes left</th></tr>"
    if not inside_notebook():
        print(text)
        return
    from IPython.display import display
    display({"text/plain": text, "text/html": f"<table>{head}{body}</table>"}, raw=True)
