"""What frameworks ask of CUDA devices, or do with them, and users of theirs come to rely on."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from practice_gpus.situations.placement import on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

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


def scaled(device: str) -> Any:
    """Return what vmap makes of the elements of a vector of integers."""
    return torch.vmap(lambda x: x * 0.5)(torch.arange(3, device=device))


STORAGE = torch.ones(2).untyped_storage()
NUMBERED = {
    "device 0 of a storage": lambda: torch.asarray(STORAGE, dtype=torch.uint8, device=0).device,
    "device 0 of a sparse tensor": lambda: torch.sparse_coo_tensor([[0]], [1.0], device=0).device,
    "device 0 of a new storage": lambda: torch.UntypedStorage(8, device=0).device,
    "vmap over elements": lambda: scaled("cuda"),
    "vmap over elements of the CPU": lambda: scaled("cpu"),
    "the accelerator of C++": lambda: torch._C._get_accelerator().type,
}
table(DOCS + "tensor_attributes.html", NUMBERED)


@situation(DOCS + "library.html")
def kernels_of_python_for_each_device() -> Any:
    library = torch.library.Library("practice_situations", "FRAGMENT")
    library.define("either(Tensor x, Tensor? y=None) -> Tensor")
    library.impl("either", lambda x, y=None: x + 1, "CPU")
    library.impl("either", lambda x, y=None: (x if x.is_cuda else x.cuda()) + 100, "CUDA")
    either = torch.ops.practice_situations.either
    return either(on("cpu")), either(on()), either(on(), on("cpu")), either(on("cpu"), on())


@situation(DOCS + "library.html")
def an_operator_for_the_cpu_alone() -> Any:
    library = torch.library.Library("practice_situations", "FRAGMENT")
    library.define("host(Tensor x) -> Tensor")
    library.impl("host", lambda x: x + 1, "CPU")
    return torch.ops.practice_situations.host(on())


class Seen(TorchDispatchMode):
    """Notes the devices that a user's mode sees."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list = []

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        """Note the devices of an operator's inputs, of what it is asked for, and of its result."""
        out = func(*args, **kwargs or {})
        inputs = [x for x in args if isinstance(x, torch.Tensor)]
        asked = [str(v) for key, v in (kwargs or {}).items() if key == "device" and v]
        self.places.append([str(x.device) for x in (*inputs, out)] + asked)
        return out


@situation(CODE + "torch/utils/_python_dispatch.py")
def devices_that_a_users_mode_sees() -> Any:
    x = on()
    with Seen() as mode:
        y = x + 1
        y.to("cpu")
        torch.zeros(2, device="cuda")
    return mode.places


def reduced(backend: str, device: str, **options: Any) -> Any:
    """Return the sum over a group of this process alone."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group(backend, rank=0, world_size=1, store=store)
    try:
        x = on(device)
        torch.distributed.all_reduce(x, **options)
        return x.device, torch.distributed.get_backend()
    finally:
        torch.distributed.destroy_process_group()


GROUPS = {
    f"{backend} for a tensor on {device}": (lambda b=backend, d=device: reduced(b, d))
    for backend in ("nccl", "cuda:gloo", "cpu:gloo", "cpu:gloo,cuda:nccl")
    for device in ("cpu", "cuda")
}
table(DOCS + "distributed.html", GROUPS)
