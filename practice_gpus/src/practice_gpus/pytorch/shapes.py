"""Practice GPUs without values: every operator gives a result of the right shape, and nothing is computed.

A tensor without values is a CPU tensor, as all practice tensors are, whose storage has a size and an address, but no
memory. No kernel of the CPU sees it: PyTorch's kernels for the meta device say what a result looks like. Where those
lack an operator, or refuse one in words of their own, the CPU's kernel is given zeros.
"""

from __future__ import annotations

import functools
import mmap
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from practice_gpus.machine import CPU, is_own, line, origin, refusal, tell_refused
from practice_gpus.pytorch.operators import T, meta

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.operators import Call

REACH = 1 << 44  # bytes that are reserved, and never filled: no tensor is larger
NOWHERE = 1 << 44  # the address where a system reserves none
FALLBACK = 1 << 30  # bytes that the CPU's kernels are given at most
PRESUMED = {
    "_maybe_opt_step": 0.0
}  # a function of PyTorch → what it reads: a GradScaler, no infinities
SKIPPED = {"_linalg_check_errors"}  # raises for some values, and gives nothing
NAMES = {
    "_local_scalar_dense": "a number of Python, such as .item() or a condition,",
    "_to_copy": "a copy to the CPU",
    "copy_": "a copy to the CPU",
    "index": "a boolean mask",
}
# Operators whose results PyTorch's meta kernels cannot tell outside of its compiler → their shapes.
TOLD: dict[str, Callable] = {
    "_weight_int4pack_mm": lambda x, weight, *_: x.new_empty(x.shape[0], 8 * weight.shape[0]),
}
GIVE = "give values=True"
MOST_KNOWN = 2048
KNOWN: dict[
    tuple, object
] = {}  # an operator and how its inputs look → its new results, as meta tensors
sparse = refusal("sparse tensors without values", instead=GIVE)
MISSING = (
    "{place}{name} needs values, and these practice GPUs have none (values=False): leave it out, or say what stands in "
    "for them, such as stand_in=1.0, or a function that gets the tensor"
)


@functools.cache
def reserved() -> int:
    """The address at which all tensors without values begin: pages that nobody fills."""
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        pages = mmap.mmap(-1, REACH, flags=flags, prot=mmap.PROT_READ)
    except (AttributeError, OSError, ValueError):
        return NOWHERE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they cannot be written to
        kept = torch.frombuffer(pages, dtype=torch.uint8)
    vars(reserved)["pages"] = kept
    return kept.data_ptr()


def blank(shape: torch.Tensor) -> torch.Tensor:
    """A tensor without values, on the CPU and in no memory, of the shape of a meta tensor."""
    size = shape.untyped_storage().nbytes()
    storage = torch._C._construct_storage_from_data_pointer(reserved(), CPU, size)
    out = torch.empty(0, dtype=shape.dtype, device=CPU)
    return out.set_(storage, shape.storage_offset(), shape.size(), shape.stride())


def computed(machine: Machine, call: Call) -> Any:
    """The result of an operator without its values; what it writes to gets its new size."""
    fact = call.fact
    if any(t.layout != torch.strided for t in call.inputs):
        sparse()
    if call.func.namespace == "c10d":
        return unsent(call)
    if fact.name in SKIPPED:
        return None
    if fact.restrides:
        return call.func._op(*call.args, **call.kwargs)
    if needs_values(machine, call):
        return with_values(machine, call)
    looks = looks_of(call)
    if looks in KNOWN:
        return over(blank, KNOWN[looks])
    twins = {}  # storage of a meta tensor → the meta tensor, and what it stands for

    def twin(tensor):
        shape = meta(tensor)
        twins[shape.untyped_storage()._cdata] = shape, tensor
        return shape

    out = shaped(machine, call, twin)
    for shape, tensor in twins.values() if fact.mutates else ():
        if shape.size() != tensor.size():
            home = machine.place(tensor)
            machine.put(tensor.set_(blank(shape)), home or call.home)
    if looks is not None and all_new(out, twins):
        if len(KNOWN) >= MOST_KNOWN:
            KNOWN.clear()
        KNOWN[looks] = out
    return over(lambda result: given(result, twins), out)


def unsent(call: Call) -> Any:
    """What a collective gives where there are no values to send: its output as it is, and work that is done."""
    distributed = torch._C._distributed_c10d
    done = distributed.Work.boxed(distributed.FakeWork())
    results = call.func._schema.returns
    given = [call.args[0] if "Tensor" in str(each.type) else done for each in results]
    return given[0] if len(given) == 1 else tuple(given)


def over(function: Callable, results: Any) -> Any:
    """`results` with `function` applied to each tensor: as `tree_map_only` does it, without its cost for each operator."""
    if isinstance(results, T):
        return function(results)
    if type(results) in (list, tuple):
        return type(results)(over(function, each) for each in results)
    return results if results is None else tree_map_only(T, function, results)


