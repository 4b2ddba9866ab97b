"""What stands in for the CUDA driver: the functions beneath ``torch.cuda`` and ``torch.accelerator``.

PyTorch's own Python code keeps running (``torch.cuda.device``, ``memory_summary`` …): only the C functions it calls are
replaced, so arguments are checked and texts are worded by PyTorch itself.
"""
import types

import torch

from .machine import CPU, Place

NAME = "Practice GPU (simulated on the CPU)"
REFUSED = {
    "torch.cuda": ["CUDAGraph", "graph", "make_graphed_callables", "cudart", "caching_allocator_alloc", "MemPool",
                   "caching_allocator_delete", "change_current_allocator", "CUDAPluggableAllocator", "memory_snapshot",
                   "current_blas_handle", "utilization", "temperature", "power_draw", "clock_rate", "memory_usage",
                   "device_memory_used", "ExternalStream", "get_stream_from_external", "list_gpu_processes",
                   "use_mem_pool", "_compile_kernel", "graph_pool_handle"],
    "torch.cuda.jiterator": ["_create_jit_fn", "_create_multi_output_jit_fn"],
    "torch": ["compile"],
    "torch.utils.cpp_extension": ["load", "load_inline", "CUDAExtension"],
}


def refusal(name):
    """A callable that says that practice GPUs do not imitate ``name``."""
    def refuse(*args, **kwargs):
        raise NotImplementedError(f"practice GPUs do not imitate {name}: it needs a real GPU")
    return refuse


def driver(machine):
    """Name → function for everything that ``torch._C`` answers about devices."""
    def exchange(index):
        before = machine.current
        if index >= 0:
            machine.set_current(index)
        return before

    def allocator(index):
        if not 0 <= index < machine.n:
            raise RuntimeError(f"Invalid device argument {index}: did you call init?")
        return machine.allocators[index]

    def debug(mode):
        machine.sync_debug = mode

    def empty():
        for each in machine.allocators:
            each.release_cached()

    cuda = {
        "getDeviceCount": lambda: machine.n, "getDevice": lambda: machine.current, "setDevice": machine.set_current,
        "exchangeDevice": exchange, "maybeExchangeDevice": exchange, "synchronize": machine.synchronize,
        "memoryStats": lambda index: allocator(index).stats(), "emptyCache": empty,
        "resetPeakMemoryStats": lambda index: allocator(index).reset(True),
        "resetAccumulatedMemoryStats": lambda index: allocator(index).reset(False),
        "setMemoryFraction": lambda fraction, index: allocator(index).set_fraction(fraction),
        "getMemoryFraction": lambda index: allocator(index).fraction,
        "canDeviceAccessPeer": lambda first, second: first != second, "hasPrimaryContext": lambda index: True,
        "getAllocatorBackend": lambda: "native", "getArchFlags": lambda: "sm_80", "ipc_collect": lambda: None,
        "sleep": machine.sleep, "set_sync_debug_mode": debug, "get_sync_debug_mode": lambda: machine.sync_debug,
    }
    accelerator = {
        "getAccelerator": lambda: torch.device("cuda"), "getDeviceIndex": lambda: machine.current,
        "setDeviceIndex": machine.set_current, "exchangeDevice": exchange, "maybeExchangeDevice": exchange,
        "synchronizeDevice": machine.synchronize, "isAllocatorInitialized": lambda: True, "emptyCache": empty,
        "getDeviceStats": lambda index: allocator(index).stats(), "emptyHostCache": lambda: None,
        "resetPeakStats": cuda["resetPeakMemoryStats"], "resetAccumulatedStats": cuda["resetAccumulatedMemoryStats"],
        "getMemoryInfo": lambda index: memory_info(machine, index),
        "getStream": lambda index: machine.streams.current(machine.devices[index]),
        "setStream": machine.streams.select,
    }
    return {f"_cuda_{name}": f for name, f in cuda.items()} | {f"_accelerator_{name}": f for name, f in accelerator.items()}


def memory_info(machine, device=None):
    """(free, total) bytes of a device, as ``torch.cuda.mem_get_info``."""
    allocator = machine.allocators[machine.device("cuda" if device is None else device).index]
    return allocator.capacity - allocator.now("reserved_bytes"), allocator.capacity


def properties(machine, index):
    """What ``torch.cuda.get_device_properties`` returns for a practice GPU."""
    return types.SimpleNamespace(
        name=NAME, major=8, minor=0, total_memory=machine.capacity, multi_processor_count=1, warp_size=32,
        max_threads_per_multi_processor=1024, regs_per_multiprocessor=65536, is_integrated=0, is_multi_gpu_board=0,
        gcnArchName=NAME, L2_cache_size=0, uuid=f"practice-{index}")


