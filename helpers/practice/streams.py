"""Streams and events.

A stream is a queue of work. On a machine that is not asynchronous the work is done by the time a call returns, as if the
GPU were infinitely fast; on an asynchronous one each stream has a thread that does the work in order while the caller
goes on, with empty tensors in hand that are filled in later. Times are the CPU's own; ``torch.cuda._sleep`` takes one
nanosecond a cycle.
"""
import queue
import threading
import time

import torch

from .kernels import DEAD, meta, swap, tensors
from .machine import storage

start_thread = threading.Thread.start  # the original, whatever is patched later


class Streams:
    """The streams of a machine: one default stream a device, those the learner makes, and the threads behind them."""

    def __init__(self, machine):
        self.machine, self.made = machine, []
        owner = self

        class MyStream(Stream):
            """``torch.cuda.Stream``."""
            def __init__(self, device=None, priority=0, **ids):
                super().__init__(owner, machine.device("cuda" if device is None else device), priority)

        class MyEvent(Event):
            """``torch.cuda.Event``."""
            def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
                super().__init__(owner, enable_timing)
        self.Stream, self.Event = MyStream, MyEvent
        MyStream.__name__, MyEvent.__name__ = "Stream", "Event"
        self.default = [MyStream(device) for device in machine.devices]

    def current(self, device):
        """The stream on which this thread's work for ``device`` runs."""
        chosen = getattr(self.machine.local, "streams", None)
        return self.default[device.index] if chosen is None else chosen.get(device.index, self.default[device.index])

    def select(self, stream):
        """``torch.cuda.set_stream``."""
        if stream is not None:
            chosen = self.machine.local.__dict__.setdefault("streams", {})
            chosen[stream.device.index] = stream
            self.machine.set_current(stream.device.index)

    def drain(self, device=None):
        """Wait for all work on ``device``, or on all devices."""
        for stream in self.made:
            if device is None or stream.device == device:
                stream.drain()

    def close(self):
        """Finish the work and end the threads."""
        for stream in self.made:
            stream.end()

    def functions(self):
        """Name → replacement, for the names of ``torch.cuda`` that deal with streams."""
        def find(device=None):
            return self.machine.device("cuda" if device is None else device)

        return {"Stream": self.Stream, "Event": self.Event, "set_stream": self.select,
                "current_stream": lambda device=None: self.current(find(device)),
                "default_stream": lambda device=None: self.default[find(device).index]}

    def launch(self, func, fact, args, kwargs, device):
        """Queue an operator. Returns (True, its result, to be filled in), or (False, None) where it must run at once."""
        machine = self.machine
        sources = [machine.place(t) for t in tensors(args)]
        stream = self.current(device or next(place for place in sources if place is not None))
        blocking = fact.copies and not (kwargs.get("non_blocking") or len(args) > 2 and args[2])
        if blocking or fact.waits or not sources:
            stream.drain()
            return False, None

        def keep(tensor):  # the bytes now, if the CPU may change them; later, if they are on the device or pinned
            place = storage(tensor).practice
            late = machine.place(tensor) is not None or fact.copies and place is machine.pinned \
                or fact.inplace and tensor is args[0]
            return tensor.data if late else tensor.detach().clone()

        if fact.copies and device is None and fact.name == "copy_" and storage(args[0]).practice is not machine.pinned:
            stream.drain()  # CUDA waits for a copy into memory that is not pinned
            return False, None
        for other in {self.current(place) for place in sources if place not in (None, device)} - {stream}:
            stream.wait_stream(other)
        if fact.inplace:
            out = [args[i] for i, write in enumerate(fact.written) if write and i < len(args)]
            out = out[0] if len(func._schema.returns) == 1 else tuple(out) if func._schema.returns else None
            inputs = swap(args, keep), {key: swap(value, keep) for key, value in kwargs.items()}
            stream.put(lambda: func(*inputs[0], **inputs[1]))
            return True, out
        if fact.mutates:
            stream.drain()
            return False, None
        try:
            shapes = func(*swap(args, meta), **{key: swap(value, meta) for key, value in kwargs.items()
                                                if key not in ("device", "generator")})
        except (NotImplementedError, RuntimeError):
            stream.drain()
            return False, None
        inputs = swap(args, keep), {key: swap(value, keep) for key, value in kwargs.items()}
        out = swap(shapes, lambda m: torch.empty_strided(m.size(), m.stride(), dtype=m.dtype).zero_())
        for tensor in tensors((out,) if isinstance(out, torch.Tensor) else out):
            if device is not None:
                machine.put(tensor, device, fact.name)
        goals = [t.data for t in tensors((out,) if isinstance(out, torch.Tensor) else out)]

        def work():
            results = func(*inputs[0], **inputs[1])
            for goal, result in zip(goals, tensors((results,) if isinstance(results, torch.Tensor) else results),
                                    strict=True):
                goal.copy_(result)
        stream.put(work)
        return True, out


