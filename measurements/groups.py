"""The kinds of numbers that a figure draws: measured here, recorded, on your GPU, published, forecast.

A `Group` is a dict of label to value, or to (xs, ys), that knows its kind and its source. The figures of
`helpers.plots` take one group or a list of them, and give each kind its words, marker and line.
"""

import measurements
from measurements.rows import SECTIONS, names

KINDS = {  # as the legend says it
    "here": "measured here",
    "yours": "your GPU",
    "recorded": "recorded",
    "published": "published",
    "forecast": "forecast",
}


class Group(dict):
    """Numbers of one kind: label to value, or to (xs, ys). `sources`: lines to print under the figure."""

    def __init__(self, kind, values, sources=()):
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; it takes one of {list(KINDS)}")
        super().__init__(values)
        self.kind = kind
        self.sources = tuple(sources)

    def renamed(self, labels):
        """The group with other labels: `labels` is a dict of old to new; the others stay."""
        unknown = [label for label in labels if label not in self]
        if unknown:
            raise ValueError(f"labels has {unknown[0]!r}; the group has {list(self)}")
        renamed = {labels.get(label, label): value for label, value in self.items()}
        return Group(self.kind, renamed, self.sources)


def here(values):
    """The group of what was measured on this machine, now: `values` is a dict of label to value or (xs, ys)."""
    return Group("here", values)


def forecast(values, *sources):
    """The group of what was calculated, drawn hollow: label to value, (low, middle, high) or (xs, ys); `sources`: its rules."""
    return Group("forecast", values, sources)


def published(name, y, x=None, by="device", section=None, **where):
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


def _chosen(rows, where, name):
    """Rows with the values that `where` asks for, in the order of its lists."""
    for field, wanted in where.items():
        wanted = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
        there = list(dict.fromkeys(row[field] for row in rows if field in row))
        for value in wanted:
            if value not in there:
                raise ValueError(f"{field} is {value!r}; {name} has {there}")
        rows = [row for value in wanted for row in rows if row.get(field) == value]
    return rows


def _values(rows, y, by, name):
    values = {}
    for row in rows:
        label = str(row[by])
        if label in values:
            raise ValueError(
                f"{name} has several {y!r} for {by} {label!r}; choose with more fields"
            )
        values[label] = row[y]
    return values


def _series(rows, x, y, by):
    series = {}
    for row in rows:
        xs, ys = series.setdefault(str(row[by]), ([], []))
        xs.append(row[x])
        ys.append(row[y])
    return series


def yours(section, y, x=None, **where):
    """The group of the device whose code was kept: its name to `y`, or to (xs, ys); empty where there is none, or it is here.

    `section` ("matmul", "copies", "bandwidth", "training") and `where` choose its rows, see `gpu_code.SLOTS`.
    """
    from helpers import host
    from measurements import gpu_code

    measured = gpu_code.yours()
    if measured is None:
        return Group("yours", {})
    names_here = map(gpu_code.cut, [*measurements.gpus_here(), host.cpu_name()])
    rows = measured.rows(section, **where)
    if not rows or measured.device in names_here:
        return Group("yours", {})
    values = [row[y] for row in rows]
    value = values[0] if x is None else ([row[x] for row in rows], values)
    source = f"your GPU: {measured.device}, {measured.date}, PyTorch {measured.torch}"
    return Group("yours", {measured.device: value}, [source])


def recorded(section, x, y, kind=None, **where):
    """The group of recorded machines: label (device and date) to (xs, ys) of fields `x` and `y` of `section`.

    `where` keeps rows with these values, `kind` ("cuda", "cpu") such devices. A machine that equals this one, by name
    and cores, is left out: it would be drawn twice. An unknown section or field raises ValueError.
    """
    if section not in SECTIONS:
        raise ValueError(f"section is {section!r}; it takes one of {list(SECTIONS)}")
    has = names(section)
    for name in (x, y, *where):
        if name not in has:
            raise ValueError(f"field {name!r} is not in section {section!r}, which has {has}")
    series = {}
    sources = []
    for recording in measurements.all():
        for label, rows in recording.by_device(section).items():
            rows = [row for row in rows if all(row[field] == v for field, v in where.items())]
            rows = [row for row in rows if kind in (None, row["device_kind"])]
            if not rows or recording.is_here(rows[0]["device"]):
                continue
            rows.sort(key=lambda row: row[x])
            series[label] = ([row[x] for row in rows], [row[y] for row in rows])
            sources.append(f"recorded: {label}")
    return Group("recorded", series, sources)
