"""What real GPUs did: extracts of published profiler traces, and any torch.profiler trace of yours.

`case("4a")` reads one extract of this folder, `case_names()` lists them; `load("my_trace.json.gz")` reads a Chrome trace
that `torch.profiler` exported. Both return a `practice_gpus.traces.Trace`. `python3 -m course reduce_trace` writes the
extracts; nobody edits them. Times are microseconds from the beginning of the trace's window, to 0.1 µs.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from practice_gpus.traces import GpuEvent, Span, Trace, decode, encode
from practice_gpus.traces import read as load

__all__ = ["GpuEvent", "Span", "Trace", "case", "case_names", "decode", "encode", "load"]
FOLDER = Path(__file__).parent


def case_names() -> list[str]:
    """Return the names of the extracts, such as "1a" and "10"."""
    names = [path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz")]
    return sorted(names, key=lambda name: (int(name.rstrip("ab")), name))


def case(name: str) -> Trace:
    """Return the `Trace` of the extract `name`; ValueError with the names that there are."""
    path = FOLDER / f"{name}.json.gz"
    if not path.is_file():
        raise ValueError(f"there is no case {name!r}; there are {', '.join(case_names())}")
    return decode(json.loads(gzip.decompress(path.read_bytes())))
