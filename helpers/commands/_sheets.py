"""Tables for spreadsheets: printable text in every cell, no formulas, written whole. Only standard library."""

import csv
import io

from helpers import files


def write(path, rows):
    """Write a table, rows of texts and numbers, to the file `path`; whole or not at all."""
    files.write(path, text(rows).encode("utf-8-sig"))


def text(rows):
    """Return a table, rows of texts and numbers, as CSV."""
    table = io.StringIO(newline="")
    csv.writer(table).writerows([[harmless(cell) for cell in row] for row in rows])
    return table.getvalue()


def harmless(cell):
    """Return the text of a cell as one printable line that no spreadsheet takes for a formula."""
    shown = [c if c.isprintable() else ascii(c)[1:-1] for c in str(cell).replace("\n", " ")]
    text = "".join(shown).strip()
    formula = text.startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    return f"'{text}" if formula else text
