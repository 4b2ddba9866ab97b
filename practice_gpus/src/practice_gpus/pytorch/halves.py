"""Products of 16-bit numbers, on CPUs that have no units for them: computed in float32, and rounded.

There PyTorch's kernels for 16 bits take up to sixty times as long as those for float32 (256 × 256 matrices, on an AMD EPYC
with AVX2). The exact products of two 16-bit numbers fit into float32, and a GPU adds them up in float32, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

PRODUCTS = {"mm", "bmm", "mv", "addmm", "addmv", "baddbmm", "convolution", "convolution_backward"}
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
PRODUCTS |= {ATTENTION, f"{ATTENTION}_backward"}
T = torch.Tensor


@functools.cache
def slow() -> set:
    """The 16-bit types for which this CPU has no fast kernels, as oneDNN tells."""
    asked = {
        torch.bfloat16: "_is_mkldnn_bf16_supported",
        torch.float16: "_is_mkldnn_fp16_supported",
    }
    fast = {dtype for dtype, name in asked.items() if getattr(torch.ops.mkldnn, name, bool)()}
    return set(asked) - fast


def run(func: Callable, fact: Any, args: tuple, kwargs: dict) -> torch.Tensor | tuple:
    """The result of an operator's CPU kernel."""
    if fact.multiplies and not fact.mutates:
        first = args[0] if isinstance(args[0], T) else None
        if first is not None and first.dtype in slow():
            return rounded(func, fact, args, kwargs, first.dtype)
    return func(*args, **kwargs)


def rounded(
    func: Callable, fact: Any, args: tuple, kwargs: dict, dtype: torch.dtype
) -> torch.Tensor | tuple:
    """The result of a product in float32, rounded to ``dtype``."""
    tensors = [value for value in args if isinstance(value, T)]
    attention = fact.name.startswith(ATTENTION)  # keeps sums in float32 for any type
    if not attention and any(tensor.dtype != dtype for tensor in tensors):
        return func(*args, **kwargs)  # which refuses it
    args, kwargs = tree_map_only(T, lambda tensor: tensor.float(), (args, kwargs))
    out = func(*args, **kwargs)
    if fact.name == ATTENTION:
        return out[0].to(dtype), out[1]
    return tree_map_only(T, lambda tensor: tensor.to(dtype), out)