def looks_of(call: Call) -> tuple | None:
    """All that the results' shapes depend on, as a key; None where they may be inputs, of another size than before."""
    lists = call.fact.name.startswith(
        "_foreach_"
    )  # where they write to their inputs, they give nothing
    if call.fact.view or call.func.namespace != "aten" or call.fact.mutates and not lists:
        return None
    arguments = look((*call.args, *call.kwargs.values()), lists)
    return call.func.name(), torch.get_default_dtype(), arguments, tuple(call.kwargs)


def look(x: Any, typed: bool = False) -> tuple:
    """Size, strides and dtype of a tensor; of anything else its type and its value, but of numbers that only have to be typed."""
    if isinstance(x, T):
        return x.size(), x.stride(), x.dtype
    if isinstance(x, (list, tuple)):
        return tuple(look(item, typed) for item in x)
    return type(x), None if typed and isinstance(x, (int, float)) else x


def all_new(out: torch.Tensor | tuple, twins: dict) -> bool:
    """Whether no result of an operator is an input, a view of one, or a tensor with values."""
    results = [result for result in tree_leaves(out) if isinstance(result, T)]
    new = [x for x in results if x.layout == torch.strided and x.is_meta]
    return len(new) == len(results) and not any(x.untyped_storage()._cdata in twins for x in new)


def given(result: torch.Tensor, twins: dict) -> torch.Tensor:
    """The result that a meta tensor stands for: an input, a view of one, or a new tensor."""
    if result.layout != torch.strided:
        sparse()
    if not result.is_meta:
        return result
    shape, tensor = twins.get(result.untyped_storage()._cdata, (None, None))
    if tensor is None:
        return blank(result)
    if result is shape:
        return tensor
    return tensor.as_strided(result.size(), result.stride(), tensor.storage_offset())


def shaped(machine: Machine, call: Call, twin: Callable) -> torch.Tensor | tuple:
    """The result of an operator as meta tensors."""
    left_out = ("generator", "pin_memory")
    kwargs = {key: value for key, value in call.kwargs.items() if key not in left_out}
    if call.fact.device:
        kwargs["device"] = "meta"
    args, kwargs = tree_map_only(T, twin, (call.args, kwargs))
    if call.fact.name in TOLD:
        return TOLD[call.fact.name](*args)
    try:
        out = call.func._op(*args, **kwargs)
        return channels_last(out) if call.fact.name == "convolution" and last(args) else out
    except (AssertionError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        if call.func.namespace != "aten":
            return with_values(machine, call)
        if sum(tensor.nbytes for tensor in call.inputs) > FALLBACK:
            raise
    out = filled(machine, call, lambda tensor: 0)
    if call.fact.name == "_pack_padded_sequence":
        return meta(out[0]), out[1]  # its sizes are the CPU's
    return tree_map_only(T, meta, out)


def last(args: tuple) -> bool:
    """Whether cuDNN answers channels last: input or weight are so (``cudnn_conv_suggest_memory_format``)."""
    return any(
        x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
        for x in args[:2]
    )


def channels_last(shape: torch.Tensor) -> torch.Tensor:
    """A meta tensor with its channels next to each other."""
    return torch.empty_like(shape, memory_format=torch.channels_last)


def needs_values(machine: Machine, call: Call) -> bool:
    """Whether the result, or its shape, depends on values of a practice GPU."""
    fact = call.fact
    if fact.copies:
        return call.home is None
    if fact.indexes:
        masks = [x for x in call.args[1] if x is not None and x.dtype in (torch.bool, torch.uint8)]
        return fact.name in ("index", "_unsafe_index") and bool(masks)
    return fact.reads


def with_values(machine: Machine, call: Call) -> Any:
    """The result of an operator whose inputs have the values that stand in for theirs."""
    out = filled(machine, call, lambda tensor: stand_in(machine, call, tensor))
    if call.home is None:
        return out
    return tree_map_only(T, lambda tensor: blank(meta(tensor)), out)


def filled(machine: Machine, call: Call, value_of: Callable) -> Any:
    """The result of the CPU's kernel; ``value_of`` gives a tensor without values a number, or a tensor with values."""

    def fill(tensor):
        if machine.place(tensor) is None:
            return tensor
        value = value_of(tensor)
        if isinstance(value, T):
            return value.to(tensor.dtype).expand(tensor.size())
        return torch.full(tensor.size(), value, device=CPU).to(tensor.dtype)

    args, kwargs = tree_map_only(T, fill, (call.args, call.kwargs))
    return call.func._op(*args, **kwargs)


def stand_in(machine: Machine, call: Call, tensor: torch.Tensor) -> Any:
    """What the user gave instead of the values of a tensor, or NotImplementedError with the line that reads them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        if frame.f_code.co_name in PRESUMED:
            return PRESUMED[frame.f_code.co_name]
        frame = frame.f_back
    instead = machine.stand_in
    if instead is None:
        file, number = line(origin())
        place = f"{os.path.basename(file)}:{number}: " if file else ""
        name = NAMES.get(call.fact.name, call.fact.name)
        raise NotImplementedError(MISSING.format(place=place, name=name))
    tell_refused(f"values ({'those of a function' if callable(instead) else instead} instead)")
    return instead(tensor) if callable(instead) else instead
