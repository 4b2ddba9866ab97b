"""Profiler traces and memory snapshots of anyone: read, measured, judged.

    trace = read("my_trace.json.gz")    # what torch.profiler's export_chrome_trace() wrote
    busy_share(trace), gaps(trace)      # how much of the time the GPU works, and when it doesn't

`python -m practice_gpus trace FILE` says in a sentence what costs most. Times are microseconds.
"""

from practice_gpus.traces import snapshots
from practice_gpus.traces.chrome import read
from practice_gpus.traces.extract import decode, encode
from practice_gpus.traces.intervals import idle, innermost, merged
from practice_gpus.traces.kernels import CLASSES, kernel_class, short_name
from practice_gpus.traces.reading import (
    COPIES,
    alone,
    busy_share,
    by_rank,
    exposed,
    gaps,
    on_cpu,
    total,
)
from practice_gpus.traces.rules import RULES, Rule
from practice_gpus.traces.trace import GpuEvent, Span, Trace
from practice_gpus.traces.verdict import Verdict, verdict

__all__ = [
    "CLASSES",
    "COPIES",
    "GpuEvent",
    "RULES",
    "Rule",
    "Span",
    "Trace",
    "Verdict",
    "alone",
    "busy_share",
    "by_rank",
    "decode",
    "encode",
    "exposed",
    "gaps",
    "idle",
    "innermost",
    "kernel_class",
    "merged",
    "on_cpu",
    "read",
    "short_name",
    "snapshots",
    "total",
    "verdict",
]
