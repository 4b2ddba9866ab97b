"""What a timeline shows of a trace: its rows, and blocks that are wide enough to be seen."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from course.measurements.traces import Trace
from helpers import plots
from practice_gpus.traces import idle, innermost, merged

NAMES = {"matmul": "matmul, convolution", "normalization": "normalization, softmax"}
COLORS = {
    **{NAMES.get(kind, kind): color for kind, color in plots.KERNELS.items()},
    "communication": plots.COMM,
    "copy": plots.COPY,
    "CPU": plots.CPU,
    "CPU, short calls": "#B4CAE8",
    "CPU, in the driver": plots.WAIT,
}
_DRIVER = re.compile(
    r"^(?:cuda|hip|cu)[A-Z]|^wait|pageable"
)  # a call of 100 µs and more mostly waits
_AROUND = re.compile(r"^(?:ProfilerStep|## )|run_torch_profiler|: main$|: <module>$")
_BUILT_IN = re.compile(r"^<built-in method (\w+) of.*")


class Block(NamedTuple):
    """Something drawn: one event, or several that are too close together to be told apart. Times in µs."""

    row: int
    start: float
    end: float
    kind: str
    name: str
    line: str
    launch: float | None
    busy: float  # µs in which something runs
    events: int

    @property
    def density(self) -> float:
        """The share of the block in which something runs, in steps of 10 %: joined blocks have gaps inside."""
        length = self.end - self.start
        return 1 if self.events == 1 else min(1, max(0.1, round(self.busy / length, 1)))


@dataclass
class Rows:
    """The rows of a timeline from top to bottom, and what they hold. `memory` as (µs, bytes)."""

    labels: list
    blocks: list
    length: float
    busy: list  # (start, end, busy µs) of the GPU, close ones joined
    gaps: list  # (start, end) of the longest
    cpu: list  # its longest calls, for the question what the CPU did
    launch_row: int | None
    ranks: int = 1
    memory: list = field(default_factory=list)
    memory_row: int | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds that occur, in the order of the legend."""
        present = {block.kind for block in self.blocks}
        return [kind for kind in COLORS if kind in present]

    def arrows(self, most: int = 60) -> list[tuple]:
        """Return (launch, start, row) of at most `most` kernels whose launch is known, evenly picked."""
        if self.launch_row is None:
            return []
        known = [(b.launch, b.start, b.row) for b in self.blocks if b.launch is not None]
        return known[:: max(1, -(-len(known) // most))]


def lay_out(trace: Trace, detail: int = 200) -> Rows:
    """Return the `Rows` of `trace`, with at most about `detail` blocks for the CPU and the GPU each.

    A thread and a stream each have a row; with several ranks, each rank has one.
    """
    several = len(trace.ranks) > 1
    calls = [] if several else [_piece(span) for span in innermost(trace.cpu) if span.end > 0]
    cpu = _threads(calls, trace.length, detail)
    gpu = _ranks(trace, detail) if several else _streams(trace, detail)
    launches = [] if several else [e for e in trace.gpu if e.launch is not None and e.launch >= 0]
    labels = [label for label, _ in cpu]
    rows = [blocks for _, blocks in cpu]
    launch_row = None
    if launches:
        launch_row = len(labels)
        labels.append("launches")
        rows.append(_launches(launches, trace.length, detail))
    labels += [label for label, _ in gpu]
    rows += [blocks for _, blocks in gpu]
    blocks = [block._replace(row=row) for row, own in enumerate(rows) for block in own]
    intervals = merged(trace.gpu, trace.length)
    gaps = sorted(idle(intervals, trace.length), key=lambda gap: gap[0] - gap[1])[:40]
    known = Rows(
        labels,
        blocks,
        trace.length,
        _coarse(intervals, detail),
        gaps,
        _longest(calls, trace.length, max(detail, 120)),
        launch_row,
        len(trace.ranks),
    )
    if trace.memory:
        known.memory, known.memory_row = trace.memory, len(labels)
        peak = max(size for _, size in trace.memory)
        labels.append(f"memory (to {plots.number(peak / 1e9)} GB)")
    return known


def _longest(calls, length, most):
    """The longest calls, at most so many. Unlike joined blocks, each holds one name only."""
    known = []
    for thread, block in sorted(calls, key=lambda call: call[0]):
        same = known and known[-1][0] == (thread, block.name)
        if same and block.start - known[-1][1].end < length / 2000:
            known[-1] = known[-1][0], known[-1][1]._replace(end=block.end)
        elif block.kind != "CPU, short calls":
            known.append(((thread, block.name), block))
    longest = sorted(known, key=lambda call: call[1].start - call[1].end)
    return [block for _, block in longest[:most]]


def _threads(pieces, length, detail):
    names = list(dict.fromkeys(thread for thread, _ in pieces))
    names.sort(key=lambda name: (name != "Python", name != "autograd", name))
    rows = [(name, [block for thread, block in pieces if thread == name]) for name in names]
    limit = detail // max(1, len(rows))
    return [(name, join(blocks, length, limit)) for name, blocks in rows]


def _piece(span):
    kind = "CPU, short calls" if _AROUND.search(span.name) else "CPU"
    if _DRIVER.search(span.name):
        kind = "CPU, in the driver"
    line = span.line or (span.name if ".py(" in span.name else "")
    name = _BUILT_IN.sub(r"\1", span.name.removeprefix("enumerate(DataLoader)#"))
    return span.thread, Block(0, span.start, span.end, kind, name, line, None, span.length, 1)


def _streams(trace, detail):
    streams = list(dict.fromkeys(event.stream for event in trace.gpu))
    found = []
    for stream in streams:
        own = [event for event in trace.gpu if event.stream == stream]
        found.append((_stream_label(stream, own), own))
    found = _told_apart(found, streams)
    found.sort(key=lambda row: (row[0][1] != "s", -len(row[1])))
    kept = [row for row in found if len(row[1]) > 1 or len(found) < 4][:5]
    limit = detail // len(kept)
    return [(label, join(_blocks(own), trace.length, limit)) for label, own in kept]


def _stream_label(stream, events):
    kinds = {event.kind for event in events}
    if kinds <= {"communication"}:
        return "communication"
    if kinds <= {"copy", "memset"}:
        return "copies"
    return f"GPU, stream {stream}"


def _told_apart(rows, streams):
    """`rows`, whose labels name their stream where two would be called the same."""
    labels = [label for label, _ in rows]
    return [
        (label if labels.count(label) == 1 else f"{label}, stream {stream}", own)
        for (label, own), stream in zip(rows, streams, strict=True)
    ]


def _ranks(trace, detail):
    limit = max(40, detail // len(trace.ranks))
    rows = [(rank, trace.rank(rank).gpu) for rank in trace.ranks]
    return [(f"rank {rank}", join(_blocks(own), trace.length, limit)) for rank, own in rows]


def _blocks(events):
    """Return one block for each event; what communicates is drawn above what runs beside it."""
    ordered = sorted(events, key=lambda e: e.start)
    return [
        Block(0, e.start, e.end, _kind(e), _name(e), e.line, e.launch, e.length, 1) for e in ordered
    ]


def _kind(event):
    return "copy" if event.kind == "memset" else NAMES.get(event.kind, event.kind)


def _name(event):
    work = f" · {event.operator} {event.shapes}" if event.operator and event.length >= 20 else ""
    return (event.name + work)[:72]


def _launches(events, length, detail):
    width = length / 1500
    ordered = sorted(events, key=lambda e: e.launch)
    blocks = [
        Block(0, e.launch, e.launch + width, "CPU", f"launch of {e.name}", e.line, None, width, 1)
        for e in ordered
        if e.launch < length
    ]
    return join(blocks, length, detail // 2)


def join(blocks: list[Block], length: float, limit: float) -> list[Block]:
    """Return `blocks` (by start) with neighbors joined until there are at most `limit`, the closest first."""
    near = length / 8000
    while len(blocks) > limit:
        near *= 1.5
        blocks = _joined(blocks, near)
    return blocks


def _joined(blocks, near):
    joined = []
    for block in blocks:
        last = joined[-1] if joined else None
        small = last and min(last.end - last.start, block.end - block.start) < near
        if last and block.start - last.end < near and (small or last.kind == block.kind):
            joined[-1] = _together(last, block)
        else:
            joined.append(block)
    return joined


def _together(first, second):
    main = first if first.busy >= second.busy else second
    name = main.name.split(" · ")[0]
    return main._replace(
        start=min(first.start, second.start),
        end=max(first.end, second.end),
        name=name,
        launch=first.launch,
        busy=first.busy + second.busy,
        events=first.events + second.events,
    )


def _coarse(intervals, limit):
    """Return `intervals` as (start, end, busy µs), the closest ones joined."""
    blocks = [Block(0, *pair, "other", "", "", None, pair[1] - pair[0], 1) for pair in intervals]
    length = intervals[-1][1] if intervals else 1
    return [(block.start, block.end, block.busy) for block in join(blocks, length, limit)]
