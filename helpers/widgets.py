"""Predictions, quizzes, explorers and the lesson map.

Each works with ipywidgets 7.7 and 8, and leaves ordinary outputs for places that show no widgets (`helpers.show`), so
a lesson reads the same on paper. A widget never shows a traceback.
"""

import base64
import functools
import html
import importlib
import math
from dataclasses import dataclass

from helpers import show
from helpers.checks import progress
from helpers.plots import number, png
from helpers.plots import show as show_figure

# --- Predictions


class Prediction:
    """A question asked before a run; `reveal` compares the stored answer with what the run showed.

    An answer of an earlier day counts: `guess` begins as the stored one. `span` holds the ends of the scale of numbers.
    """

    def __init__(self, key, question, choices, unit, span=(1e-3, 1e3)):
        self.key = key
        self.question = question
        self.choices = choices
        self.unit = unit
        self.span = span
        self._waiting = None  # (output, actual): a reveal that came before the guess
        stored = progress.load().get(f"predict.{key}", {}).get("guess")
        self.guess = stored if self._fits(stored) else None

    def _fits(self, guess):
        if self.choices:
            return guess in self.choices
        return isinstance(guess, (int, float)) and guess > 0

    def choose(self, guess):
        """Store `guess`: one of the choices, or a number above 0 in the prediction's unit."""
        if not self._fits(guess):
            takes = f"one of {list(self.choices)}" if self.choices else "a number above 0"
            raise ValueError(f"guess is {guess!r}; it takes {takes}")
        self.guess = guess
        progress.record(f"predict.{self.key}", guess=guess)
        if self._waiting:
            output, actual = self._waiting
            page, text = _verdict_page(self._verdict(actual))
            output.update({"text/html": page, "text/plain": text}, raw=True)

    def reveal(self, actual):
        """Show how the prediction compares with `actual`: a choice, or a number in the prediction's unit.

        Without a guess it asks for one, with the answer folded below; the guess, once made, opens it.
        """
        if self.guess is not None:
            show.page(*_verdict_page(self._verdict(actual)))
            return
        answer = f"Answer: {self._say(actual)}."
        ask = "Make your guess above first: it takes a second, and you'll remember more."
        folded = f"<details><summary>Show anyway</summary>{html.escape(answer)}</details>"
        output = show.page(f"<p>{html.escape(ask)}</p>{folded}", answer)
        if output:
            self._waiting = output, actual

    def _say(self, value):
        return str(value) if self.choices else f"{number(value)} {self.unit}"

    def _verdict(self, actual):
        if not self.choices:
            return self._distance(actual)
        right = self.guess == actual
        progress.record(f"predict.{self.key}", right=right)
        return f"You predicted: {self.guess}. " + (
            "That is right." if right else f"The answer: {actual}."
        )

    def _distance(self, actual):
        """How far the guess is from the number `actual`, in words and on a scale."""
        told = f"You predicted {self._say(self.guess)}; it was {self._say(actual)}"
        if actual <= 0:
            progress.record(f"predict.{self.key}", factor=float("inf"))
            return f"{told}."
        factor = max(self.guess / actual, actual / self.guess)
        progress.record(f"predict.{self.key}", factor=factor)
        scale = _scale(self.guess, actual, *self.span)
        if factor < 1.05:
            return f"{told}: that is right.\n{scale}"
        way = "too high" if self.guess > actual else "too low"
        return f"{told}: a factor of {factor:.2g} apart, {way}.\n{scale}"


def _verdict_page(text):
    """(HTML, text) of a verdict: its sentence, and the scale below it where there is one."""
    sentence, _, scale = text.partition("\n")
    page = f"<p>{html.escape(sentence)}</p>"
    if scale:
        page += f"<pre>{html.escape(scale)}</pre>"
    return page, text


def _scale(guess, actual, low, high, width=41):
    """A line of text from `low` to `high` on a log scale: "?" where the guess lies, "!" where the answer does."""
    low = min(low, guess, actual)
    high = max(high, guess, actual)
    line = ["·"] * width
    for sign, value in (("?", guess), ("!", actual)):
        line[round((width - 1) * math.log(value / low) / math.log(high / low))] = sign
    return f"{number(low)} {''.join(line)} {number(high)}  ? guess, ! answer"


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
    if show.inside_notebook():
        box = _prediction_widget(prediction)
        still = show.widget(box, *_asked(prediction))
        box.children[1].observe(lambda _: still.update(*_asked(prediction)), names="value")
    else:
        print(_asked(prediction)[1])
    return prediction


