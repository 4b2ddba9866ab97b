"""The same step, changed: pointwise chains fused as a compiler does, or gradients reduced between several GPUs."""

from __future__ import annotations

import dataclasses
from collections import Counter

from practice_gpus.clock.log import Entry, Join, Launch, Reduce
from practice_gpus.clock.queue import REDUCED
from practice_gpus.clock.work import Work

BUCKET = 25 << 20  # bytes: bucket_cap_mb of DistributedDataParallel


def fused(entries: list[Entry]) -> list[Entry]:
    """``entries`` with each run of pointwise kernels as one, which reads its inputs and writes its results once.

    What is written and read only within the run never reaches memory.
    """
    uses: Counter = Counter()
    for entry in entries:
        if isinstance(entry, Launch):
            uses.update({mark for mark, _ in entry.work.reads})
    result: list[Entry] = []
    chain: list[Launch] = []
    for entry in entries:
        if chain and not belongs(entry, chain[-1]):
            result.append(merged(chain, uses))
            chain = []
        if isinstance(entry, Launch) and entry.work.fusible:
            chain.append(entry)
        else:
            result.append(entry)
    return [*result, merged(chain, uses)] if chain else result


def belongs(entry: Entry | None, last: Launch) -> bool:
    """Whether a kernel joins the one before: pointwise, in the same stream, of the same pass."""
    if not isinstance(entry, Launch) or not entry.work.fusible:
        return False
    place = entry.device, entry.stream, entry.backward
    return place == (last.device, last.stream, last.backward)


def merged(chain: list[Launch], uses: Counter) -> Launch:
    """One kernel for a run of them."""
    if len(chain) == 1:
        return chain[0]
    reads: dict = {}
    writes: dict = {}
    inside: Counter = Counter()
    for entry in chain:
        for mark, size in entry.work.reads:
            if mark not in writes:
                reads[mark] = max(size, reads.get(mark, 0))
        inside.update({mark for mark, _ in entry.work.reads})
        writes |= dict(entry.work.writes)
    # read here and nowhere else: it stays in registers
    kept = {
        mark: size
        for mark, size in writes.items()
        if mark in reads or not inside[mark] or uses[mark] > inside[mark]
    }
    names = ", ".join(dict.fromkeys(entry.work.name for entry in chain))
    work = Work(
        f"fused ({names})",
        list(reads.items()),
        list(kept.items()),
        channels_last=chain[0].work.channels_last,
        fusible=True,
        known=all(entry.work.known for entry in chain),
    )
    return dataclasses.replace(chain[0], work=work)


def reduced(entries: list[Entry], gradients: int, gpus: int) -> list[Entry]:
    """``entries`` with the all-reduces of DistributedDataParallel: buckets of 25 MiB, evenly over each backward pass.

    Each starts when the kernels before it are done; what comes after the backward pass waits for the last.
    """
    if gpus == 1:
        return entries
    buckets = max(1, round(gradients / BUCKET))
    result: list[Entry] = []
    start = 0
    while start < len(entries):
        stop = start
        while stop < len(entries) and is_backward(entries[stop]):
            stop += 1
        if stop == start:
            result.append(entries[start])
            start += 1
            continue
        passed = entries[start:stop]
        due = [round((each + 1) * len(passed) / buckets) for each in range(buckets)]
        for index, entry in enumerate(passed, 1):
            result.append(entry)
            place = entry.place, entry.stream, entry.device
            result += [Reduce(*place, gradients // buckets, gpus)] * due.count(index)
        result.append(Join(*place, REDUCED))
        start = stop
    return result


def is_backward(entry: Entry) -> bool:
    """Whether an entry is a kernel of a backward pass."""
    return isinstance(entry, Launch) and entry.backward