class Stream:
    """A queue of work on ``device``."""

    def __init__(self, owner, device, priority=0):
        self.owner, self.device, self.device_index, self.device_type = owner, device, device.index, 1
        self.priority = max(-1, min(priority, 0))
        self.stream_id = self.cuda_stream = len(owner.made)
        self.queue, self.thread, self.error, self.pending, self.done = queue.SimpleQueue(), None, None, 0, 0
        owner.made.append(self)

    def put(self, work):
        """Add work; without threads, do it."""
        if not self.owner.machine.asynchronous:
            work()
            return
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, daemon=True, name=f"practice stream {self.stream_id}")
            start_thread(self.thread)
        self.pending += 1
        self.queue.put(work)

    def _work(self):
        for work in iter(self.queue.get, None):
            try:
                work()
            except Exception as error:  # raised in the caller's thread, by drain
                self.error = self.error or error
            self.done += 1
            del work

    def drain(self):
        """Wait until the work queued so far is done; raises what went wrong in it."""
        if self.thread is not None:
            reached = threading.Event()
            self.queue.put(lambda: (setattr(self, "done", self.done - 1), reached.set()))
            reached.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise torch.AcceleratorError(DEAD.format(error)) if isinstance(error, IndexError) else error

    def end(self):
        """Finish the work and end the thread."""
        if self.thread is not None:
            self.queue.put(None)
            self.thread.join()
            self.thread = None

    def synchronize(self):
        """Wait for this stream."""
        self.owner.machine.synchronized(self)

    def query(self):
        """Whether all work is done."""
        return self.pending == self.done

    def is_capturing(self):
        """No: practice GPUs have no graphs."""
        return False

    def wait_event(self, event):
        """Let later work here wait for ``event``."""
        if event.done is not None:
            self.put(event.done.wait)

    def wait_stream(self, stream):
        """Let later work here wait for the work that ``stream`` has now."""
        self.wait_event(stream.record_event(Event(self.owner)))

    def record_event(self, event=None):
        """Put a mark into this stream."""
        event = self.owner.Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self):
        self.before = self.owner.current(self.device), self.owner.machine.current
        self.owner.select(self)
        return self

    def __exit__(self, *exception):
        self.owner.select(self.before[0])
        self.owner.machine.set_current(self.before[1])

    @staticmethod
    def priority_range():
        """(least, greatest) priority; practice streams take turns as the CPU sees fit."""
        return 0, -5

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """A mark in a stream: when the work before it was done."""

    def __init__(self, owner, timing=False):
        self.owner, self.timing, self.done, self.time, self.device = owner, timing, None, None, None
        self.event_id = self.cuda_event = id(self)

    def record(self, stream=None):
        """Put the mark behind the work that ``stream`` (default: the current one) has now."""
        stream = self.owner.current(self.owner.machine.device("cuda")) if stream is None else stream
        if self.device not in (None, stream.device):
            raise RuntimeError(f"Event device {self.device.index} does not match recording stream's device "
                               f"{stream.device.index}.")
        done, self.device = threading.Event(), stream.device

        def mark():
            self.time = time.perf_counter()
            done.set()
        self.done = done
        stream.put(mark)

    def wait(self, stream=None):
        """Let later work of ``stream`` (default: the current one) wait for this mark."""
        (self.owner.current(self.owner.machine.device("cuda")) if stream is None else stream).wait_event(self)

    def query(self):
        """Whether the work before the mark is done."""
        return self.done is None or self.done.is_set()

    def synchronize(self):
        """Let the CPU wait for the mark."""
        if self.done is not None:
            self.owner.machine.synchronizations += 1
            self.done.wait()

    def elapsed_time(self, end):
        """Milliseconds from this mark to ``end``, on the CPU's clock."""
        if not (self.timing and end.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.done is None or end.done is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end.time - self.time) * 1000

    def __repr__(self):
        return f"<torch.cuda.Event {'uninitialized' if self.done is None else hex(self.event_id)}>"
