"""What a recording holds, version 1: sections of rows, units in the names of the fields; and its check.

A field's unit is its ending: `_ms`, `_us` time; `_bytes`; `gb_per_s` 10⁹ bytes a second; `tflop_per_s` 10¹² operations
a second; `images_per_s`. Beside a median stands its interquartile range, `time_iqr_ms`. Every row names its "device".
"""

import difflib
import math

VERSION = 1

KINDS = {  # what a field takes: its test and its words
    "text": (
        lambda v: isinstance(v, str) and v != "" and not any("\ud800" <= c <= "\udfff" for c in v),
        "a text",
    ),
    "flag": (lambda v: isinstance(v, bool), "true or false"),
    "count": (lambda v: type(v) is int and 0 <= v < 2**63, "a whole number of 0 or more"),
    "above 1": (lambda v: type(v) is int and 2 <= v < 2**63, "a whole number of 2 or more"),
    "above 0": (lambda v: type(v) in (int, float) and 0 < v < 1e300, "a number above 0"),
    "0 or more": (lambda v: type(v) in (int, float) and 0 <= v < 1e300, "a number of 0 or more"),
    "share": (lambda v: type(v) in (int, float) and 0 <= v <= 1, "a number from 0 to 1"),
    "shares": (
        lambda v: isinstance(v, list) and all(type(x) in (int, float) and 0 <= x <= 1 for x in v),
        "a list of numbers from 0 to 1",
    ),
    "texts": (
        lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v),
        "a list of texts",
    ),
}
TIME = {"time_ms": "above 0", "time_iqr_ms": "0 or more"}
RATE = {**TIME, "images_per_s": "above 0"}
PARTS = ("parameters", "gradients", "optimizer", "activations", "other")

SECTIONS = {  # field: kind; a question mark allows null (not known, not measured)
    # product of two [size, size] matrices; dtype "tf32" is float32 on tensor cores
    "matmul": {"size": "count", "dtype": "text", **TIME, "tflop_per_s": "above 0"},
    # between CPU and device; direction "h2d" (to the device) or "d2h"
    "copies": {
        "bytes": "count",
        "direction": "text",
        "pinned": "flag",
        **TIME,
        "gb_per_s": "above 0",
    },
    # within the device's memory; bytes are those read and written
    "bandwidth": {"operation": "text", "bytes": "count", **TIME, "gb_per_s": "above 0"},
    # one tiny operation; way "queued" (many in a row, then one wait) or "waited" (a wait after each)
    "launch": {
        "operation": "text",
        "way": "text",
        "time_us": "above 0",
        "time_iqr_us": "0 or more",
    },
    # gradients summed over processes; gb_per_s is what one link of a ring carries, 2 (n - 1) / n of the bytes
    "all_reduce": {
        "processes": "above 1",
        "backend": "text",
        "bytes": "count",
        **TIME,
        "gb_per_s": "above 0",
    },
    "forward": {"network": "text", "batch": "count", "dtype": "text", **RATE},
    # a step on data that is on the device: forward, loss, backward, Adam
    # peak_bytes: most at once, above what was there before
    "training": {
        "network": "text",
        "batch": "count",
        "precision": "text",
        **RATE,
        "peak_bytes": "count?",
    },
    # bytes at the peak of a step, forecast and measured; the five parts are the forecast's
    "memory": {
        "network": "text",
        "batch": "count",
        "precision": "text",
        "optimizer": "text",
        **{f"{part}_bytes": "count" for part in PARTS},
        "forecast_bytes": "count",
        "measured_bytes": "count?",
    },
    # the same work, timed in ways "first", "naive", "synchronized", "events", "benchmark"
    "timing_ways": {"operation": "text", "way": "text", **TIME},
    # one training step, from torch.profiler; lane "CPU" or "GPU"
    "timeline": {
        "lane": "text",
        "name": "text",
        "start_us": "0 or more",
        "duration_us": "0 or more",
    },
    # a test loop; way "each batch" (one synchronization a batch) or "once"
    "evaluation": {"network": "text", "way": "text", "batch": "count", "batches": "count", **RATE},
    # one change after another to the loop of lesson 04; rung counts from 0. time_ms: of a step, loader included;
    # setup_s: of the first one; accuracy: median of accuracies, one a seed; kept: later rungs have this change too
    "ladder": {
        "rung": "count",
        "name": "text",
        "network": "text",
        "batch": "count",
        "precision": "text",
        **RATE,
        "setup_s": "0 or more",
        "peak_bytes": "count?",
        "accuracy": "share?",
        "accuracies": "shares",
        "kept": "flag",
    },
}
# load_average: programs that wanted a core when it began (the minute before); done: parts that are finished
PROVENANCE = {
    "date": "text",
    "code": "text",
    "command": "text",
    "python": "text",
    "torch": "text",
    "cuda": "text?",
    "rocm": "text?",
    "cudnn": "text?",
    "nccl": "text?",
    "driver": "text?",
    "system": "text",
    "cpu": "text",
    "cores": "count",
    "load_average": "0 or more?",
    "quick": "flag",
    "complete": "flag",
    "done": "texts",
}
DEVICE = {
    "name": "text",
    "kind": "text",
    "memory_bytes": "count?",
    "multiprocessors": "count?",
    "capability": "text?",
    "l2_bytes": "count?",
    "bandwidth_bytes_per_s": "0 or more?",
    "generation": "text?",
}

