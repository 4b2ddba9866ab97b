"""What frameworks ask of CUDA devices, or do with them, and users of theirs come to rely on."""

from __future__ import annotations

import torch

from practice_gpus.fidelity.placement import on
from practice_gpus.fidelity.registry import CODE, DOCS, table

CLASSES = ("CUDAGraph", "graph", "MemPool", "ExternalStream", "CUDAPluggableAllocator")
KINDS = [getattr(torch.cuda, name) for name in CLASSES]
STAYS = {
    "classes in unions": lambda: [type(kind | None) for kind in KINDS],
    "instances of classes": lambda: [isinstance(3, kind) for kind in KINDS],
    "derived classes": lambda: [issubclass(type("S", (kind,), {}), kind) for kind in KINDS],
    "external streams are streams": lambda: issubclass(
        torch.cuda.ExternalStream, torch.cuda.Stream
    ),
    "streams are streams": lambda: (
        issubclass(torch.cuda.Stream, torch.Stream),
        isinstance(torch.cuda.Stream(), torch.cuda.streams.Stream),
        isinstance(torch.cuda.Event(), torch.Event),
    ),
    "no graph is captured": lambda: (
        torch.cuda.is_current_stream_capturing(),
        torch.cuda.graphs.is_current_stream_capturing(),
    ),
    "start and stop of the profiler": lambda: (
        torch.cuda.profiler.start(),
        torch.cuda.profiler.stop(),
    ),
    "plans of cuFFT": lambda: torch.backends.cuda.cufft_plan_cache.clear(),
    "free memory of the CPU": lambda: torch.cuda.mem_get_info("cpu"),
}
table(CODE + "torch/cuda/graphs.py", STAYS)
PINNED = {
    "pinned like one of the CPU": lambda: torch.empty_like(on("cpu"), pin_memory=True).is_pinned(),
    "pinned zeros like": lambda: torch.zeros_like(on("cpu"), pin_memory=True).is_pinned(),
    "pinned and new": lambda: on("cpu").new_empty(2, pin_memory=True).is_pinned(),
    "pinned on a GPU": lambda: torch.empty_like(on(), pin_memory=True),
}
table(DOCS + "notes/cuda.html", PINNED)
