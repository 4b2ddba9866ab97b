"""Rows of a published source as a `Group` of `helpers.plots`: a label to its number, or to (xs, ys)."""

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]


def of_rows(
    name: str, rows: list[Row], y: str, x: str | None, by: str, where: Mapping[str, Any]
) -> dict[str, Any]:
    """Field `y` of `rows` by the label in field `by`; with a field `x`, (xs, ys) a label. Errors call the source `name`.

    `where` chooses rows; a list takes any of its values and their order. ValueError where one label would have two values.
    """
    rows = [row for row in _chosen(rows, where, name) if row.get(y) is not None]
    fields = [y, by] if x is None else [y, by, x]
    for field in fields:
        if not any(field in row for row in rows):
            raise ValueError(f"{name} has no rows with {field!r} for {where or 'it'}")
    rows = [row for row in rows if all(field in row for field in fields)]
    return _values(rows, y, by, name) if x is None else _series(rows, x, y, by)


def _chosen(rows: list[Row], where: Mapping[str, Any], name: str) -> list[Row]:
    """Rows with the values that `where` asks for, in the order of its lists."""
    for field, wanted in where.items():
        wanted = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
        there = list(dict.fromkeys(row[field] for row in rows if field in row))
        for value in wanted:
            if value not in there:
                raise ValueError(f"{field} is {value!r}; {name} has {there}")
        rows = [row for value in wanted for row in rows if row.get(field) == value]
    return rows


def _values(rows: list[Row], y: str, by: str, name: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for row in rows:
        label = str(row[by])
        if label in values:
            raise ValueError(
                f"{name} has several {y!r} for {by} {label!r}; choose with more fields"
            )
        values[label] = row[y]
    return values


def _series(rows: list[Row], x: str, y: str, by: str) -> dict[str, tuple[list, list]]:
    series: dict[str, tuple[list, list]] = {}
    for row in rows:
        xs, ys = series.setdefault(str(row[by]), ([], []))
        xs.append(row[x])
        ys.append(row[y])
    return series
