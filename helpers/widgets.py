"""Predictions, quizzes, explorers and the lesson map.

Each is displayed as a widget together with plain text (and a picture) for places that show no widgets, so a lesson
reads the same on paper. Works with ipywidgets 7.7 and 8. A widget never shows a traceback.
"""

import base64
import functools
import html
import importlib
import math
from dataclasses import dataclass

from helpers.checks import progress
from helpers.checks.panel import ROW, STYLE, display_widget, inside_notebook
from helpers.plots import number, png, show


class Prediction:
    """A question asked before a run; `reveal` compares the stored answer with what the run showed.

    An answer of an earlier day counts: `guess` begins as the stored one. `span` holds the ends of the scale of numbers.
    """

    def __init__(self, key, question, choices, unit, span=(1e-3, 1e3)):
        self.key, self.question, self.choices, self.unit, self.span = (
            key,
            question,
            choices,
            unit,
            span,
        )
        stored = progress.load().get(f"predict.{key}", {}).get("guess")
        fits = stored in choices if choices else isinstance(stored, (int, float)) and stored > 0
        self.guess = stored if fits else None

    def choose(self, guess):
        """Store `guess`: one of the choices, or a number above 0 in the prediction's unit."""
        if self.choices and guess not in self.choices:
            raise ValueError(f"guess is {guess!r}; it takes one of {list(self.choices)}")
        if not self.choices and not (isinstance(guess, (int, float)) and guess > 0):
            raise ValueError(f"guess is {guess!r}; it takes a number above 0")
        self.guess = guess
        progress.record(f"predict.{self.key}", guess=guess)

    def reveal(self, actual):
        """Print how the prediction compares with `actual`: a choice, or a number in the prediction's unit."""
        if self.choices and actual not in self.choices:
            raise ValueError(f"actual is {actual!r}; it takes one of {list(self.choices)}")
        answer = actual if self.choices else f"{number(actual)} {self.unit}"
        if self.guess is None:
            print(f"Answer: {answer}.")
        elif self.choices:
            right = self.guess == actual
            progress.record(f"predict.{self.key}", right=right)
            print(
                f"You predicted: {self.guess}. {'That is right.' if right else f'The answer: {actual}.'}"
            )
        else:
            self._measure(actual, answer)

    def _measure(self, actual, answer):
        factor = max(self.guess / actual, actual / self.guess) if actual > 0 else float("inf")
        progress.record(f"predict.{self.key}", factor=factor)
        way = "" if factor < 1.05 else ", too high" if self.guess > actual else ", too low"
        print(
            f"You predicted {number(self.guess)} {self.unit}; it was {answer}: a factor of {factor:.2g} apart{way}."
        )
        if actual > 0:
            print(_scale(self.guess, actual, *self.span))


def _scale(guess, actual, low, high, width=41):
    """A line of text from `low` to `high` on a log scale: "?" where the guess lies, "!" where the answer does."""
    low, high = min(low, guess, actual), max(high, guess, actual)
    line = ["·"] * width
    for sign, value in (("?", guess), ("!", actual)):
        line[round((width - 1) * math.log(value / low) / math.log(high / low))] = sign
    return f"{number(low)} {''.join(line)} {number(high)}   (? your guess, ! the answer, each step a factor)"


def predict(key, question, choices=None, unit=None, low=1e-3, high=1e3):
    """Ask `question` before a run and return the `Prediction`, whose `reveal(actual)` the run's cell calls.

    Either `choices` (2 to 5 strings) or `unit` (a number on a log scale from `low` to `high`, both above 0). A stored
    answer of an earlier day is shown and counts.
    """
    if (choices is None) == (unit is None):
        raise ValueError(
            "predict takes either choices (strings) or unit (for a number), not both and not neither"
        )
    if not 0 < low < high:
        raise ValueError(f"low and high are {low!r} and {high!r}; they take 0 < low < high")
    prediction = Prediction(key, question, tuple(choices) if choices else None, unit, (low, high))
    if choices:
        listed = "\n".join(f"  ( ) {choice}" for choice in choices)
        text = f"Predict: {question}\n{listed}"
    else:
        text = f"Predict: {question}  ___ {unit}"
    if inside_notebook():
        display_widget(_prediction_widget(prediction), text)
    else:
        print(text)
    return prediction


def _prediction_widget(prediction):
    import ipywidgets

    note = ipywidgets.HTML(_kept(prediction))
    if prediction.choices:
        index = None if prediction.guess is None else prediction.choices.index(prediction.guess)
        control = ipywidgets.RadioButtons(
            options=prediction.choices, index=index, layout={"width": "auto"}
        )
    else:
        options, index = _options(prediction)
        control = ipywidgets.SelectionSlider(
            options=options, index=index, description="your guess", layout={"width": "36em"}
        )

    def keep(change):
        if change["new"] == "":
            return
        prediction.choose(change["new"])
        note.value = _kept(prediction)

    control.observe(keep, names="value")
    title = ipywidgets.HTML(f"{STYLE}<b>Predict:</b> {html.escape(prediction.question)}")
    return ipywidgets.VBox([title, control, note])


def _kept(prediction):
    if prediction.guess is None:
        return ""
    guess = prediction.guess if prediction.choices else f"{prediction.guess:.2g} {prediction.unit}"
    return f'<span role="status">Kept: {html.escape(guess)}. Now run the next cell.</span>'


