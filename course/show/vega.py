"""Pieces of Vega-Lite specs: tables that stay small, computed columns, sliders that work without a kernel."""

import json
from collections.abc import Iterable


def slider(
    name: str, high: float, step: float | None = None, start: float = 0, label: str | None = None
) -> dict:
    """Return the parameter `name`, a slider from 0 to `high`."""
    bind = {"input": "range", "min": 0, "max": high, "step": step or high / 100}
    return {"name": name, "value": start, "bind": {**bind, "name": f"{label or name} "}}


def number(name: str, label: str) -> dict:
    """Return the parameter `name`, a field with a whole number: its arrow keys work in JupyterLab, a slider's don't."""
    return {"name": name, "value": 0, "bind": {"input": "number", "name": f"{label} "}}


def csv(header: str, table: Iterable[Iterable]) -> dict:
    """Return the data of a chart: columns of numbers, named in `header` ("a,b"); a quarter of the size of records."""
    lines = [header, *(",".join(map(str, row)) for row in table)]
    numbers = dict.fromkeys(header.split(","), "number")
    return {"data": {"values": "\n".join(lines), "format": {"type": "csv", "parse": numbers}}}


def calculate(**expressions: str) -> list[dict]:
    """Return transforms that compute columns by Vega's expressions, in their order."""
    return [{"calculate": code, "as": name} for name, code in expressions.items()]


def tenths(microseconds: float) -> int:
    """Return `microseconds` as a whole number of 0.1 µs: short in a table."""
    return round(10 * microseconds)


class Texts:
    """Texts stored once; `list` is them as an expression of Vega."""

    def __init__(self):
        self.places = {}

    def index(self, text: str) -> int:
        """Return the place of `text`."""
        return self.places.setdefault(text, len(self.places))

    @property
    def list(self) -> str:
        """The texts as a literal that both JSON and Vega's expressions read."""
        return json.dumps(list(self.places), ensure_ascii=False)
