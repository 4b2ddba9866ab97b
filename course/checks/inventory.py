"""What do I know? Twelve ideas, asked in two parallel forms: "a" before the course (lesson 00), "b" after it (lesson 14).

The items stand in before_and_after.json: question, right answer and its place, wrong answers with the public thread in which somebody
thought so, and the sentence of a lesson that answers both forms. Answers are kept as progress under know.a.… and know.b.…;
nothing says whether they are right before `gain`.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from course import show
from course.checks import panel, progress
from course.pages import LESSONS

FILE = Path(__file__).with_name("before_and_after.json")
FORMS = ("a", "b")


@dataclass(frozen=True)
class Item:
    """One question: `key` such as "know.a.move", `choices` in their order, `right` one of them."""

    key: str
    title: str
    lesson: str
    question: str
    choices: tuple
    right: str


@functools.cache
def ideas() -> tuple:
    """All ideas as dicts, as they stand in the file."""
    return tuple(json.loads(FILE.read_text(encoding="utf-8")))


def items(form: str) -> list:
    """The twelve items of a form, "a" or "b"; ValueError for any other."""
    if form not in FORMS:
        raise ValueError(f"form is {form!r}; it takes 'a' or 'b'")
    return [_item(idea, form) for idea in ideas()]


def _item(idea, form):
    entry = idea[form]
    choices = [wrong["text"] for wrong in entry["wrong"]]
    choices.insert(entry["place"], entry["right"])
    key = f"know.{form}.{idea['idea']}"
    parts = idea["title"], idea["lesson"], entry["question"], tuple(choices), entry["right"]
    return Item(key, *parts)


def ask(form: str) -> None:
    """Show the questions of a form, after a click. What is chosen last counts; nothing says which answer is right."""
    asked = items(form)
    if not show.inside_notebook():
        print(_still(asked)[1])
        return
    import ipywidgets

    begin = ipywidgets.Button(
        description=f"Ask me {len(asked)} questions", layout={"width": "auto"}
    )
    box = ipywidgets.VBox([begin])

    def opened(_):
        box.children = [_widget(number, item) for number, item in enumerate(asked, 1)]

    begin.on_click(opened)
    show.widget(box, *_still(asked))


def _still(asked):
    """(HTML, text) of the questions where they cannot be clicked."""
    rows = [
        show.listed(f"{n}.", each.question, each.choices, "") for n, each in enumerate(asked, 1)
    ]
    return "".join(page for page, _ in rows), "\n\n".join(text for _, text in rows)


def _widget(number, item):
    import ipywidgets

    stored = progress.load().get(item.key, {}).get("answer")
    index = item.choices.index(stored) if stored in item.choices else None
    options = [choice.replace("`", "") for choice in item.choices]
    control = ipywidgets.RadioButtons(options=options, index=index, layout={"width": "auto"})

    def answer(_):
        if control.index is not None:
            record(item, item.choices[control.index])
            box.children[2].value = panel.status("Noted.")

    control.observe(answer, names="index")
    box = panel.question(show.code_in(f"{number}. {item.question}"), control)
    return box


def record(item: Item, answer: str) -> None:
    """Keep an answer; ValueError for one that is none of the choices."""
    if answer not in item.choices:
        raise ValueError(f"answer is {answer!r}; it takes one of {list(item.choices)}")
    progress.record(item.key, answer=answer, right=answer == item.right)


SIGNS = {progress.DONE: "✓", progress.NOT_YET: "✗"}


def gain() -> None:
    """Show which ideas were right before and after, each with the lesson to read about it."""
    states = progress.states()
    count = {
        form: sum(states.get(item.key) == progress.DONE for item in items(form)) for form in FORMS
    }
    told = f"Now: {count['b']} of {len(ideas())}."
    if any(item.key in states for item in items("a")):
        told = f"Before the course: {count['a']} of {len(ideas())}. {told}"
    lines, rows = [told], [told, "", "| idea | before | now | lesson |", "|---|---|---|---|"]
    files = {lesson.number: lesson.file for lesson in LESSONS}
    for before, now in zip(items("a"), items("b"), strict=True):
        if states.get(now.key) == progress.NOT_YET:
            lines.append(f"- {now.title}: lesson {now.lesson}")
        signs = (SIGNS.get(states.get(item.key, ""), "–") for item in (before, now))
        link = f"[{now.lesson}]({files[now.lesson]})"
        rows.append(f"| {_code(now.title)} | {' | '.join(signs)} | {link} |")
    show.markdown("\n".join(rows), "\n".join(lines))


def _code(title):
    return title.replace(".to", "`.to`")
