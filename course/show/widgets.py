"""What lessons show and ask: predictions (`course.checks.predictions`), quizzes, explorers and the lesson map.

Each works with ipywidgets 7.7 and 8, and leaves ordinary outputs for places that show no widgets (`course.show`), so
a lesson reads the same on paper. A widget never shows a traceback.
"""

import functools
import html
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course import show
from course.checks import core, panel, progress
from course.checks.predictions import predict
from course.show import figures

__all__ = ["choice", "explore", "lesson_map", "predict", "quiz", "slider"]

# --- Quizzes


def quiz(questions: Sequence[core.Question]) -> None:
    """Show `questions`, with a verdict on each answer. A question answered wrongly comes back in later lessons."""
    given = _given_before(questions)
    if not show.inside_notebook():
        print(_quiz_still(questions, given)[1])
        return
    import ipywidgets

    def answered(question, *verdict_and_choice):
        given[question.key] = verdict_and_choice
        still.update(*_quiz_still(questions, given))

    rows = [_question_widget(q, "Once more:", {}, answered) for q in _to_repeat(questions)]
    rows += [_question_widget(q, f"{n}.", given, answered) for n, q in enumerate(questions, 1)]
    still = show.widget(ipywidgets.VBox(rows), *_quiz_still(questions, given))


def _quiz_still(questions, given):
    """(HTML, text) of a quiz where it cannot be clicked; `given` holds (verdict, answer) by the question's key."""
    pages, texts = [], []
    for place, question in enumerate(questions, 1):
        verdict, chosen = given.get(question.key, (None, None))
        page, text = show.listed(f"{place}.", question.text, question.choices, "", chosen)
        pages.append(page + (panel.as_html(verdict) if verdict else _folded_answer(question)))
        texts.append(text + (f"\n{panel.as_text(verdict)}" if verdict else ""))
    return "".join(pages), "\n\n".join(texts)


def _folded_answer(question):
    """HTML of the right answer and why it is right, folded."""
    answer = f"{question.choices[question.right]}: {question.feedback[question.right]}"
    return f"<details><summary>Show the answer</summary>{show.code_in(answer)}</details>"


def _given_before(questions):
    """{key: (verdict, answer)} of those of `questions` that were answered on an earlier day."""
    everything, given = progress.load(), {}
    for question in questions:
        stored = everything.get(f"quiz.{question.key}", {})
        answer = stored.get("answer")
        if answer in question.choices:
            verdict = _verdict(question, answer, stored.get("first", answer))
            given[question.key] = verdict, answer
    return given


def _judged(question, index):
    """The verdict on the answer at `index`, which is recorded; the first answer is kept beside a later one."""
    chosen, right = question.choices[index], index == question.right
    first = progress.load().get(f"quiz.{question.key}", {}).get("first", chosen)
    progress.record(f"quiz.{question.key}", right=right, answer=chosen, first=first)
    return _verdict(question, chosen, first)


def _verdict(question, chosen, first):
    index = question.choices.index(chosen)
    right = index == question.right
    title = "Not quite"
    if right:
        title = "Right!" if first == chosen else f"Right now. Your first answer was “{first}”"
    told = f"You answered “{chosen}”."
    return panel.Content("right" if right else "wrong", title, told, question.feedback[index])


def _question_widget(question, number, given, answered=lambda *told: None):
    import ipywidgets

    verdict, chosen = given.get(question.key, (None, None))
    control = ipywidgets.RadioButtons(
        options=question.choices,
        index=question.choices.index(chosen) if chosen else None,
        layout={"width": "auto"},
    )
    note = panel.as_html(verdict) if verdict else ""
    box = panel.question(f"<b>{number}</b> {show.code_in(question.text)}", control, note)

    def answer(_):
        if control.index is not None:
            verdict = _judged(question, control.index)
            box.children[2].value = panel.as_html(verdict)
            answered(question, verdict, question.choices[control.index])

    control.observe(answer, names="index")
    return box


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


def slider(
    label: str, values: Iterable, start: object, text: Callable[[Any], str] = str
) -> Control:
    """A slider over the ordered `values`, first at `start`; `text(value)` writes each one."""
    return _control(label, values, start, text, ordered=True)


def choice(
    label: str, values: Iterable, start: object, text: Callable[[Any], str] = str
) -> Control:
    """Radio buttons for `values`, first at `start`; `text(value)` writes each one."""
    return _control(label, values, start, text, ordered=False)


def _control(label, values, start, text, ordered):
    values = tuple(values)
    if start not in values:
        raise ValueError(f"start is {start!r}; it takes one of {list(values)}")
    return Control(label, tuple((text(v), v) for v in values), values.index(start), ordered)


_left: dict[tuple, list[int]] = {}  # where controls were left, for a cell that is run again


