"""python3 -m tools progress: your own map; or what a class has solved, from the codes that the learners send."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from helpers.checks import codes, inventory, progress
from helpers.checks.progress import DONE, ITEMS, NOT_YET
from helpers.course import LESSONS
from tools import _sheets

MOST = 5  # exercises, and questions, that are named as most often wrong
HELP = "your own map; with codes: a table of a class"
EXERCISES = [item for item in ITEMS if not item.startswith(("quiz.", "know."))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the codes, --file and --out to `parser`."""
    add = parser.add_argument
    add("codes", nargs="*", metavar="CODE", help="what progress.code() prints; none: your own map")
    add("--file", metavar="FILE", help="a text with codes in it; - for the standard input")
    add("--out", metavar="FILE.csv", help="write the table for a spreadsheet, too")
    add("--force", action="store_true", help="replace the table that is there")


def run(args: argparse.Namespace) -> int:
    """Print a map or a table; exit status 1 where a code is bad (the others count), 2 where a file is not to be had."""
    if not args.codes and not args.file:
        print(own_map())
        return 0
    try:
        if args.out:
            _sheets.check(args.out, args.force)
        words = args.codes or codes.pick(progress.MARK, _read(args.file))
    except ValueError as error:
        print(f"progress: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"progress: {error.filename or args.file}: {error.strerror}", file=sys.stderr)
        return 2
    rows, bad = collect(words)
    if rows:
        notes = [*most_often_wrong(rows), *lacking(rows)]
        print("\n".join([_sheets.aligned(table(rows)), "", *notes]))
    for line in bad if words else ["no codes in it"]:
        print(line, file=sys.stderr)
    if args.out and rows and _sheets.save(args.out, table(rows)):
        return 2
    return 1 if bad or not words else 0


def _read(name):
    if name == "-":
        return sys.stdin.read()
    return Path(name).read_text(encoding="utf-8-sig", errors="replace")


def own_map() -> str:
    """Your own results as text: a line for each lesson, and where to go on."""
    states = progress.states()
    head = ["", "lesson", "solved", "tried, not solved"]
    rows = [
        [
            each.number,
            each.title,
            share(states, of(each.number)),
            open_ones(states, of(each.number)),
        ]
        for each in LESSONS
    ]
    return f"{_sheets.aligned([head, *rows])}\n\n{going_on()[0]}"


def going_on() -> tuple:
    """(a sentence on what is solved and where to go on, the number of that lesson)."""
    states = progress.states()
    begun = [number for number in map(lesson_of, progress.load()) if number]
    last = max(begun, default="00")
    left = [n.number for n in LESSONS if n.number >= last and open_lesson(states, n.number)]
    goal = left[0] if left else LESSONS[-1].number
    title = next(each.title for each in LESSONS if each.number == goal)
    word = "go on with" if begun else "begin with"
    return f"{share(states, EXERCISES)} solved: {word} {goal}, {title}.", goal


def lesson_of(key: str) -> str:
    """The number of the lesson that a key of the progress file belongs to, such as "02" for "quiz.02.alone"; or ""."""
    parts = [part for part in key.split(".") if part in {each.number for each in LESSONS}]
    return parts[0] if parts else ""


def open_lesson(states: dict, number: str) -> bool:
    """Tell whether a lesson has an exercise that is not solved."""
    return any(states.get(item) != DONE for item in of(number))


def of(number: str) -> Any:
    """The exercises of a lesson."""
    return [item for item in EXERCISES if item.startswith(number)]


def collect(words: list) -> tuple:
    """([(learner, states)], [what is wrong with a code]) from codes.

    A learner without a name gets a number, and so does the second of one name.
    """
    rows, bad = [], []
    names: list[str] = []
    for number, word in enumerate(words, 1):
        try:
            states, name = progress.decode(word)
        except ValueError as error:
            bad.append(f"code {number}: {error}")
            continue
        namesakes = names.count(name)
        names.append(name)
        learner = f"{name} ({namesakes + 1})" if namesakes else name
        rows.append((learner if name else f"learner {number}", states))
    return rows, bad


def table(rows: list) -> list:
    """The table as rows of texts, head first: exercises solved by lesson, quiz answers, exercises not solved yet."""
    numbers = [each.number for each in LESSONS]
    head = ["learner", *numbers, "all", "quiz", "knew, knows", "tried, not solved"]
    return [head, *(row(name, states) for name, states in rows)]


def row(name: str, states: dict) -> list:
    """A learner's row of the table."""
    quiz = [item for item in states if item.startswith("quiz.")]
    lessons = [share(states, of(each.number)) for each in LESSONS]
    every = share(states, EXERCISES)
    known = " → ".join(knows(states, form) for form in inventory.FORMS)
    return [name, *lessons, every, share(states, quiz), known, open_ones(states, EXERCISES)]


def knows(states: dict, form: str) -> str:
    """How many ideas of the inventory's form are right, or "–" where none was answered."""
    keys = [item.key for item in inventory.items(form)]
    right = sum(states.get(key) == DONE for key in keys)
    return str(right) if any(key in states for key in keys) else "–"


def lacking(rows: list) -> list[str]:
    """Lines on the ideas of the inventory that a class lacks: at most `MOST` of each form, those most often wrong first."""
    lines = []
    for form, when in zip(inventory.FORMS, ("before the course", "after it"), strict=True):
        counts = {}
        for item in inventory.items(form):
            given = [states[item.key] for _, states in rows if item.key in states]
            if NOT_YET in given:
                counts[f"{item.title} ({given.count(NOT_YET)} of {len(given)})"] = given.count(
                    NOT_YET
                )
        most = sorted(counts, key=lambda name: -counts[name])[:MOST]
        lines += [f"ideas most often wrong {when}: {', '.join(most)}"] if most else []
    return lines


def share(states: dict, items: Any) -> str:
    """How many of `items` are solved, as "2 of 3"."""
    return f"{sum(states.get(item) == DONE for item in items)} of {len(items)}"


def open_ones(states: dict, items: Any) -> str:
    """Those of `items` that were tried and are not solved, as one text."""
    return " ".join(item for item in items if states.get(item) == NOT_YET)


def most_often_wrong(rows: list) -> list[str]:
    """Lines on the exercises and questions that the most learners tried and have not right, at most `MOST` of each."""
    wrong = Counter(i for _, states in rows for i, state in states.items() if state == NOT_YET)
    tried = Counter(item for _, states in rows for item in states)
    lines = []
    for quiz, title in enumerate(
        ("exercises most often not solved yet", "questions most often wrong")
    ):
        asked = [item for item, _ in wrong.most_common() if not item.startswith("know.")]
        items = [item for item in asked if item.startswith("quiz.") == quiz]
        counts = [f"{i.removeprefix('quiz.')} ({wrong[i]} of {tried[i]})" for i in items[:MOST]]
        lines.append(f"{title}: {', '.join(counts) or 'none'}")
    return lines
