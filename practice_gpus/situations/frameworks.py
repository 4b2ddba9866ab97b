"""What frameworks ask of CUDA devices, or do with them, and users of theirs come to rely on."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import nn
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
        torch.zeros(2, device="cuda:0")
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


class Own(torch.Tensor):
    """A plain type of a user's own."""


class Asks(torch.Tensor):
    """A type whose functions move tensors to a GPU on the way."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Move a tensor, and go on."""
        torch.ones(2).to("cuda")
        return super().__torch_function__(func, types, args, kwargs or {})


class Pair(torch.autograd.Function):
    """Two results; where only one is used, autograd makes the gradient of the other one."""

    @staticmethod
    def forward(ctx, x):
        """Return multiples."""
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        """Return the gradient, of ones of where the second one is."""
        return first + second + torch.ones(2, device=second.device)


class Away(torch.autograd.Function):
    """A gradient that leaves the GPU."""

    @staticmethod
    def forward(ctx, x):
        """Return a multiple."""
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradient on the CPU."""
        return gradient.cpu()


class Calls(torch.overrides.TorchFunctionMode):
    """Notes the functions that a user's mode sees."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Note its name, and go on."""
        self.names.append(func.__name__)
        return func(*args, **kwargs or {})


def gradient(action: Any) -> Any:
    """Return the gradient of an action on a parameter of the GPU."""
    x = on().requires_grad_()
    action(x).sum().backward()
    return x.grad


def hooked(x: torch.Tensor) -> Any:
    """Return a result whose gradient a hook takes to the CPU."""
    y = x * 1
    y.register_hook(lambda gradient: gradient.cpu())
    return y


def compiled() -> Any:
    """Return what compiling makes of a module, with nothing compiled."""
    module = torch.compile(nn.Linear(2, 2).cuda(), backend="eager")
    return type(module), sorted(module.state_dict()), module._orig_mod.weight.device


TENSORS_OF_OTHERS = {
    "a plain type of one's own": lambda: [
        (type(x), x.device) for x in (Own(torch.ones(2)), Own([1.0]), Own(2, 3), Own(on()) + 1)
    ],
    "a type that asks for devices": lambda: (Asks(torch.ones(2)).to("cuda") + 1).device,
    "a module to where a tensor is": lambda: nn.Linear(2, 2).to(on()).weight.device,
    "a module to a tensor by name": lambda: nn.Linear(2, 2).to(tensor=on()).weight.device,
    "a module back to a tensor of the CPU": lambda: (
        nn.Linear(2, 2).cuda().to(on("cpu")).weight.device
    ),
    "gradients that autograd makes": lambda: gradient(lambda x: Pair.apply(x)[0]),
    "a gradient that left the GPU": lambda: gradient(Away.apply),
    "a hook that leaves the GPU": lambda: gradient(hooked),
    "a compiled module": compiled,
}
table(DOCS + "notes/extending.html", TENSORS_OF_OTHERS)


@situation(CODE + "torch/overrides.py")
def functions_that_a_users_mode_sees() -> Any:
    x = on()
    with Calls() as mode:
        nn.init.normal_(x)
        nn.functional.relu(x)
    return mode.names


