"""What practice GPUs know about PyTorch's operators before they run, and one call of an operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from practice_gpus.machine import storage_of
from practice_gpus.pytorch.determinism import ALERTS
from practice_gpus.pytorch.dtypes import dtype_check
from practice_gpus.pytorch.halves import PRODUCTS

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

T = torch.Tensor
fake = torch._C._get_dispatch_mode
FAKE = torch._C._TorchDispatchModeKey.FAKE
has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


def on_gpus(x: Any) -> bool:
    """Whether a value is a tensor of a GPU, which is read."""
    return isinstance(x, T) and getattr(storage_of(x).practice, "device", None) is not None


# How often the CPU waits in an operator on a real GPU; tests/waits.csv names the source of each number.
WAITS = {
    "_local_scalar_dense": 1,
    "_unique2": 1,
    "_linalg_check_errors": 1,
    "_linalg_eigh": 1,
    "_linalg_svd": 2,
    "allclose": 1,
    "is_nonzero": 1,
    "linalg_eig": 1,
    "linalg_lstsq": 1,
    "masked_select": 1,
    "nonzero": 1,
    "unique_consecutive": 1,
    "unique_dim": 1,
    "unique_dim_consecutive": 1,
}


def compares(x: torch.Tensor, other: torch.Tensor) -> int:
    """``equal`` looks at numbers where sizes are the same and the memory is not."""
    places = [(t.data_ptr(), t.stride()) for t in (x, other)]
    return int(x.size() == other.size() and places[0] != places[1])


def pseudo_inverse(x: torch.Tensor, *rest: Any, hermitian: bool = False, **options: Any) -> int:
    """By ``eigh``, or by ``svd``."""
    return 1 if hermitian or True in rest else 2


def of_dense(count: int) -> Callable:
    """So often, where a dense tensor becomes a sparse one."""
    return lambda x, *rest, **options: count * (x.layout == torch.strided)


# The same, where the arguments decide.
WAITS_IF = {
    "bincount": lambda x, *rest, **options: 2 * (x.numel() > 0) - (x.dtype == torch.uint8),
    "equal": compares,
    "linalg_matrix_exp": lambda x: 2 * (x.shape[-1] > 1),
    "linalg_pinv": pseudo_inverse,
    "_to_sparse": of_dense(1),
    **{f"_to_sparse_{kind}": of_dense(2) for kind in ("csr", "csc", "bsr", "bsc")},
    "histc": lambda x, bins=100, min=0, max=0, **options: 2 * (min == max),
    "searchsorted": lambda *args, sorter=None, **options: int(sorter is not None),
    "linspace": lambda start, end, *rest, **options: on_gpus(start) + on_gpus(end),
    "logspace": lambda start, end, *rest, **options: on_gpus(start) + on_gpus(end),
    "repeat_interleave": lambda repeats, output_size=None: 2 * (output_size is None),
}
DIVISIONS = set("div div_ floor_divide floor_divide_ remainder remainder_ fmod fmod_".split())
READS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
MATRICES = {"mm", "bmm", "addmm", "baddbmm"}
# Operators whose results are no larger than their inputs together.
SMALL = ("backward", "_foreach_", "pool", "norm", "softmax", "loss", "attention", "cat", "stack")
GROWS = ("repeat", "pad", "im2col", "upsample", "new_")  # results larger than their only input


FACTS: dict[
    int, SimpleNamespace
] = {}  # id of an operator → its facts; a dictionary of operators would ask each for its hash, in Python


def facts(func: Any) -> Any:
    """What `DispatchMode` needs to know about an operator, read once from its schema."""
    schema = func._schema
    name = schema.name.removeprefix("aten::")
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    out = [r.alias_info for r in schema.returns]
    holding = [a for a in schema.arguments if "Tensor" in str(a.type)]
    names = [a.name for a in schema.arguments]
    decomposes = func.namespace == "aten" and func._can_decompose()
    view = name == "detach" or bool(out) and all(a and not a.is_write for a in out)
    one_tensor = [str(a.type) for a in holding] == ["Tensor"]
    composite = decomposes and not has_kernel(func.name(), "CPU")
    copies = name in ("copy_", "_to_copy", "_foreach_copy_")
    FACTS[id(func)] = SimpleNamespace(
        func=func,
        name=name,
        positions=[names.index(a.name) for a in holding if not a.kwarg_only],
        keywords=[a.name for a in holding],
        written=written,
        mutates=any(written),
        inplace=all(a and a.is_write for a in out) and not name.startswith("resize"),
        restrides=torch.Tag.inplace_view in func.tags and not name.startswith("resize"),
        resizes=name.startswith("resize"),
        composite=composite,
        view=view or name == "set_",
        passes=view and one_tensor and not composite,  # a view of one tensor: it is where that is
        copies=copies,
        counted=copies
        or func.namespace != "aten"
        or name in ("set_", *WAITS)
        or name in WAITS_IF
        or name in INDEXING,
        waits=WAITS.get(name, 0),
        waits_if=WAITS_IF.get(name),
        indexes=name in INDEXING,
        multiplies=name in PRODUCTS,
        dtype_check=dtype_check(name) or dtype_check(f"{name}.{func._overloadname}"),
        collective=func.namespace in ("c10d", "_c10d_functional"),
        python=written_in_python(func),
        alerts=name in ALERTS,
        reads=any(tag in func.tags for tag in READS),
        random=torch.Tag.nondeterministic_seeded in func.tags,
        drawn=with_generator(func, names),
        most_elements=bound(name, torch.Tag.pointwise in func.tags),
        targeted=name.startswith(("_to_copy", "linspace", "logspace"))
        or any(part in name for part in ("new_", "_like")),
        device="device" in names,
    )
    return FACTS[id(func)]


# Keys of the dispatcher, of kernels that are registered in Python: PyTorch's own stay.
KERNEL_KEYS = ("CUDA", "CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
BUILT_IN = frozenset(key for key in torch.library._impls if key.startswith(("aten/", "_native/")))


def written_in_python(func: Any) -> bool:
    """Whether a kernel of an operator is a user's, registered with ``torch.library``."""
    packet, _, overload = func.name().partition(".")
    names = {packet.replace("::", "/"), func.name().replace("::", "/")}
    keys = {f"{name}/{key}" for name in names for key in KERNEL_KEYS}
    return not keys.isdisjoint(torch.library._impls - BUILT_IN)


