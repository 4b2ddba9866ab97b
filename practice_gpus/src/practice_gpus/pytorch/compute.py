"""Runs the CPU's kernels, and words their errors as CUDA does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from practice_gpus.machine import divide_by_zero, is_asserted, refusal
from practice_gpus.pytorch import halves
from practice_gpus.pytorch.dtypes import cuda_lacks
from practice_gpus.pytorch.operators import expected, tensors
from practice_gpus.pytorch.substitutes import SUBSTITUTES

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.operators import Call


# Operators that write a number as it is; all others compute with it in float32, and have it as large as it likes.
STORES_NUMBERS = {"fill_", "masked_fill", "masked_fill_", "full", "full_like", "new_full"}
STORES_NUMBERS |= {
    "hardshrink",
    "scatter",
    "pow",
    "_unsafe_masked_index",
    "threshold",
    "index_fill",
    "index_fill_",
    "scalar_tensor",
    "constant_pad_nd",
}


def has_generator(call: Call) -> bool:
    """Whether a call brings a generator of random numbers."""
    return any(isinstance(value, torch.Generator) for value in (*call.args, *call.kwargs.values()))


def wider(call: Call) -> Any:
    """The result of an operator with numbers that are too large for its halves: computed in float32."""
    args, kwargs = tree_map_only(torch.Tensor, wide, (call.args, call.kwargs))
    out = call.func._op(*args, **kwargs)
    if not call.fact.mutates:
        return tree_map_only(torch.Tensor, torch.Tensor.half, out)
    for target, result in zip(tensors(call.args[0]), tensors(args[0]), strict=True):
        target.copy_(result)
    return call.args[0] if out is not None else None


# A dtype for which the CPU has no kernel → those in which it may compute instead.
IN_WIDER = dict.fromkeys((torch.float16, torch.bfloat16), (torch.float32,))
IN_WIDER |= dict.fromkeys((torch.float8_e4m3fn, torch.float8_e5m2), (torch.float32,))
IN_WIDER |= {torch.complex32: (torch.complex64,)}
SMALL = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32]
IN_WIDER |= dict.fromkeys(SMALL, (torch.int64, torch.float64)) | {torch.int64: (torch.float64,)}


EIGHT_BITS = {torch.float8_e4m3fn, torch.float8_e5m2}
# Operators that move numbers, which CUDA does with those of eight bits, too.
MOVES = {"flip", "rot90", "gather", "scatter", "roll", "isin", "eye"}
MOVES |= {"channel_shuffle", "pixel_shuffle", "pixel_unshuffle"}


def elsewise(call: Call) -> tuple:
    """(True, the result of an operator for a dtype that the CPU's kernel lacks and a GPU's has), or (False, None).

    It is computed in a wider dtype and rounded, as a GPU does with small dtypes; int64 in float64 below 2**53."""
    if call.fact.name in SUBSTITUTES:
        return True, SUBSTITUTES[call.fact.name](*call.args, **call.kwargs)
    first = call.inputs[0].dtype if call.inputs else call.kwargs.get("dtype")
    if call.fact.mutates or first in EIGHT_BITS and call.fact.name not in MOVES:
        return False, None
    goals = tensors(expected(call))
    for wider in IN_WIDER.get(first, ()) if goals else ():
        for chosen in ([x for x in call.inputs if x.dtype == first], call.inputs[:1]):
            made = computed_in(wider, call, chosen)
            if made is not None:
                rounded = [x.to(goal.dtype) for x, goal in zip(tensors(made), goals, strict=True)]
                return True, rounded[0] if isinstance(made, torch.Tensor) else tuple(rounded)
    return False, None


def computed_in(wider: torch.dtype, call: Call, chosen: list) -> Any:
    """The result of an operator with the tensors that are ``chosen`` in ``wider``; None: it has none, or no exact one."""

    def widen(x):
        return x.to(wider) if any(x is each for each in chosen) else x

    longs = [x for x in chosen if x.dtype == torch.int64] if wider == torch.float64 else []
    if any(bool((x.abs() > 2**53).any()) for x in longs):
        return None
    args, kwargs = tree_map_only(torch.Tensor, widen, (call.args, call.kwargs))
    if "dtype" in kwargs:
        kwargs["dtype"] = wider
    try:
        return call.func._op(*args, **kwargs)
    except (NotImplementedError, RuntimeError):
        return None


def wide(x: torch.Tensor) -> torch.Tensor:
    """Half-precision values in float32."""
    return x.float() if x.dtype == torch.float16 else x


def computed(machine: Machine, call: Call) -> Any:
    """The result of the CPU's kernel; its errors in the words of CUDA's where they differ."""
    try:
        if call.fact.random and call.home is not None and not has_generator(call):
            return machine.draw(call)
        if call.fact.multiplies and call.home is not None:
            return halves.run(call.func._op, call.fact, call.args, call.kwargs)
        return call.func._op(*call.args, **call.kwargs)
    except (IndexError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, NotImplementedError) and call.home is not None:
            lacking = cuda_lacks(call.fact.name, text)
            if lacking is not None:
                raise lacking from None
            found, out = elsewise(call)
            if found:
                return out
            label = f"{call.func.name()} with these arguments"
            refusal(label, instead=f"the CPU has no code for it: {text[:200]}")()
        if "::Half without overflow" in text and call.home is not None:
            if call.fact.name not in STORES_NUMBERS:
                return wider(call)
        if text == "ZeroDivisionError" and call.home is not None:
            return divide_by_zero(call.func, call.args, call.kwargs)
        if call.home is not None and is_asserted(error, call.fact.name):
            raise machine.asserted(call.home, error) from error
        error.args = (reworded(text, call),)
        raise


def reworded(text: str, call: Call) -> str:
    """The words of a CPU's kernel as CUDA's has them."""
    if call.home is not None:
        text = re.sub(r"got torch\.(\w+Tensor)", r"got torch.cuda.\1", text)
        text = text.replace("arguments for embedding_bag)", "arguments for embedding_bag_cuda)")
        text = re.sub(
            "^masked_fill_( only.*got) mask with dtype.*", r"masked_fill\1 dtype Byte", text
        )
        text = text.replace("masked_scatter: expected", "masked_scatter_: expected")
        text = text.replace("same dtypes but got", "same dtypes but got ")
    return text.replace("expected m1 and m2", "expected mat1 and mat2")
