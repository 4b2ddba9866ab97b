"""A forecast as a Chrome trace: the CPU's row, a row for each stream, arrows from launches to kernels."""

from __future__ import annotations

import json
from pathlib import Path

from .log import Launch


def events(forecast) -> list[dict]:
    """The trace's events, times in microseconds; every name of a process says "forecast"."""
    queue = forecast.queue
    rows = sorted({span.row for span in queue.spans if span.row != "cpu"}, key=str)
    numbers = {row: index for index, row in enumerate(rows, 1)} | {"cpu": 0}
    found = names(forecast, rows, numbers)
    for number, span in enumerate(queue.spans):
        found.append(event(span, process(span.row), numbers[span.row]))
        if span.row != "cpu" and isinstance(span.entry, Launch):
            found += arrow(number, span, numbers)
    return found


def process(row) -> int:
    """The trace's number of a process: 0 the CPU, 1 the first GPU."""
    return 0 if row == "cpu" else row[0] + 1


def names(forecast, rows, numbers) -> list[dict]:
    """What the rows are called."""
    card = forecast.card.name
    found = [
        meta("process_name", 0, 0, "forecast: CPU"),
        meta("thread_name", 0, 0, "CPU (forecast)"),
    ]
    for device in sorted({row[0] for row in rows}):
        found.append(meta("process_name", device + 1, 0, f"forecast: GPU {device}, {card}"))
    for row in rows:
        label = f"stream {row[1]}" if isinstance(row[1], int) else row[1]
        found.append(meta("thread_name", process(row), numbers[row], f"{label} (forecast)"))
    return found


def meta(kind, pid, tid, name) -> dict:
    """A name for a process or a thread."""
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def event(span, pid, tid) -> dict:
    """One box."""
    work = getattr(span.entry, "work", None)
    args = {"line": span.entry.place, "kind": "forecast"}
    if span.row != "cpu" and work is not None:
        args |= {"bytes": work.bytes, "FLOPs": work.flops, "bound": span.bound}
    if span.bound == "copy":
        args["bytes"] = span.entry.bytes
    return {
        "ph": "X",
        "name": span.name,
        "cat": "cpu_op" if span.row == "cpu" else span.bound or "kernel",
        "ts": 1e6 * span.start,
        "dur": 1e6 * (span.end - span.start),
        "pid": pid,
        "tid": tid,
        "args": args,
    }


def arrow(number, span, numbers) -> list[dict]:
    """An arrow from a launch to its kernel."""
    common = {"name": "launch", "cat": "ac2g", "id": number}
    start = {"ph": "s", "ts": 1e6 * span.issued - 0.001, "pid": 0, "tid": 0}
    end = {"ph": "f", "bp": "e", "ts": 1e6 * span.start, "pid": process(span.row)}
    return [common | start, common | end | {"tid": numbers[span.row]}]


def write(forecast, path) -> Path:
    """Write the trace to ``path``. ValueError for a name that does not end in ".json"."""
    path = Path(path)
    if path.suffix != ".json":
        raise ValueError(f"path={str(path)!r}: a trace's name ends in .json")
    data = {
        "traceName": f"forecast: {path.name}",
        "displayTimeUnit": "ms",
        "otherData": {"forecast": str(forecast), "steps": forecast.repeat},
        "traceEvents": events(forecast),
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path
