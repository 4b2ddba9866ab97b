"""A forecast as a Chrome trace: the CPU's row, a row for each stream, arrows from launches to kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practice_gpus.clock.log import Launch

if TYPE_CHECKING:
    from practice_gpus.clock.forecast import Forecast
    from practice_gpus.clock.queue import Span


def events(forecast: Forecast) -> list[dict]:
    """The trace's events, times in microseconds; every name of a process says "forecast"."""
    spans = forecast.queue.spans or []
    rows = sorted({span.row for span in spans if span.row != "cpu"}, key=str)
    numbers = {row: index for index, row in enumerate(rows, 1)} | {"cpu": 0}
    found = names(forecast, rows, numbers)
    for number, span in enumerate(spans):
        found.append(event(span, process(span.row), numbers[span.row]))
        if span.row != "cpu" and isinstance(span.entry, Launch):
            found += arrow(number, span, numbers)
    return found


def process(row: Any) -> int:
    """The trace's number of a process: 0 the CPU, 1 the first GPU."""
    return 0 if row == "cpu" else row[0] + 1


def names(forecast: Forecast, rows: list, numbers: dict) -> list[dict]:
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


def meta(kind: str, pid: int, tid: int, name: str) -> dict:
    """A name for a process or a thread."""
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def event(span: Span, pid: int, tid: int) -> dict:
    """One box."""
    work = getattr(span.entry, "work", None)
    args: dict = {"line": span.entry.place, "kind": "forecast"}
    if span.row != "cpu" and work is not None:
        args |= {"bytes": work.bytes, "FLOPs": work.flops, "bound": span.bound}
    if span.bound == "copy":
        args["bytes"] = getattr(span.entry, "bytes", 0)
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


def arrow(number: int, span: Span, numbers: dict) -> list[dict]:
    """An arrow from a launch to its kernel."""
    common = {"name": "launch", "cat": "ac2g", "id": number}
    start = {"ph": "s", "ts": 1e6 * span.issued - 0.001, "pid": 0, "tid": 0}
    end = {"ph": "f", "bp": "e", "ts": 1e6 * span.start, "pid": process(span.row)}
    return [common | start, common | end | {"tid": numbers[span.row]}]


def write(forecast: Forecast, path: Any) -> Path:
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
