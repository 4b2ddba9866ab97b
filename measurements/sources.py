"""Numbers that others measured and published, read from the files in `published/`; figures only, each with its source.

A file holds one source: its provenance, its devices, and sections of rows as in a recording. A field's unit is the end
of its name (`UNITS`); `null` is a value that the source does not give, and the row's `note` says why.
"""

import difflib
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "published"
PROVENANCE = (
    "repository",  # owner/name
    "commit",  # at which the numbers were read
    "paths",  # of the files that have them
    "url",
    "measured",  # date or dates, as far as the source says
    "read",
    "licence",
    "versions",
    "what",  # was measured
    "how",
    "trust",  # "A": method visible, warmed up and synchronized; "B": one of these missing; "C": to illustrate only
    "caveat",  # to be said beside the numbers; "" where there is none
)
KINDS = ("cuda", "cpu", "mps", "rocm", "xpu", "other")
UNITS = {  # ending of a field's name: the most that a value may be
    "_us": 1e9,
    "_ms": 1e8,
    "_s": 1e7,
    "_minutes": 1e5,
    "_hours": 1e4,
    "_mb": 1e6,
    "_mib": 1e6,
    "_gb": 1e5,
    "_gib": 1e5,
    "_bytes": 1e15,
    "_watts": 1500,
    "_usd": 1e6,
    "usd_per_h": 1000,
    "tflop_per_s": 5000,
    "gb_per_s": 10_000,
    "images_per_s": 1e6,
    "tokens_per_s": 1e7,
    "samples_per_s": 1e6,
    "pflop": 1e6,
    "accuracy": 1,
    "share": 1,
}
NUMBERS = (  # fields without a unit
    "batch size bytes elements epoch epochs gpus issue layers parameters pixels planets rung speedup tasks tokens width"
).split()


@dataclass(frozen=True)
class Published:
    """One source. `provenance` by `PROVENANCE`; `devices` by name, with "kind" and "card"; `sections` of rows."""

    name: str
    provenance: dict
    devices: dict
    sections: dict

    @property
    def source(self):
        """One short line for a figure: who measured, and when."""
        return f"{self.provenance['repository']}, {self.provenance['measured']}"

    @property
    def url(self):
        """The page on which the numbers stand."""
        return self.provenance["url"]

    def rows(self, section=None, **where):
        """Rows as dicts: "device", "device_kind", and fields with their units in their names.

        `section` None: of all sections. `where` keeps rows with these values: rows("matmul", dtype="float16"). A
        section or field that the source does not have raises ValueError, which lists those it has.
        """
        if section is not None and section not in self.sections:
            raise ValueError(f"section is {section!r}; {self.name} has {list(self.sections)}")
        sections = self.sections if section is None else [section]
        rows = [row for each in sections for row in self.sections[each]]
        fields = dict.fromkeys(field for row in rows for field in row)
        for field in where:
            if field not in fields:
                raise ValueError(f"field {field!r} is not in {self.name}, which has {list(fields)}")
        return [
            {**row, "device_kind": self.devices[row["device"]]["kind"]}
            for row in rows
            if all(field in row and row[field] == value for field, value in where.items())
        ]


def published_names():
    """The names that `published` takes."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@cache
def published(name):
    """The `Published` source called `name`. ValueError for an unknown name, or a file that does not fit."""
    names = published_names()
    if name not in names:
        near = difflib.get_close_matches(str(name), names, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"name is {name!r}; {advice}")
    return read(FOLDER / f"{name}.json")


def read(path):
    """The `Published` source in the file `path`. ValueError names the file and what does not fit."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name}: not a JSON file in UTF-8 ({error})") from error
    check(data, path.name)
    return Published(path.stem, data["provenance"], data["devices"], data["sections"])


def check(data, file):
    """Raise ValueError, naming `file` and the field, unless `data` (parsed JSON) is a published source."""
    if not isinstance(data, dict) or set(data) != {"schema", "provenance", "devices", "sections"}:
        raise ValueError(f"{file}: it takes schema, provenance, devices and sections")
    if data["schema"] != 1:
        raise ValueError(f"{file}: schema is {_short(data['schema'])}; this course reads 1")
    for part in ("provenance", "devices", "sections"):
        _check_kind(data[part], dict, f"{file}: {part}")
    _check_provenance(data["provenance"], file)
    for name, device in data["devices"].items():
        where = f"{file}: devices.{name[:60]}"
        _check_kind(device, dict, where)
        if set(device) != {"kind", "card"} or device["kind"] not in KINDS:
            raise ValueError(f"{where} is {_short(device)}; it takes a kind and a card")
    for section, rows in data["sections"].items():
        _check_kind(rows, list, f"{file}: {section[:60]}")
        for i, row in enumerate(rows):
            _check_kind(row, dict, f"{file}: {section[:60]}[{i}]")
            _check_row(row, data["devices"], f"{file}: {section[:60]}[{i}]")


def _check_kind(value, kind, where):
    if not isinstance(value, kind) or not value:
        raise ValueError(f"{where} is {_short(value)}; it takes a {kind.__name__} with something")


def _short(value, most=60):
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _check_provenance(provenance, file):
    for field in PROVENANCE:
        where = f"{file}: provenance.{field}"
        if field not in provenance:
            raise ValueError(f"{where} is missing")
        value = provenance[field]
        if not isinstance(value, list if field == "paths" else str):
            raise ValueError(f"{where} is {_short(value)}; it takes a text (paths: a list)")
        if not value and field != "caveat":
            raise ValueError(f"{where} is empty")
    for field in provenance:
        if field not in PROVENANCE:
            there = ", ".join(PROVENANCE)
            raise ValueError(f"{file}: provenance.{field[:60]} is no field; there are {there}")
    if provenance["trust"] not in ("A", "B", "C"):
        trust = _short(provenance["trust"])
        raise ValueError(f"{file}: provenance.trust is {trust}; it takes A, B or C")
    if not provenance["url"].startswith("https://"):
        url = _short(provenance["url"])
        raise ValueError(f"{file}: provenance.url is {url}; it takes https://…")


def _check_row(row, devices, where):
    if not isinstance(row.get("device"), str) or row["device"] not in devices:
        here = _short(list(devices), 200)
        raise ValueError(f"{where}.device is {_short(row.get('device'))}; devices has {here}")
    for field, value in row.items():
        if isinstance(value, (str, bool)):
            continue
        if value is None:
            if not row.get("note"):
                raise ValueError(f"{where}.{field[:60]} is null without a note that says why")
            continue
        most = _most(field, where)
        fits = type(value) in (int, float) and 0 <= value <= most
        if not fits or (value == 0 and field not in NUMBERS):
            shown = _short(value)
            raise ValueError(f"{where}.{field} is {shown}; it takes a number above 0, to {most:g}")


def _most(field, where):
    """The most that `field` may be. ValueError for a number whose name tells no unit."""
    if field in NUMBERS:
        return math.inf
    units = [unit for unit in UNITS if field.endswith(unit)]
    if not units:
        raise ValueError(f"{where}.{field[:60]} has no unit in its name: {', '.join(UNITS)}")
    return UNITS[max(units, key=len)]
