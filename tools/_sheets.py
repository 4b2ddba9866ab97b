"""Tables: with straight columns to read, and for spreadsheets, without formulas, written whole. Only standard library."""

import csv
import io
import os
import sys
from pathlib import Path

from helpers import files


def check(path: str | Path, force: bool) -> None:
    """Raise ValueError unless a table can be written to the file `path`; one that is there takes `force`."""
    place = Path(os.path.abspath(path))
    if place.suffix != ".csv" or place.is_dir():
        raise ValueError(f"--out is {path}; it takes a FILE.csv")
    if os.path.lexists(place) and not force:
        raise ValueError(f"--out is {path}, which is there already; --force replaces it")
    if not os.access(place.parent, os.W_OK):
        raise ValueError(f"--out is {path}; there is no folder {place.parent} to write into")


def save(path: str | Path, rows: list) -> int:
    """Write a table, rows of texts and numbers, to the file `path`, or show it where that fails; return an exit status."""
    table = io.StringIO(newline="")
    csv.writer(table).writerows([[harmless(cell) for cell in row] for row in rows])
    try:
        files.write(path, table.getvalue().encode("utf-8-sig"))
    except OSError as error:
        print(table.getvalue(), end="")
        print(f"{path}: {error.strerror}; the table stands above", file=sys.stderr)
        return 2
    return 0


def aligned(rows: list) -> str:
    """Return a table, rows of texts, as lines with straight columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def harmless(cell: object) -> str:
    """Return the text of a cell as one printable line that no spreadsheet takes for a formula."""
    characters = [c if c.isprintable() else ascii(c)[1:-1] for c in str(cell).replace("\n", " ")]
    text = "".join(characters).strip()
    formula = text.startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    return f"'{text}" if formula else text
