"""python3 -m course progress: your own map; or what a class has solved, from the codes that the learners send."""

import argparse
import sys
from pathlib import Path

from course.checks import codes, inventory, progress
from course.checks.progress import DONE, ITEMS, NOT_YET, RETIRED
from course.pages import LESSONS
from course.tools import WrongCall, _sheets

MOST = 5  # exercises, and questions, that are named as most often wrong
HELP = "your own map; with codes: a table of a class"
EXERCISES = [i for i in ITEMS if not i.startswith(("quiz.", "know.")) and i not in RETIRED]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the codes, --file and --out to `parser`."""
    add = parser.add_argument
    add("codes", nargs="*", metavar="CODE", help="what progress.code() prints; none: your own map")
    add("--file", metavar="FILE", help="a text with codes in it; - for the standard input")
    add("--out", type=Path, metavar="FILE.csv", help="write the table for a spreadsheet, too")
    add("--force", action="store_true", help="replace the table that is there")


def run(args: argparse.Namespace) -> int:
    """Print a map or a table; exit status 1 where a code is bad (the others count), 2 where a file is not to be had."""
    if args.out and not args.codes and not args.file:
        raise WrongCall("--out writes the table of a class: give its codes, or --file")
    if not args.codes and not args.file:
        print(own_map())
        return 0
    try:
        if args.out:
            _sheets.check(args.out, args.force)
        text = read(args.file) if args.file else ""
    except (ValueError, OSError) as error:
        print(f"progress: {error}", file=sys.stderr)
        return 2
    words = args.codes or codes.pick(progress.MARK, text)
    rows, bad = collect(words)
    if rows:
        print("\n".join([_sheets.aligned(table(rows)), "", *often_wrong(rows)]))
    for line in bad if words else ["no codes in it"]:
        print(line, file=sys.stderr)
    if args.out and rows:
        _sheets.save(args.out, table(rows))
    return 1 if bad or not words else 0


def read(name: str) -> str:
    """The text of a file, or of the standard input for "-"."""
    if name == "-":
        return sys.stdin.read()
    return Path(name).read_text(encoding="utf-8-sig", errors="replace")


def own_map() -> str:
    """Your own results as text: a line for each lesson, and where to go on."""
    states = progress.states()
    rows = [["", "lesson", "solved", "tried, not solved"]]
    for lesson in LESSONS:
        items = of(lesson.number)
        rows.append([lesson.number, lesson.title, share(states, items), open_ones(states, items)])
    return f"{_sheets.aligned(rows)}\n\n{going_on()[0]}"


def going_on() -> tuple:
    """(a sentence on what is solved and where to go on, the number of that lesson)."""
    states = progress.states()
    begun = [number for number in map(lesson_of, progress.load()) if number]
    last = max(begun, default="00")
    left = [
        lesson
        for lesson in LESSONS
        if lesson.number >= last and any(states.get(key) != DONE for key in of(lesson.number))
    ]
    goal = (left or LESSONS[-1:])[0]
    word = "go on with" if begun else "begin with"
    solved = share(states, EXERCISES)
    skipped = [
        lesson.number
        for lesson in LESSONS
        if lesson.number in begun
        and lesson.number < goal.number
        and any(states.get(key) != DONE for key in of(lesson.number))
    ]
    left_open = f" Still open: {', '.join(skipped)}." if skipped else ""
    return f"{solved} solved: {word} {goal.number}, {goal.title}.{left_open}", goal.number


def lesson_of(key: str) -> str:
    """The number of the lesson that a key of the progress file belongs to, such as "02" for "quiz.02.alone"; or ""."""
    numbers = {each.number for each in LESSONS}
    return next((part for part in key.split(".") if part in numbers), "")


def of(number: str) -> list[str]:
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


def share(states: dict, items: list[str]) -> str:
    """How many of `items` are solved, as "2 of 3"."""
    return f"{sum(states.get(item) == DONE for item in items)} of {len(items)}"


def open_ones(states: dict, items: list[str]) -> str:
    """Those of `items` that were tried and are not solved, as one text."""
    return " ".join(item for item in items if states.get(item) == NOT_YET)


def often_wrong(rows: list) -> list[str]:
    """Lines on the exercises, questions and ideas that the most learners tried and have not right."""
    quiz = {item: item.removeprefix("quiz.") for item in ITEMS if item.startswith("quiz.")}
    groups = {
        "exercises most often not solved yet": dict(zip(EXERCISES, EXERCISES, strict=True)),
        "questions most often wrong": quiz,
    }
    for form, when in zip(inventory.FORMS, ("before the course", "after it"), strict=True):
        ideas = {item.key: item.title for item in inventory.items(form)}
        groups[f"ideas most often wrong {when}"] = ideas
    texts = {title: most_wrong(rows, names) for title, names in groups.items()}
    return [f"{title}: {text}" for title, text in texts.items() if text]


def most_wrong(rows: list, names: dict) -> str:
    """At most `MOST` of the items of `names`, {item: its name}, that learners have not right, as "name (2 of 3), …"."""
    given = {item: [states[item] for _, states in rows if item in states] for item in sorted(names)}
    wrong = [item for item in given if NOT_YET in given[item]]
    wrong.sort(key=lambda item: -given[item].count(NOT_YET))
    counts = {item: f"{given[item].count(NOT_YET)} of {len(given[item])}" for item in wrong[:MOST]}
    return ", ".join(f"{names[item]} ({count})" for item, count in counts.items())
