"""A forecast of the clock of practice GPUs as a `Trace`."""

import re
from typing import Any

from course.measurements.traces import GpuEvent, Span, Trace

_KINDS = (
    ("communication", r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_"),
    ("attention", r"attention|flash"),
    ("normalization", r"norm|softmax"),
    ("matmul", r"mm|linear|conv|matmul"),
)
_NAMED = 100  # numbers of streams that have a name instead of one


def trace_of_forecast(forecast: Any) -> Trace:
    """Return the `Trace` of a `practice_gpus.clock.Forecast`: its kernels by operator, and what its CPU does."""
    gpu, cpu = [], []
    for span in forecast.queue.spans:
        start, length = 1e6 * span.start, 1e6 * (span.end - span.start)
        if span.row == "cpu":
            cpu.append(Span(span.name, start, length, 0, "Python", span.entry.place))
            continue
        device, stream = span.row
        number = stream if isinstance(stream, int) else _NAMED
        kind = "communication" if number == _NAMED else kind_of(span.name, span.bound)
        work = (span.name, "", span.entry.place, getattr(span.entry, "bytes", 0) or 0)
        gpu.append(
            GpuEvent(span.name, kind, start, length, device, number, 1e6 * span.issued, *work)
        )
    gpu.sort(key=lambda event: event.start)
    length = max([event.end for event in gpu] + [span.end for span in cpu])
    return Trace({"device": forecast.card.name, "kind": "forecast"}, length, gpu, cpu)


def kind_of(operator: str, bound: str = "") -> str:
    """Return the kind of the kernels of `operator`, such as "addmm"; `bound` is the forecast's word for what limits it."""
    if bound == "copy":
        return "copy"
    for kind, pattern in _KINDS:
        if re.search(pattern, operator):
            return kind
    return "elementwise"
