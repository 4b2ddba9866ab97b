"""Runs the CPU's kernels, and words their errors as CUDA does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from practice_gpus.machine import divide_by_zero, is_asserted, refusal
from practice_gpus.pytorch import halves
from practice_gpus.pytorch.dtypes import cuda_lacks
from practice_gpus.pytorch.operators import tensors

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.operators import Call


# Operators that write a number as it is; all others compute with it in float32, and have it as large as it likes.
STORES_NUMBERS = {"fill_", "masked_fill", "masked_fill_", "full", "full_like", "new_full"}
STORES_NUMBERS |= {"threshold", "index_fill", "index_fill_", "scalar_tensor", "constant_pad_nd"}


def wider(call: Call) -> Any:
    """The result of an operator with numbers that are too large for its halves: computed in float32."""
    args, kwargs = tree_map_only(torch.Tensor, wide, (call.args, call.kwargs))
    out = call.func._op(*args, **kwargs)
    if not call.fact.mutates:
        return tree_map_only(torch.Tensor, torch.Tensor.half, out)
    for target, result in zip(tensors(call.args[0]), tensors(args[0]), strict=True):
        target.copy_(result)
    return call.args[0] if out is not None else None


def wide(x: torch.Tensor) -> torch.Tensor:
    """Half-precision values in float32."""
    return x.float() if x.dtype == torch.float16 else x


def computed(machine: Machine, call: Call) -> Any:
    """The result of the CPU's kernel; its errors in the words of CUDA's where they differ."""
    try:
        if call.fact.random and call.home is not None and call.kwargs.get("generator") is None:
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
            label = f"{call.func.name()} with these arguments"
            refusal(label, instead=f"the CPU has no code for it: {text[:200]}")()
        if "::Half without overflow" in text and call.home is not None:
            if call.fact.name not in STORES_NUMBERS:
                return wider(call)
        if text == "ZeroDivisionError" and call.home is not None:
            return divide_by_zero(call.func, call.args, call.kwargs)
        if call.home is not None and is_asserted(error, call.fact.name):
            raise machine.asserted(call.home, error) from error
        error.args = (text.replace("expected m1 and m2", "expected mat1 and mat2"),)
        raise
