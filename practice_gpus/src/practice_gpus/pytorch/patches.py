"""Everything in PyTorch that changes while practice GPUs are on, and what it changes to."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from practice_gpus.machine import CPU, Place, backward, contents, refusal, tell_refused
from practice_gpus.pytorch import (
    casting,
    collectives,
    driver,
    dtensors,
    gradients,
    processes,
    torchscript,
    typed,
)
from practice_gpus.pytorch.dispatch import seeing
from practice_gpus.pytorch.operators import FACTS, meta
from practice_gpus.pytorch.refused import everywhere, refusals

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.functions import FunctionMode

T = torch.Tensor


def patches(machine: Machine, functions: FunctionMode) -> Iterator[Any]:
    """(module or class, name, replacement) for all that asks the driver, or must not."""
    generators = generator_class(machine)
    for device in machine.devices:
        machine.generators.append(generators(device).manual_seed(torch.initial_seed()))
    yield from of_driver(machine)
    yield from refusals()
    yield from casting.gates()
    yield from of_storages(machine)
    yield from of_devices(machine)
    yield torch, "Generator", generators
    set_state = torch.set_rng_state

    def set_rng_state(state):
        refuse_state(on_cpu(state), ours=False)
        set_state(state)

    for module in (torch, torch.random):
        yield module, "set_rng_state", set_rng_state
    yield from of_autograd(machine, functions)
    yield from without_driver()
    yield from typed.patches(machine)
    yield from torchscript.patches(machine)
    yield from processes.patches(machine)
    yield from collectives.patches(machine)
    yield TorchDispatchMode, "__enter__", seeing(machine)
    yield torch.library.Library, "impl", registered(torch.library.Library.impl)
    yield torch._tensor_str, "_str", printing(machine, torch._tensor_str._str)


def of_driver(machine: Machine) -> Iterator[Any]:
    """The functions beneath ``torch.cuda`` and ``torch.accelerator``."""
    yield from ((torch._C, name, function) for name, function in driver.answers(machine).items())
    for name, instead in driver.names(machine).items():
        original = getattr(torch.cuda, name, None)
        if callable(original):
            yield from everywhere(original, instead)
        else:
            yield torch.cuda, name, instead


def of_storages(machine: Machine) -> Iterator[Any]:
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
    yield kind, "resize_", resized(machine, kind.resize_)
    if not machine.values:
        for name in ("size", "nbytes"):
            yield kind, name, counted(machine, getattr(kind, name))
    yield kind, "is_shared", lambda self: bool(machine.label(self)) or is_shared(self)


def resized(machine: Machine, original: Callable) -> Callable:
    """``UntypedStorage.resize_``, with which FSDP frees parameters: another block of memory, or none."""

    def resize(storage, size):
        device = machine.label(storage)
        if device is None or machine.values:
            original(storage, size)
        if device is not None:
            storage.practice = machine.placed(device, size)
        return storage

    return resize


def counted(machine: Machine, original: Callable) -> Callable:
    """The bytes of a storage without values: those of its block, once it was resized."""

    def count(storage):
        if machine.label(storage) is None:
            return original(storage)
        block = storage.practice.block
        return 0 if block is None else block.requested

    return count


def of_devices(machine: Machine) -> Iterator[Any]:
    """What takes devices as arguments, and streams and events."""
    yield torch._C, "_group_tensors_by_device_and_dtype", grouped(machine)
    yield torch._C._nn, "_parse_to", parsed(machine)
    yield torch, "Stream", machine.streams.Stream
    yield torch, "Event", machine.streams.DeviceEvent
    for name in ("ipc_handle", "from_ipc_handle"):
        yield machine.streams.Event, name, refusal(f"torch.cuda.Event.{name}")
    yield torch.nn.parallel._functions, "_get_stream", machine.streams.current
    # copies of nn.DataParallel need no streams
    accelerator = SimpleNamespace(is_available=lambda: False)
    namespace = vars(torch) | {"device": machine.device, "accelerator": accelerator}
    yield torch.nn.parallel._functions, "torch", SimpleNamespace(**namespace)


def of_autograd(machine: Machine, functions: FunctionMode) -> Iterator[Any]:
    """Hooks, casts and gradients of the backward pass."""
    autograd = torch._C._autograd
    name = "_push_saved_tensors_default_hooks"
    push = getattr(autograd, name)
    yield torch, "clear_autocast_cache", forgetting(machine, torch.clear_autocast_cache)
    yield autograd, name, lambda *hooks: push(*map(functions.around, hooks))
    yield T, "_make_wrapper_subclass", staticmethod(wrapping(machine))
    yield torch.autograd, "_engine_run_backward", backward.passes(machine)
    yield T, "__new__", made(machine)
    yield T, "register_hook", gradients.hooked(machine)
    yield torch.autograd.Function, "apply", classmethod(gradients.applied(machine))
    yield torch.autograd.function.BackwardCFunction, "apply", gradients.returned(machine)
    yield torch.autograd, "_make_grads", checked_grads(torch.autograd._make_grads)


def without_driver() -> Iterator[Any]:
    """What PyTorch chooses where a driver is there: NCCL, cuDNN, kernels of attention, the profiler, the compiler."""
    plans: dict = {}  # of cuFFT: none are kept, but their number may be limited
    yield torch, "_cufft_clear_plan_cache", lambda index: None
    cache = vars(torch.backends.cuda.cuFFTPlanCache)
    yield cache["size"], "getter", refusal("cufft_plan_cache.size")
    yield cache["max_size"], "getter", lambda index: plans.get(index, 4096)
    yield cache["max_size"], "setter", plans.__setitem__
    for name in ("start", "stop"):  # of a profiler outside of PyTorch: there is none
        yield torch.cuda.profiler, name, lambda: None
    yield torch.cuda.nccl, "is_available", lambda tensors: False
    yield torch._subclasses.fake_tensor, "init_gpu_context", lambda device: None
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False  # RNNs ask it
    yield torch.autograd.profiler.profile, "__init__", without_cuda
    yield torch, "compile", uncompiled()
    for backend in ("flash", "mem_efficient", "cudnn"):
        yield torch._C, f"_can_use_{backend}_attention", lambda params, debug=False: False


def registered(original: Callable) -> Callable:
    """``Library.impl``, which may be for an operator that is known already."""

    @functools.wraps(original)
    def impl(*args, **options):
        FACTS.clear()
        return original(*args, **options)

    return impl


def forgetting(machine: Machine, clear: Callable) -> Callable:
    """`torch.clear_autocast_cache`, which forgets the casts of practice GPUs, too."""

    def clear_autocast_cache():
        machine.casts.clear()
        clear()

    return clear_autocast_cache


def without_cuda(
    self: Any, *args: Any, original: Any = torch.autograd.profiler.profile.__init__, **options: Any
) -> None:
    """The profiler without CUDA activities: practice GPUs compute on the CPU, and the rest asks the driver."""
    if options.get("use_device") == "cuda":
        options["use_device"] = None
    original(self, *args, **options)


def uncompiled() -> Callable:
    """``torch.compile`` that gives back what it got, and says so once: the values are the same, the speed is not."""

    def compile(model=None, **options):
        warn_once()
        if isinstance(model, torch.nn.Module):
            from torch._dynamo.eval_frame import OptimizedModule

            return OptimizedModule(model, lambda function: function)
        return model if model is not None else compile

    @functools.cache
    def warn_once():
        tell_refused("torch.compile (run as it is)")
        with contextlib.suppress(UserWarning):  # a test may take warnings for errors
            warnings.warn(
                "torch.compile: practice GPUs run the function as it is, with the same values; only a real GPU shows "
                "whether compiling makes it faster",
                stacklevel=4,
            )

    return compile


def made(machine: Machine, original: Callable = torch._C.TensorBase.__new__) -> Callable:
    """``Tensor.__new__``: PyTorch makes a type of a user's own only where no mode for operators is on."""

    def new(cls, *args, **options):
        default = machine.default_type if cls is T else None
        if default is not None and not (args and isinstance(args[0], T)):
            return default(*args, **options)
        with torch._C._DisableTorchDispatch():
            return original(cls, *args, **options)

    return new


