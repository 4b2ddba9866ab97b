"""Everything in PyTorch that changes while practice GPUs are on, and what it changes to."""

import functools
import sys
import warnings
from types import SimpleNamespace

import torch

from . import backward, casting, driver, processes, torchscript, typed
from .machine import CPU, Place, contents, listeners, refusal
from .operators import meta

T = torch.Tensor
REFUSED = {
    "torch.cuda": """CUDAGraph graph make_graphed_callables graph_pool_handle cudart caching_allocator_alloc
        caching_allocator_delete change_current_allocator CUDAPluggableAllocator MemPool use_mem_pool
        current_blas_handle utilization temperature power_draw clock_rate memory_usage device_memory_used ExternalStream
        get_stream_from_external list_gpu_processes _compile_kernel host_memory_stats
        reset_accumulated_host_memory_stats reset_peak_host_memory_stats""",
    "torch.utils.cpp_extension": "load load_inline CUDAExtension",
    "torch._C": """_scatter_out _gather_out _broadcast_out _acceleratorGraph _cuda_attach_out_of_memory_observer
        _cuda_beginAllocateToPool _cuda_beginAllocateCurrentStreamToPool _cuda_beginAllocateCurrentThreadToPool
        _cuda_cudaCachingAllocator_raw_alloc _cuda_cudaCachingAllocator_raw_delete _cuda_checkPoolLiveAllocations
        _cuda_getCheckpointState _cuda_setCheckpointPoolState _cuda_jiterator_compile_and_launch_kernel""",
}


def patches(machine, functions):
    """(module or class, name, replacement) for all that asks the driver, or must not."""
    generators = generator_class(machine)
    for device in machine.devices:
        machine.generators.append(generators(device).manual_seed(torch.initial_seed()))
    yield from of_driver(machine)
    yield from refused()
    yield from casting.gates()
    yield from of_storages(machine)
    yield from of_devices(machine)
    yield torch, "Generator", generators
    yield from of_autograd(machine, functions)
    yield from without_driver()
    yield from typed.patches(machine)
    yield from torchscript.patches(machine)
    yield from processes.patches(machine)
    yield torch._tensor_str, "_str", printing(machine, torch._tensor_str._str)


def of_driver(machine):
    """The functions beneath ``torch.cuda`` and ``torch.accelerator``."""
    yield from ((torch._C, name, function) for name, function in driver.answers(machine).items())
    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
        for name, function in driver.names(machine).items():
            if hasattr(module, name) or module is torch.cuda:
                yield module, name, function


def of_storages(machine):
    """What a storage says of its device, and how it is made, copied and moved."""
    kind = torch.UntypedStorage
    data_ptr = kind.data_ptr
    is_shared = kind.is_shared
    device = kind.device.__get__
    clone = kind.clone
    to = kind.to

    def address(storage):
        return machine.address(storage) if machine.label(storage) else data_ptr(storage)

    def has_bytes(storage):
        return machine.label(storage) or device(storage).type == "cpu"

    def cloned(storage):
        return contents(storage).clone().untyped_storage() if has_bytes(storage) else clone(storage)

    def moved(storage, device, non_blocking=False):
        if not has_bytes(storage):
            return to(storage, device=device, non_blocking=non_blocking)
        return contents(storage).to(device, non_blocking=non_blocking).untyped_storage()

    yield kind, "practice", None
    yield kind, "device", property(lambda self: machine.label(self) or device(self))
    yield kind, "is_cuda", property(lambda self: machine.label(self) is not None)
    yield kind, "__new__", stored(machine)
    yield kind, "data_ptr", address
    yield kind, "clone", cloned
    yield kind, "to", moved
    yield kind, "_write_file", written(machine)
    yield kind, "is_shared", lambda self: bool(machine.label(self)) or is_shared(self)