def functions(machine):
    """(module or class, name, replacement) for all of PyTorch that asks the driver, or must not."""
    from torch.cuda import memory, random
    names = {
        "is_available": lambda: True, "device_count": lambda: machine.n, "is_initialized": lambda: True,
        "init": lambda: None, "_lazy_init": lambda: None, "_is_compiled": lambda: True, "_is_in_bad_fork": lambda: False,
        "_lazy_call": lambda call, **kwargs: call(), "get_arch_list": lambda: ["sm_80"],
        "_get_device_properties": lambda index: properties(machine, index),
        "is_current_stream_capturing": lambda: False, "mem_get_info": lambda device=None: memory_info(machine, device),
        "_exchange_device": driver(machine)["_cuda_exchangeDevice"],
        "_maybe_exchange_device": driver(machine)["_cuda_exchangeDevice"],
        "manual_seed": lambda seed: torch.default_generator.manual_seed(seed) and None,
        "manual_seed_all": lambda seed: torch.default_generator.manual_seed(seed) and None,
        "seed": lambda: torch.default_generator.seed() and None, "seed_all": lambda: torch.default_generator.seed() and None,
        "initial_seed": torch.default_generator.initial_seed,
        "get_rng_state": lambda device="cuda": torch.default_generator.get_state(),
        "set_rng_state": lambda state, device="cuda": torch.default_generator.set_state(state) and None,
        "get_rng_state_all": lambda: [torch.default_generator.get_state()] * machine.n,
        "set_rng_state_all": lambda states: torch.default_generator.set_state(states[0]) and None,
        "is_bf16_supported": lambda including_emulation=True: True,
        **machine.streams.functions(),
    }
    yield from ((torch._C, name, function) for name, function in driver(machine).items())
    for module in (torch.cuda, memory, random, torch.cuda.streams):
        yield from ((module, name, f) for name, f in names.items() if module is torch.cuda or hasattr(module, name))
    for path, refused in REFUSED.items():
        module = __import__("sys").modules.get(path)
        yield from ((module, name, refusal(f"{path}.{name}")) for name in refused if hasattr(module, name))
    yield from ((torch._C, name, function) for name, function in collectives(machine).items())
    yield torch.cuda.nccl, "is_available", lambda tensors: False
    yield torch.Tensor, "record_stream", record_stream
    yield torch._tensor_str, "_str", printing(machine)
    yield torch.Tensor, "__dlpack__", sharing("__dlpack__")
    yield torch.Tensor, "__cuda_array_interface__", property(sharing("__cuda_array_interface__", "__get__"))
    if torch.distributed.is_available():
        for name in ("init_process_group", "new_group"):
            yield torch.distributed, name, without_nccl(name)
    yield torch.autograd, "_make_grads", checked_grads(machine)
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False
    yield torch._C, "_group_tensors_by_device_and_dtype", grouped(machine)
    yield torch.UntypedStorage, "practice", None
    yield torch.UntypedStorage, "device", property(lambda held: label(machine, held) or CPU)
    yield torch.UntypedStorage, "is_cuda", property(lambda held: label(machine, held) is not None)
    yield torch.UntypedStorage, "clone", clone
    Generator = generator_class(machine)
    parse = torch._C._nn._parse_to
    yield torch._C._nn, "_parse_to", lambda *args, **kwargs: parse(
        *(machine.device(a) if type(a) is int else a for a in args), **kwargs)
    yield torch.nn.parallel._functions, "torch", Numbered(machine)
    yield torch, "Generator", Generator
    yield torch, "Stream", machine.streams.Stream
    yield torch, "Event", machine.streams.Event
    yield torch.cuda, "default_generators", tuple(Generator(device) for device in machine.devices)
    gates = {"has_torch_function": overridden, "has_torch_function_unary": lambda x: overridden((x,)),
             "has_torch_function_variadic": lambda *values: overridden(values)}
    for module in (torch.overrides, torch.functional, torch.nn.functional, torch._tensor, torch.autograd):
        yield from ((module, name, gate) for name, gate in gates.items() if name in vars(module))


def overridden(values):
    """Whether a value brings its own ``__torch_function__``. PyTorch's Python functions ask this at their start; they would
    hand themselves over to any mode, which is then off inside them, but a practice device must be seen inside, too."""
    plain = torch._C._disabled_torch_function_impl
    return torch._C._is_torch_function_enabled() and any(
        type(value) is not torch.Tensor and getattr(value, "__torch_function__", plain) is not plain for value in values)


