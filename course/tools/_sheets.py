"""Tables: with straight columns to read, and for spreadsheets, without formulas, written whole. Only standard library."""

import csv
import io
import os
from pathlib import Path

from course import files


def check(path: Path, force: bool) -> None:
    """Raise ValueError unless a table can be written to the file `path`; one that is there takes `force`."""
    folder = path.absolute().parent
    wrong = path.suffix != ".csv" or os.path.isdir(path) or files.too_long(path)
    if wrong or not os.access(folder, os.W_OK):
        raise ValueError(f"--out is {path}; it takes a FILE.csv in a folder that can be written")
    if os.path.lexists(path) and not force:
        raise ValueError(f"--out is {path}, which is there already; --force replaces it")


def save(path: Path, rows: list) -> None:
    """Write a table, rows of texts and numbers, to the file `path`."""
    table = io.StringIO(newline="")
    csv.writer(table).writerows([[harmless(cell) for cell in row] for row in rows])
    files.write(path, table.getvalue().encode("utf-8-sig"))


def aligned(rows: list) -> str:
    """Return a table, rows of texts, as lines with straight columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def harmless(cell: object) -> str:
    """Return the text of a cell as one printable line that no spreadsheet takes for a formula."""
    characters = [c if c.isprintable() else ascii(c)[1:-1] for c in str(cell).replace("\n", " ")]
    text = "".join(characters).strip()
    return f"'{text}" if text.startswith(tuple("=+-@＝＋－＠")) else text