def of_devices(machine):
    """What takes devices as arguments, and streams and events."""
    yield torch._C, "_group_tensors_by_device_and_dtype", grouped(machine)
    yield torch._C._nn, "_parse_to", parsed(machine)
    yield torch, "Stream", machine.streams.Stream
    yield torch, "Event", machine.streams.DeviceEvent
    # copies of nn.DataParallel need no streams
    accelerator = SimpleNamespace(is_available=lambda: False)
    namespace = vars(torch) | {"device": machine.device, "accelerator": accelerator}
    yield torch.nn.parallel._functions, "torch", SimpleNamespace(**namespace)


def of_autograd(machine, functions):
    """Hooks, casts and gradients of the backward pass."""
    autograd = torch._C._autograd
    name = "_push_saved_tensors_default_hooks"
    push = getattr(autograd, name)
    yield torch, "clear_autocast_cache", forgetting(machine, torch.clear_autocast_cache)
    yield autograd, name, lambda *hooks: push(*map(functions.around, hooks))
    yield T, "_make_wrapper_subclass", staticmethod(wrapping(machine))
    yield torch.autograd, "_engine_run_backward", backward.passes(machine)
    yield torch.autograd, "_make_grads", checked_grads(torch.autograd._make_grads)


def without_driver():
    """What PyTorch chooses where a driver is there: NCCL, cuDNN, kernels of attention, the profiler, the compiler."""
    yield torch.cuda.nccl, "is_available", lambda tensors: False
    if torch.distributed.is_available():
        yield torch.distributed, "is_nccl_available", lambda: False
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False
    yield torch.autograd.profiler.profile, "__init__", without_cuda
    yield torch, "compile", uncompiled()
    for backend in ("flash", "mem_efficient", "cudnn"):
        yield torch._C, f"_can_use_{backend}_attention", lambda params, debug=False: False


def forgetting(machine, clear):
    """`torch.clear_autocast_cache`, which forgets the casts of practice GPUs, too."""

    def clear_autocast_cache():
        machine.casts.clear()
        clear()

    return clear_autocast_cache


def refused():
    """What practice GPUs do not imitate, replaced by functions that say so."""
    for path, names in REFUSED.items():
        for name in names.split():
            if hasattr(sys.modules.get(path), name):
                yield sys.modules[path], name, refusal(f"{path}.{name}")

    def some(owner, name, label, condition, instead):
        return owner, name, refusal(label, getattr(owner, name), condition, instead)

    for name in ("init_process_group", "new_group"):
        for owner in process_groups():
            label = f"torch.distributed.{name} with nccl"
            original = getattr(owner, name)
            refuse = refusal(label, original, nccl, "use the backend gloo")
            yield owner, name, in_report(refuse, original, label)
    if not casting.HEADER.exists():
        label = "autocast without PyTorch's headers"
        yield some(torch, "set_autocast_enabled", label, cuda, "install PyTorch's wheel whole")
    share = "share a copy on the CPU, x.cpu()"
    yield T, "record_stream", record_stream
    yield some(T, "__dlpack__", "Tensor.__dlpack__", of_gpu, share)
    yield some(torch.utils.dlpack, "to_dlpack", "torch.utils.dlpack.to_dlpack", of_gpu, share)
    read = refusal("__cuda_array_interface__", T.__cuda_array_interface__.__get__, of_gpu, share)
    yield T, "__cuda_array_interface__", property(read)
    fakes = torch._subclasses.FakeTensorMode
    label = "FakeTensorMode.from_tensor"
    yield some(fakes, "from_tensor", label, copied, "trace or export the module on the CPU")
    name = "_accelerator_setAllocatorSettings"
    yield some(torch._C, name, name, settings, "count with the default settings")
    label = "strided nested tensors"
    yield some(torch._C._nested, "nested_tensor", label, strided, "give layout=torch.jagged")
    yield from attention()


def attention():
    """PyTorch makes causal biases only where no mode for operators is on; to import them takes seconds."""
    biases = sys.modules.get("torch.nn.attention.bias")
    if biases is not None:
        yield biases.CausalBias, "__new__", unseen


