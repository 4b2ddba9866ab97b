"""What practice GPUs do not imitate: each call of it raises an error that names it, and what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from practice_gpus.machine import refusal
from practice_gpus.pytorch import casting

T = torch.Tensor
AROUND = ("torch.cuda", "torch.accelerator", "torch._C")
REFUSED = {
    "torch.cuda": """CUDAGraph graph make_graphed_callables graph_pool_handle cudart caching_allocator_alloc
        caching_allocator_delete change_current_allocator CUDAPluggableAllocator MemPool use_mem_pool
        current_blas_handle utilization temperature power_draw clock_rate memory_usage device_memory_used ExternalStream
        get_stream_from_external list_gpu_processes _compile_kernel host_memory_stats
        host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats reset_peak_host_memory_stats""",
    "torch.accelerator.graphs": "Graph",
    "torch._dynamo": "explain",
    "torch.utils.cpp_extension": "load load_inline CUDAExtension",
    "torch._C": """_scatter_out _gather_out _broadcast_out _acceleratorGraph _cuda_attach_out_of_memory_observer
        _cuda_beginAllocateToPool _cuda_beginAllocateCurrentStreamToPool _cuda_beginAllocateCurrentThreadToPool
        _cuda_cudaCachingAllocator_raw_alloc _cuda_cudaCachingAllocator_raw_delete _cuda_checkPoolLiveAllocations
        _cuda_getCheckpointState _cuda_setCheckpointPoolState _cuda_jiterator_compile_and_launch_kernel""",
}


def refusals_of(path: str) -> Iterator[Any]:
    """What practice GPUs do not imitate of a module, replaced by functions that say so."""
    if path in REFUSED:
        for name in REFUSED[path].split():
            value = getattr(sys.modules.get(path), name, None)
            if isinstance(value, type):  # stays a class: what is refused is to make one
                maker = "__new__" if "__new__" in vars(value) else "__init__"
                yield value, maker, refusal(f"{path}.{name}")
            elif value is not None:
                yield from everywhere(value, refusal(f"{path}.{name}"))


def refusals() -> Iterator[Any]:
    """All that practice GPUs do not imitate."""
    for path in REFUSED:
        yield from refusals_of(path)

    def some(owner, name, label, condition, instead):
        return owner, name, refusal(label, getattr(owner, name), condition, instead)

    if not casting.HEADER.exists():
        label = "autocast without PyTorch's headers"
        yield some(torch, "set_autocast_enabled", label, cuda, "install PyTorch's wheel whole")
    share = "share a copy on the CPU, x.cpu()"
    yield T, "record_stream", record_stream
    yield some(T, "__dlpack__", "Tensor.__dlpack__", of_gpu, share)
    yield some(torch.utils.dlpack, "to_dlpack", "torch.utils.dlpack.to_dlpack", of_gpu, share)
    yield T, "__cuda_array_interface__", property(interface)
    fakes = torch._subclasses.FakeTensorMode
    label = "FakeTensorMode.from_tensor"
    yield some(fakes, "from_tensor", label, copied, "trace or export the module on the CPU")
    name = "_accelerator_setAllocatorSettings"
    yield some(torch._C, name, name, settings, "count with the default settings")
    label = "strided nested tensors"
    yield some(torch._C._nested, "nested_tensor", label, strided, "give layout=torch.jagged")
    yield from attention()


def everywhere(original: Any, instead: Any) -> Iterator[Any]:
    """``instead`` wherever a module around ``torch.cuda`` holds ``original``, under any name."""
    path = getattr(original, "__module__", None)
    # copied in one go: another thread may import meanwhile
    for name, module in sys.modules.copy().items():
        if name in (path, "torch._dynamo") or name.startswith(AROUND):
            for key, value in dict.copy(vars(module)).items():
                if value is original:
                    yield module, key, instead


class NoInterface(NotImplementedError, AttributeError):
    """A refusal for which `hasattr` is False, so that libraries may ask."""


def interface(x: Any, original: Any = T.__cuda_array_interface__.__get__) -> Any:
    """``__cuda_array_interface__``: the address would be one of no GPU."""
    try:
        return refusal("__cuda_array_interface__", original, of_gpu, "share x.cpu()")(x)
    except NotImplementedError as error:
        raise NoInterface(*error.args) from None


def attention() -> Iterator[Any]:
    """PyTorch makes causal biases only where no mode for operators is on; to import them takes seconds."""
    biases = sys.modules.get("torch.nn.attention.bias")
    if biases is not None:
        yield biases.CausalBias, "__new__", unseen


def unseen(kind: type, *args: Any) -> Any:
    """A new tensor of a type of its own."""
    with torch._C._DisableTorchDispatch():
        return T.__new__(kind, *args)


def cuda(device: str, on: bool = True) -> bool:
    """Whether autocast is turned on for CUDA."""
    return on and device in ("cuda", True)


def of_gpu(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Whether a tensor is on a GPU."""
    return x.is_cuda


def copied(mode: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Whether a fake copy of a tensor on a GPU is to be made."""
    return x.is_cuda


def settings(text: Any) -> Any:
    """Whether settings of the allocator are to change what the counters say."""
    names = ("roundup_power2_divisions", "max_split_size_mb", "garbage_collection_threshold")
    return any(name in text for name in names) or "expandable_segments:True" in text


def strided(*args: Any, device: Any = None, **kwargs: Any) -> bool:
    """Whether a nested tensor without a jagged layout is to be made on a GPU."""
    return "cuda" in str(device)


def record_stream(tensor: Any, stream: Any) -> None:
    """``Tensor.record_stream``: a practice storage lives as long as work needs it, so there is nothing to record."""
    if not isinstance(stream, torch.Stream):
        raise RuntimeError("unknown parameter type")
    if not tensor.is_cuda:
        raise NotImplementedError(
            "Could not run 'aten::record_stream' with arguments from the 'CPU' backend."
        )