def explore(draw: Callable[..., tuple], **controls: Control) -> None:
    """A figure that follows its controls: `draw(**values)` returns (Figure, sentence).

    Each keyword is a `slider` or a `choice` and becomes an argument of `draw`. Without widgets the first figure and
    its sentence are shown, so the lesson makes sense untouched.
    """

    @functools.lru_cache(maxsize=64)
    def render(*values):
        figure, sentence = draw(**dict(zip(controls, values, strict=True)))
        return figures.page(figure, sentence), sentence

    first = [control.options[control.start][1] for control in controls.values()]
    if not show.inside_notebook():
        print(draw(**dict(zip(controls, first, strict=True)))[1])
        return
    key = (getattr(draw, "__qualname__", ""), *controls, *first)
    left = _left.get(key, [control.start for control in controls.values()])
    controls = {
        name: replace(control, start=min(start, len(control.options) - 1))
        for start, (name, control) in zip(left, controls.items(), strict=True)
    }
    first = [control.options[control.start][1] for control in controls.values()]

    def changed(picture, sentence):
        _left[key] = [part.index for part in box.children[0].children]
        still.update(*_explorer_still(picture, sentence, controls))

    box = _explorer_widget(render, controls, changed)
    picture, sentence = render(*first)
    still = show.widget(box, *_explorer_still(picture, sentence, controls))


def _explorer_still(picture, sentence, controls):
    """(HTML, text) of an explorer that cannot be moved: its picture, whose `alt` is the sentence, and what a live one moves."""
    names = " and ".join(control.label for control in controls.values())
    note = f"In a running notebook, the figure follows {names}."
    page = f"{picture}<p><i>{html.escape(note)}</i></p>"
    return page, f"{sentence}\n{note}"


def _explorer_widget(render, controls, changed=lambda picture, sentence: None):
    """Controls above their figure, whose sentence a screen reader says when it changes."""
    import ipywidgets

    place = ipywidgets.HTML()
    parts = [_control_widget(control) for control in controls.values()]

    def draw():
        try:
            picture, sentence = render(*(part.value for part in parts))
        except Exception as error:  # noqa: BLE001 - shown to the learner in place of the picture
            place.value = panel.status(f"This setting has no picture: {error}")
            return None
        said = f'<div class="course-said">{panel.status(sentence)}</div>'
        place.value = show.STYLE + picture + said
        return picture, sentence

    def follow():
        drawn = draw()
        if drawn:
            changed(*drawn)

    for part in parts:
        part.observe(lambda _: _where_cells_run(follow), names="value")
    draw()
    return ipywidgets.VBox([ipywidgets.VBox(parts), place])


def _where_cells_run(function):
    """Call `function` in the thread in which cells run, after the one that runs now.

    JupyterLab sends what a control does to a thread of its own, and practice GPUs belong to the cells' thread.
    """
    loop = getattr(show.kernel(), "io_loop", None)
    if loop is None or threading.current_thread() is threading.main_thread():
        function()
    else:
        loop.add_callback(function)


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


def lesson_map() -> None:
    """Show the blocks of pages with minutes and progress; pages to look things up in have neither."""
    from course.pages import BLOCKS, REFERENCES, blocks

    done = {key for key, entry in progress.load().items() if entry.get("status") == "correct"}
    exercises = core.all_keys()
    columns, lines, below = [], [], ""
    for name, pages in blocks().items():
        items = [_of_page(page, exercises.get(page.number, ()), done) for page in pages]
        lines += [f"{name}: {BLOCKS[name]}", *(text for _, text in items)]
        head = f"<b>{html.escape(name)}</b><br><small>{html.escape(BLOCKS[name])}</small>"
        if pages[0] in REFERENCES:
            below = f"<p>{head.replace('<br>', ' ')}: {' · '.join(item for item, _ in items)}</p>"
        else:
            rows = "".join(f"<div>{item}</div>" for item, _ in items)
            columns.append(f'<td style="text-align:left;vertical-align:top">{head}{rows}</td>')
    table = f'<table style="font-size:14px;line-height:1.7"><tr>{"".join(columns)}</tr></table>'
    folded = f"<details><summary>The map</summary>{table}{below}</details>"
    show.page(folded, "\n".join(lines))


def _of_page(page, keys, done):
    """(HTML, text) of a page in the map: its number, its title, and what is left of it, or that it is done."""
    solved = sum(key in done for key in keys)
    left = round(page.minutes * (1 - solved / len(keys))) if keys else page.minutes
    note = f"{left} min" if page.minutes else ""
    if solved:
        note = "✓" if solved == len(keys) else f"{solved} of {len(keys)} solved, {note}"
    link = f'<a href="{page.file}">{html.escape(page.title)}</a>'
    words = f"{page.number} {link} <small>{note}</small>"
    return words.replace(
        " <small></small>", ""
    ), f"  {page.number:<3} {page.title:<30} {note}".rstrip()