def unseen(kind, *args):
    """A new tensor of a type of its own."""
    with torch._C._DisableTorchDispatch():
        return T.__new__(kind, *args)


def process_groups():
    """The modules that make process groups."""
    if torch.distributed.is_available():
        yield from (torch.distributed, torch.distributed.distributed_c10d)
        yield torch.distributed.device_mesh


def nccl(*args, **kwargs):
    """Whether a process group is to talk through NCCL."""
    return any("nccl" in str(value).lower() for value in (*args, kwargs.get("backend")))


def in_report(refuse, original, label):
    """Process groups of NCCL are refused; in a report that is noted, and gloo takes its place so that it goes on.

    Without a backend PyTorch would take NCCL for tensors of GPUs: it is gloo for all of them.
    """

    @functools.wraps(refuse)
    def call(*args, **options):
        if not args and options.get("backend") is None:
            options["backend"] = "gloo"
        if not listeners or not nccl(*args, **options):
            return refuse(*args, **options)
        for listener in listeners:
            listener.refused(f"{label} (gloo instead)")
        args = ["gloo" if "nccl" in str(value).lower() else value for value in args]
        options = {key: value for key, value in options.items() if key != "device_id"}
        if "nccl" in str(options.get("backend")).lower():
            options["backend"] = "gloo"
        return original(*args, **options)

    return call


def cuda(device, on=True):
    """Whether autocast is turned on for CUDA."""
    return on and device in ("cuda", True)


def of_gpu(x, *args, **kwargs):
    """Whether a tensor is on a GPU."""
    return x.is_cuda


def copied(mode, x, *args, **kwargs):
    """Whether a fake copy of a tensor on a GPU is to be made."""
    return x.is_cuda


def settings(text):
    """Whether settings of the allocator are to change what the counters say."""
    names = ("roundup_power2_divisions", "max_split_size_mb", "garbage_collection_threshold")
    return any(name in text for name in names) or "expandable_segments:True" in text


def strided(*args, device=None, **kwargs):
    """Whether a nested tensor without a jagged layout is to be made on a GPU."""
    return "cuda" in str(device)


def record_stream(tensor, stream):
    """``Tensor.record_stream``: a practice storage lives as long as work needs it, so there is nothing to record."""
    if not tensor.is_cuda:
        raise NotImplementedError(
            "Could not run 'aten::record_stream' with arguments from the 'CPU' backend."
        )


def without_cuda(self, *args, original=torch.autograd.profiler.profile.__init__, **options):
    """The profiler without CUDA activities: practice GPUs compute on the CPU, and the rest asks the driver."""
    if options.get("use_device") == "cuda":
        options["use_device"] = None
    original(self, *args, **options)


def uncompiled():
    """``torch.compile`` that gives back what it got, and says so once: the values are the same, the speed is not."""

    def compile(model=None, **options):
        warn_once()
        return model if model is not None else lambda function: function

    @functools.cache
    def warn_once():
        for listener in listeners:
            listener.refused("torch.compile (run as it is)")
        warnings.warn(
            "torch.compile: practice GPUs run the function as it is, with the same values; only a real GPU shows "
            "whether compiling makes it faster",
            stacklevel=4,
        )

    return compile


def parsed(machine, parse=torch._C._nn._parse_to):
    """What ``Module.to`` makes of its arguments, a device among them."""

    def read(*args, **options):
        args = [machine.device(value) if type(value) is int else value for value in args]
        if type(options.get("device")) is int:
            options["device"] = machine.device(options["device"])
        with torch._C.DisableTorchFunction():
            return parse(*args, **options)

    return read


def stored(machine, original=torch._C.StorageBase.__new__):
    """A new storage, of so many bytes or with given ones, on a practice GPU, too."""

    def new(cls, *args, device=None, **options):
        goal = machine.device(device or CPU)
        if goal.type != "cuda":
            return original(cls, *args, **options | ({"device": device} if device else {}))
        if args and isinstance(args[0], int):
            return torch.empty(args[0], dtype=torch.uint8, device=goal).untyped_storage()
        return contents(original(cls, *args)).to(goal).untyped_storage()

    return new