COUNT = {
    "arange": lambda n: torch.arange(n),
    "zeros": lambda n: torch.zeros(n),
    "rand": lambda n: torch.rand(n),
    "eye": lambda n: torch.eye(n),
    "linspace": lambda n: torch.linspace(n, n, 3),
    "randint": lambda n: torch.randint(n, (2,)),
    "randperm": lambda n: torch.randperm(n),
    "tril_indices": lambda n: torch.tril_indices(n, n),
    "hann_window": lambda n: torch.hann_window(n),
    "scalar_tensor": lambda n: torch.scalar_tensor(n),
    "zeros_like": lambda n: torch.zeros_like(n),
    "as_tensor": lambda n: torch.as_tensor(n),
    "arange on a device": lambda n: torch.arange(n, device="cuda"),
}
SIZES = {
    f"{name} of a number on a GPU": (
        lambda make=make: make(torch.tensor(4, device="cuda")).device.type
    )
    for name, make in COUNT.items()
}
table(DOCS + "torch.html", SIZES)
LENGTHS = "a mask of lengths"
table(DOCS + "torch.html", {LENGTHS: lambda: torch.arange(on().max()) < on()[:, None]})
PLACES = [[0, 1], [0, 1]]
SPARSE = {
    "sparse of lists": lambda: torch.sparse_coo_tensor(PLACES, on()).device,
    "sparse rows of lists": lambda: torch.sparse_csr_tensor([0, 1, 2], [0, 1], on()).device,
    "sparse to a device": lambda: (
        torch.sparse_coo_tensor(torch.tensor(PLACES), on(), device="cuda").device
    ),
    "sparse indices on the CPU": lambda: torch.sparse_coo_tensor(torch.tensor(PLACES), on()),
    "sparse values on the CPU": lambda: torch.sparse_coo_tensor(
        torch.tensor(PLACES, device="cuda"), on("cpu")
    ),
    "sparse rows on the CPU": lambda: torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2]), torch.tensor([0, 1]), on()
    ),
}
table(DOCS + "sparse.html", SPARSE)


def again(generator: torch.Generator) -> Any:
    """Return where copies of a generator are, and whether they draw the same."""
    copies = [copy.deepcopy(generator), generator.clone_state()]
    copies.append(pickle.loads(pickle.dumps(generator)))
    first = torch.rand(2, generator=generator, device=generator.device)
    drawn = [torch.rand(2, generator=each, device=each.device) for each in copies]
    return [each.device for each in copies], all(torch.equal(x, first) for x in drawn)


GENERATORS = {
    "copies of a generator": lambda: again(torch.Generator("cuda").manual_seed(1)),
    "copies of a generator of the CPU": lambda: again(torch.Generator().manual_seed(1)),
    "a state on the GPU": lambda: torch.set_rng_state(torch.get_rng_state().cuda()),
    "a GPU's state on the GPU": lambda: torch.cuda.set_rng_state(torch.cuda.get_rng_state().cuda()),
    "a storage of the GPU": lambda: torch.empty(0).set_(on().untyped_storage()),
}
table(DOCS + "generated/torch.Generator.html", GENERATORS)


def written(index: Any, value: Any) -> Any:
    """Return halves after something was written there."""
    x = on().half()
    x[index] = value
    return x


def chosen(value: float) -> Any:
    """Return halves, or a number in their place."""
    return torch.where(on() > 1, on().half(), value)


def added() -> Any:
    """Return a sum of halves, written in place, with a large factor."""
    return on("cuda", 0.0, 0.0).half().add_(on("cuda", 0.0, 0.0).half(), alpha=1e9)


LARGE = {
    "a large number into halves": lambda: written(0, 2.0**30),
    "a large number through a mask": lambda: written(on() > 1, -1e9),
    "a large number chosen": lambda: chosen(-1e9),
    "infinity chosen": lambda: chosen(-float("inf")).dtype,
    "a large threshold": lambda: nn.functional.threshold(on().half(), 1e9, 0),
    "halves clamped to a large number": lambda: on().half().clamp(min=-1e9).dtype,
    "a large factor of halves": lambda: added().dtype,
    "a list clamped to a large number": lambda: (
        torch._foreach_clamp_max([on().half()], 1e9)[0].dtype
    ),
    "other halves through a mask": lambda: written(on() > 1, torch.ones(1, device="cuda")),
}
table(CODE + "c10/util/Half.h", LARGE)
INDICES = {
    "a stream of nothing": lambda: on().record_stream(None),
    "a sorter with a wrong place": lambda: torch.searchsorted(
        on(), on(), sorter=torch.tensor([0, 9], device="cuda")
    ),
}
table(CODE + "torch/csrc/Stream.cpp", INDICES)
TWO_GPUS = {
    "the stream of no device": lambda: torch.cuda.current_stream(99),
    "a number of another GPU at an index": lambda: written(
        0, torch.tensor(2.0, device="cuda:1").half()
    ),
}
table(CODE + "aten/src/ATen/native/TensorAdvancedIndexing.cpp", TWO_GPUS, gpus=2)
