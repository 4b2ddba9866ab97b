"""Floating-point operations of an operator's products: by PyTorch's own formulas, and by ours where it has none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

T = torch.Tensor


def linear(given: dict, out: torch.Tensor) -> int:
    """Of a product with a matrix of weights, in whichever format: two for each result and each number in a row of the input."""
    return 2 * out.numel() * next(x for x in given.values() if isinstance(x, T)).shape[-1]


def after_bias(given: dict, out: torch.Tensor) -> int:
    """Of a product whose first argument is what is added."""
    return 2 * out.numel() * given["mat1"].shape[-1]


def grouped(given: dict, out: torch.Tensor) -> int:
    """Of several products in one kernel, for whichever argument the offsets divide."""
    a, b = (x for x in given.values() if isinstance(x, T) and x.is_floating_point() and x.dim() > 1)
    return 2 * a.numel() * b.shape[-1] // (a.shape[0] if a.dim() > b.dim() else 1)


def several(given: dict, out: torch.Tensor) -> int:
    """Of a list of products."""
    pairs = zip(given["self"], given["mat2"], strict=True)
    return sum(2 * a.numel() * b.shape[-1] for a, b in pairs)


def vector(given: dict, out: torch.Tensor) -> int:
    """Of a product with a vector."""
    return 2 * max(x.numel() for x in given.values() if isinstance(x, T))


def recurrent(given: dict, out: torch.Tensor) -> int:
    """Of a layer of an LSTM or a GRU: each step uses each weight once for each sequence."""
    steps = math.prod(given["input"].shape[:2])
    return 2 * steps * (given["weight0"].numel() + given["weight1"].numel())


OURS: dict[str, Callable[[dict, torch.Tensor], int]] = {
    "_int_mm": linear,
    "_weight_int4pack_mm": linear,
    "_weight_int4pack_mm_with_scales_and_zeros": linear,
    "_weight_int8pack_mm": linear,
    "_dyn_quant_matmul_4bit": linear,
    "_addmm_activation": after_bias,
    "_foreach_mm": several,
    "_grouped_mm": grouped,
    "_scaled_grouped_mm": grouped,
    "mv": vector,
    "addmv": vector,
    "dot": vector,
    "vdot": vector,
    "mkldnn_rnn_layer": recurrent,
}
PATHS = {"_native_multi_head_attention", "_transformer_encoder_layer_fwd"}  # see `fast_path`


def flops(packet: Any, name: str, args: tuple, kwargs: dict, given: dict, out: Any) -> int:
    """Floating-point operations of an operator's products, 0 without any."""
    found = 0
    if name.endswith("_"):  # in place
        name = name[:-1]
        packet = getattr(torch.ops.aten, name, packet)
    if packet in flop_registry:
        found = flop_registry[packet](*args, **kwargs, out_val=out)
    elif name in OURS:
        found = OURS[name](given, out[0] if type(out) in (list, tuple) else out)
    elif "scaled_dot_product" in name:  # PyTorch before 2.15 has no formula for the CPU's kernel
        shapes = [given[each].shape for each in ("query", "key", "value")]
        if name.endswith("_backward"):
            found = sdpa_backward_flop_count(given["grad_out"].shape, *shapes)
        else:
            found = sdpa_flop_count(*shapes)
    return found // 2 if given.get("is_causal") is True else found  # kernels skip what is masked


def fast_path(given: dict, out: Any) -> list[tuple[str, int, int, int]]:
    """[(kernel, bytes read, bytes written, FLOPs)] of the fast paths of MultiheadAttention and TransformerEncoderLayer.

    In the order of ``native_multi_head_attention_cuda`` and ``transformer_encoder_layer_forward`` (transformers/*.cpp, *.cu).
    """
    x = given["query"] if "query" in given else given["src"]
    size, width = x.element_size(), x.shape[-1]
    heads = given.get("num_head", given.get("num_heads"))
    rows, tokens = math.prod(x.shape[:-1]), x.shape[1]
    whole = rows * width * size

    def product(name: str, inner: int, outer: int) -> tuple[str, int, int, int]:
        moved = (inner * outer + rows * inner) * size
        return name, moved, rows * outer * size, 2 * rows * inner * outer

    kernels = [product("addmm", width, 3 * width)]
    kernels.append(("_transform_bias_rescale_qkv", 3 * whole, 3 * whole, 0))
    count = 4 * rows * tokens * width
    if given.get("need_weights", "query" in given) or given.get("mask") is not None:
        scores = rows * tokens * heads * size
        kernels.append(("bmm", 2 * whole, scores, count // 2))
        kernels.append(("masked_softmax", scores, scores, 0))
        kernels.append(("bmm", scores + whole, whole, count // 2))
    else:
        kernels.append(("scaled_dot_product_attention", 3 * whole, whole, count))
    kernels.append(product("addmm", width, width))
    if "ffn_weight_1" in given:
        inner = given["ffn_weight_1"].shape[0]
        around = [("add_", 2 * whole, whole, 0), ("native_layer_norm", whole, whole, 0)]
        middle = rows * inner * size
        kernels += [*around, product("addmm", width, inner), ("activation", middle, middle, 0)]
        kernels += [product("addmm", inner, width), *around]
    return kernels
