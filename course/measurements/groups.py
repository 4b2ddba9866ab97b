"""The kinds of numbers that a figure draws: measured here, recorded, on your GPU, published, forecast.

A `Group` is a dict of label to value, or to (xs, ys), that knows its kind and its sources. The figures of
`helpers.plots` take one group or a list of them, and give each kind its words, marker and line.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from course import measurements
from course.measurements.reader import Row, sections

KINDS = {  # as the legend says it
    "here": "measured here",
    "yours": "your GPU",
    "recorded": "recorded",
    "published": "published",
    "forecast": "forecast",
}


class Group(dict):
    """Numbers of one kind: label to value, or to (xs, ys). `sources`: lines to print under the figure."""

    def __init__(self, kind: str, values: Mapping[str, Any], sources: Iterable[str] = ()) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; it takes one of {list(KINDS)}")
        super().__init__(values)
        self.kind = kind
        self.sources = tuple(sources)

    def renamed(self, labels: Mapping[str, str]) -> "Group":
        """The group with other labels: `labels` is a dict of old to new; the others stay."""
        unknown = [label for label in labels if label not in self]
        if unknown:
            raise ValueError(f"labels has {unknown[0]!r}; the group has {list(self)}")
        renamed = {labels.get(label, label): value for label, value in self.items()}
        return Group(self.kind, renamed, self.sources)


def here(values: Mapping[str, Any]) -> Group:
    """The group of what was measured on this machine, now: `values` is a dict of label to value or (xs, ys)."""
    return Group("here", values)


def forecast(values: Mapping[str, Any], *sources: str) -> Group:
    """The group of what was calculated, drawn hollow: label to value, (low, middle, high) or (xs, ys); `sources`: its rules."""
    return Group("forecast", values, sources)


def published(
    name: str,
    y: str,
    x: str | None = None,
    by: str = "device",
    section: str | None = None,
    **where: Any,
) -> Group:
    """The group of a published source: field `y` by the label in field `by`; with a field `x`, (xs, ys) a label.

    `section` and `where` choose rows; a list takes any of its values and their order: device=["Tesla T4", "Tesla P4"].
    ValueError for an unknown name, and where one label would have two values.
    """
    source = measurements.published(name)
    rows = _chosen(source.rows(section), where, name)
    rows = [row for row in rows if row.get(y) is not None]
    fields = [y, by] if x is None else [y, by, x]
    for field in fields:
        if not any(field in row for row in rows):
            raise ValueError(f"{name} has no rows with {field!r} for {where or section or 'it'}")
    rows = [row for row in rows if all(field in row for field in fields)]
    values = _values(rows, y, by, name) if x is None else _series(rows, x, y, by)
    return Group("published", values, [f"published: {source.source}"])


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


def recorded(
    section: str,
    x: str,
    y: str,
    kind: str | None = None,
    without: Collection[str] = (),
    **where: Any,
) -> Group:
    """The group of recorded machines: label (device and date) to (xs, ys) of fields `x` and `y` of `section`.

    `where` keeps rows with these values, `kind` ("cuda", "cpu") such devices, and `without` leaves devices of these
    identities out (see `Recording.identity`). An unknown section or field raises ValueError.
    """
    fields = sections().get(section)
    if fields is None:
        raise ValueError(f"section is {section!r}; it takes one of {list(sections())}")
    for name in (x, y, *where):
        if name not in fields:
            raise ValueError(f"field {name!r} is not in section {section!r}, which has {fields}")
    series = {}
    for recording in measurements.recordings():
        for device, known in recording.devices.items():
            rows = recording.rows(section, device)
            rows = [row for row in rows if all(row[field] == v for field, v in where.items())]
            if not rows or kind not in (None, known["kind"]):
                continue
            if recording.identity(device) not in without:
                rows.sort(key=lambda row: row[x])
                columns = [row[x] for row in rows], [row[y] for row in rows]
                series[recording.label_of(device)] = columns
    return Group("recorded", series, [f"recorded: {label}" for label in series])
