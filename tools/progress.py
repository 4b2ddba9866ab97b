"""python3 -m tools progress: what a class has solved, from the codes that the learners send."""

import sys
from collections import Counter
from pathlib import Path

from helpers.checks import codes
from helpers.course import LESSONS
from tools import _sheets

MOST = 5  # exercises, and questions, that are named as most often wrong
HELP = "make a table of a class from learners' progress codes"


def add_arguments(parser):
    """Add the codes, --file and --out to `parser`."""
    parser.add_argument(
        "codes", nargs="*", metavar="CODE", help="what progress.code() prints; none: from --file"
    )
    parser.add_argument(
        "--file", metavar="FILE", default="-", help="a text file of codes (default: standard input)"
    )
    parser.add_argument("--out", metavar="FILE.csv", help="write the table for a spreadsheet, too")
    parser.add_argument("--force", action="store_true", help="replace the table that is there")


def run(args):
    """Print the table; exit status 1 where a code is bad (the others count), 2 where a file is not to be had."""
    try:
        if args.out:
            _sheets.check(args.out, args.force)
        words = args.codes or _read(args.file).split()
        rows, bad = collect(words)
        if args.out and rows and _sheets.save(args.out, table(rows)):
            return 2
    except ValueError as error:
        print(f"progress: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"progress: {error.filename or args.file}: {error.strerror}", file=sys.stderr)
        return 2
    if rows:
        print("\n".join([_sheets.aligned(table(rows)), "", *most_often_wrong(rows)]))
    if not words:
        bad = ["no codes: give them as arguments, in --file FILE or on the standard input"]
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


def _read(name):
    if name == "-":
        return sys.stdin.read()
    return Path(name).read_text(encoding="utf-8-sig", errors="replace")


def collect(words):
    """([(learner, states)], [what is wrong with a code]) from codes.

    A learner without a name gets a number, and so does the second of one name.
    """
    rows = []
    bad = []
    names = []
    for number, word in enumerate(words, 1):
        try:
            states, name = codes.decode(word)
            namesakes = names.count(name)
            names.append(name)
            learner = f"{name} ({namesakes + 1})" if namesakes else name
            rows.append((learner if name else f"learner {number}", states))
        except ValueError as error:
            bad.append(f"code {number}: {error}")
    return rows, bad


def table(rows):
    """The table as rows of texts, head first: exercises solved by lesson, quiz answers, exercises not solved yet."""
    exercises = [item for item in codes.ITEMS if not item.startswith("quiz.")]
    lessons = {
        lesson.number: [i for i in exercises if i.startswith(lesson.number)] for lesson in LESSONS
    }
    table_rows = [["learner", *lessons, "all", "quiz", "tried, not solved"]]
    for name, states in rows:
        quiz = {item: state for item, state in states.items() if item.startswith("quiz.")}
        table_rows.append(
            [
                name,
                *(_share(states, items) for items in lessons.values()),
                _share(states, exercises),
                _share(quiz, quiz),
                " ".join(i for i in exercises if states.get(i) == codes.NOT_YET),
            ]
        )
    return table_rows


def _share(states, items):
    return f"{sum(states.get(item) == codes.DONE for item in items)} of {len(items)}"


def most_often_wrong(rows):
    """Lines on the exercises and questions that the most learners tried and have not right, at most `MOST` of each."""
    wrong = Counter(
        item for _, states in rows for item, state in states.items() if state == codes.NOT_YET
    )
    tried = Counter(item for _, states in rows for item in states)
    lines = []
    titles = {False: "exercises most often not solved yet", True: "questions most often wrong"}
    for quiz, title in titles.items():
        items = [item for item, _ in wrong.most_common() if item.startswith("quiz.") == quiz]
        counts = [
            f"{item.removeprefix('quiz.')} ({wrong[item]} of {tried[item]})" for item in items
        ]
        lines.append(f"{title}: {', '.join(counts[:MOST]) or 'none'}")
    return lines
