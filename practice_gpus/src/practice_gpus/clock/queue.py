"""The CPU issues work, each stream does it in order: a simulation of a machine's queues, one entry of a `log` at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from practice_gpus.cards import Card
from practice_gpus.clock.cache import Cache
from practice_gpus.clock.cpu import own
from practice_gpus.clock.kernel_times import (
    SHORTEST,
    copy_seconds,
    exchange_seconds,
    limits,
    link_seconds,
)
from practice_gpus.clock.log import Copy, Entry, Host, Join, Launch, Mark, Reduce, Wait

HOST_BYTES = 10e9  # bytes a second that an operator on the CPU reads and writes
REDUCED = -1  # the mark of the latest all-reduce


@dataclass(slots=True)
class Span:
    """Something that takes time, in seconds from the start: ``row`` is "cpu" or (device, stream)."""

    name: str
    start: float
    end: float
    row: object
    entry: Entry
    bound: str = ""
    issued: float = 0.0


@dataclass
class Queue:
    """A machine of ``card``s, at some moment. The other fields are what may be changed to ask "what if?".

    ``issue``: seconds of the CPU for each operator; ``slow``: factor on the time of kernels and copies; ``waits``: whether the
    CPU waits where it is told to; ``pin``: whether all copies are pinned and the CPU doesn't wait for them; ``skip``: a
    place (file:line) for which both are so; ``host``: whether the CPU's own operators take time; ``shortest``: seconds of the
    shortest kernel.
    """

    card: Card
    issue: float = field(default_factory=lambda: own().issue)
    slow: float = 1.0
    waits: bool = True
    pin: bool = False
    host: bool = True
    shortest: float = SHORTEST
    skip: str | None = None
    cpu: float = 0.0
    ends: dict = field(default_factory=lambda: defaultdict(float))  # (device, stream) → seconds
    engines: dict = field(default_factory=lambda: defaultdict(float))  # (device, what) → seconds
    marks: dict = field(default_factory=dict)
    caches: dict = field(default_factory=dict)  # device → its `Cache`
    spans: list[Span] | None = None

    def play(self, entry: Entry) -> None:
        """One more thing that the CPU does."""
        PLAYS[type(entry)](self, entry)

    def finish(self) -> float:
        """Seconds until all work is done."""
        return max(self.cpu, *self.ends.values(), 0.0)

    def take(self, seconds: float, name: str, entry: Any) -> None:
        """The CPU is busy."""
        start, self.cpu = self.cpu, self.cpu + seconds
        if self.spans is not None and seconds:
            self.spans.append(Span(name, start, self.cpu, "cpu", entry))

    def run(
        self, entry: Copy | Launch, engine: str | None, seconds: float, name: str, bound: str
    ) -> float:
        """A stream does something when it is free, and so is the engine: what fills the GPU runs alone there."""
        row = entry.device, entry.stream
        start = max(self.cpu, self.ends[row])
        if engine is not None:
            start = max(start, self.engines[entry.device, engine])
        end = self.ends[row] = start + seconds
        if engine is not None:
            self.engines[entry.device, engine] = end
        if self.spans is not None:
            self.spans.append(Span(name, start, end, row, entry, bound, self.cpu))
        return end

    def launch(self, entry: Launch) -> None:
        """A kernel."""
        self.take(self.issue, f"launch {entry.work.name}", entry)
        if entry.seconds is not None:
            self.run(entry, None, entry.seconds, entry.work.name, "launch")
            return
        if entry.device not in self.caches:
            self.caches[entry.device] = Cache(self.card)
        cached = self.caches[entry.device].found(entry.work)
        possible = limits(entry.work, self.card, self.shortest, cached)
        bound = max(possible, key=lambda limit: possible[limit])
        seconds = possible[bound] * (self.slow if bound != "launch" else 1)
        engine = "kernels" if bound != "launch" else None
        self.run(entry, engine, seconds, entry.work.name, bound)

    def copy(self, entry: Copy) -> None:
        """A copy: the CPU takes part in it where memory is not pinned."""
        pinned = entry.pinned or self.pin or self.skip == entry.place
        self.take(self.issue, f"launch copy {entry.direction}", entry)
        if entry.direction == "d2d":
            other = entry.source, 0
            self.ends[entry.device, entry.stream] = max(
                self.ends[entry.device, entry.stream], self.ends[other]
            )
            seconds = link_seconds(entry.bytes, self.card)
        else:
            seconds = copy_seconds(entry.bytes, self.card, pinned)
        name = f"copy {entry.direction}" + (" (pageable)" if not pinned else "")
        end = self.run(entry, entry.direction, seconds * self.slow, name, "copy")
        if (
            not pinned and entry.direction != "d2d" and entry.bytes > 65536
        ):  # smaller ones are staged at once
            self.take(max(0.0, end - self.cpu), "copy from pageable memory", entry)

    def wait(self, entry: Wait) -> None:
        """The CPU waits."""
        if not self.waits or self.pin and entry.reason == "h2d" or self.skip == entry.place:
            return
        if entry.mark is not None:
            until = self.marks.get(entry.mark, 0.0)
        elif entry.stream >= 0:
            until = self.ends[entry.device, entry.stream]
        else:
            until = max([end for row, end in self.ends.items() if row[0] == entry.device] or [0.0])
        self.take(max(0.0, until - self.cpu), f"wait {entry.reason}".strip(), entry)

    def mark(self, entry: Mark) -> None:
        """An event: when the stream comes to it."""
        self.marks[entry.mark] = max(self.cpu, self.ends[entry.device, entry.stream])

    def join(self, entry: Join) -> None:
        """A stream waits for an event."""
        row = entry.device, entry.stream
        self.ends[row] = max(self.ends[row], self.marks.get(entry.mark, 0.0))

    def work(self, entry: Host) -> None:
        """The CPU computes."""
        if self.host:
            self.take(entry.bytes / HOST_BYTES, f"cpu {entry.name}", entry)

    def reduce(self, entry: Reduce) -> None:
        """An exchange, in a stream of its own."""
        self.ends["reduce"] = max(self.ends["reduce"], self.ends[entry.device, entry.stream])
        seconds = exchange_seconds(entry, self.card) * self.slow
        start = max(self.cpu, self.ends["reduce"])
        self.ends["reduce"] = self.marks[REDUCED] = start + seconds
        if self.spans is not None:
            row = entry.device, "all-reduce"
            self.spans.append(
                Span(
                    "all_reduce" if entry.times == 2 else "gather or scatter",
                    start,
                    start + seconds,
                    row,
                    entry,
                    "reduce",
                    self.cpu,
                )
            )


PLAYS: dict[type, Callable] = {
    Launch: Queue.launch,
    Copy: Queue.copy,
    Wait: Queue.wait,
    Mark: Queue.mark,
    Join: Queue.join,
    Host: Queue.work,
    Reduce: Queue.reduce,
}


def play(entries: list[Entry], card: Card, **what_if: Any) -> Queue:
    """A `Queue` of ``card``s that has played ``entries``, with the `Span`s of all."""
    queue = Queue(card, **what_if)
    queue.spans = []
    for entry in entries:
        queue.play(entry)
    return queue
