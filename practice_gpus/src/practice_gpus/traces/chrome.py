"""Chrome traces of torch.profiler (CUDA, ROCm and XPU, Kineto of 2021 and after), read into a `Trace`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

from practice_gpus.traces.extract import decode
from practice_gpus.traces.files import HOW, contents, document, uncollected
from practice_gpus.traces.host import CALLS, cpu_spans, launch_threads, launches, recorded
from practice_gpus.traces.kernels import kernel_class, short_name
from practice_gpus.traces.trace import NAMELESS, GpuEvent, Trace

GPU = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
LONGEST = 1e12  # µs: no step takes twelve days
Source = str | Path | dict | list


def read(
    source: Source,
    window: tuple[float, float] | None = None,
    about: dict[str, Any] | None = None,
) -> Trace:
    """Return the `Trace` of `source`: the path of a Chrome trace of torch.profiler, or the trace's dict or list.

    Files may be packed (gzip, xz, bz2, zstd); a tar archive holds one trace for each rank. It takes the extracts of
    `encode`, too. `window` (begin, end) in µs from the first GPU event; None: from the first to the last. `about` adds
    what the file does not record. ValueError, one sentence, for what cannot be read.
    """
    if isinstance(source, dict | list):
        return read_parts([source], "this trace", window, about)
    parts = [document(raw, part) for part, raw in contents(Path(source))]
    return read_parts(parts, Path(source).name, window, about)


@uncollected()
def read_parts(parts: list, name: str, window: Any = None, about: dict | None = None) -> Trace:
    """Return the `Trace` of JSON documents, one for each rank; the arguments are those of `read`."""
    if isinstance(parts[0], dict) and {"kernels", "gpu", "version"} <= set(parts[0]):
        try:
            extract = decode(parts[0])
        except (KeyError, TypeError, IndexError):
            raise ValueError(f"{name} is a damaged extract; make it again") from None
        return extract.between(*window) if window else extract
    return _joined([_Rank(part, number, name) for number, part in enumerate(parts)], window, about)


def _joined(ranks, window, about):
    """Return one `Trace` of the processes `ranks`, on one clock."""
    origin = min(rank.first for rank in ranks)
    last = max(rank.last for rank in ranks) - origin
    if not last > 0:
        raise ValueError(f"{ranks[0].name}: its GPU events take no time; record it again")
    if last > LONGEST:
        raise ValueError(f"{ranks[0].name}: its clock is broken, its GPU events lie years apart")
    begin, end = window or (0, last)
    if not 0 <= begin < end:
        raise ValueError(f"window is {window!r}; it takes two times in µs, the smaller first")
    pieces = [rank.trace(origin + begin, origin + end, len(ranks) > 1) for rank in ranks]
    gpu = sorted((e for piece in pieces for e in piece.gpu), key=lambda e: e.start)
    cpu = sorted((s for piece in pieces for s in piece.cpu), key=lambda s: s.start)
    if not gpu:
        raise ValueError(f"{ranks[0].name}: no GPU event lies between {begin:.0f} and {end:.0f} µs")
    asked, missing = (sum(rank.asked[i] for rank in ranks) for i in (0, 1))
    facts = {**pieces[0].about, "launches": asked, "launches_without_work": missing}
    return Trace({**facts, **(about or {})}, end - begin, gpu, cpu, pieces[0].memory)


class _Rank:
    """The trace of one process: its GPU events and where they begin and end, in the file's own µs."""

    def __init__(self, document, number, name):
        self.name = name
        self.facts = document if isinstance(document, dict) else {}
        events = self.facts.get("traceEvents") if self.facts else document
        if not isinstance(events, list):
            raise ValueError(f'{name} has no list "traceEvents". {HOW}')
        job = self.facts.get("distributedInfo")
        rank = job.get("rank") if isinstance(job, dict) else None
        self.number = rank if isinstance(rank, int) else number
        events = [event for event in events if isinstance(event, dict)]
        complete = list(_complete(events))
        self.spans = [e for e in complete if e["cat"] not in GPU]
        self.gpu = [e for e in complete if e["cat"] in GPU]
        self.instants = [e for e in events if e.get("name") == "[memory]"]
        if not self.gpu:
            raise ValueError(f"{name} {_without_gpu(self.spans)}")
        self.devices = sorted({_device(e) for e in self.gpu})
        self.first = min(e["ts"] for e in self.gpu)
        self.last = max(e["ts"] + e["dur"] for e in self.gpu)
        self.asked = recorded(self.spans, self.gpu)

    def trace(self, begin, end, several):
        """Return the `Trace` from `begin` to `end`, both on the file's clock."""
        rank = self.number if several else 0
        asked = launches(self.spans)
        place = {device: i for i, device in enumerate(self.devices)}
        first = rank * len(place) if len(place) > 1 else rank
        gpu = []
        for event in self.gpu:
            if event["ts"] + event["dur"] > begin and event["ts"] < end:
                lane = first + place[_device(event)]
                gpu.append(_gpu_event(event, begin, lane, asked))
        cpu = cpu_spans(self.spans, begin, end, rank, launch_threads(self.spans))
        return Trace(self._about(), end - begin, gpu, cpu, self._memory(begin, end))

    def _about(self):
        properties = self.facts.get("deviceProperties")
        cards = (
            [c for c in properties if isinstance(c, dict)] if isinstance(properties, list) else []
        )
        index = self.devices[0]
        card = cards[index] if 0 <= index < len(cards) else (cards or [{}])[0]
        facts = {"device": card.get("name") or NAMELESS}
        return facts | ({"one_process": True} if len(self.devices) > 1 else {})

    def _memory(self, begin, end):
        """Return (µs, bytes allocated) on the GPU, without changes below 2 % of the highest."""
        levels = sorted(_levels(self.instants, begin, end))
        smallest = max((size for _, size in levels), default=0) / 50
        kept: list[tuple[float, int]] = []
        for time, size in levels:
            if not kept or abs(size - kept[-1][1]) >= smallest:
                kept.append((time, size))
        return kept


