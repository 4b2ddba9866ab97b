"""What a step asks of the machine, in order: kernels, copies, waits, marks. `machine.Machine.clock` is one, or None.

It knows no card: `queue` plays it on any.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from practice_gpus.clock.work import Work, schema, tensors, work
from practice_gpus.machine import Observer, line, origin

if TYPE_CHECKING:
    from practice_gpus.clock.queue import Queue
    from practice_gpus.machine import DeviceEvent as Event
    from practice_gpus.machine import Machine, Stream
    from practice_gpus.pytorch import Call

in_backward = torch._C._current_graph_task_id


@dataclass(slots=True)
class Entry:
    """One thing the CPU did: at which ``place`` (file:line), for which ``stream`` (its number) of which ``device``."""

    place: str
    stream: int
    device: int


@dataclass(slots=True)
class Launch(Entry):
    """A kernel; ``seconds`` where they are given (``torch.cuda._sleep``), not forecast."""

    work: Work
    backward: bool = False
    seconds: float | None = None


@dataclass(slots=True)
class Copy(Entry):
    """A copy: "h2d", "d2h" or "d2d" (then from GPU ``source``)."""

    direction: str
    bytes: int
    pinned: bool = False
    source: int = -1


@dataclass(slots=True)
class Wait(Entry):
    """The CPU waits: for ``stream``, for ``mark`` if there is one, for the whole ``device`` if ``stream`` is -1."""

    reason: str = ""
    mark: int | None = None


@dataclass(slots=True)
class Mark(Entry):
    """An event recorded in a stream; the event carries ``mark``."""

    mark: int


@dataclass(slots=True)
class Join(Entry):
    """A stream waits for a mark."""

    mark: int


@dataclass(slots=True)
class Host(Entry):
    """An operator on tensors of the CPU: bytes moved by the CPU."""

    name: str
    bytes: int


@dataclass(slots=True)
class Reduce(Entry):
    """Bytes that the GPUs exchange, beside the kernels of their streams: ``times`` 2 for an all-reduce, 1 for a gather or scatter.

    ``per_node`` of the GPUs are in a machine, each with a network card of ``nic`` GB/s.
    """

    bytes: int
    gpus: int
    times: int
    per_node: int
    nic: float


@contextlib.contextmanager
def recording(machine: Machine) -> Iterator[Any]:
    """A `Log` whose ``entries`` are what happens on a machine in here."""
    log = Log(machine)
    log.entries = []
    machine.observers.append(log)
    try:
        yield log
    finally:
        machine.observers.remove(log)


class Log(Observer):
    """Collects entries: in ``entries``, and in ``queue`` (a `queue.Queue`) if there is one, as they come."""

    def __init__(self, machine: Machine, queue: Queue | None = None) -> None:
        self.machine = machine
        self.queue = queue
        self.entries: list[Entry] | None = None
        self.marks = 0
        self.forward = 0  # bytes: the peak until the first backward pass
        self.process = os.getpid()

    def add(self, entry: Entry) -> None:
        """Take an entry."""
        if self.entries is not None:
            self.entries.append(entry)
        if self.queue is not None:
            self.queue.play(entry)

    def here(
        self, device: torch.device | None = None, stream: Stream | None = None
    ) -> tuple[str, int, int]:
        """(line of the person's own, number of the stream, number of the device), an `Entry`'s first fields."""
        file, number = line(origin())
        place = f"{os.path.basename(file)}:{number}" if file else ""
        if stream is None:
            stream = self.machine.streams.current(device)
        return place, stream.stream_id, stream.device_index

    def operator(self, call: Call, out: Any) -> None:
        """An operator ran: on a GPU, unless it only copied to or from one, or on the CPU."""
        fact = call.fact
        if fact.view or call.func.namespace == "prim" or os.getpid() != self.process:
            return  # nothing moves, or a forked worker loads data
        if call.home is None:
            if not fact.copies and not self._between(call, out):
                self._host(call, out)
            return
        if fact.copies and self._between(call, out):
            return  # counted as a copy
        here = self.here(call.home)
        backward = in_backward() >= 0
        if backward and self.entries is not None and not self.forward:
            self.forward = torch.cuda.max_memory_allocated()
        for each in work(call.func, call.args, call.kwargs, out):
            self.add(Launch(*here, each, backward))

    def _between(self, call, out) -> bool:
        """Whether an operator's tensors are in different places."""
        both = [*call.inputs, *tensors(out)]
        return len({self.machine.place(tensor) for tensor in both}) > 1

    def _host(self, call, out) -> None:
        size = sum(tensor.nbytes for tensor in (*call.inputs, *tensors(out)) if tensor.dim())
        if size > 1 << 20:
            self.add(Host(*self.here(), schema(call.func)[0], size))

    def copied(
        self, direction: str, tensor: torch.Tensor, goal: torch.device | None, pinned: bool
    ) -> None:
        """A copy between CPU and GPUs, to the device ``goal`` (None: the CPU)."""
        source = self.machine.place(tensor)
        size = tensor.nbytes if tensor.layout == torch.strided else 0
        number = -1 if source is None else source.index
        device = goal if direction != "d2h" else source
        self.add(Copy(*self.here(device), direction, size, pinned, number))

    def waited(
        self,
        stream: Stream | None,
        device: torch.device | None,
        event: Event | None,
        reason: str,
    ) -> None:
        """The CPU waits for a stream, an event in it, or all of a device."""
        mark = event.marks.get(self) if event is not None else None
        if stream is None:
            place = self.here()[0]
            self.add(Wait(place, -1, self.machine.device(device).index, reason, mark))
        else:
            self.add(Wait(*self.here(stream=stream), reason, mark))

    def marked(self, event: Event, stream: Stream) -> None:
        """An event is recorded."""
        self.marks += 1
        event.marks[self] = self.marks
        self.add(Mark(*self.here(stream=stream), self.marks))

    def joined(self, event: Event, stream: Stream) -> None:
        """A stream waits for an event."""
        if self in event.marks:
            self.add(Join(*self.here(stream=stream), event.marks[self]))

    def elapsed(self, start: Event, end: Event) -> float:
        """Forecast milliseconds between two events."""
        assert self.queue is not None  # a log that forecasts has one
        marks = self.queue.marks
        return 1e3 * (marks[end.marks[self]] - marks[start.marks[self]])

    def slept(self, stream: Any, seconds: Any) -> None:
        """``torch.cuda._sleep``."""
        self.add(Launch(*self.here(stream=stream), Work("_sleep", [], []), False, seconds))
