"""Why a GPU is idle: each gap is charged to what the CPU did in it, by the names of its calls.

A gap belongs to the cause whose calls take most of it, if causes explain at least half. What they don't explain is the
time between launches: the CPU works through many short calls, each of which starts a kernel or prepares one. A call of the
driver that takes long on an idle GPU, even a launch, loads code or sets something up: it is a start, and isn't repeated.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from practice_gpus.traces.intervals import innermost, merged
from practice_gpus.traces.reading import gaps, total
from practice_gpus.traces.trace import Span, Trace

LONG = (
    1000.0  # µs: launching a kernel takes 5 to 100, so a gap that is longer has a cause of its own
)
STARTING = 100_000.0  # µs: the first call of all creates the context; later ones give memory back in 1 to 50 ms
SHORT = 20.0  # µs: a gap in which no span of `host.SHORTEST` fits isn't looked up
HALF = 0.5

_DRIVER = re.compile(r"^(?:cuda|hip|cu|ze|ur)[A-Z]")
_STARTS = re.compile(
    r"_dynamo|_inductor|compile_fx|jit\.py|triton/compiler|ModuleLoad|GraphInstantiate"
)
_AROUND = re.compile(  # names of a part of the program, or of waiting for another thread: they explain nothing
    r"^ProfilerStep|^##|^Optimizer\.|^DistributedDataParallel|^nn\.Module|Backward\d*$|run_backward|acquire|"
    r": (forward|backward|step|main|run|call|<module>|<lambda>|_?\w*call\w*|wrapper|inner|decorate_context|train\w*)$"
)
_LOADER = r"DataLoader(Iter)?[#.]|(data_?loader|fetchers?|webdataset|dali)[^(]*\(\d+\): _*(next|iter|fetch|get|try)"
_CAUSES = (
    ("loader", re.compile(_LOADER, re.IGNORECASE)),
    ("allocator", re.compile(r"^(?:cuda|hip)(?:Malloc|Free)|^cuMem(?:Unmap|Map|Create|Release)")),
    ("sync", re.compile(r"Synchronize|Memcpy|_local_scalar_dense|aten::item|aten::nonzero")),
)
# What such a call is if it lasts: the first allocation starts CUDA, and who waits long for an idle GPU waits for work
# that isn't in the trace.
_LASTING = {"allocator": (STARTING, "start"), "sync": (LONG, "missing")}
CAUSES = ("start", "loader", "allocator", "sync", "missing", "host", "launches", "unrecorded")


class Wait(NamedTuple):
    """A gap of the GPU, why it is there (one of `CAUSES`) and the name of the CPU's longest call of that kind."""

    start: float
    length: float
    cause: str
    call: str


def waits(trace: Trace) -> list[Wait]:
    """Return the gaps of one rank's `trace`, the longest first, each with its cause."""
    if not trace.cpu and all(event.launch is None for event in trace.gpu):
        causes = ("launches", "unrecorded")
        return [Wait(start, length, causes[length >= LONG], "") for start, length in gaps(trace)]
    around = _Calls(span for span in trace.cpu if _CAUSES[0][1].search(span.name))
    calls = _Calls(span for span in innermost(trace.cpu) if not _AROUND.search(span.name))
    read = {round(event.end, 1) for event in trace.gpu if "DtoH" in event.name}
    found = []
    for start, length in gaps(trace):
        cause, call = _cause(start, length, around, calls)
        if (
            cause == "launches" and round(start, 1) in read
        ):  # the CPU had nothing in the queue, because it waited
            cause, call = "sync", "a copy from the GPU"
        found.append(Wait(start, length, cause, call))
    return found


def _cause(start, length, around, calls):
    """Return (cause, the name of its longest call) of a gap."""
    if length < SHORT:
        return "launches", ""
    loading = around.within(start, start + length)
    if total(merged([s._replace(start=s.start - start) for s in loading], length)) >= HALF * length:
        return "loader", loading[0].name
    times: dict[str, Counter[str]] = defaultdict(Counter)
    for span in calls.within(start, start + length):
        inside = min(span.end, start + length) - max(span.start, start)
        times[_cause_of(span, inside)][span.name] += inside
    found = {cause: sum(names.values()) for cause, names in times.items() if cause != "launches"}
    if sum(found.values()) < HALF * length:
        return "launches", ""
    cause = max(found, key=found.__getitem__)
    return cause, times[cause].most_common(1)[0][0]


def _cause_of(span, inside):
    """Return what a call of `inside` µs in a gap says about it."""
    if inside >= LONG and _STARTS.search(span.name):
        return "start"
    for cause, pattern in _CAUSES:
        if pattern.search(span.name):
            limit, instead = _LASTING.get(cause, (math.inf, cause))
            return instead if inside >= limit else cause
    if inside < LONG:
        return "launches"
    return "start" if _DRIVER.search(span.name) else "host"


class _Calls:
    """Spans of threads, to be found by time: in one thread they don't overlap, or each lies in the one before."""

    def __init__(self, spans: Iterable[Span]) -> None:
        threads = defaultdict(list)
        for span in spans:
            threads[span.rank, span.thread].append(span)
        self._threads = []
        for own in threads.values():
            own.sort(key=lambda span: span.start)
            longest = max(span.length for span in own)
            self._threads.append((own, [span.start for span in own], longest))

    def within(self, begin: float, end: float) -> list[Span]:
        """Return the spans that have a part between two times."""
        found = []
        for own, starts, longest in self._threads:
            first, last = bisect_left(starts, begin - longest), bisect_right(starts, end)
            found += [span for span in own[first:last] if span.end > begin and span.start < end]
        return found
