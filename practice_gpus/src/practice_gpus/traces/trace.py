"""What happened on GPUs and CPUs during a time: events, spans, and the `Trace` that holds them. Times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

NAMELESS = "not recorded"


class GpuEvent(NamedTuple):
    """One kernel, copy or memset. `launch` is when the CPU called for it (None: not recorded)."""

    name: str
    kind: str  # one of `kernels.CLASSES`
    start: float
    length: float
    rank: int  # the process; of one process with several GPUs, the GPU
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
    rank: int  # of its process
    thread: str
    line: str

    @property
    def end(self) -> float:
        """When it ended."""
        return self.start + self.length


@dataclass(frozen=True)
class Trace:
    """Events in the order of their start. `length` of the window in µs; `memory` as (µs, allocated bytes)."""

    about: dict[str, Any]
    length: float
    gpu: list[GpuEvent] = field(default_factory=list)
    cpu: list[Span] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The GPU's name, with its share of the job; "a GPU" where it was not recorded."""
        name = self.about.get("device", NAMELESS)
        return "a GPU" if name == NAMELESS else name

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
        """Return the trace of one rank; ValueError where it is not recorded.

        The GPUs of one process share its CPU (`about["one_process"]`).
        """
        if number not in self.ranks:
            raise ValueError(f"rank {number!r} is not in this trace; it has {self.ranks}")
        gpu = [event for event in self.gpu if event.rank == number]
        shared = self.about.get("one_process", False)
        cpu = [span for span in self.cpu if shared or span.rank == number]
        memory = self.memory if number == self.ranks[0] else []
        return Trace(self.about, self.length, gpu, cpu, memory)

    def between(self, begin: float, end: float) -> Trace:
        """Return the part from `begin` to `end` µs; events are cut at its borders."""
        if not 0 <= begin < end <= self.length:
            raise ValueError(
                f"between({begin}, {end}): the trace goes from 0 to {self.length:.0f} µs"
            )
        gpu = [_cut(each, begin, end) for each in self.gpu if begin < each.end and each.start < end]
        gpu = [e if e.launch is None else e._replace(launch=e.launch - begin) for e in gpu]
        cpu = [_cut(span, begin, end) for span in self.cpu if begin < span.end and span.start < end]
        memory = [(time - begin, size) for time, size in self.memory if begin <= time < end]
        return Trace(self.about, end - begin, gpu, cpu, memory)


def _cut(event: Any, begin: float, end: float) -> Any:
    """Return `event` without what lies outside `begin` to `end`, on a clock that starts at `begin`."""
    start = max(event.start, begin)
    return event._replace(start=start - begin, length=min(event.end, end) - start)