def with_generator(func: Any, names: list) -> Any:
    """The operator, or that of its overloads, which takes a generator; None: neither does."""
    if "generator" in names:
        return func
    own = func._overloadname
    return getattr(
        func.overloadpacket, f"{own}_generator" if own != "default" else "generator", None
    )


class Call:
    """One call of an operator: what it is, its arguments, the tensors among them, and where these are."""

    __slots__ = ("func", "fact", "args", "kwargs", "inputs", "loose", "homes", "home")

    def __init__(self, machine: Machine, func: Any, fact: Any, args: tuple, kwargs: dict) -> None:
        self.func = func
        self.fact = fact
        self.args = args
        self.kwargs = kwargs
        self.home: Any = None
        inputs: list = []
        loose: list = []  # made inside PyTorch, not yet on any device
        homes: list = []  # practice devices, and None for the CPU
        self.inputs, self.loose, self.homes = inputs, loose, homes
        count = len(args)
        for position in fact.positions:
            if position < count:
                value = args[position]
                if isinstance(value, T):
                    inputs.append(value)
                elif value:
                    inputs += tensors(value)
        if kwargs:
            for name in fact.keywords:
                inputs += tensors(kwargs.get(name))
        for tensor in inputs:
            place = storage_of(tensor).practice
            home = None
            if place is not None and place.machine is machine:
                home = place.device
            elif place is machine.floating:
                loose.append(tensor)
                continue
            if home not in homes:
                homes.append(home)


def tensors(values: Any) -> list:
    """The tensors among ``values`` (a tensor, or a list of tensors, of lists of tensors and of other things)."""
    if isinstance(values, T):
        return [values]
    result = []
    if type(values) in (list, tuple):
        for value in values:
            if isinstance(value, T):
                result.append(value)
            elif type(value) in (list, tuple):
                result += [element for element in value if isinstance(element, T)]
    return result


def blocking(call: Call) -> bool:
    """Whether the CPU waits for a copy with these arguments."""
    args = call.args
    return not (call.kwargs.get("non_blocking") or len(args) > 2 and args[2])


def meta(x: torch.Tensor) -> torch.Tensor:
    """A tensor like ``x`` without data."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")


def expected(call: Call) -> torch.Tensor | tuple | None:
    """The result of a call as tensors without data, or None where PyTorch cannot tell it beforehand."""
    options = {
        key: value
        for key, value in call.kwargs.items()
        if key not in ("generator", "device", "pin_memory")
    }
    if call.fact.device:
        options["device"] = "meta"
    args, options = tree_map_only(T, meta, (call.args, options))
    try:
        return call.func(*args, **options)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def bound(name: str, pointwise: bool) -> Callable:
    """What tells how many elements the result of an operator has at most, as its inputs tell; infinity: they do not."""
    if any(part in name for part in SMALL):
        return lambda call: sum([t.numel() for t in call.inputs]) if call.inputs else listed(call)
    if pointwise:
        return broadcast
    grows = any(part in name for part in GROWS)
    of_several = pairs
    if name in MATRICES:
        of_several = product
    elif name == "convolution":
        of_several = convolved

    def most(call):
        if len(call.inputs) > 1:
            return of_several(call)
        if call.inputs and not grows:
            return call.inputs[0].numel()
        return math.inf if call.inputs else listed(call)

    return most


def listed(call: Call) -> float:
    """The number of elements of a new tensor whose sizes come first."""
    sizes = call.args[0] if call.args else None
    return math.prod(sizes) if isinstance(sizes, (list, tuple)) else math.inf


def product(call: Call) -> int:
    """The number of elements of a matrix product."""
    first, second = call.inputs[-2:]
    return first.numel() // max(first.shape[-1], 1) * second.shape[-1]


def convolved(call: Call) -> int:
    """At most so many elements has a convolution."""
    if call.args[6]:
        return pairs(call)
    x, weight = call.inputs[:2]
    padding = max(call.args[4])
    return x.shape[0] * weight.shape[0] * math.prod([side + 2 * padding for side in x.shape[2:]])


def pairs(call: Call) -> int:
    """As many elements as the two largest inputs have pairs of them."""
    sizes = sorted([t.numel() for t in call.inputs])
    return sizes[-1] * sizes[-2]


def broadcast(call: Call) -> float:
    """The number of elements when shapes are broadcast."""
    sizes = [t.shape for t in call.inputs]
    if not sizes:
        return listed(call)
    if all([size == sizes[0] for size in sizes]):
        return sizes[0].numel()
    longest = max(map(len, sizes))
    padded = [(1,) * (longest - len(size)) + tuple(size) for size in sizes]
    return math.prod(map(max, zip(*padded, strict=True)))
