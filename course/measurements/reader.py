"""Reads the files of this room: `published("sort_v100").rows(synchronized=True)`, `recordings()`.

In published files and in recordings a field's unit is the end of its name, such as `time_ms` or `gb_per_s` (10⁹ bytes
per second). What a file may hold is written in `published.schema.json` and `recording.schema.json`.
"""

import difflib
import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from course.measurements import groups
from helpers.plots import Group

HERE = Path(__file__).parent
PUBLISHED = HERE / "published"
RECORDINGS = HERE / "recordings"
VERSION = 3  # of the schema of recordings

Row = dict[str, Any]


@dataclass(frozen=True)
class Published:
    """Numbers of one source. `provenance`: who, how, and its caveat; `devices` by name; `sections`: lists of rows."""

    name: str
    provenance: dict[str, Any]
    devices: dict[str, dict]
    sections: dict[str, list[Row]]

    @property
    def source(self) -> str:
        """One short line for a figure: who measured, and when."""
        return f"{self.provenance['repository']}, {self.provenance['measured']}"

    @property
    def url(self) -> str:
        """The page on which the numbers stand."""
        return self.provenance["url"]

    @property
    def caveat(self) -> str:
        """What a figure of these numbers has to say beside them; "" where there is nothing."""
        return self.provenance["caveat"]

    def rows(self, section: str | None = None, **where: Any) -> list[Row]:
        """Rows as dicts, with "device" and "device_kind", of one `section` or of all.

        `where` keeps rows with these values: rows("matmul", dtype="float16"). ValueError for a section or field that
        the source does not have lists those it has.
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

    def group(
        self,
        y: str,
        x: str | None = None,
        by: str = "device",
        section: str | None = None,
        **where: Any,
    ) -> Group:
        """What a chart draws: field `y` by the label in field `by`; with a field `x`, (xs, ys) a label.

        `section` and `where` choose rows; a list takes any of its values and their order: device=["Tesla T4", "Tesla P4"].
        ValueError where no row fits, and where one label would have two values.
        """
        values = groups.of_rows(self.name, self.rows(section), y, x, by, where)
        return Group("published", values, [f"published: {self.source}"])


def published_names() -> list[str]:
    """The names that `published` takes."""
    return sorted(path.stem for path in PUBLISHED.glob("*.json"))


@cache
def published(name: str) -> Published:
    """The `Published` numbers of the source called `name`; ValueError for an unknown name."""
    names = published_names()
    if name not in names:
        near = difflib.get_close_matches(str(name), names, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"name is {name!r}; {advice}")
    data = _parsed(PUBLISHED / f"{name}.json")
    return Published(name, data["provenance"], data["devices"], data["sections"])


@dataclass(frozen=True)
class Recording:
    """One run of the record command: `provenance`, `devices` by name (best first), `sections`: lists of rows."""

    path: Path
    provenance: dict[str, Any]
    devices: dict[str, dict]
    sections: dict[str, list[Row]]

    @property
    def label(self) -> str:
        """Best device and date, for figures: "NVIDIA H200, 2026-11-20"."""
        return self.label_of(next(iter(self.devices)))

    @property
    def busy(self) -> bool:
        """Whether other programs kept more than half of the cores at work when it began, so that CPU times are high."""
        return (self.provenance["load_average"] or 0) > self.provenance["cores"] / 2

    def identity(self, device: str) -> str:
        """What tells one of the `devices` from others: its name; of a CPU also the number of its cores."""
        name = self.devices[device]["name"]
        is_cpu = self.devices[device]["kind"] == "cpu"
        return f"{name}, {self.provenance['cores']} cores" if is_cpu else name

    def label_of(self, device: str) -> str:
        """Name and date of one of the `devices`; a CPU says how many cores it had, and whether it was busy."""
        is_cpu = self.devices[device]["kind"] == "cpu"
        busy = " (busy)" if is_cpu and self.busy else ""
        return f"{self.identity(device)}{busy}, {self.provenance['date'][:10]}"

    def rows(self, section: str, device: str | None = None) -> list[Row]:
        """Rows of `section` with "device_kind", only those of `device` (such as "cpu") if given; none if not measured.

        ValueError for an unknown section or device.
        """
        if section not in sections():
            raise ValueError(f"section is {section!r}; there are {', '.join(sections())}")
        if device is not None and device not in self.devices:
            raise ValueError(f"device is {device!r}; there are {', '.join(self.devices)}")
        return [
            {**row, "device_kind": self.devices[row["device"]]["kind"]}
            for row in self.sections.get(section, [])
            if device in (None, row["device"])
        ]


def load(path: str | Path) -> Recording:
    """The Recording in the file `path`. FileNotFoundError, or ValueError that names the file and the field."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path is {str(path)!r}, and there is no such file")
    data = _parsed(path)
    check(data, path.name)
    return Recording(path, data["provenance"], data["devices"], data["sections"])


def recordings() -> list[Recording]:
    """Every Recording that the course has, GPUs first, then by file name."""
    loaded = [load(path) for path in sorted(RECORDINGS.glob("*.json"))]
    return sorted(loaded, key=lambda each: all(d["kind"] == "cpu" for d in each.devices.values()))


@cache
def _schema(kind: str) -> dict[str, Any]:
    return json.loads((HERE / f"{kind}.schema.json").read_text(encoding="utf-8"))


def sections() -> dict[str, list[str]]:
    """The sections of a recording, each with the fields of its rows."""
    properties = _schema("recording")["properties"]["sections"]["properties"]
    return {name: rows["items"]["required"] for name, rows in properties.items()}


def check(data: Any, file: str, kind: str = "recording") -> None:
    """Raise ValueError unless `data` follows the schema of its `kind`, "recording" or "published".

    The error names `file`, the field, what came and what fits. Beyond the schema, each row's device must be listed.
    """
    jsonschema = schema_checker()
    errors = jsonschema.Draft202012Validator(_schema(kind)).iter_errors(data)
    error = jsonschema.exceptions.best_match(errors)
    if error is not None:
        field = error.json_path.removeprefix("$").lstrip(".") or "the file"
        raise ValueError(f"{file}: {field}: {_short(error.message)}")
    for section, rows in data["sections"].items():
        for i, row in enumerate(rows):
            if row["device"] not in data["devices"]:
                there = ", ".join(data["devices"])
                field = f"sections.{section}[{i}].device"
                raise ValueError(f"{file}: {field} is {row['device']!r}; devices has {there}")


def schema_checker() -> ModuleType:
    """The package jsonschema, without its check of international addresses.

    No schema here asks for that check, and reading its grammar takes 1.5 s: a lesson's first figure would wait for it.
    """
    grammar = "rfc3987_syntax"
    hidden = "jsonschema" not in sys.modules and grammar not in sys.modules
    if hidden:
        sys.modules[grammar] = None  # type: ignore[assignment]  # its import fails, which jsonschema expects
    try:
        import jsonschema
    finally:
        if hidden:
            del sys.modules[grammar]
    return jsonschema


def _parsed(path: Path) -> Any:
    """The JSON in a file, or a ValueError that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name}: not a JSON file in UTF-8 ({error})") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:100]} … {text[-97:]}"
