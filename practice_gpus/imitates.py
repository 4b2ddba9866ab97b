"""Writes the page *What it imitates, what not*, IMITATES.md, from the tables that the code uses: ``python -m
practice_gpus.imitates > IMITATES.md``."""

import inspect

import practice_gpus

from . import operators, patches
from .cards import CARDS

START = """# What practice GPUs imitate, what not

Written by `python -m practice_gpus.imitates` from the tables that the code uses.

"""
REFUSED = """
## Refused by name

These raise `NotImplementedError`, which says what to do instead, and a report lists them.

"""
OTHERS = """
So are, for some arguments only: {}.

"""
WAITS = """## Operators that make the CPU wait

How often, as PyTorch's source has it; copies between devices that are not `non_blocking` wait once, too.

| operator | waits |
|---|---|
"""
CARD = """
## Cards that a report knows

The memory that PyTorch finds there, as it printed in an error.

| card | GiB | where it was printed |
|---|---|---|
"""


def page():
    """The text of the page."""
    tables = [
        tidy(table)
        for table in inspect.getdoc(practice_gpus).split("\n\n")
        if table.startswith("|")
    ]
    rows = [(path, names.split()) for path, names in patches.REFUSED.items()]
    refused = "\n".join(
        f"- `{path}`: {', '.join(f'`{name}`' for name in names)}" for path, names in rows
    )
    waits = [f"| `{name}` | {count} |" for name, count in operators.WAITS.items()]
    waits += [f"| `{name}` | depends on its arguments |" for name in operators.WAITS_IF]
    cards = [f"| {name} | {size:.2f} | {source} |" for name, (size, source) in CARDS.items()]
    functions = [function for *_, function in patches.refused()]
    sometimes = [f.refuses for f in functions if not getattr(f, "always", True)]
    others = OTHERS.format(", ".join(f"`{name}`" for name in dict.fromkeys(sometimes)))
    parts = (START, "\n\n".join(tables), REFUSED, refused, others, WAITS, "\n".join(waits), CARD)
    return "\n".join(("".join(part) for part in parts)) + "\n".join(cards)


def tidy(table):
    """A table of the docstring as one of Markdown: a row in two lines becomes one."""
    rows = []
    for text in table.splitlines():
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if rows and rows[-1][-1] == "" and len(cells) == 2 and not set(cells[0]) <= {"-"}:
            rows[-1] = [f"{rows[-1][0]} {cells[0]}", cells[1]]
        elif rows and cells[0] == "":
            rows[-1][-1] += f" {cells[1]}"
        else:
            rows.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |".replace("``", "`") for cells in rows)


if __name__ == "__main__":
    print(page())
