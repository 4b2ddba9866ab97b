"""The same step with its pointwise chains fused, as a compiler does."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TypeGuard

from practice_gpus.clock.log import Entry, Launch
from practice_gpus.clock.work import Work

# Reductions of rows: forward and backward of norms and softmaxes.
ROWS = {
    "native_layer_norm",
    "native_layer_norm_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
}
ROWS |= {"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"}


def fused(entries: list[Entry]) -> list[Entry]:
    """``entries`` with each run of pointwise kernels as one, which reads its inputs and writes its results once.

    What is written and read only within the run never reaches memory. Norms and softmaxes of rows belong to runs, too: each row
    is read once (Ansel et al., PyTorch 2, ASPLOS 2024: reductions are fused with what comes before and after).
    """
    uses: Counter = Counter()
    for entry in entries:
        if isinstance(entry, Launch):
            uses.update({mark for mark, _ in entry.work.reads})
    result: list[Entry] = []
    chain: list[Launch] = []
    for entry in widened([needed(entry, uses) for entry in entries], uses):
        if chain and not belongs(entry, chain[-1]):
            result.append(merged(chain, uses))
            chain = []
        if joins(entry):
            chain.append(entry)
        else:
            result.append(entry)
    return [*result, merged(chain, uses)] if chain else result


def needed(entry: Entry, uses: Counter) -> Entry:
    """A kernel without those of its further results that nobody reads, such as where a pool found its largest."""
    if not isinstance(entry, Launch) or len(entry.work.writes) < 2:
        return entry
    first, *others = entry.work.writes
    kept = [first, *(each for each in others if uses[each[0]])]
    return dataclasses.replace(entry, work=dataclasses.replace(entry.work, writes=kept))


def joins(entry: Entry | None) -> TypeGuard[Launch]:
    """Whether a kernel may be one of a run."""
    return isinstance(entry, Launch) and (entry.work.fusible or entry.work.name in ROWS)


def widened(entries: list[Entry], uses: Counter) -> list[Entry]:
    """``entries`` in which a product reads narrow weights itself (int8, float8), where the kernel before it only widens them."""
    result: list[Entry] = []
    for entry in entries:
        last = result[-1] if result else None
        if (
            isinstance(entry, Launch)
            and isinstance(last, Launch)
            and widens(last.work, entry.work, uses)
        ):
            ((mark, _),) = last.work.writes
            reads = [each for each in entry.work.reads if each[0] != mark] + last.work.reads
            result[-1] = dataclasses.replace(
                entry, work=dataclasses.replace(entry.work, reads=reads)
            )
        else:
            result.append(entry)
    return result


def widens(before: Work, product: Work, uses: Counter) -> bool:
    """Whether a kernel reads less than it writes, and only a product needs what it wrote."""
    if not before.fusible or not product.flops or len(before.writes) != 1:
        return False
    mark, size = before.writes[0]
    read = sum(size for _, size in before.reads)
    return uses[mark] == 1 and mark in dict(product.reads) and read < size


def belongs(entry: Entry | None, last: Launch) -> bool:
    """Whether a kernel joins the one before: pointwise, in the same stream, of the same pass."""
    if not joins(entry):
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
