"""Streams and events of practice GPUs."""
import time

import torch


class Streams:
    """The streams of one machine."""

    def __init__(self, machine):
        self.machine = machine
        self.default = [Stream(self, device, 0) for device in machine.devices]
        self.made = 0

    def current(self, device):
        chosen = getattr(self.machine.local, "streams", {})
        return chosen.get(device.index, self.default[device.index])

    def select(self, stream):
        if stream is not None:
            if not hasattr(self.machine.local, "streams"):
                self.machine.local.streams = {}
            self.machine.local.streams[stream.device.index] = stream
            self.machine.set_current(stream.device.index)

    def close(self):
        """Finish all work."""

    def functions(self):
        """Name → replacement for the names of ``torch.cuda`` that deal with streams."""
        owner = self

        class PracticeStream(Stream):
            def __init__(self, device=None, priority=0, **kwargs):
                owner.made += 1
                device = owner.machine.device("cuda" if device is None else device)
                super().__init__(owner, device, owner.made)

        def find(device=None):
            return owner.machine.device("cuda" if device is None else device)

        return {"Stream": PracticeStream, "Event": Event, "current_stream": lambda device=None: self.current(find(device)),
                "default_stream": lambda device=None: self.default[find(device).index], "set_stream": self.select}


class Stream:
    """A queue of work; it completes at once."""

    def __init__(self, owner, device, number):
        self.owner, self.device, self.stream_id, self.device_index = owner, device, number, device.index
        self.device_type, self.cuda_stream = 1, number

    def synchronize(self):
        self.owner.machine.synchronized()

    def query(self):
        return True

    def is_capturing(self):
        return False

    def wait_event(self, event):
        pass

    def wait_stream(self, stream):
        pass

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self):
        self.before = self.owner.current(self.device), self.owner.machine.current
        self.owner.select(self)
        return self

    def __exit__(self, *exception):
        self.owner.select(self.before[0])
        self.owner.machine.set_current(self.before[1])


class Event:
    """A mark in a stream."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self.timing, self.time = enable_timing, None

    def record(self, stream=None):
        self.time = time.perf_counter()

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        if not self.timing or not end.timing:
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.time is None or end.time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end.time - self.time) * 1000