def _complete(events: Iterable[dict]) -> Iterable[dict]:
    """Yield the events that have a time and a length, each with the same keys and types; broken ones are left out."""
    for event in events:
        if event.get("ph") != "X":
            continue
        start, length = _number(event.get("ts")), _number(event.get("dur"))
        if start is None or length is None or not 0 <= length < LONGEST:
            continue
        arguments = event.get("args")
        yield {
            "name": str(event.get("name") or ""),
            "cat": str(event.get("cat", "")).lower(),
            "ts": start,
            "dur": length,
            "args": arguments if isinstance(arguments, dict) else {},
            "thread": (str(event.get("pid")), str(event.get("tid"))),
        }


def _number(value):
    """Return `value` as a float; None for what is no finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if isfinite(number) else None


def _without_gpu(spans):
    """Say why a trace may lack GPU events, by what it has instead."""
    count = Counter(event["cat"] for event in spans)
    calls = sum(n for kind, n in count.items() if kind in CALLS)
    if calls and not any("mtia" in kind for kind in count):
        return (
            f"has calls of the GPU's runtime ({calls:,}) but no kernels, so the profiler couldn't see the GPU at "
            "work: another profiler may have held it (CUPTI serves one), or the user may not read its counters. "
            "Record it again without other tools."
        )
    others = sorted(kind for kind in count if kind.startswith(("mtia", "hpu", "npu", "tpu")))
    if others:
        names = " and ".join(others)
        return f"has no kernels of a GPU: {names} belong to another accelerator. {HOW}"
    if not any(kind in ("cpu_op", "operator", "python_function") for kind in count):
        return f"has no events of torch.profiler. {HOW}"
    return (
        f"has no GPU events, only {len(spans):,} of the CPU: profile with "
        "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], on a machine with a GPU."
    )


def _levels(instants, begin, end):
    for event in instants:
        facts, time = event.get("args"), _number(event.get("ts"))
        if not isinstance(facts, dict) or time is None or facts.get("Device Type") != 1:
            continue
        size = _number(facts.get("Total Allocated"))
        if size is not None and 0 <= time - begin < end - begin:
            yield time - begin, int(size)


def _device(event):
    return int(_number(event["args"].get("device")) or 0)


def _gpu_event(event, begin, rank, asked):
    arguments = event["args"]
    launch, *operator = asked.get(str(arguments.get("correlation")), (None, "", "", ""))
    return GpuEvent(
        short_name(event["name"]),
        kernel_class(event["name"], event["cat"]),
        event["ts"] - begin,
        event["dur"],
        rank,
        _digits(arguments.get("stream", event["thread"][1])),
        None if launch is None else launch - begin,
        *operator,
        int(_number(arguments.get("bytes")) or 0),
    )


def _digits(stream):
    digits = "".join(letter for letter in str(stream) if letter.isdigit())
    return int(digits or 0)