class Numbered:
    """``torch``, except that a build of PyTorch without CUDA, too, takes a number for a device."""

    def __init__(self, machine):
        self.device = machine.device

    def __getattr__(self, name):
        return getattr(torch, name)


def printing(machine, original=torch._tensor_str._str):
    """Printing waits for the numbers; PyTorch turns the dispatch mode off for it."""
    def show(tensor, **options):
        device = machine.place(tensor)
        if device is not None:
            machine.synchronized(machine.streams.current(device))
        return original(tensor, **options)
    return show


def sharing(name, getter=None):
    """A way to hand memory to another library: fine for the CPU, refused for a practice GPU."""
    original = vars(torch.Tensor)[name]
    original = getattr(original, getter) if getter else original

    def share(tensor, *args, **kwargs):
        return refusal(f"Tensor.{name}")() if tensor.is_cuda else original(tensor, *args, **kwargs)
    return share


def without_nccl(name):
    """A function of ``torch.distributed`` that refuses NCCL."""
    original = getattr(torch.distributed, name)

    def call(*args, **kwargs):
        if any("nccl" in str(value).lower() for value in (*args, kwargs.get("backend"))):
            refusal(f"torch.distributed.{name} with nccl")()
        return original(*args, **kwargs)
    return call


def record_stream(tensor, stream):
    """``Tensor.record_stream``: a practice storage lives as long as work needs it, so there is nothing to record."""
    if not tensor.is_cuda:
        raise NotImplementedError("Could not run 'aten::record_stream' with arguments from the 'CPU' backend.")


def checked_grads(machine, original=torch.autograd._make_grads):
    """``backward(gradient)`` wants the gradient where the output is."""
    def make(outputs, grads, *rest, **options):
        for index, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
            if isinstance(output, torch.Tensor) and isinstance(grad, torch.Tensor) and output.device != grad.device:
                raise RuntimeError(f"invalid gradient at index {index} - expected device {output.device} but got "
                                   f"{grad.device}")
        return original(outputs, grads, *rest, **options)
    return make


def label(machine, held):
    """The practice device of a storage, or None."""
    place = held.practice
    return place.device if place is not None and place.machine is machine else None


def clone(held):
    """``UntypedStorage.clone`` (what ``deepcopy`` uses), label included."""
    copy, place = torch.UntypedStorage(held.nbytes()).copy_(held), held.practice
    if place is not None and place.device is not None and copy.practice is not place:
        copy.practice = Place(place.machine, place.device, place.allocator, place.allocator.malloc(held.nbytes()))
    return copy


def grouped(machine, original=torch._C._group_tensors_by_device_and_dtype):
    """Optimizers group tensors by device before a fused step; labels are grouped here."""
    def group(lists, with_indices=False):
        found = {}
        for row in zip(*(each for each in lists if each), strict=True):
            if any(t is not None and machine.place(t) not in (machine.place(row[0]), None) for t in row):
                original([[torch.empty(0)], [torch.empty(0, dtype=torch.int8)]])  # raises in this release's words
        for row, tensor in enumerate(lists[0]):
            found.setdefault(machine.place(tensor) or tensor.device, []).append(row)
        result = {}
        for device, rows in found.items():
            for (_, dtype), (parts, places) in original([[e[r] for r in rows if e] for e in lists], with_indices).items():
                result[device, dtype] = (parts, [rows[p] for p in places])
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


def collectives(machine):
    """The copies between devices beneath ``nn.DataParallel``, made of ordinary copies."""
    def on(index):
        return CPU if index == -1 else machine.device("cuda" if index is None else index)

    def pieces(tensor, devices, sizes, dim, streams=None):
        chunks = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
        return tuple(chunk.contiguous().to(on(d)) for chunk, d in zip(chunks, devices, strict=False))

    def gather(tensors, dim, index=None):
        return torch.cat([t.to(on(index)) for t in tensors], dim)

    return {
        "_broadcast_coalesced": lambda tensors, devices, size:
            [[t if t.device == on(d) else t.to(on(d)) for t in tensors] for d in devices],
        "_broadcast": lambda tensor, devices: tuple(tensor.to(on(d)) for d in devices),
        "_broadcast_out": lambda tensor, out: tuple(each.copy_(tensor) for each in out),
        "_scatter": pieces, "_gather": gather, "_gather_out": lambda tensors, out, dim: out.copy_(torch.cat(
            [t.to(out.device) for t in tensors], dim)),
        "_scatter_out": lambda tensor, out, dim, streams=None: tuple(each.copy_(part) for each, part in zip(
            out, tensor.split([each.size(dim) for each in out], dim), strict=True)),
    }
