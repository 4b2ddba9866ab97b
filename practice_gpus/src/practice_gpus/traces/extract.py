"""Extracts: a `Trace` as a small JSON object, with tables of texts and times as differences in 0.1 µs."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from practice_gpus.traces.trace import GpuEvent, Span, Trace

VERSION = 1
NONE = -(10**12)  # a launch that was not recorded


def encode(trace: Trace) -> dict[str, Any]:
    """Return `trace` as a JSON object: tables of texts, columns of integers in 0.1 µs, times as differences."""
    kernels, operators, streams, spans = Table(), Table(), Table(), Table()
    gpu = sorted(trace.gpu, key=lambda e: (e.rank, e.stream, e.start))
    return {
        "version": VERSION,
        "about": trace.about,
        "length": _tenths(trace.length),
        "gpu": {
            "kernel": [kernels.index([e.name, e.kind]) for e in gpu],
            "gap": _gaps(gpu),
            "length": [_tenths(e.length) for e in gpu],
            "stream": [streams.index([e.rank, e.stream]) for e in gpu],
            "launch": _differences(
                [_tenths(e.launch) if e.launch is not None else NONE for e in gpu]
            ),
            "operator": [operators.index([e.operator, e.shapes, e.line]) for e in gpu],
            "bytes": [[i, e.bytes] for i, e in enumerate(gpu) if e.bytes],
        },
        "cpu": {
            "span": [spans.index([s.name, s.thread, s.line, s.rank]) for s in trace.cpu],
            "start": _differences([_tenths(s.start) for s in trace.cpu]),
            "length": [_tenths(s.length) for s in trace.cpu],
        },
        "memory": {
            "time": _differences([_tenths(time) for time, _ in trace.memory]),
            "bytes": _differences([size for _, size in trace.memory]),
        },
        "kernels": kernels.rows,
        "operators": operators.rows,
        "streams": streams.rows,
        "spans": spans.rows,
    }


def decode(data: dict[str, Any]) -> Trace:
    """Return the `Trace` that `encode` wrote."""
    if data.get("version") != VERSION:
        raise ValueError(f"an extract of version {data.get('version')!r}; this reads {VERSION}")
    gpu, cpu, memory = data["gpu"], data["cpu"], data["memory"]
    sizes = dict(gpu["bytes"])
    events = []
    launches = list(accumulate(gpu["launch"]))
    end = 0
    for i, gap in enumerate(gpu["gap"]):
        start = end + gap
        end = start + gpu["length"][i]
        launch = None if launches[i] == NONE else launches[i] / 10
        kernel = data["kernels"][gpu["kernel"][i]]
        place = data["streams"][gpu["stream"][i]]
        operator = data["operators"][gpu["operator"][i]]
        time = (start / 10, gpu["length"][i] / 10)
        fields = (*kernel, *time, *place, launch, *operator, sizes.get(i, 0))
        events.append(GpuEvent._make(fields))
    events.sort(key=lambda e: e.start)
    spans = []
    for row, start, length in zip(
        cpu["span"], accumulate(cpu["start"]), cpu["length"], strict=True
    ):
        name, thread, line, rank = data["spans"][row]
        spans.append(Span(name, start / 10, length / 10, rank, thread, line))
    times = [time / 10 for time in accumulate(memory["time"])]
    levels = list(zip(times, accumulate(memory["bytes"]), strict=True))
    return Trace(data["about"], data["length"] / 10, events, spans, levels)


class Table:
    """Rows of text, each stored once."""

    def __init__(self):
        self.rows = []
        self._places = {}

    def index(self, row: list) -> int:
        """Return the place of `row`, which is added where it is new."""
        key = tuple(row)
        if key not in self._places:
            self._places[key] = len(self.rows)
            self.rows.append(list(row))
        return self._places[key]


def _tenths(microseconds):
    return round(10 * microseconds)


def _gaps(events):
    """Return the 0.1 µs between each event's start and the end of the one before it; they compress well."""
    starts = [_tenths(event.start) for event in events]
    ends = [start + _tenths(event.length) for start, event in zip(starts, events, strict=True)]
    return [start - end for start, end in zip(starts, [0, *ends], strict=False)]


def _differences(values):
    return [after - before for before, after in zip([0, *values], values, strict=False)]
