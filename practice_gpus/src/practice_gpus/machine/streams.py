"""Streams and events.

A stream is a queue of work. Usually the work is done by the time a call returns, as if the GPU were infinitely fast. On
an asynchronous machine each stream has a thread that works in order while the caller goes on, with tensors in hand that
are filled in later. Times are the CPU's own; ``torch.cuda._sleep`` takes one nanosecond a cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import torch

from practice_gpus.machine import backward
from practice_gpus.machine.errors import invalid_handle, is_asserted

if TYPE_CHECKING:
    from practice_gpus.machine.machine import Machine


PYTORCHS = {"Stream": torch.cuda.Stream, "Event": torch.cuda.Event}


class Streams:
    """The streams of a machine: one default stream a device, those the learner makes, and the threads behind them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.by_id: list[Stream] = []
        self.Stream = Kind(
            "Stream", (Stream,), {"owner": self, "__doc__": "``torch.cuda.Stream``."}
        )
        self.DeviceEvent = Kind(
            "Event", (DeviceEvent,), {"owner": self, "__doc__": "``torch.Event``."}
        )
        self.Event = Kind("Event", (Event, self.DeviceEvent), {"__doc__": "``torch.cuda.Event``."})
        self.default = [self.Stream(device) for device in machine.devices]

    def current(self, device: int | torch.device | None = None) -> Stream:
        """The stream on which this thread's work for ``device`` runs."""
        return self.at(self.machine.device(device).index)

    def at(self, index: int) -> Stream:
        """`current` for the number of a device."""
        local = self.machine.local
        if not local.changes and not local.inside[0]:
            return local.streams.get(index) or self.default[index]
        node = backward.node_now()
        if node is None:
            return local.streams.get(index) or self.default[index]
        stream = backward.streams_of(local, node).get(index) or self.default[index]
        if local.latest not in (None, stream):
            latest, local.latest = local.latest, stream
            stream.wait_stream(latest)
        return stream

    def select(self, stream: Stream) -> None:
        """``torch.cuda.set_stream``."""
        if stream is None:
            return
        local = self.machine.local
        self.machine.select(stream.device_index)
        node = backward.node_now()
        if node is not None:
            backward.choose(local, node, stream)
            return
        if stream is self.default[stream.device_index]:
            local.streams.pop(stream.device_index, None)
        else:
            local.streams[stream.device_index] = stream
        backward.changed(local)

    def drain(self, device: torch.device | None = None) -> None:
        """Wait for all work on ``device``, or on all devices."""
        for stream in self.by_id:
            if device in (None, stream.device):
                stream.drain()

    def close(self) -> None:
        """Finish the work and end the threads."""
        for stream in self.by_id:
            stream.thread.shutdown()


def sleep_until(moment: float) -> None:
    """Wait for a moment on the CPU's clock."""
    seconds = moment - perf_counter()
    if seconds > 0:
        sleep(seconds)


class Kind(type):
    """The type of streams and events, of which PyTorch's own classes, and those derived from them, count as subclasses."""

    def __subclasscheck__(cls, other):
        own = any(PYTORCHS.get(base.__name__) in other.__mro__ for base in cls.__mro__)
        return own or super().__subclasscheck__(other)