def _asked(prediction):
    """(HTML, text) of a prediction where it cannot be clicked: the question, the choices, how to choose."""
    low, high = prediction.span
    choices = prediction.choices or [f"from {number(low)} to {number(high)} {prediction.unit}"]
    note = "Run this cell to choose."
    if prediction.guess is not None:
        note = f"You chose: {prediction._say(prediction.guess)}. Run the notebook up to here to choose again."
    return _listed("Predict:", prediction.question, choices, note)


def _listed(label, question, choices, note):
    """(HTML, text) of a question with its choices and a note."""
    lines = [f"{label} {question}", *(f"  - {choice}" for choice in choices), note]
    items = "".join(f"<li>{html.escape(choice)}</li>" for choice in choices)
    page = (
        f"<p><b>{html.escape(label)}</b> {html.escape(question)}</p><ul>{items}</ul>"
        f"<p><i>{html.escape(note)}</i></p>"
    )
    return page, "\n".join(lines)


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
    title = ipywidgets.HTML(f"{show.STYLE}<b>Predict:</b> {html.escape(prediction.question)}")
    box = ipywidgets.VBox([title, control, note])
    box.add_class(show.GOES_ON)
    return box


def _kept(prediction):
    if prediction.guess is None:
        return ""
    guess = prediction._say(prediction.guess)
    return f'<span role="status">Kept: {html.escape(guess)}. Now run the next cell.</span>'


def _options(prediction):
    """The options of a slider on a log scale, ten to a power of ten after "not chosen yet"; the index to show first."""
    low, high = prediction.span
    steps = round(10 * math.log10(high / low))
    values = [float(f"{low * (high / low) ** (k / steps):.2g}") for k in range(steps + 1)]
    options = [("not chosen yet", "")]
    options += [(f"{number(value)} {prediction.unit}", value) for value in values]
    if prediction.guess is None:
        return options, 0
    nearest = min(values, key=lambda value: abs(math.log(value / prediction.guess)))
    return options, 1 + values.index(nearest)


# --- Quizzes


def quiz(questions):
    """Show `questions`, with feedback for each answer. A question answered wrongly comes back in later lessons."""
    given = {}
    if not show.inside_notebook():
        print(_quiz_still(questions, given)[1])
        return
    import ipywidgets

    def answered(question, index):
        given[question.key] = index
        still.update(*_quiz_still(questions, given))

    rows = [_question_widget(q, "Once more:", answered) for q in _to_repeat(questions)]
    rows += [_question_widget(q, f"{n}.", answered) for n, q in enumerate(questions, 1)]
    still = show.widget(ipywidgets.VBox(rows), *_quiz_still(questions, given))


def _quiz_still(questions, given):
    """(HTML, text) of a quiz where it cannot be clicked; `given` holds the index of each answer by its key."""
    parts = []
    for place, question in enumerate(questions, 1):
        index = given.get(question.key)
        note = "Run this cell to answer."
        if index is not None:
            sign = _sign(question, index)
            note = f"You answered: {question.choices[index]}. {sign} {question.feedback[index]}"
        parts.append(_listed(f"{place}.", question.text, question.choices, note))
    return "".join(page for page, _ in parts), "\n\n".join(text for _, text in parts)


def _sign(question, index):
    return "✓ Right." if index == question.right else "✗ Not quite."


def _question_widget(question, number, answered=lambda question, index: None):
    import ipywidgets

    title = ipywidgets.HTML(f"{show.STYLE}<b>{number}</b> {html.escape(question.text)}")
    control = ipywidgets.RadioButtons(
        options=question.choices, index=None, layout={"width": "auto"}
    )
    note = ipywidgets.HTML("")

    def answer(change):
        index = control.index
        if index is None:
            return
        progress.record(
            f"quiz.{question.key}", right=index == question.right, answer=question.choices[index]
        )
        feedback = html.escape(question.feedback[index])
        note.value = f'<div role="status"><b>{_sign(question, index)}</b> {feedback}</div>'
        answered(question, index)

    control.observe(answer, names="index")
    return ipywidgets.VBox([title, control, note])


def _to_repeat(questions, most=2):
    """Up to `most` questions that were answered wrongly and are not among `questions`."""
    present = {question.key for question in questions}
    wrong = [
        key.removeprefix("quiz.")
        for key, entry in progress.load().items()
        if key.startswith("quiz.") and entry.get("right") is False
    ]
    again = [_question(key) for key in wrong if key not in present]
    return [question for question in again if question][:most]


