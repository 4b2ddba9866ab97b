"""Writes the page *What it imitates, what not*, IMITATES.md, from the tables that the code uses: ``python -m
practice_gpus.imitates > IMITATES.md``."""

import inspect

import practice_gpus

from . import operators, patches
from .cards import CARDS

PAGE = """# What practice GPUs imitate, what not

Written by `python -m practice_gpus.imitates` from the tables that the code uses.

{tables}

## Refused by name

These raise `NotImplementedError`, which says what to do instead, and a report lists them.

{refused}

So are, for some arguments only: {sometimes}.

## Operators that make the CPU wait

How often, as PyTorch's source has it. Copies between the CPU and a GPU that are not `non_blocking` wait once, too.

| operator | waits |
|---|---|
{waits}

## Cards that a report knows

The memory that PyTorch finds there, as it printed in an error.

| card | GiB | where it was printed |
|---|---|---|
{cards}
"""


def page():
    """The text of the page."""
    tables = inspect.getdoc(practice_gpus).split("\n\n")
    refused = [f"- `{path}`: {codes(names.split())}" for path, names in patches.REFUSED.items()]
    functions = [function for *_, function in patches.refused()]
    sometimes = [f.refuses for f in functions if not getattr(f, "always", True)]
    waits = [f"| `{name}` | {count} |" for name, count in operators.WAITS.items()]
    waits += [f"| `{name}` | depends on its arguments |" for name in operators.WAITS_IF]
    cards = [f"| {c.name} | {c.memory:.2f} | {c.memory_source} |" for c in CARDS.values()]
    return PAGE.format(
        tables="\n\n".join(tidy(table) for table in tables if table.startswith("|")),
        refused="\n".join(refused),
        sometimes=codes(dict.fromkeys(sometimes)),
        waits="\n".join(waits),
        cards="\n".join(cards),
    )


def codes(names):
    """Names as code, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def tidy(table):
    """A table of the docstring as one of Markdown: a row in two lines becomes one."""
    rows = []
    for text in table.splitlines():
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if rows and rows[-1][-1] == "":
            rows[-1] = [f"{rows[-1][0]} {cells[0]}", cells[1]]
        elif cells[0] == "":
            rows[-1][-1] += f" {cells[1]}"
        else:
            rows.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |".replace("``", "`") for cells in rows)


if __name__ == "__main__":
    print(page(), end="")
