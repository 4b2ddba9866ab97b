"""Make the files of a new page: its notebook, its lesson's folder, its entry in course/pages.py; then stamp what follows."""

import argparse
import ast
import re
import sys
from typing import Any

from course import files, pages
from course.tools import ROOT, _notebooks

HELP = "for authors: make a new page, such as 03c, with everything that a page needs"
TODO = "TODO:"  # a page that still says so isn't finished; a test names it
PICTURE = '''"""The pictures of this lesson."""

from matplotlib.figure import Figure

from course.pictures import machine


'''
DRAW = '''def first_picture{letter}() -> tuple[Figure, str]:
    """Return (Figure, alternative text) of the picture at the top of page {number}."""
    return machine.draw(title="{title}"), machine.words()
'''
EXERCISES = '"""The exercises of lesson {number}, and its quiz."""\n\nfrom course.checks.words import quiz\n\nQUIZ = quiz("{number}")\n'
WORDS = "# The words of lesson {number}: of each exercise its title, hints, explanation and known mistakes; then the quiz.\n"
TEXTS = (  # of the cells; the second with code is the page's first section
    "# {title}",
    f"{TODO} one sentence says what happens in the picture.\n\n![{TODO}](attachment:first.png)",
    "import torch\n\nfrom helpers import devices\n\ndevice = devices.pick_device()",
    f"**What you'll be able to do**\n- {TODO} two or three lines, each with a verb.\n\n{{continues}}",
    f"## {TODO} a heading that names or promises something\n\n{TODO} the question, before its answer.",
    "x = torch.ones(3, device=device)\nx.sum().item()",
    f"{TODO} what you see, then why, then its name.",
    f"## Recap\n\n- {TODO} three lines, with the numbers just seen.",
    "**Next:** [{next}]({file}).",
)
CODE = (2, 5)  # which of them are code
MACHINE = "from course.pictures import machine\n"
OWN = ("course", "helpers", "practice_gpus")  # import names of this repository
ENTRIES = ROOT / "course/pages.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `page`."""
    parser.add_argument("number", help="a new number: 15, or 03c for a page that goes on from 03")
    parser.add_argument("title", help='what it is called, such as "When is a GPU full?"')
    parser.add_argument("summary", help='what a learner does there: "Forecast where the bend is"')
    parser.add_argument("minutes", type=int, help="how long it takes, exercises included: 1 to 30")


def run(args: argparse.Namespace) -> int:
    """Make the page; return 2 and say why where its number or title doesn't do."""
    taken = {page.number for page in pages.NOTEBOOKS}
    if not re.fullmatch(r"\d\d[a-z]?", args.number) or args.number in taken:
        print(f"number is {args.number!r}; it takes two digits, or 03c; taken: {sorted(taken)}")
        return 2
    slug = "_".join(re.findall(r"[a-z0-9]+", args.title.lower()))
    if not slug or '"' in args.title:
        print(f"title is {args.title!r}; it takes words, without quotation marks", file=sys.stderr)
        return 2
    if not args.summary.strip() or '"' in args.summary or not 1 <= args.minutes <= 30:
        told = f"summary is {args.summary!r} and minutes {args.minutes}"
        print(f"{told}; they take words without quotation marks, and 1 to 30", file=sys.stderr)
        return 2
    file = f"{args.number}_{slug}.ipynb"
    entered = enter(args.number, file, args.title, args.summary, args.minutes)
    draw_and_ask(args.number, args.title)
    files.write(ROOT / "notebooks" / file, _notebooks.text(notebook(args.number, args.title)))
    files.write(ENTRIES, entered)
    print(f"Made: notebooks/{file}, course/lesson{args.number[:2]}/, an entry in course/pages.py.")
    print(f"Now write what says {TODO} in the notebook;")
    print(f"then: python3 -m course publish; python3 -m course execute {args.number}")
    return 0


def draw_and_ask(number: str, title: str) -> None:
    """Write the lesson's folder where there is none, and the function that draws the first picture."""
    folder = ROOT / f"course/lesson{number[:2]}"
    folder.mkdir(exist_ok=True)
    parts = {
        "__init__.py": f'"""Lesson {number[:2]}: {title}."""\n',
        "exercises.py": EXERCISES.format(number=number[:2]),
        "words.toml": WORDS.format(number=number[:2]),
        "figures.py": PICTURE,
    }
    for name, text in parts.items():
        if not (folder / name).exists():
            files.write(folder / name, text)
    figures = (folder / "figures.py").read_text(encoding="utf-8")
    letter = "".join(f"_{each}" for each in number[2:])
    if MACHINE not in figures:
        figures = with_import(figures)
    draw = DRAW.format(letter=letter, number=number, title=title)
    if f"def first_picture{letter}(" not in figures:
        draw = draw if "import Figure" in figures else draw.replace(" -> tuple[Figure, str]", "")
        files.write(folder / "figures.py", f"{figures.rstrip()}\n\n\n{draw}")


def with_import(code: str) -> str:
    """Return `code` with the import of `machine` where it belongs among the course's own."""
    body, lines = ast.parse(code).body, code.splitlines(keepends=True)
    imports = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
    own = [n for n in imports if lines[n.lineno - 1].split()[1].split(".")[0] in OWN]
    later = [n.lineno - 1 for n in own if lines[n.lineno - 1] > MACHINE]
    last = (imports or body)[-1].end_lineno or 1  # else: below the imports, or below the docstring
    line = later[0] if later else last
    return "".join([*lines[:line], "" if own else "\n", MACHINE, *lines[line:]])


def notebook(number: str, title: str) -> Any:
    """Return the notebook of a new page: whole, and with its words still to be written."""
    import nbformat

    base = next((p for p in pages.LESSONS if number[2:] and p.number == number[:2]), None)
    after = next((p for p in pages.LESSONS if p.number > number), pages.LESSONS[0])
    continues = f"It goes on from [{base.title}]({base.file})." if base else "Any machine will do."
    words = {"title": title, "continues": continues, "file": after.file}
    words["next"] = f"{after.number} {after.title}"
    draft = nbformat.v4.new_notebook()
    for place, text in enumerate(TEXTS):
        kind = nbformat.v4.new_code_cell if place in CODE else nbformat.v4.new_markdown_cell
        draft.cells.append(kind(text.format(**words)))
    return _notebooks.clean(draft)


def enter(number: str, file: str, title: str, summary: str, minutes: int) -> str:
    """Return course/pages.py with the page's entry before the first page with a larger number."""
    text = ENTRIES.read_text(encoding="utf-8")
    entry = f'    Lesson(\n        "{file}",\n        "{title}",\n        {minutes},\n        "{summary}",\n    ),\n'
    later = [page.file for page in pages.LESSONS if page.number > number]
    mark = f'    Lesson(\n        "{later[0]}"' if later else ")\n\nREFERENCES"
    if mark not in text:
        raise SystemExit(f"course/pages.py lacks the line {mark.strip()!r}: nothing was written")
    return text.replace(mark, entry + mark, 1)