def _question(key):
    """The question `key` ("02.alone") of its lesson; None where this version of the course does not have it."""
    try:
        lesson = importlib.import_module(f"exercises.lesson{key[:2]}")
    except ModuleNotFoundError:
        return None
    return next((question for question in getattr(lesson, "QUIZ", ()) if question.key == key), None)


# --- Explorers


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
        return png(figure, dpi=80), sentence

    first = [control.options[control.start][1] for control in controls.values()]
    if not show.inside_notebook():
        show_figure(*draw(**dict(zip(controls, first, strict=True))))
        return
    picture, sentence = render(*first)

    def changed(picture, sentence):
        still.update(*_explorer_still(sentence, controls), picture, sentence)

    box = _explorer_widget(render, controls, changed)
    still = show.widget(box, *_explorer_still(sentence, controls), picture, sentence)


def _explorer_still(sentence, controls):
    """(HTML, text) under the picture of an explorer that cannot be moved."""
    names = ", ".join(control.label for control in controls.values())
    note = f"Run the notebook up to here to change: {names}."
    page = f"<p>{html.escape(sentence)}</p><p><i>{html.escape(note)}</i></p>"
    return page, f"{sentence}\n{note}"


def _explorer_widget(render, controls, changed=lambda picture, sentence: None):
    """Controls beside their figure where there is room, above it elsewhere."""
    import ipywidgets

    place = ipywidgets.HTML()
    parts = [_control_widget(control) for control in controls.values()]

    def draw():
        try:
            picture, sentence = render(*(part.value for part in parts))
        except Exception as error:  # noqa: BLE001 - shown to the learner in place of the picture
            place.value = _status(f"This setting has no picture: {error}")
            return None
        place.value = _image(picture, sentence) + _status(sentence)
        return picture, sentence

    def follow(_):
        drawn = draw()
        if drawn:
            changed(*drawn)

    for part in parts:
        part.observe(follow, names="value")
    draw()
    left = ipywidgets.VBox(parts, layout={"flex": "1 1 20em", "max_width": "32em"})
    right = ipywidgets.VBox([place], layout={"flex": "100 1 28em"})
    return ipywidgets.HBox([left, right], layout={"flex_flow": "row wrap"})


def _image(png, words):
    data = base64.b64encode(png).decode("ascii")
    alt = html.escape(words, quote=True)
    return f'<img alt="{alt}" src="data:image/png;base64,{data}" style="max-width:100%">'


def _status(sentence):
    return f'{show.STYLE}<p role="status" aria-live="polite" style="margin:0">{html.escape(sentence)}</p>'


def _control_widget(control):
    """A slider or radio buttons (no Dropdown: JupyterLab takes the arrow keys away from it)."""
    import ipywidgets

    kind = ipywidgets.SelectionSlider if control.ordered else ipywidgets.RadioButtons
    part = kind(
        options=control.options,
        index=control.start,
        description=control.label,
        style={"description_width": "auto"},
        layout={"width": "auto"},
    )
    part.add_class(show.ROW)
    return part


# --- The map


def lesson_map(exercises):
    """Show all lessons with minutes and progress; `exercises` is a dict of lesson number to its exercises' keys."""
    from helpers.course import LESSONS

    done = {key for key, entry in progress.load().items() if entry.get("status") == "correct"}
    lines = []
    rows = []
    for lesson in LESSONS:
        keys = exercises.get(lesson.number, ())
        solved = sum(key in done for key in keys)
        left = round(lesson.minutes * (1 - solved / len(keys))) if keys else lesson.minutes
        title = html.escape(lesson.title)
        lines.append(
            f"{lesson.number}  {lesson.title:<34} {solved:>2} of {len(keys):>2} exercises, "
            f"{left:>2} minutes left"
        )
        rows.append(
            f'<tr><td>{lesson.number}</td><td style="text-align:left">'
            f'<a href="{lesson.file}">{title}</a></td>'
            f"<td>{solved} of {len(keys)}</td><td>{left}</td></tr>"
        )
    head = (
        '<tr><th>Lesson</th><th style="text-align:left">Title</th>'
        "<th>Exercises solved</th><th>Minutes left</th></tr>"
    )
    show.page(f"<table>{head}{''.join(rows)}</table>", "\n".join(lines))
