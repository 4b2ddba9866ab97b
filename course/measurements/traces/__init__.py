"""What real GPUs did: extracts of published profiler traces, and any torch.profiler trace of yours.

`case("4a")` reads one extract of this folder, `case_names()` lists them; `load("my_trace.json.gz")` reads a Chrome trace
that `torch.profiler` exported. Both return a `Trace`. `python3 -m course reduce_trace` writes the extracts; nobody edits
them. Times are microseconds from the beginning of the trace's window, to 0.1 µs.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

__all__ = ["GpuEvent", "Span", "Trace", "case", "case_names", "load"]
FOLDER = Path(__file__).parent
VERSION = 1
NONE = -(10**12)  # a launch that was not recorded


class GpuEvent(NamedTuple):
    """One kernel, copy or memset. `launch` is when the CPU called for it (None: not recorded)."""

    name: str
    kind: str  # one of measurements.traces.kernels.CLASSES
    start: float
    length: float
    rank: int
    stream: int
    launch: float | None
    operator: str  # such as "aten::mm"; empty where it was not recorded
    shapes: str  # of its inputs, such as "[[64, 512], [512, 512]]"
    line: str  # of Python, such as "modeling_bert.py(391): forward"
    bytes: int  # of a copy or memset; 0 for kernels

    @property
    def end(self) -> float:
        """When it ended."""
        return self.start + self.length


class Span(NamedTuple):
    """What a thread of the CPU did, if it took 100 µs or more beside the spans inside it."""

    name: str
    start: float
    length: float
    rank: int
    thread: str
    line: str

    @property
    def end(self) -> float:
        """When it ended."""
        return self.start + self.length


@dataclass(frozen=True)
class Trace:
    """Events in the order of their start. `length` of the window in µs; `memory` as (µs, allocated bytes)."""

    about: dict
    length: float
    gpu: list = field(default_factory=list)
    cpu: list = field(default_factory=list)
    memory: list = field(default_factory=list)

    @property
    def device(self) -> str:
        """The GPU's name, with its share of the job."""
        return self.about.get("device", "a GPU")

    @property
    def source(self) -> str:
        """Where it comes from, in a line; empty for a trace of your own."""
        source = self.about.get("source", {})
        if not source:
            return ""
        return f"{source['repository']} @ {source['commit'][:7]}, {source['licence']}"

    @property
    def ranks(self) -> list[int]:
        """The ranks whose GPUs are in the trace."""
        return sorted({event.rank for event in self.gpu})

    def rank(self, number: int) -> Trace:
        """Return the trace of one rank; ValueError where it is not recorded."""
        if number not in self.ranks:
            raise ValueError(f"rank {number!r} is not in this trace; it has {self.ranks}")
        gpu = [event for event in self.gpu if event.rank == number]
        cpu = [span for span in self.cpu if span.rank == number]
        return Trace(
            self.about, self.length, gpu, cpu, self.memory if number == self.ranks[0] else []
        )

    def between(self, begin: float, end: float) -> Trace:
        """Return the part from `begin` to `end` µs; events are cut at its borders."""
        if not 0 <= begin < end <= self.length:
            raise ValueError(
                f"between({begin}, {end}): the trace goes from 0 to {self.length:.0f} µs"
            )
        gpu = [
            _cut(event, begin, end) for event in self.gpu if begin < event.end and event.start < end
        ]
        gpu = [e if e.launch is None else e._replace(launch=e.launch - begin) for e in gpu]
        cpu = [_cut(span, begin, end) for span in self.cpu if begin < span.end and span.start < end]
        memory = [(time - begin, size) for time, size in self.memory if begin <= time < end]
        return Trace(self.about, end - begin, gpu, cpu, memory)


def _cut(event, begin, end):
    """Return `event` without what lies outside `begin` to `end`, on a clock that starts at `begin`."""
    start = max(event.start, begin)
    return event._replace(start=start - begin, length=min(event.end, end) - start)


def case_names() -> list[str]:
    """Return the names of the extracts, such as "1a" and "10"."""
    names = [path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz")]
    return sorted(names, key=lambda name: (int(name.rstrip("ab")), name))


def case(name: str) -> Trace:
    """Return the `Trace` of the extract `name`; ValueError with the names that there are."""
    path = FOLDER / f"{name}.json.gz"
    if not path.is_file():
        raise ValueError(f"there is no case {name!r}; there are {', '.join(case_names())}")
    return decode(json.loads(gzip.decompress(path.read_bytes())))


def load(source: str | Path | dict | list) -> Trace:
    """Return the `Trace` of `source`: a Chrome trace of torch.profiler as path (.json, .json.gz, .tar.gz) or dict.

    It takes the extracts of reduce_trace, too.

    ValueError, one sentence, for what is none: a file that is cut off, without GPU events, or of another profiler.
    """
    from course.measurements.traces.chrome import read

    return read(source)


def encode(trace: Trace) -> dict:
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


def decode(data: dict) -> Trace:
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
