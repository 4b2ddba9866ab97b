"""The check of a recording: every field is there, is of its type, and follows from the others where it must."""

import math
from dataclasses import fields

from measurements.rows import SECTIONS, VERSION, Device, Provenance


def check(data, source):
    """Raise ValueError, naming `source` (a file) and the field, unless `data` (parsed JSON) is a recording."""
    _object(data, source, "the file")
    version = data.get("schema")
    if type(version) is int and version > VERSION:
        raise ValueError(f"{source}: schema is {version}; this copy reads {VERSION}: update it")
    if version != VERSION:
        raise ValueError(f"{source}: schema is {_shown(version)}; it takes {VERSION}")
    _same_names(data, ("schema", "provenance", "devices", "sections"), source, "")
    check_row(Provenance, data["provenance"], f"{source}: provenance")
    for name, device in _object(data["devices"], source, "devices").items():
        check_row(Device, device, f"{source}: devices.{_short(name)}")
    if not data["devices"]:
        raise ValueError(f"{source}: devices is empty; it takes one device or more")
    for section, rows in _object(data["sections"], source, "sections").items():
        _check_section(section, rows, data["devices"], source)


def _check_section(section, rows, devices, source):
    where = f"{source}: sections.{_short(section)}"
    if section not in SECTIONS:
        raise ValueError(f"{where} is no section; there are {', '.join(SECTIONS)}")
    if not isinstance(rows, list):
        raise ValueError(f"{where} is {_shown(rows)}; it takes a list of rows")
    for i, row in enumerate(rows):
        checked = check_row(SECTIONS[section], row, f"{where}[{i}]")
        if checked.device not in devices:
            here = _short(", ".join(devices), 200)
            raise ValueError(f"{where}[{i}].device is {_shown(checked.device)}; devices has {here}")
        if hasattr(checked, "follows"):
            _check_follows(checked, f"{where}[{i}]")


def _check_follows(row, where):
    """A number that follows from others of its row, which catches a wrong unit or an edited number."""
    field, expected = row.follows()
    if not math.isclose(getattr(row, field), expected, rel_tol=0.01):
        raise ValueError(
            f"{where}.{field} is {_shown(getattr(row, field))}; by the other fields of its row it is "
            f"{expected:.4g}: is one of them in another unit?"
        )


def check_row(kind, row, where):
    """`row` as a `kind` of row. ValueError that names `where` and the field, if it does not fit."""
    _object(row, where, "")
    _same_names(row, [field.name for field in fields(kind)], where, ".")
    for field in fields(kind):
        words = _problem(row[field.name], field)
        if words:
            raise ValueError(f"{where}.{field.name} is {_shown(row[field.name])}; it takes {words}")
    return kind(**row)


def _problem(value, field):
    """What the field takes, in words, where `value` does not fit; else None."""
    takes = str(field.type).replace("<class '", "").replace("'>", "")
    optional = takes.endswith(" | None")
    kind = takes.removesuffix(" | None")
    if value is None and optional:
        return None
    test, words = _TESTS[kind]
    if kind == "float" and value == 0 and not field.name.endswith(_MAY_BE_ZERO):
        return words
    return None if test(value) else words + (" or null" if optional else "")


_MAY_BE_ZERO = ("_iqr_ms", "load_average", "bandwidth_bytes_per_s")
_TESTS = {
    "str": (lambda v: isinstance(v, str) and v != "" and v.isprintable(), "a text"),
    "bool": (lambda v: isinstance(v, bool), "true or false"),
    "int": (lambda v: type(v) is int and 0 <= v < 2**63, "a whole number of 0 or more"),
    "float": (lambda v: type(v) in (int, float) and 0 <= v < 1e300, "a number above 0"),
    "list": (lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v), "a list"),
}


def _same_names(row, takes, source, dot):
    """Every field is there, and no other: a field in another unit has another name."""
    for name in row:
        if name not in takes:
            there = ", ".join(takes)
            raise ValueError(
                f"{source}{dot or ': '}{_short(name)} is no field here; there are {there}"
            )
    for name in takes:
        if name not in row:
            raise ValueError(f"{source}{dot or ': '}{name} is missing")


def _object(value, source, what):
    if not isinstance(value, dict):
        place = f"{source}: {what}" if what else source
        raise ValueError(f"{place} is {_shown(value)}; it takes an object of names and values")
    return value


def _shown(value):
    return _short(repr(value))


def _short(text, most=60):
    return text if len(text) <= most else text[: most - 3] + "..."