def parsed(machine: Machine, parse: Callable = torch._C._nn._parse_to) -> Callable:
    """What ``Module.to`` makes of its arguments, a device among them."""

    def read(*args, **options):
        args = [machine.device(value) if type(value) is int else value for value in args]
        if type(options.get("device")) is int:
            options["device"] = machine.device(options["device"])
        like = next((value for value in (*args, *options.values()) if isinstance(value, T)), None)
        with torch._C.DisableTorchFunction():
            device, *rest = parse(*args, **options)
        return (device if like is None else machine.place(like) or device, *rest)

    return read


def stored(machine: Machine, original: Callable = torch._C.StorageBase.__new__) -> Callable:
    """A new storage, of so many bytes or with given ones, on a practice GPU, too."""

    def new(cls, *args, device=None, **options):
        goal = machine.device(CPU if device is None else device)
        if goal.type != "cuda":
            return original(cls, *args, **options | ({} if device is None else {"device": device}))
        if args and isinstance(args[0], int):
            return torch.empty(args[0], dtype=torch.uint8, device=goal).untyped_storage()
        return contents(original(cls, *args)).to(goal).untyped_storage()

    return new


def written(machine: Machine, original: Callable = torch.UntypedStorage._write_file) -> Callable:
    """Writing a storage to a file, as ``pickle`` does: it is copied to the CPU, and what it lacks is asked for."""

    def write(storage, *args):
        if machine.label(storage) is not None:
            storage = storage.cpu()
        return original(storage, *args)

    return write


