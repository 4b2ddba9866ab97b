"""Streams, events and synchronization."""

from __future__ import annotations

from typing import Any

import torch

from practice_gpus.situations.placement import on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

STREAM = DOCS + "generated/torch.cuda.Stream.html"
EVENT = DOCS + "generated/torch.cuda.Event.html"
SOURCE = CODE + "c10/cuda/CUDAEvent.h"


def timed() -> torch.cuda.Event:
    """Return an event that measures time."""
    return torch.cuda.Event(enable_timing=True)


def recorded(**options: Any) -> torch.cuda.Event:
    """Return an event that was recorded and has completed."""
    event = torch.cuda.Event(**options)
    event.record()
    event.synchronize()
    return event


def at_default() -> bool:
    """Return whether the current stream is the default one."""
    return torch.cuda.current_stream() == torch.cuda.default_stream()


STREAMS = {
    "device of a stream": lambda: torch.cuda.Stream().device,
    "current stream is the default": at_default,
    "a new stream is another": lambda: torch.cuda.Stream() == torch.cuda.current_stream(),
    "query of an idle stream": lambda: (
        torch.cuda.synchronize(),
        torch.cuda.current_stream().query(),
    ),
    "synchronize a stream": lambda: torch.cuda.Stream().synchronize(),
    "default stream in words": lambda: repr(torch.cuda.default_stream()),
    "handle of the default stream": lambda: torch.cuda.default_stream().cuda_stream,
    "priority": lambda: (torch.cuda.Stream().priority, torch.cuda.Stream(priority=-1).priority),
    "priority range": lambda: [type(p) for p in torch.cuda.Stream.priority_range()],
    "stream type": lambda: (
        type(torch.cuda.current_stream()),
        isinstance(torch.cuda.Stream(), torch.Stream),
    ),
    "wait_stream": lambda: torch.cuda.current_stream().wait_stream(torch.cuda.Stream()),
    "record_event gives an event": lambda: type(torch.cuda.current_stream().record_event()),
    "record_stream": lambda: on().record_stream(torch.cuda.Stream()),
    "record_stream of a CPU tensor": lambda: torch.ones(1).record_stream(torch.cuda.Stream()),
    "stream past the last device": lambda: torch.cuda.Stream(device=99),
    "synchronize": lambda: torch.cuda.synchronize(),
    "synchronize a device": lambda: torch.cuda.synchronize("cuda:0"),
    "synchronize past the last": lambda: torch.cuda.synchronize(99),
    "synchronize the CPU": lambda: torch.cuda.synchronize("cpu"),
    "accelerator synchronize": lambda: torch.accelerator.synchronize(),
    "accelerator current stream": lambda: torch.accelerator.current_stream().device,
}
table(STREAM, STREAMS)
STREAMS_OF_TWO = {
    "stream on cuda:1": lambda: torch.cuda.Stream("cuda:1").device,
    "current stream of cuda:1": lambda: torch.cuda.current_stream(1).device,
}
table(STREAM, STREAMS_OF_TWO, gpus=2)
EVENTS = {
    "query before record": lambda: torch.cuda.Event().query(),
    "query after record": lambda: recorded().query(),
    "record gives nothing": lambda: torch.cuda.Event().record(),
    "synchronize before record": lambda: torch.cuda.Event().synchronize(),
    "event in words before record": lambda: repr(torch.cuda.Event()),
    "device of an event before record": lambda: torch.cuda.Event().device,
    "device of an event": lambda: recorded().device,
    "wait for an event": lambda: torch.cuda.current_stream().wait_event(recorded()),
    "event type": lambda: isinstance(torch.cuda.Event(), torch.Event),
}
table(EVENT, EVENTS)
REFUSED = {
    "elapsed time without timing": lambda: recorded().elapsed_time(recorded()),
    "elapsed time of one with timing": lambda: recorded(enable_timing=True).elapsed_time(
        recorded()
    ),
    "elapsed time before record": lambda: timed().elapsed_time(timed()),
    "elapsed time before the second record": lambda: recorded(enable_timing=True).elapsed_time(
        timed()
    ),
}
table(SOURCE, REFUSED)


@situation(STREAM)
def stream_context() -> Any:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        return torch.cuda.current_stream() == stream


@situation(STREAM)
def after_the_stream_context() -> Any:
    with torch.cuda.stream(torch.cuda.Stream()):
        pass
    return at_default()


@situation(STREAM)
def no_stream_context() -> Any:
    with torch.cuda.stream(None):
        return at_default()


@situation(STREAM, gpus=2)
def stream_context_moves_the_device() -> Any:
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        return torch.cuda.current_device()


@situation(STREAM)
def result_made_in_a_stream() -> Any:
    stream = torch.cuda.Stream()
    x = on()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x + 1
    torch.cuda.current_stream().wait_stream(stream)
    return y.tolist(), y.device


@situation(EVENT)
def elapsed_time() -> Any:
    milliseconds = recorded(enable_timing=True).elapsed_time(recorded(enable_timing=True))
    return type(milliseconds), milliseconds >= 0


@situation(EVENT, gpus=2)
def event_recorded_on_two_devices() -> None:
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(0))
    event.record(torch.cuda.current_stream(1))


@situation(STREAM)
def event_orders_two_streams() -> Any:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        x.add_(1)
        done = first.record_event()
    with torch.cuda.stream(second):
        second.wait_event(done)
        x.mul_(3)
    second.synchronize()
    return x.sum().item()