# A number that follows from others of its row, which catches a wrong unit: field, formula
FOLLOWS = {
    "matmul": ("tflop_per_s", lambda r: 2 * r["size"] ** 3 / r["time_ms"] / 1e9),
    "copies": ("gb_per_s", lambda r: r["bytes"] / r["time_ms"] / 1e6),
    "bandwidth": ("gb_per_s", lambda r: r["bytes"] / r["time_ms"] / 1e6),
    "all_reduce": (
        "gb_per_s",
        lambda r: 2 * (r["processes"] - 1) / r["processes"] * r["bytes"] / r["time_ms"] / 1e6,
    ),
    "forward": ("images_per_s", lambda r: 1e3 * r["batch"] / r["time_ms"]),
    "training": ("images_per_s", lambda r: 1e3 * r["batch"] / r["time_ms"]),
    "ladder": ("images_per_s", lambda r: 1e3 * r["batch"] / r["time_ms"]),
    "evaluation": ("images_per_s", lambda r: 1e3 * r["batch"] * r["batches"] / r["time_ms"]),
    "memory": ("forecast_bytes", lambda r: sum(r[f"{part}_bytes"] for part in PARTS)),
}


def check(data, source):
    """Raise ValueError, naming `source` (a file) and the field, unless `data` (parsed JSON) is a recording."""
    _dict(data, source, "the file")
    if "schema" in data and type(data["schema"]) is int and data["schema"] > VERSION:
        raise ValueError(
            f"{source}: schema is {_shown(data['schema'])}; this copy reads {VERSION}: update the course"
        )
    if data.get("schema") != VERSION:
        raise ValueError(f"{source}: schema is {_shown(data.get('schema'))}; it takes {VERSION}")
    _names(data, ("schema", "provenance", "devices", "sections"), source, "")
    _row(data["provenance"], PROVENANCE, source, "provenance")
    for name, device in _dict(data["devices"], source, "devices").items():
        _row(device, DEVICE, source, f"devices.{_short(name)}")
    if not data["devices"]:
        raise ValueError(f"{source}: devices is empty; it takes one device or more")
    for section, rows in _dict(data["sections"], source, "sections").items():
        _section(section, rows, data["devices"], source)


def _section(section, rows, devices, source):
    where = f"sections.{_short(section)}"
    if section not in SECTIONS:
        raise ValueError(f"{source}: {where} is no section; there are {', '.join(SECTIONS)}")
    if not isinstance(rows, list):
        raise ValueError(f"{source}: {where} is {_shown(rows)}; it takes a list of rows")
    for i, row in enumerate(rows):
        _row(row, {"device": "text", **SECTIONS[section]}, source, f"{where}[{i}]")
        if row["device"] not in devices:
            raise ValueError(
                f"{source}: {where}[{i}].device is {_shown(row['device'])}; devices has "
                f"{_short(', '.join(devices), 200)}"
            )
        if section in FOLLOWS:
            _follows(row, *FOLLOWS[section], f"{source}: {where}[{i}]")


def _follows(row, field, formula, where):
    expected = formula(row)
    if not math.isclose(row[field], expected, rel_tol=0.01):
        raise ValueError(
            f"{where}.{field} is {_shown(row[field])}; by the other fields of its row it is "
            f"{expected:.4g}: is one of them in another unit?"
        )


def _row(row, fields, source, where):
    _names(_dict(row, source, where), fields, source, where + ".")
    for name, kind in fields.items():
        test, words = KINDS[kind.rstrip("?")]
        if not (test(row[name]) or (row[name] is None and kind.endswith("?"))):
            words += " or null" if kind.endswith("?") else ""
            raise ValueError(f"{source}: {where}.{name} is {_shown(row[name])}; it takes {words}")


def _names(row, fields, source, where):
    """Every field is there, and no other: a field in another unit has another name."""
    for name in row:
        if name not in fields:
            near = difflib.get_close_matches(name, [f for f in fields if f not in row], 1, 0.5)
            advice = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(fields)}"
            raise ValueError(f"{source}: {where}{_short(name)} is no field of the schema{advice}")
    for name in fields:
        if name not in row:
            raise ValueError(f"{source}: {where}{name} is missing")


def _dict(value, source, where):
    if not isinstance(value, dict):
        raise ValueError(
            f"{source}: {where} is {_shown(value)}; it takes an object of names and values"
        )
    return value


def _shown(value):
    return _short(repr(value))


def _short(text, most=60):
    return text if len(text) <= most else text[: most - 3] + "..."
