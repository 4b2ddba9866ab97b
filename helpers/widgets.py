"""What lessons show and ask: predictions (`helpers.predictions`), quizzes, explorers and the lesson map.

Each works with ipywidgets 7.7 and 8, and leaves ordinary outputs for places that show no widgets (`helpers.show`), so
a lesson reads the same on paper. A widget never shows a traceback.
"""

import base64
import functools
import html
from dataclasses import dataclass

from helpers import show
from helpers.checks import core, progress
from helpers.figures import png
from helpers.figures import show as show_figure
from helpers.predictions import predict

__all__ = ["choice", "explore", "lesson_map", "predict", "quiz", "slider"]

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
        parts.append(show.listed(f"{place}.", question.text, question.choices, note))
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
    again = [core.find_question(key) for key in wrong if key not in present]
    return [question for question in again if question][:most]


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
        return png(figure), sentence

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
    total = 0
    for lesson in LESSONS:
        keys = exercises.get(lesson.number, ())
        solved = sum(key in done for key in keys)
        left = round(lesson.minutes * (1 - solved / len(keys))) if keys else lesson.minutes
        total += left
        lines.append(
            f"{lesson.number}  {lesson.title:<34} {solved:>2} of {len(keys):>2} exercises, "
            f"{left:>2} minutes left"
        )
        rows.append(
            f'<tr><td>{lesson.number}</td><td style="text-align:left">'
            f'<a href="{lesson.file}">{html.escape(lesson.title)}</a></td>'
            f"<td>{solved} of {len(keys)}</td><td>{left}</td></tr>"
        )
    head = (
        '<tr><th>Lesson</th><th style="text-align:left">Title</th>'
        "<th>Exercises solved</th><th>Minutes left</th></tr>"
    )
    told = f"About {total / 60:.1f} hours left."
    page = f"<table>{head}{''.join(rows)}</table><p>{told}</p>"
    show.page(page, "\n".join([*lines, told]))
