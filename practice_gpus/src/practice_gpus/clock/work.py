"""What one operator asks of a GPU: the bytes its kernels really read and write, and their floating-point operations.

The forward's FLOPs come from ``torch.utils.flop_counter``; those of a convolution's backward from its forward, as the
counter has them too high for grouped ones (65 times for a depthwise one of 64 channels in torch 2.15).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.flop_counter import conv_flop_count, flop_registry

from practice_gpus.clock.products import OURS, PATHS, fast_path, flops
from practice_gpus.machine import storage_of

T = torch.Tensor
aten = torch.ops.aten

# No kernel at all: memory that nobody fills, and questions.
NOTHING = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_"}
NOTHING |= {"set_", "detach", "is_same_size", "record_stream", "is_nonzero", "empty_permuted"}
NOTHING |= {"_unsafe_view", "as_strided_", "_reshape_alias", "alias", "transpose_", "squeeze_"}
NOTHING |= {"unsqueeze_", "t_", "lift", "_to_cpu", "unsafe_split", "unsafe_chunk"}
NOTHING |= {"lift_fresh", "_has_compatible_shallow_copy_type", "_fused_sdp_choice"}
# In place, without reading what was there before.
OVERWRITES = {"fill_", "zero_", "copy_", "uniform_", "normal_", "bernoulli_", "random_"}
OVERWRITES |= {"exponential_", "_foreach_copy_", "_foreach_zero_", "trunc_normal_"}
# Arguments that only say what the result looks like.
UNREAD = {
    "max_pool2d_with_indices_backward": {"self"},
    "max_pool3d_with_indices_backward": {"self"},
    "avg_pool2d_backward": {"self"},
    "_adaptive_avg_pool2d_backward": {"self"},
    "nll_loss_forward": {"self"},
    "nll_loss_backward": {"self"},
    "nll_loss2d_forward": {"self"},
    "nll_loss2d_backward": {"self"},
}
# They read as much of their first input as their result holds.
GATHERS = {"index", "_unsafe_index", "index_select", "gather", "embedding", "take"}
# They write as much of their first input as the new values hold.
SCATTERS = {"index_put_", "_index_put_impl_", "scatter_", "scatter_add_", "index_add_"}
SCATTERS |= {"index_copy_", "index_fill_", "masked_scatter_"}
# Kernels that go twice through these arguments: statistics first, then the result.
TWICE = {
    "native_group_norm": ("input",),
    "native_group_norm_backward": ("grad_out", "input"),
    "native_layer_norm_backward": ("grad_out", "input"),
    "_fused_rms_norm_backward": ("grad_out", "input"),
    "native_batch_norm_backward": ("grad_out", "input"),
    "cudnn_batch_norm_backward": ("grad_output", "input"),
    "batch_norm_backward": ("grad_out", "input"),
}
TRAINED = {"native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "batch_norm"}
TRAINED |= {"_batch_norm_with_update"}
# Channels: with fewer, cuDNN chose another algorithm than Winograd's in DeepBench's tables.
FEW = 16
TENSOR = ("fp16", "bf16", "tf32")  # units of tensor cores
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "_scaled_mm"} | OURS.keys()
# Operators without a tag of PyTorch's that go once through their inputs and results.
STREAMED = {"copy", "_to_copy", "clone", "contiguous", "cat", "stack", "constant_pad_nd", "roll"}
STREAMED |= {"native_dropout", "native_dropout_backward", "native_layer_norm", "_fused_rms_norm"}
STREAMED |= {
    "_softmax",
    "_safe_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
}
STREAMED |= {"embedding_dense_backward", "slice_backward", "select_backward", "arange", "repeat"}
STREAMED |= {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "rand", "randn"}
STREAMED |= {"rand_like", "randn_like", "randint", "scalar_tensor", "new_zeros", "new_ones"}
STREAMED |= {"new_full", "tril", "triu", "flip", "fill", "zero", "one_hot", "linspace", "eye"}
STREAMED |= {"threshold_backward", "gelu_backward", "split_with_sizes_copy", "index_put", "scatter"}
STREAMED |= {"uniform", "normal", "bernoulli", "random", "exponential", "local_scalar_dense"}
STREAMED |= {"unfold", "unfold_backward", "im2col", "col2im", "pixel_shuffle", "multinomial"}
STREAMED |= {"pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "grid_sampler_2d"}
STREAMED |= {"_scaled_dot_product_fused_attention_overrideable", "lerp", "tanh_backward"}
ELEMENTWISE = {"hardswish", "hardswish_backward", "hardsigmoid_backward", "hardtanh_backward"}
ELEMENTWISE |= {
    "silu_backward",
    "mish_backward",
    "native_dropout",
    "native_dropout_backward",
    "_to_copy",
}
PARTLY = ("pool", "norm", "upsample", "loss", "_foreach_", "_fused_", "pad", "_amp_", "scaled_dot_")


@dataclass(slots=True)
class Work:
    """One kernel's work: ``reads`` and ``writes`` are [(number of the storage, bytes)].

    ``unit`` says what computes: "fp32", "tf32", "fp16", "bf16", "fp64"; "" where only bytes count. ``launches`` kernels do
    it; ``fusible``: a compiler would merge it with its neighbors; ``known``: there is a rule for it; ``turned``: bytes that a
    convolution on tensor cores first turns to channels last; ``winograd``: whether one without them takes that algorithm;
    ``useful``: the share of what a kernel multiplies that isn't filling.
    """

    name: str
    reads: list
    writes: list
    flops: int = 0
    unit: str = ""
    channels_last: bool = False
    fusible: bool = False
    known: bool = True
    launches: int = 1
    turned: int = 0
    winograd: bool = False
    useful: float = 1.0
    bytes: int = field(init=False)

    def __post_init__(self):
        self.bytes = sum(size for _, size in self.reads) + sum(size for _, size in self.writes)


serial = iter(range(1 << 62))


def number(tensor: torch.Tensor) -> int:
    """A number that the storage of a tensor keeps as long as it lives, and no other gets."""
    storage = storage_of(tensor)
    mark = getattr(storage, "clock_number", None)
    if mark is None:
        mark = storage.clock_number = next(serial)
    return mark


def extent(tensor: torch.Tensor) -> int:
    """The bytes of memory that a tensor covers: an expanded dimension costs nothing."""
    if tensor.layout != torch.strided:
        return tensor._values().nbytes if tensor.layout == torch.sparse_coo else 0
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(size for size, stride in sizes if stride or not size)


def tensors(value: Any) -> list:
    """The tensors in an argument or a result."""
    if isinstance(value, T):
        return [value]
    return [each for each in value if isinstance(each, T)] if type(value) in (list, tuple) else []


@functools.cache
def schema(func: torch._ops.OpOverload) -> tuple:
    """(name, [(argument, whether it is written, whether only by keyword)]) of an operator."""
    found = func._schema
    arguments = [
        (a.name, a.alias_info is not None and a.alias_info.is_write) for a in found.arguments
    ]
    return found.name.split("::")[1], arguments


@functools.cache
def known(func: torch._ops.OpOverload) -> bool:
    """Whether there is a rule for an operator, rather than a count of the bytes of its arguments."""
    name = schema(func)[0]
    base = name.rstrip("_").removesuffix("_out")
    tags = {torch.Tag.pointwise, torch.Tag.reduction} & set(func.tags)
    by_name = base in STREAMED | PRODUCTS | GATHERS | TRAINED or name in OVERWRITES | SCATTERS
    if func.namespace != "aten":
        return func._overloadpacket in flop_registry
    if tags or by_name or func._overloadpacket in flop_registry or name in UNREAD or name in TWICE:
        return True
    return any(part in name for part in PARTLY) or pointwise(func)


@functools.cache
def pointwise(func: torch._ops.OpOverload) -> bool:
    """Whether an operator computes each element by itself; of one in place its other form knows."""
    name = schema(func)[0]
    if torch.Tag.pointwise in func.tags or name.rstrip("_") in ELEMENTWISE:
        return True
    other = getattr(aten, name.rstrip("_"), None)
    overloads = [getattr(other, each) for each in other.overloads()] if other is not None else []
    return any(torch.Tag.pointwise in each.tags for each in overloads)


def work(func: torch._ops.OpOverload, args: tuple, kwargs: dict, out: Any) -> list:
    """[`Work`] of an operator, one for each of its large kernels; nothing for a view or a question.

    ``args`` and ``out`` are tensors with or without values; only shapes, strides, dtypes and storages are read.
    """
    name, arguments = schema(func)
    if name in NOTHING:
        return []
    given = dict(zip([each for each, _ in arguments], args, strict=False)) | kwargs
    if "convolution" in name and name != "convolution_backward":
        return convolution(name, given, tensors(out)[0])
    if name == "convolution_backward":
        return convolution_backward(given, tensors(out))
    if name in PATHS:
        return path(given, out)
    reads, writes = moved(name, arguments, given, tensors(out))
    if not reads and not writes:
        return []
    count = flops(func._overloadpacket, name, args, kwargs, given, out)
    inputs = tensors(list(given.values()))
    large = max(inputs or tensors(out), key=T.numel, default=None)
    useful = 1.0
    if "scaled_dot_product" in name:  # by whichever kernel
        useful = useful_heads(given["query"].shape[-1])
        backward = "_backward" * name.endswith("_backward")
        name = f"scaled_dot_product_attention{backward}"
    return [
        Work(
            name,
            reads,
            writes,
            count,
            unit_of((inputs or arguments_tensors(list(given.values())))[0], "matmul")
            if count
            else "",
            is_channels_last(large),
            fusible(func, name, given),
            known(func),
            launches(name, given),
            useful=useful,
        )
    ]


def useful_heads(width: int) -> float:
    """The share of a head that isn't filling: fused attention fills it up to the next 32 numbers.

    As ``head_size_rounded`` of FlashAttention has it (flash_api.cpp of Dao-AILab/flash-attention, and PyTorch's copy of it).
    """
    return width / (math.ceil(width / 32) * 32)


def path(given: dict, out: Any) -> list:
    """The works of a fast path's kernels, of which the dispatcher sees one."""
    x = max(tensors(list(given.values())), key=T.numel)
    marks = iter(lambda: next(serial), None)
    return [
        Work(
            name,
            [(next(marks), read)],
            [(next(marks), written)],
            count,
            unit_of(x, "matmul") if count else "",
        )
        for name, read, written, count in fast_path(given, out)
    ]


def moved(name: str, arguments: list, given: dict, results: list) -> tuple:
    """(reads, writes) of an operator."""
    reads, writes, written = [], [], set()
    for argument, is_written in arguments:
        for tensor in arguments_tensors(given.get(argument)):
            size = extent(tensor)
            if is_written:
                written.add(number(tensor))
                if name in SCATTERS:
                    size = min(size, max(map(extent, values_of(given)), default=size))
                writes.append((number(tensor), size))
                if name in OVERWRITES or argument == "out" or name.endswith("_out"):
                    continue
            elif argument in UNREAD.get(name, ()) or name.endswith("_like") or "new_" in name:
                continue
            elif name in GATHERS and tensor is given.get(arguments[0][0]):
                size = min(size, sum(map(extent, results)))
            twice = argument in TWICE.get(name, ())
            twice |= name in TRAINED and argument == "input" and is_training(name, given)
            reads += [(number(tensor), size)] * (1 + twice)
    mine = {mark for mark, _ in reads}
    for tensor in results:
        mark = number(tensor)
        if mark not in written and mark not in mine:
            writes.append((mark, extent(tensor)))
    return reads, writes


def arguments_tensors(value: Any) -> list:
    """The tensors of an argument; those of lists of lists, too."""
    if type(value) in (list, tuple) and value and type(value[0]) in (list, tuple):
        return [tensor for each in value for tensor in tensors(each)]
    return tensors(value)


def values_of(given: Any) -> Any:
    """The tensors whose values an operator writes somewhere."""
    return [given[key] for key in ("values", "src", "source") if isinstance(given.get(key), T)]


def is_training(name: str, given: dict) -> bool:
    """Whether a batch norm computes statistics."""
    return bool(given.get("training", given.get("train", name == "_batch_norm_with_update")))


def fusible(func: torch._ops.OpOverload, name: str, given: dict) -> bool:
    """Whether a compiler merges an operator with its neighbors."""
    if name in TRAINED:
        return not is_training(name, given)
    return pointwise(func)


def launches(name: str, given: dict) -> int:
    """Kernels that an operator takes: one for each 48 tensors of a list (MultiTensorApply.cuh has 30 to 110)."""
    if not name.startswith(("_foreach_", "_fused_", "_amp_foreach")):
        return 1
    lists = [len(value) for value in given.values() if type(value) in (list, tuple)]
    return max(1, math.ceil(max(lists, default=1) / 48))


def unit_of(tensor: torch.Tensor, what: str) -> str:
    """What computes a product ("matmul") or a convolution ("conv") of a tensor: "fp16", "tf32" …"""
    names = {
        torch.float16: "fp16",
        torch.bfloat16: "bf16",
        torch.float64: "fp64",
        torch.int8: "int8",
    }
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        return "fp8"
    if tensor.dtype != torch.float32:
        return names.get(tensor.dtype, "fp32")
    tf32 = torch._C._get_fp32_precision_getter("cuda", what) == "tf32"
    return "tf32" if tf32 else "fp32"


def is_channels_last(tensor: torch.Tensor | None) -> bool:
    """Whether the channels of an image are next to each other in memory."""
    if tensor is None or tensor.dim() != 4 or tensor.layout != torch.strided:
        return False
    return tensor.shape[1] > 1 and tensor.stride(1) == 1


def convolution(name: str, given: dict, out: torch.Tensor) -> list:
    """The works of a convolution: itself, and the bias, which cuDNN adds afterwards (Convolution.cpp).

    Before tensor cores take an image that isn't channels last, cuDNN turns it, but for filters of one pixel. In ResNet's training on
    an A100 (HolisticTraceAnalysis, nccl_data) that takes 29 % of the forward convolutions' time, in 24 of 53.
    """
    x = given["input"] if "input" in given else given["self"]
    weight = given["weight"]
    transposed = given.get("transposed", False)
    flops = conv_flop_count(x.shape, weight.shape, out.shape, transposed)
    single = depthwise(x, weight, given.get("groups", 1))
    unit = "fp32" if single else unit_of(x, "conv")
    last = is_channels_last(out)
    reads = [(number(x), extent(x)), (number(weight), extent(weight))]
    writes = [(number(out), extent(out))]
    works = [Work(f"{name} (depthwise)" if single else name, reads, writes, flops, unit, last)]
    works[0].winograd = winograd(weight, given)
    if unit in TENSOR and not last and not plain(weight, given.get("stride", ())):
        works[0].turned = extent(x)
    bias = given.get("bias")
    if bias is not None and not single:
        works.append(Work("add_ (bias)", writes, writes, channels_last=last, fusible=True))
    return works


def plain(weight: torch.Tensor, stride: Any) -> bool:
    """Whether a convolution is a product as it lies in memory: one pixel at a time, none left out."""
    return math.prod(weight.shape[2:]) == 1 and all(each == 1 for each in stride)


def winograd(weight: torch.Tensor, given: dict) -> bool:
    """Whether cuDNN has Winograd's algorithm for a convolution: 3 × 3, each pixel, all channels with each other."""
    if weight.shape[2:] != (3, 3) or weight.shape[1] < FEW or given.get("groups", 1) > 1:
        return False
    return all(each == 1 for name in ("stride", "dilation") for each in given.get(name, ()))


def depthwise(x: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    """Whether each channel has a filter of its own: tensor cores have nothing to multiply there."""
    return groups > 1 and weight.shape[1] == 1 and groups == x.shape[1]


def convolution_backward(given: dict, results: list) -> list:
    """The works of a convolution's backward pass: the gradients of its input, weight and bias.

    On tensor cores cuDNN computes these channels last, and turns tensors that are not there and back (NVIDIA, Deep Learning
    Performance: Convolutional Layers, "Tensor Layouts"). A depthwise filter's gradient reads all once for each of its
    elements (``conv_depthwise2d_grad_weight_kernel`` of DepthwiseConv2d.cu has a block for each).
    """
    grad, x, weight = given["grad_output"], given["input"], given["weight"]
    flops = conv_flop_count(x.shape, weight.shape, grad.shape, given["transposed"])
    single = depthwise(x, weight, given["groups"])
    unit = "fp32" if single else unit_of(x, "conv")
    last = is_channels_last(x)
    turned = [(number(t), extent(t)) for t in (grad, x)] if unit in TENSOR else []
    works = []
    parts = (("input", weight), ("weight", x), ("bias", None))
    for (part, other), wanted, out in zip(
        parts, given["output_mask"], results_of(given, results), strict=True
    ):
        if not wanted:
            continue
        reads = [(number(t), extent(t)) for t in (grad, other) if t is not None]
        if single and part == "weight":
            reads *= math.prod(weight.shape[2:])
        writes = [(number(out), extent(out))]
        name = f"convolution_backward ({'depthwise ' * single}{part})"
        count, by = (flops, unit) if other is not None else (0, "")
        works.append(Work(name, reads, writes, count, by, last))
        works[-1].winograd = winograd(weight, given)
        if turned and other is not None and not last:
            works.append(Work("to channels last and back", turned, turned))
    return works


def results_of(given: dict, results: list) -> list:
    """The three results of a convolution's backward pass, None for those not wanted."""
    found = iter(results)
    return [next(found) if wanted else None for wanted in given["output_mask"]]