def written(machine, original=torch.UntypedStorage._write_file):
    """Writing a storage to a file, as ``pickle`` does: what it lacks is asked for."""

    def write(storage, *args):
        if machine.label(storage) is not None and not machine.values:
            storage = storage.cpu()
        return original(storage, *args)

    return write


def printing(machine, original):
    """Printing waits for the numbers; PyTorch turns the dispatch mode off for it."""

    def show(tensor, **options):
        device = machine.place(tensor)
        if device is not None and not machine.values:
            return original(meta(tensor), **options).replace("device='meta'", f"device='{device}'")
        if device is not None:
            machine.waits(device, "print")
        return original(tensor, **options)

    return show


def wrapping(machine, original=T._make_wrapper_subclass):
    """A tensor around others, such as a nested one, is for C++ on the CPU, like these; else backward asks the driver."""

    def wrap(*args, **options):
        places = [value for value in (*args, options.get("device")) if is_cuda(value)]
        if not places:
            return original(*args, **options)
        args = [CPU if is_cuda(value) else value for value in args]
        options = {key: CPU if is_cuda(value) else value for key, value in options.items()}
        out = original(*args, **options)
        if not hasattr(out, "__tensor_flatten__"):  # else it is where the tensors in it are
            with torch._C.DisableTorchFunction():
                out.untyped_storage().practice = Place(machine, machine.device(places[0]))
        return out

    def is_cuda(value):
        return isinstance(value, (torch.device, str)) and str(value).startswith("cuda")

    return wrap


def checked_grads(original):
    """``backward(gradient)`` wants the gradient where the output is."""

    def make(outputs, grads, *rest, **options):
        for index, (out, grad) in enumerate(zip(outputs, grads, strict=False)):
            if isinstance(out, T) and isinstance(grad, T) and out.device != grad.device:
                raise RuntimeError(
                    f"invalid gradient at index {index} - expected device {out.device} but got {grad.device}"
                )
        return original(outputs, grads, *rest, **options)

    return make


def grouped(machine, original=torch._C._group_tensors_by_device_and_dtype):
    """Optimizers group tensors by device before a fused step; labels are grouped here."""

    def group(lists, with_indices=False):
        with torch._C.DisableTorchFunction():
            homes = [machine.place(t) or t.device for t in lists[0]]
            result = {}
        for device in dict.fromkeys(homes):
            rows = [row for row, home in enumerate(homes) if home == device]
            parts = [[values[row] for row in rows if values] for values in lists]
            if strangers(parts, device):
                # raises, in its own words
                original([[torch.empty(0)], [torch.empty(0, device="meta")]], False)
            for (_, dtype), (groups, places) in original(parts, with_indices).items():
                result[device, dtype] = groups, [rows[place] for place in places]
        return result

    def strangers(parts, device):
        with torch._C.DisableTorchFunction():
            devices = {machine.place(t) for part in parts for t in part if t is not None}
        return devices - {device, None}

    return group


def generator_class(machine, original=torch._C.Generator):
    """``torch.Generator`` that can be made for a practice device; its numbers are made as the CPU's are."""

    class Meta(type(original)):
        def __instancecheck__(cls, value):
            return isinstance(value, original)

    class Generator(original, metaclass=Meta):
        def __new__(cls, device="cpu"):
            device = (
                torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
            )
            if device.type != "cuda":
                return original(device)
            generator = original.__new__(cls, "cpu")
            machine.device(device)  # raises where there is no such device
            generator.practice = device
            return generator

        def __init__(self, device="cpu"):
            pass

        device = property(lambda self: self.practice)

    for name in "get_offset set_offset graphsafe_get_state graphsafe_set_state".split():
        setattr(Generator, name, refusal(f"Generator.{name}", instead="use its get_state"))
    return Generator