def _options(prediction):
    """The options of a slider on a log scale, ten to a power of ten after "not chosen yet"; the index to show first."""
    low, high = prediction.span
    steps = round(10 * math.log10(high / low))
    values = [low * (high / low) ** (k / steps) for k in range(steps + 1)]
    first = 0
    if prediction.guess is not None:
        first = 1 + min(
            range(len(values)), key=lambda k: abs(math.log(values[k] / prediction.guess))
        )
    return [
        ("not chosen yet", ""),
        *((f"{value:.2g} {prediction.unit}", value) for value in values),
    ], first


def quiz(questions):
    """Show `questions`, with feedback for each answer. A question answered wrongly comes back in later lessons."""
    text = "\n\n".join(
        f"{n}. {q.text}\n" + "\n".join(f"  ( ) {choice}" for choice in q.choices)
        for n, q in enumerate(questions, 1)
    )
    if not inside_notebook():
        print(text)
        return
    import ipywidgets

    rows = [_question_widget(q, f"{n}.") for n, q in enumerate(questions, 1)]
    again = [_question_widget(q, "Once more:") for q in _to_repeat({q.key for q in questions})]
    display_widget(ipywidgets.VBox(again + rows), text)


def _question_widget(question, number):
    import ipywidgets

    title = ipywidgets.HTML(f"{STYLE}<b>{number}</b> {html.escape(question.text)}")
    control = ipywidgets.RadioButtons(
        options=question.choices, index=None, layout={"width": "auto"}
    )
    note = ipywidgets.HTML("")

    def answer(change):
        if control.index is None:
            return
        right = control.index == question.right
        progress.record(f"quiz.{question.key}", right=right, answer=question.choices[control.index])
        sign = "✓ Right." if right else "✗ Not quite."
        note.value = f'<div role="status"><b>{sign}</b> {html.escape(question.feedback[control.index])}</div>'

    control.observe(answer, names="index")
    return ipywidgets.VBox([title, control, note])


def _to_repeat(present, most=2):
    """Up to `most` questions that were answered wrongly and are not among the keys `present`."""
    wrong = [
        key.removeprefix("quiz.")
        for key, entry in progress.load().items()
        if key.startswith("quiz.") and entry.get("right") is False
    ]
    found = (_question(key) for key in wrong if key not in present)
    return [question for question in found if question][:most]


def _question(key):
    """The question `key` ("02.alone") of its lesson; None where this version of the course does not have it."""
    try:
        lesson = importlib.import_module(f"exercises.lesson{key[:2]}")
    except ModuleNotFoundError:
        return None
    return next((question for question in getattr(lesson, "QUIZ", ()) if question.key == key), None)


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
    """Radio buttons for `values`, first at `start`; `text(value)` writes each one."""
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

    @functools.lru_cache(maxsize=64)
    def render(*values):
        figure, sentence = draw(**dict(zip(controls, values, strict=True)))
        return base64.b64encode(png(figure, dpi=80)).decode("ascii"), sentence

    first = [control.options[control.start][1] for control in controls.values()]
    if not inside_notebook():
        show(*draw(**dict(zip(controls, first, strict=True))))
        return
    picture, sentence = render(*first)
    display_widget(
        _explorer_widget(render, controls), "explorer", sentence, **{"image/png": picture}
    )
    print(f"At the start: {sentence}")


def _explorer_widget(render, controls):
    import ipywidgets

    place = ipywidgets.HTML()
    parts = []
    for control in controls.values():  # no Dropdown: JupyterLab takes the arrow keys away from it
        kind = ipywidgets.SelectionSlider if control.ordered else ipywidgets.RadioButtons
        parts.append(
            kind(
                options=control.options,
                index=control.start,
                description=control.label,
                style={"description_width": "11em"},
                layout={"width": "36em" if control.ordered else "auto"},
            )
        )
        parts[-1].add_class(ROW)

    def update(_=None):
        try:
            picture, sentence = render(*(part.value for part in parts))
        except Exception as error:  # noqa: BLE001 - shown to the learner in place of the picture
            place.value = (
                f'<p role="status">This setting has no picture: {html.escape(str(error))}</p>'
            )
            return
        words = html.escape(sentence, quote=True)
        place.value = (
            f'{STYLE}<img alt="{words}" src="data:image/png;base64,{picture}" style="max-width:100%">'
            f'<p role="status" aria-live="polite">{words}</p>'
        )

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
    text = "\n".join(
        f"{lesson.number}  {lesson.title:<34} {solved:>2} of {total:>2} exercises, {left:>2} minutes left"
        for lesson, solved, total, left in rows
    )
    body = "".join(
        f'<tr><td>{r.number}</td><td style="text-align:left">'
        f'<a href="{r.file}">{html.escape(r.title)}</a></td>'
        f"<td>{s} of {t}</td><td>{m}</td></tr>"
        for r, s, t, m in rows
    )
    head = "<tr><th>Lesson</th><th>Title</th><th>Exercises solved</th><th>Minutes left</th></tr>"
    if not inside_notebook():
        print(text)
        return
    from IPython.display import display

    display({"text/plain": text, "text/html": f"<table>{head}{body}</table>"}, raw=True)
