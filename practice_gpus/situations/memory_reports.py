"""Memory reports, twins in torch.accelerator, limits, and running out of memory."""

from __future__ import annotations

from typing import Any

import torch

from practice_gpus.situations.memory import ALLOCATOR, MIB, buffer, fresh, grown
from practice_gpus.situations.registry import CODE, DOCS, situation, table

STATS = DOCS + "generated/torch.cuda.memory.memory_stats.html"
OOM = DOCS + "notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory"
PIB = 2**50


def difference(names: Any, action: Any) -> list[int]:
    """Return by how much the named statistics grew while `action()` ran and its result is held."""
    fresh()
    before = torch.cuda.memory_stats()
    held = action()
    after = torch.cuda.memory_stats()
    del held
    return [after[name] - before[name] for name in names]


@situation(STATS)
def stats_of_one_float() -> Any:
    names = [
        "allocation.all.current",
        "segment.all.current",
        "allocated_bytes.all.current",
        "reserved_bytes.all.current",
        "requested_bytes.all.current",
        "inactive_split_bytes.all.current",
    ]
    return difference(names, lambda: torch.empty(1, device="cuda"))


@situation(STATS)
def stats_of_small_and_large_pool() -> Any:
    names = [
        "allocated_bytes.small_pool.current",
        "allocated_bytes.large_pool.current",
        "reserved_bytes.small_pool.current",
        "reserved_bytes.large_pool.current",
    ]
    return difference(names, lambda: (buffer(1000), buffer(3 * MIB)))


@situation(STATS)
def stats_count_allocations_and_frees() -> Any:
    names = ["allocation.all.allocated", "allocation.all.freed", "allocation.all.current"]
    return difference(names, lambda: [buffer(1000) for _ in range(3)][:1])


@situation(STATS)
def stats_names() -> Any:
    names = "active_bytes.all.peak num_alloc_retries num_ooms oversize_segments.peak max_split_size"
    return [name in torch.cuda.memory_stats() for name in names.split()]


@situation(DOCS + "generated/torch.cuda.memory.memory_summary.html")
def memory_summary_title() -> Any:
    return torch.cuda.memory_summary().splitlines()[1].strip("| ")


@situation(DOCS + "generated/torch.cuda.memory.memory_summary.html")
def memory_summary_of_one_float() -> Any:
    fresh()
    lines = torch.cuda.memory_summary().splitlines()
    return len(lines), next(line for line in lines if "Metric" in line).replace(" ", "")


@situation(DOCS + "generated/torch.cuda.memory.mem_get_info.html")
def mem_get_info_gives_free_and_total() -> Any:
    free, total = torch.cuda.mem_get_info()
    return type(free), type(total), 0 < free <= total


@situation(DOCS + "notes/cuda.html#memory-management", gpus=2)
def each_device_counts_for_itself() -> Any:
    fresh()
    before = torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)
    x = buffer(4 * MIB, "cuda:1")
    after = torch.cuda.memory_allocated(0), torch.cuda.memory_allocated("cuda:1")
    return after[0] - before[0], after[1] - before[1], x.numel()


@situation(DOCS + "generated/torch.cuda.memory.memory_allocated.html", gpus=2)
def counters_follow_the_current_device() -> Any:
    x = buffer(4 * MIB, "cuda:1")
    with torch.cuda.device(1):
        inside = torch.cuda.memory_allocated() == torch.cuda.memory_allocated(x.device)
    return inside, torch.cuda.memory_allocated() == torch.cuda.memory_allocated(0)


@situation(DOCS + "accelerator.html")
def accelerator_twins_agree() -> Any:
    x = buffer(4 * MIB)
    twins = []
    for name in "memory_allocated memory_reserved max_memory_allocated max_memory_reserved".split():
        twins.append(getattr(torch.accelerator, name)() == getattr(torch.cuda, name)())
    return twins, x.numel()


@situation(DOCS + "accelerator.html")
def accelerator_empties_cache_and_resets_peaks() -> Any:
    before = fresh()
    x = buffer(4 * MIB)
    del x
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    return grown(before), torch.accelerator.max_memory_reserved() - before[1]


@situation(OOM + " and " + ALLOCATOR)
def out_of_memory() -> Any:
    return buffer(PIB)


@situation(OOM)
def out_of_memory_type() -> Any:
    try:
        buffer(PIB)
    except torch.OutOfMemoryError as error:
        return isinstance(error, RuntimeError), type(error) is torch.cuda.OutOfMemoryError


@situation(STATS)
def out_of_memory_is_counted() -> Any:
    before = torch.cuda.memory_stats()["num_ooms"]
    try:
        buffer(PIB)
    except torch.OutOfMemoryError:
        return torch.cuda.memory_stats()["num_ooms"] - before


@situation(OOM)
def work_goes_on_after_out_of_memory() -> Any:
    try:
        buffer(PIB)
    except torch.OutOfMemoryError:
        pass
    return torch.tensor([1, 2], device="cuda").add(1).tolist()


@situation(ALLOCATOR)
def out_of_memory_frees_the_cache_first() -> Any:
    before = fresh()
    x = buffer(30 * MIB)
    del x
    held = grown(before)[1]
    try:
        buffer(PIB)
    except torch.OutOfMemoryError:
        return held, grown(before)[1]


@situation(DOCS + "generated/torch.cuda.memory.set_per_process_memory_fraction.html")
def memory_fraction_limits() -> Any:
    fresh()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.25)
    try:
        fits = buffer(total // 8).numel() == total // 8
        buffer(total // 2)
    except torch.OutOfMemoryError as error:
        return fits, str(error).split(".")[0]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        fresh()


REFUSED = {
    "memory fraction above one": lambda: torch.cuda.set_per_process_memory_fraction(2.0),
    "memory of a device that is not there": lambda: torch.cuda.memory_allocated(99),
}
table(CODE + "torch/cuda/memory.py", REFUSED)
