"""Memory counters: rounding, pools, blocks that are split, reused and given back.

Only elementwise operations run here: matrix products also reserve a workspace whose size depends on the GPU model.
"""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import nn

from practice_gpus.situations.registry import CODE, DOCS, situation, table

NOTES = DOCS + "notes/cuda.html#memory-management"
ALLOCATOR = CODE + "c10/cuda/CUDACachingAllocator.cpp"
SIZES = CODE + "c10/core/AllocatorConfig.h"
MIB = 2**20


def counts() -> tuple[int, int]:
    """Return the bytes allocated and reserved on the current device."""
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def fresh() -> tuple[int, int]:
    """Free what nothing holds, reset the peaks, and return `counts()`."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return counts()


def grown(since: tuple[int, int]) -> tuple[int, int]:
    """Return by how many bytes allocated and reserved grew since `since`."""
    now = counts()
    return now[0] - since[0], now[1] - since[1]


def buffer(size: int, device: Any = "cuda") -> torch.Tensor:
    """Return an uninitialized tensor of `size` bytes."""
    return torch.empty(size, dtype=torch.uint8, device=device)


def costs(make: Any) -> tuple[int, int]:
    """Return the bytes allocated and reserved while what `make()` returned is held."""
    before = fresh()
    held = make()
    after = grown(before)
    del held
    return after


COSTS = {
    "memory of one float": lambda: torch.empty(1, device="cuda"),
    "memory of 128 floats": lambda: torch.empty(128, device="cuda"),
    "memory of 129 floats": lambda: torch.empty(129, device="cuda"),
    "memory of 1000 halves": lambda: torch.empty(1000, dtype=torch.float16, device="cuda"),
    "memory of 513 booleans": lambda: torch.empty(513, dtype=torch.bool, device="cuda"),
    "memory of no elements": lambda: torch.empty(0, device="cuda"),
    "memory of 1 MiB": lambda: buffer(MIB),
    "memory of 1 MiB and a byte": lambda: buffer(MIB + 1),
    "memory of 4 MiB": lambda: buffer(4 * MIB),
    "memory of 10 MiB less 512 bytes": lambda: buffer(10 * MIB - 512),
    "memory of 10 MiB": lambda: buffer(10 * MIB),
    "memory of 11 MiB and a byte": lambda: buffer(11 * MIB + 1),
    "memory of 33 MiB": lambda: buffer(33 * MIB),
    "memory of two floats tensors": lambda: [torch.empty(1, device="cuda") for _ in range(2)],
    "memory of three times 1 MiB": lambda: [buffer(MIB) for _ in range(3)],
    "memory of five times 4 MiB": lambda: [buffer(4 * MIB) for _ in range(5)],
    "memory of six times 4 MiB": lambda: [buffer(4 * MIB) for _ in range(6)],
    "memory of small and large": lambda: [buffer(1), buffer(2 * MIB)],
    "memory of a linear layer": lambda: nn.Linear(256, 256).to("cuda"),
    "memory of a tensor moved from the CPU": lambda: torch.ones(1000).to("cuda"),
    "memory of a CPU tensor": lambda: torch.ones(1000),
}
table(SIZES + " and " + ALLOCATOR, COSTS, through=costs)


@situation(NOTES)
def memory_after_del() -> Any:
    before = fresh()
    x = buffer(4 * MIB)
    del x
    return grown(before)


@situation(DOCS + "generated/torch.cuda.memory.empty_cache.html")
def memory_after_del_and_empty_cache() -> Any:
    before = fresh()
    x = buffer(4 * MIB)
    del x
    torch.cuda.empty_cache()
    return grown(before)


@situation(DOCS + "generated/torch.cuda.memory.empty_cache.html")
def empty_cache_keeps_live_tensors() -> Any:
    before = fresh()
    x = buffer(4 * MIB)
    torch.cuda.empty_cache()
    return *grown(before), x.numel()


@situation(ALLOCATOR)
def empty_cache_keeps_a_segment_in_partial_use() -> Any:
    before = fresh()
    pair = [buffer(4 * MIB), buffer(30 * MIB), buffer(4 * MIB)]
    del pair[:2]
    torch.cuda.empty_cache()
    return *grown(before), len(pair)


@situation(ALLOCATOR)
def freed_block_is_reused() -> Any:
    before = fresh()
    x = buffer(12 * MIB)
    del x
    y = buffer(12 * MIB)
    return *grown(before), y.numel()


@situation(ALLOCATOR)
def freed_block_is_split() -> Any:
    before = fresh()
    x = buffer(12 * MIB)
    del x
    pair = buffer(4 * MIB), buffer(8 * MIB)
    return *grown(before), len(pair)


@situation(ALLOCATOR)
def neighbors_merge_when_freed() -> Any:
    before = fresh()
    parts = [buffer(10 * MIB - 512), buffer(10 * MIB - 512)]
    del parts
    x = buffer(20 * MIB)
    return *grown(before), x.numel()


@situation(ALLOCATOR)
def smallest_fitting_block_is_taken() -> Any:
    before = fresh()
    blocks = [buffer(40 * MIB), buffer(14 * MIB)]
    del blocks
    pair = buffer(12 * MIB), buffer(40 * MIB)
    return *grown(before), len(pair)


@situation(DOCS + "tensor_view.html")
def views_cost_nothing() -> Any:
    x = torch.empty(MIB, device="cuda")
    before = fresh()
    views = [x[10:], x.view(1024, 1024).t(), x.expand(3, MIB), x.detach(), x.to("cuda")]
    views.append(x.contiguous())
    return *grown(before), len(views)


@situation(DOCS + "tensor_view.html")
def a_view_keeps_the_whole_storage() -> Any:
    before = fresh()
    view = buffer(4 * MIB)[:1]
    return *grown(before), view.numel(), view.untyped_storage().nbytes()


@situation(DOCS + "generated/torch.clone.html")
def clone_and_contiguous_copy_cost() -> Any:
    x = torch.empty(1024, 1024, device="cuda")
    before = fresh()
    copies = x.clone(), x.t().contiguous()
    return *grown(before), len(copies)