class Stream:
    """A queue of work on ``device``."""

    owner: Streams

    def __new__(cls, device=None, priority=0, stream_id=None, **place):
        return object.__new__(cls) if stream_id is None else cls.owner.by_id[stream_id]

    def __init__(
        self,
        device: torch.device | None = None,
        priority: int = 0,
        stream_id: int | None = None,
        **place: Any,
    ) -> None:
        if stream_id is not None:
            return  # one that was made before
        self.device = self.owner.machine.device(device)
        self.priority = max(-3, min(priority, 0))
        self.device_index = self.device.index
        self.device_type = 1
        self.stream_id = len(self.owner.by_id)
        self.cuda_stream = self.stream_id
        self.last: Any = None
        self.error = None
        self.busy_until = 0.0  # by `sleep`, without threads
        # started by the first work
        self.thread = ThreadPoolExecutor(1, f"practice stream {self.stream_id}")
        self.owner.by_id.append(self)

    def put(self, work: Callable) -> Any:
        """Add work, and return the future of it; without threads, do it and return None."""
        if not self.owner.machine.asynchronous:
            work()
            return self.last
        try:
            self.last = self.thread.submit(self._do, work)
        except RuntimeError:  # Python ends, or the machine has: no thread takes work any more
            self._do(work)
        return self.last

    def sleep(self, seconds: float) -> None:
        """``torch.cuda._sleep``: be busy for so long; without threads the CPU's clock tells whether that is over."""
        if self.owner.machine.asynchronous:
            self.put(lambda: sleep(seconds))
        else:
            self.busy_until = self.free_at() + seconds

    def free_at(self) -> float:
        """When the work so far is done, on the CPU's clock; without threads."""
        return max(perf_counter(), self.busy_until)

    def _do(self, work):
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                work()
        except Exception as error:  # raised in the caller's thread, by drain
            self.error = self.error or error

    def drain(self) -> None:
        """Wait until the work queued so far is done, and what it held is given back; raises what went wrong in it."""
        if self.last is not None:
            self.put(lambda: None).result()
        sleep_until(self.busy_until)
        error = self.error
        self.error = None
        if error is not None:
            raise self.owner.machine.asserted(self.device, error) if is_asserted(error) else error

    def synchronize(self) -> None:
        """Let the CPU wait for this stream."""
        self.owner.machine.waits(self)

    def query(self) -> bool:
        """Whether all work is done."""
        busy = self.busy_until > perf_counter()
        return not busy and (self.last is None or self.last.done())

    def is_capturing(self) -> bool:
        """No: practice GPUs have no graphs."""
        return False

    def wait_event(self, event: DeviceEvent) -> None:
        """Let later work here wait for ``event``."""
        for observer in self.owner.machine.observers:
            observer.joined(event, self)
        if event.mark is not None:
            self.put(event.mark.result)
        elif event.time is not None:
            self.busy_until = max(self.busy_until, event.time)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work here wait for the work that ``stream`` has now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Any = None) -> Event:
        """Put a mark (a new one, if none is given) into this stream, and return it."""
        event = event or self.owner.Event()
        event.record(self)
        return event

    @staticmethod
    def priority_range() -> Any:
        """(least, greatest) priority; practice streams take turns as the CPU sees fit."""
        return 0, -3  # max_compile_time_stream_priorities of CUDAStream.h is 4

    def __enter__(self):
        self.before = self.owner.current(self.device), self.owner.machine.local.index
        self.owner.select(self)
        return self

    def __exit__(self, *exception):
        self.owner.select(self.before[0])
        self.owner.machine.select(self.before[1])

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle 'Stream' object")


class DeviceEvent:
    """A mark in a stream: when the work before it was done."""

    owner: Streams

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: Any = False,
        blocking: Any = False,
        interprocess: Any = False,
    ) -> None:
        if torch.device(device or "cuda").type != "cuda":
            raise NotImplementedError(
                f"practice GPUs have events of CUDA devices only, not of {device}"
            )
        self.timing = enable_timing
        self.mark = None
        self.time = None
        self.marks: dict = {}  # log of a clock → the number of this event in it
        self.device = None
        self.event_id = self.cuda_event = 0  # made by the first record

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind the work that ``stream`` (default: the current one) has now."""
        stream = stream or self.owner.current()
        if self.device not in (None, stream.device):
            raise RuntimeError(
                f"Event device {self.device.index} does not match recording stream's device "
                f"{stream.device.index}."
            )
        self.device = stream.device
        self.event_id = self.cuda_event = id(self)
        for observer in self.owner.machine.observers:
            observer.marked(self, stream)
        self.time = None
        self.mark = stream.put(lambda: self._note_time(stream))

    def _note_time(self, stream):
        self.time = stream.free_at()

    def wait(self, stream: Any = None) -> None:
        """Let later work of ``stream`` (default: the current one) wait for this mark."""
        (stream or self.owner.current()).wait_event(self)

    def query(self) -> bool:
        """Whether the work before the mark is done."""
        if self.mark is not None:
            return self.mark.done()
        return self.time is None or self.time <= perf_counter()

    def synchronize(self) -> None:
        """Let the CPU wait for the mark."""
        if self.device is not None:
            self.owner.machine.waited(device=self.device, event=self)
        if self.mark is not None:
            self.mark.result()
        elif self.time is not None:
            sleep_until(self.time)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this mark to ``end``: on the CPU's clock, or, with ``clock=True``, as forecast."""
        if not (self.timing and end.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.device is None or end.device is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self.device != end.device:
            raise invalid_handle()
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        clock = self.owner.machine.clock
        if clock is not None and clock.queue is not None:
            return clock.elapsed(self, end)
        return (end.time - self.time) * 1000

    def __repr__(self):
        return (
            f"<torch.cuda.Event {'uninitialized' if self.device is None else hex(self.event_id)}>"
        )

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle 'Event' object")


class Event(DeviceEvent):
    """The same with the arguments of ``torch.cuda.Event``."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        super().__init__(enable_timing=enable_timing)
