"""Commands for learners, teachers and authors: ``python3 -m course NAME``. Nothing imports this package."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class WrongCall(ValueError):
    """A command was called with something that does not fit; the text names it, what came and what fits."""


def needs(table: str = "dependencies") -> list:
    """Return the list called `table` in pyproject.toml, such as ["torch>=2.11", …]; [] where there is none."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.search(rf"^{table} = \[(.*?)\]", text, flags=re.M | re.S)
    return re.findall(r'"([^"]+)"', lists[1]) if lists else []