def printing(machine: Machine, original: Callable) -> Callable:
    """Printing waits for the numbers; PyTorch turns the dispatch mode off for it."""

    def show(tensor, **options):
        device = machine.place(tensor)
        if device is not None and not machine.values:
            return original(meta(tensor), **options).replace("device='meta'", f"device='{device}'")
        if device is not None:
            machine.waits(device, "print")
        return original(tensor, **options)

    return show


def wrapping(machine: Machine, original: Callable = T._make_wrapper_subclass) -> Callable:
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


def checked_grads(original: Callable) -> Callable:
    """``backward(gradient)`` wants the gradient where the output is; a single number is brought there."""

    def make(outputs, grads, *rest, **options):
        made = list(original(outputs, grads, *rest, **options))
        for index, (out, grad) in enumerate(zip(outputs, made, strict=False)):
            if isinstance(out, T) and isinstance(grad, T) and out.device != grad.device:
                if grad.dim():
                    raise RuntimeError(
                        f"invalid gradient at index {index} - expected device {out.device} but got {grad.device}"
                    )
                made[index] = grad.to(out.device)
        return tuple(made)

    return make


def grouped(
    machine: Machine, original: Callable = torch._C._group_tensors_by_device_and_dtype
) -> Callable:
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


def generator_class(machine: Machine, original: Any = torch._C.Generator) -> type:
    """``torch.Generator`` that can be made for a practice device; its numbers are made as the CPU's are."""

    class Meta(type(original)):  # type: ignore[misc]  # the kind of PyTorch's class
        def __instancecheck__(cls, value):
            return isinstance(value, original)

    class Generator(original, metaclass=Meta):
        __module__, __qualname__ = "torch", "Generator"  # where pickle finds it

        def __new__(cls, device=None):
            device = "cpu" if device is None else device
            device = (
                torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
            )
            if device.type not in ("cpu", "cuda"):
                return original(device)
            generator = original.__new__(cls, "cpu")
            machine.device(device)  # raises where there is no such device
            generator.practice = device
            return generator

        def __init__(self, device=None):
            pass

        device = property(lambda self: self.practice)

        def get_state(self):
            state = original.get_state(self)
            state[-1] = marks[self.device.type]
            return state

        def set_state(self, state):
            ours = self.device.type == "cuda"
            if ours and on_cpu(state).numel() == dtensors.BRIEF:
                return self.manual_seed(dtensors.seed_of(state))  # one that was saved on a real GPU
            refuse_state(on_cpu(state), ours)
            return original.set_state(self, state)

        def clone_state(self):
            return restored(self.device, self.get_state())

        def __reduce__(self):
            return restored, (self.device, self.get_state())

    def gpus(generator, *args):
        return generator.device.type == "cuda"

    marks = {"cpu": 0, "cuda": OF_GPU}
    for name in "get_offset set_offset graphsafe_get_state graphsafe_set_state".split():
        refuse = refusal(f"Generator.{name}", getattr(original, name), gpus, "use its get_state")
        setattr(Generator, name, refuse)
    return Generator


OF_GPU = 1  # in the last byte of a state, which PyTorch leaves unused
WRONG_SIZE = (
    "Expected a CPUGeneratorImplState of size 5056 but found the input RNG state size to be 16"
)


def refuse_state(state: torch.Tensor, ours: bool) -> None:
    """Raise for the state of a generator of the CPU where one of a GPU is wanted, or the reverse: on CUDA sizes differ."""
    if state.dtype != torch.uint8:
        return  # PyTorch refuses it
    is_of_gpu = state.numel() > dtensors.BRIEF and state[-1] == OF_GPU
    if ours and not is_of_gpu:
        raise RuntimeError("RNG state is wrong size")
    if is_of_gpu and not ours:
        raise RuntimeError(WRONG_SIZE)


def restored(device: torch.device, state: torch.Tensor) -> torch.Generator:
    """A generator with a state, as copies and pickles make it."""
    return torch.Generator(device).set_state(state)


def on_cpu(state: torch.Tensor) -> torch.Tensor:
    """A state of a generator; one on a GPU is refused."""
    if state.is_cuda:
        raise TypeError("RNG state must be a torch.ByteTensor")
    return state
