"""What each thing costs in a trace, in µs of its window: gaps by cause, exposed communication and copies, classes of kernels."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict

from practice_gpus.traces.intervals import merged
from practice_gpus.traces.reading import COPIES, alone, total
from practice_gpus.traces.trace import GpuEvent, Trace
from practice_gpus.traces.waits import CAUSES, LONG, Wait, waits

AHEAD = LONG  # µs from launch to start, median: the CPU is ahead, so its launches are quick enough
STAGED = 65536  # bytes: a smaller pageable copy to the GPU returns at once (CUDA Runtime API, API synchronization behavior)
WORK = ("matmul", "attention", "normalization", "elementwise", "other")
_FUSED = re.compile(r"triton_|multi_tensor|fused|act_and_mul|quant", re.IGNORECASE)
_LOSS = re.compile(r"log_?softmax", re.IGNORECASE)


def costs(trace: Trace, gaps: list[Wait] | None = None) -> dict[str, float]:
    """Return {what: µs} of one rank's `trace`: the causes of `waits`, communication, copies, and kernels by class.

    A gap before a collective is communication, too: the CPU was preparing it. Where the CPU is usually ahead, gaps between
    launches lie behind what it loses its lead by: the loader, or copies that it waits for. Those of copies count as copies.
    """
    gaps = waits(trace) if gaps is None else gaps
    found = dict.fromkeys(CAUSES, 0.0)
    for gap in gaps:
        found[gap.cause] += gap.length
    found["communication"] = alone(trace, ("communication",))
    found["copies"] = alone(trace, COPIES)
    before = _before_collectives(trace, gaps)
    if before:
        found["communication"] += before
        found["launches"] -= before
    elif blocked(trace):
        behind = "behind the loader" if found["loader"] > found["copies"] else "copies"
        found[behind] = found.get(behind, 0.0) + found["launches"]
        found["launches"] = 0.0
    return found | kernels(trace)


def kernels(trace: Trace) -> dict[str, float]:
    """Return the µs of each class of kernels of one rank; of "softmax" that stands alone, and of "unfused" elementwise."""
    groups = {kind: [event for event in trace.gpu if event.kind == kind] for kind in WORK}
    groups["softmax"] = [event for event in groups["normalization"] if _is_softmax(event)]
    groups["unfused"] = [event for event in groups["elementwise"] if not _FUSED.search(event.name)]
    return {name: total(merged(events, trace.length)) for name, events in groups.items()}


def _is_softmax(event: GpuEvent) -> bool:
    if event.kind != "normalization" or _LOSS.search(event.operator + event.name):
        return False
    return "softmax" in (event.operator or event.name).lower()


def blocked(trace: Trace) -> bool:
    """Whether the CPU is usually ahead of this GPU, and copies that it waits for are there to take its lead."""
    ahead = delay(trace)
    return ahead is not None and ahead >= AHEAD and any(map(blocks, trace.gpu))


def delay(trace: Trace) -> float | None:
    """Return the median µs from a launch to its kernel, copies left out; None where no launch was recorded."""
    delays = [
        e.start - e.launch for e in trace.gpu if e.launch is not None and e.kind not in COPIES
    ]
    return statistics.median(delays) if delays else None


def blocks(event: GpuEvent) -> bool:
    """Whether the CPU waits for this copy, and for all work before it: from the GPU, or from pageable memory to it."""
    large = event.bytes == 0 or event.bytes > STAGED  # 0: not recorded
    return event.kind == "copy" and ("DtoH" in event.name or "Pageable" in event.name and large)


def collectives(trace: Trace) -> list[GpuEvent]:
    """Return the kernels by which GPUs talk to each other."""
    return [event for event in trace.gpu if event.kind == "communication"]


def _before_collectives(trace: Trace, gaps: list[Wait]) -> float:
    starts = {round(event.start, 1) for event in collectives(trace)}
    ends = {gap: round(gap.start + gap.length, 1) for gap in gaps if gap.cause == "launches"}
    return sum(gap.length for gap, end in ends.items() if end in starts)


def lateness(ranks: dict[int, Trace]) -> tuple[float, int | None]:
    """Return (mean µs that ranks wait inside collectives for the one that comes last, its rank).

    Who comes last waits for nobody, so its own collectives are the shortest. (0, None) of a single rank.
    """
    talk = {number: total(merged(collectives(t), t.length)) for number, t in ranks.items()}
    if len(talk) < 2 or not min(talk.values()):
        return 0.0, None
    last = min(talk, key=talk.__getitem__)
    return statistics.mean(talk.values()) - talk[last], last


def calls(gaps: list[Wait], cause: str) -> list[tuple[str, float]]:
    """Return [(call, µs of gaps)] of one cause, the longest first."""
    times: defaultdict[str, float] = defaultdict(float)
    for gap in gaps:
        if gap.cause == cause and gap.call:
            times[gap.call] += gap.length
    return sorted(times.items(), key=lambda pair: -pair[1])
