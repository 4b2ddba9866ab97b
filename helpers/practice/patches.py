"""Everything in PyTorch that changes while practice GPUs are on, and what it changes to."""
import sys

import torch

from . import driver
from .machine import CPU, Place

REFUSED = {
    "torch.cuda": """CUDAGraph graph make_graphed_callables graph_pool_handle cudart caching_allocator_alloc
        caching_allocator_delete change_current_allocator CUDAPluggableAllocator MemPool use_mem_pool memory_snapshot
        current_blas_handle utilization temperature power_draw clock_rate memory_usage device_memory_used ExternalStream
        get_stream_from_external list_gpu_processes _compile_kernel""",
    "torch.cuda.jiterator": "_create_jit_fn _create_multi_output_jit_fn",
    "torch.utils.cpp_extension": "load load_inline CUDAExtension",
    "torch": "compile",
}


def refusal(name):
    """A callable that says that practice GPUs do not imitate ``name``."""
    def refuse(*args, **kwargs):
        raise NotImplementedError(f"practice GPUs do not imitate {name}: it needs a real GPU")
    return refuse


def patches(machine):
    """(module or class, name, replacement) for all that asks the driver, or must not."""
    for name, function in driver.answers(machine).items():
        yield torch._C, name, function
    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
        for name, function in driver.names(machine).items():
            if hasattr(module, name) or module is torch.cuda:
                yield module, name, function
    for path, refused in REFUSED.items():
        for name in refused.split():
            if hasattr(sys.modules.get(path), name):
                yield sys.modules[path], name, refusal(f"{path}.{name}")
    for name in ("init_process_group", "new_group") if torch.distributed.is_available() else ():
        yield torch.distributed, name, without_nccl(name)
    gates = {"has_torch_function": overridden, "has_torch_function_unary": lambda x: overridden((x,)),
             "has_torch_function_variadic": lambda *values: overridden(values)}
    for module in (torch.overrides, torch.functional, torch.nn.functional, torch._tensor, torch.autograd):
        yield from ((module, name, gate) for name, gate in gates.items() if name in vars(module))
    held, parse, Generator = torch.UntypedStorage, torch._C._nn._parse_to, generator_class(machine)
    yield held, "practice", None
    yield held, "device", property(lambda self: machine.label(self) or CPU)
    yield held, "is_cuda", property(lambda self: machine.label(self) is not None)
    yield held, "clone", clone
    yield torch._C, "_group_tensors_by_device_and_dtype", grouped(machine)
    yield torch._C._nn, "_parse_to", lambda *args, **kwargs: parse(
        *(machine.device(a) if type(a) is int else a for a in args), **kwargs)
    yield torch.nn.parallel._functions, "torch", Numbered(machine)
    yield torch.nn.parallel._functions, "_streams", None
    yield torch, "Stream", machine.streams.Stream
    yield torch, "Event", machine.streams.Event
    yield torch, "Generator", Generator
    yield torch.cuda, "default_generators", tuple(Generator(device) for device in machine.devices)
    yield torch.cuda.nccl, "is_available", lambda tensors: False
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False
    yield torch.autograd, "_make_grads", checked_grads(torch.autograd._make_grads)
    yield torch._tensor_str, "_str", printing(machine, torch._tensor_str._str)
    yield torch.Tensor, "record_stream", record_stream
    for name, original in (("__dlpack__", torch.Tensor.__dlpack__),
                           ("__cuda_array_interface__", torch.Tensor.__cuda_array_interface__.__get__)):
        share = sharing(name, original)
        yield torch.Tensor, name, share if name == "__dlpack__" else property(share)


def overridden(values):
    """Whether a value brings its own ``__torch_function__``. PyTorch's Python functions ask this at their start; they
    would hand themselves over to any mode, which is then off inside them, but devices must be seen inside, too."""
    plain = torch._C._disabled_torch_function_impl
    return torch._C._is_torch_function_enabled() and any(
        type(value) is not torch.Tensor and getattr(value, "__torch_function__", plain) is not plain
        for value in values)


class Numbered:
    """``torch``, except that builds without CUDA, too, take a number for a device."""

    def __init__(self, machine):
        self.device = machine.device

    def __getattr__(self, name):
        return getattr(torch, name)


def without_nccl(name):
    """A function of ``torch.distributed`` that refuses NCCL."""
    original = getattr(torch.distributed, name)

    def call(*args, **kwargs):
        if any("nccl" in str(value).lower() for value in (*args, kwargs.get("backend"))):
            refusal(f"torch.distributed.{name} with nccl")()
        return original(*args, **kwargs)
    return call


def printing(machine, original):
    """Printing waits for the numbers; PyTorch turns the dispatch mode off for it."""
    def show(tensor, **options):
        device = machine.place(tensor)
        if device is not None:
            machine.waits(device)
        return original(tensor, **options)
    return show


def sharing(name, original):
    """A way to hand memory to another library: fine for the CPU, refused for a practice GPU."""
    def share(tensor, *args, **kwargs):
        return (refusal(f"Tensor.{name}") if tensor.is_cuda else original)(tensor, *args, **kwargs)
    return share


def record_stream(tensor, stream):
    """``Tensor.record_stream``: a practice storage lives as long as work needs it, so there is nothing to record."""
    if not tensor.is_cuda:
        raise NotImplementedError("Could not run 'aten::record_stream' with arguments from the 'CPU' backend.")


def checked_grads(original):
    """``backward(gradient)`` wants the gradient where the output is."""
    def make(outputs, grads, *rest, **options):
        for index, (out, grad) in enumerate(zip(outputs, grads, strict=False)):
            if isinstance(out, torch.Tensor) and isinstance(grad, torch.Tensor) and out.device != grad.device:
                raise RuntimeError(
                    f"invalid gradient at index {index} - expected device {out.device} but got {grad.device}")
        return original(outputs, grads, *rest, **options)
    return make


def clone(held):
    """``UntypedStorage.clone`` (what ``deepcopy`` uses), label included."""
    copy, place = torch.UntypedStorage(held.nbytes()).copy_(held), held.practice
    if place is not None and place.device is not None and copy.practice is not place:
        copy.practice = Place(place.machine, place.device, place.allocator, place.allocator.malloc(held.nbytes()))
    return copy


def grouped(machine, original=torch._C._group_tensors_by_device_and_dtype):
    """Optimizers group tensors by device before a fused step; labels are grouped here."""
    def group(lists, with_indices=False):
        found, result = {}, {}
        for number, row in enumerate(zip(*(each for each in lists if each), strict=True)):
            home = machine.place(row[0])
            if any(t is not None and machine.place(t) not in (home, None) for t in row):
                original([[torch.empty(0)], [torch.empty(0, dtype=torch.int8)]], False)  # raises, in its own words
            found.setdefault(home or row[0].device, []).append(number)
        for device, rows in found.items():
            groups = original([[each[row] for row in rows if each] for each in lists], with_indices)
            for (_, dtype), (parts, places) in groups.items():
                result[device, dtype] = parts, [rows[place] for place in places]
        return result
    return group


def generator_class(machine, original=torch._C.Generator):
    """``torch.Generator`` that can be made for a practice device; its numbers are the CPU's."""
    class Meta(type(original)):
        def __instancecheck__(cls, value):
            return isinstance(value, original)

    class Generator(original, metaclass=Meta):
        def __new__(cls, device="cpu"):
            if machine.device(device).type != "cuda":
                return original(device)
            made = original.__new__(cls, "cpu")
            made.practice = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
            return made

        def __init__(self, device="cpu"):
            pass

        device = property(lambda self: self.practice)
    return Generator
