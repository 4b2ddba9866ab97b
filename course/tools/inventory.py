"""python3 -m course inventory: the questions of lessons 00 and 14 to print, or with --key their answers and sources."""

import argparse

from course.checks import inventory

HELP = "the concept inventory to print: two parallel forms of twelve questions; --key: answers, sources"
LETTERS = "abcd"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --form and --key to `parser`."""
    parser.add_argument("--form", choices=inventory.FORMS, help="one form only; without it both")
    parser.add_argument("--key", action="store_true", help="answers, and where each was thought")


def run(args: argparse.Namespace) -> int:
    """Print the forms that are asked for."""
    forms = [args.form] if args.form else inventory.FORMS
    print("\n\n".join((key if args.key else sheet)(form) for form in forms))
    return 0


def sheet(form: str) -> str:
    """The questions of a form with boxes to tick."""
    lines = [f"What do you know about GPUs? Form {form.upper()}. Name: ____________________"]
    for number, item in enumerate(inventory.items(form), 1):
        lines += ["", f"{number}. {item.question}"]
        lines += [f"   [ ] {LETTERS[n]}  {choice}" for n, choice in enumerate(item.choices)]
    return "\n".join(lines)


def key(form: str) -> str:
    """The right letters, the sentences that say so, and the threads of the wrong ones."""
    lines = [f"Form {form.upper()}: answers"]
    for number, (item, idea) in enumerate(
        zip(inventory.items(form), inventory.ideas(), strict=True), 1
    ):
        letter = LETTERS[item.choices.index(item.right)]
        lines += [
            "",
            f"{number}. {letter}  {item.title}. Lesson {idea['lesson']}: “{idea['stands']}”",
        ]
        lines += [f"   not: {wrong['text']}  {wrong['thread']}" for wrong in idea[form]["wrong"]]
    return "\n".join(lines)
