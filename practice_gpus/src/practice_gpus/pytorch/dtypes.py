"""Dtypes and operators that CUDA lacks, though the CPU has them: refused in CUDA's words.

PyTorch states for each operator which dtypes its kernels take, on the CPU and on CUDA (the OpInfo tables of
``torch.testing._internal``); tests/test_dtypes.py compares them with what happens here. The names in the messages are
those of the AT_DISPATCH macros in ATen/native/cuda; the CUDA build holds them as text, and the same test looks there.
"""

from __future__ import annotations

import builtins
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from practice_gpus.machine import NO_KERNEL, refusal

REAL = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
WIDE = {torch.float32, torch.float64}
COMPLEX = {torch.complex64, torch.complex128}
INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
EIGHT_BITS = {torch.float8_e4m3fn, torch.float8_e5m2}
NOT_IMPLEMENTED = "\"{}\" not implemented for '{}'"
PUT = "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source."
EXPECTED = "expected scalar type {} but found {}"
CUDNN = "getCudnnDataTypeFromScalarType() not supported for {1}"
# What CUDA says where the CPU has no kernel: written by tests/oracle/kernels.py.
OTHER_WORDS = Path(__file__).with_name("cuda_kernels.txt")
LACKING = re.compile(r"\"([^\"]+)\" not implemented for '(\w+)'")
OF_CPU = re.compile(r"CPU|MKL|Could not run")
# Operator → (its CUDA kernel's name in messages, the dtypes it takes).
KERNELS = {
    "mm": ("addmm_cuda", REAL | COMPLEX),
    "addmm": ("addmm_cuda", REAL | COMPLEX),
    "_addmm_activation": ("addmm_cuda", REAL | COMPLEX),
    "addbmm": ("addmm_cuda", REAL | COMPLEX),
    "bmm": ("baddbmm_cuda", REAL | COMPLEX),
    "baddbmm": ("baddbmm_cuda", REAL | COMPLEX),
    "_trilinear": ("baddbmm_cuda", REAL | COMPLEX),
    "mv": ("addmv_impl_cuda", REAL | COMPLEX),
    "addmv": ("addmv_impl_cuda", REAL | COMPLEX),
    "dot": ("dot", REAL | COMPLEX),
    "vdot": ("dot", REAL | COMPLEX),
    "avg_pool1d": ("avg_pool2d_out_cuda_frame", REAL),
    "avg_pool2d": ("avg_pool2d_out_cuda_frame", REAL),
    "avg_pool3d": ("avg_pool3d_out_cuda", REAL),
    "max_pool1d": ("max_pool2d_with_indices_out_cuda_frame", REAL),
    "max_pool2d_with_indices": ("max_pool2d_with_indices_out_cuda_frame", REAL),
    "max_pool3d_with_indices": ("max_pool3d_with_indices_out_frame", REAL),
    "upsample_bilinear2d": ("upsample_bilinear2d_out_frame", REAL),
    "upsample_bicubic2d": ("upsample_bicubic2d_out_frame", REAL),
    "_upsample_bilinear2d_aa": ("upsample_bilinear2d_out_frame", REAL),
    "_upsample_bicubic2d_aa": ("upsample_bicubic2d_out_frame", REAL),
    "igamma": ("igamma_cuda", WIDE),
    "igammac": ("igammac_cuda", WIDE),
    "histc": ("histc", WIDE | INTEGERS),
    "native_dropout_backward": ("masked_scale", REAL),
    "_embedding_bag": ("embedding_bag_cuda", REAL),
    "_embedding_bag_forward_only": ("embedding_bag_cuda", REAL),
}
# Operators → (the CUDA kernel's name, dtypes of the CPU that it lacks).
PRODUCTS = {"mm", "addmm", "addbmm", "baddbmm", "addmv", "addmm_", "addbmm_", "baddbmm_", "addmv_"}
EXOTIC = {torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2}
WIDER_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}
LACKING_KERNELS = {
    "mul": ("mul_cuda", EXOTIC),
    "mul_": ("mul_cuda", EXOTIC),
    "roll": ("roll_cuda", EXOTIC),
    "sort": ("sortKeyValueInplace", EXOTIC),
    "all": ("and_cuda", EXOTIC | {torch.complex32}),
    "any": ("or_cuda", EXOTIC | {torch.complex32}),
    "index": ("index_cuda", WIDER_UNSIGNED),
    "bitwise_and": ("bitwise_and_cuda", WIDER_UNSIGNED),
    "bitwise_or": ("bitwise_or_cuda", WIDER_UNSIGNED),
    "bitwise_xor": ("bitwise_xor_cuda", WIDER_UNSIGNED),
    "abs": ("abs_cuda", {torch.float8_e4m3fn}),
    "linspace": ("linspace_cuda", EXOTIC | {torch.bool, torch.complex32}),
    "logspace": ("logspace_cuda", EXOTIC | {torch.bool, torch.complex32}),
    "addcmul": ("addcmul_cuda", {torch.complex32}),
    "std": ("std_cuda", EIGHT_BITS),
    "var": ("std_cuda", EIGHT_BITS),
}
KERNELS |= {f"{name}_": KERNELS[name] for name in ("addmm", "addbmm", "baddbmm", "addmv", "igamma")}
HALVES = {torch.float16, torch.bfloat16}
ATTENTION = {
    "_efficient_attention_forward": (
        HALVES | {torch.float32},
        "Only fp32, half & bf16 supported at the moment",
    ),
    "_flash_attention_forward": (HALVES, "FlashAttention only support fp16 and bf16 data type"),
}
# Norms → dtypes of inputs whose weights have the same, where the CPU's kernels take or name others.
OF_ONE_DTYPE = {
    "native_layer_norm": REAL,
    "native_group_norm": HALVES,
    "native_batch_norm": {torch.float32},
}
SCATTER = ("cuda_scatter_gather_base_kernel_func", REAL | INTEGERS)
FLOAT8_CAPABILITY = (8, 9)  # the oldest that multiplies numbers of eight bits
FLOAT8 = "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+"
# Operators without a CUDA kernel. The dispatcher of a CUDA build names them; so does PyTorch's native_functions.yaml.
CPU_ONLY = set("histogram _histogramdd_bin_edges _histogramdd_from_bin_cts _add_relu".split())
CPU_ONLY |= set("_histogramdd_from_bin_tensors _add_relu_ to_mkldnn _upsample_lanczos2d_aa".split())
CPU_ONLY |= set("quantized_lstm quantized_gru _spdiags _dyn_quant_matmul_4bit".split())
CPU_ONLY |= {"_sparse_mm_reduce_impl", "narrow_copy.out"}


# Parts of PyTorch whose operators are the CPU's, but for those that end so.
CPU_PARTS = ("quantized::", "_quantized::", "onednn::", "mkldnn::", "mkldnn_prepacked::", "mkl::")
ON_BOTH = ("unpack", "_rowwise_offsets")


def dtype_check(name: str) -> Callable[[Any], None] | None:
    """What raises for a `Call` of the operator ``name`` whose dtype, or which itself, CUDA lacks; None: nothing does."""
    if name in CPU_ONLY or name.startswith(CPU_PARTS) and not name.endswith(ON_BOTH):
        return _refuse_operator
    if name.startswith("scatter_reduce"):
        return _check_scatter
    if name in ("scatter", "scatter_"):
        return _check_multiplied
    if name in OF_ONE_DTYPE:
        return _check_norm
    if name == "convolution":
        return _check_convolution
    if name in ("index_put", "index_put_", "_index_put_impl_"):
        return _check_put
    if name.startswith("_scaled_mm"):
        return _check_scaled
    if name in ATTENTION:
        return _check_attention
    if name == "sparse_sampled_addmm":
        return _refuse_halves
    if name in LACKING_KERNELS:
        return _check_lacking
    return _check_kernel if name in KERNELS else None


def _refuse_operator(call: Any) -> None:
    backend = "QuantizedCUDA" if any(x.is_quantized for x in call.inputs) else "CUDA"
    if any(x.layout == torch.sparse_csr for x in call.inputs):
        backend = "SparseCsrCUDA"
    raise NotImplementedError(NO_KERNEL.format(call.func.name(), backend))


def _check_norm(call: Any) -> None:
    first, *rest = call.inputs
    for x in rest if first.dtype in OF_ONE_DTYPE[call.fact.name] else ():
        if x.dtype != first.dtype:
            raise RuntimeError(EXPECTED.format(*(scalar_type(t.dtype) for t in (first, x))))


def _check_attention(call: Any) -> None:
    dtypes, words = ATTENTION[call.fact.name]
    if call.inputs[0].dtype not in dtypes:
        raise RuntimeError(words)


def _refuse_halves(call: Any) -> None:
    dtype = call.inputs[0].dtype
    _check(dtype, "sampled_addmm_out_sparse_csr", REAL | COMPLEX | {torch.complex32, torch.uint16})
    if call.inputs[0].dtype in REAL - WIDE:
        refusal("sampled_addmm in half precision", instead="use float32")()


def _check(dtype: torch.dtype, kernel: str, taken: set[torch.dtype]) -> None:
    if dtype not in taken:
        raise NotImplementedError(NOT_IMPLEMENTED.format(kernel, scalar_type(dtype)))


def _check_kernel(call: Any) -> None:
    differ = call.fact.name in PRODUCTS and len({x.dtype for x in call.inputs}) > 1
    if call.inputs and not differ:  # the CPU refuses products of several dtypes, too
        dtype = call.kwargs.get("dtype") or call.inputs[0].dtype
        _check(dtype, *KERNELS[call.fact.name])


def _check_lacking(call: Any) -> None:
    kernel, lacking = LACKING_KERNELS[call.fact.name]
    inputs = call.inputs[:1] if call.fact.name == "index" else call.inputs
    dtypes = {x.dtype for x in inputs} or {call.kwargs.get("dtype")}
    if dtypes <= lacking:
        raise NotImplementedError(NOT_IMPLEMENTED.format(kernel, scalar_type(dtypes.pop())))


def _check_scatter(call: Any) -> None:
    if call.args[4:5] not in (("sum",), ("mean",)):
        _check(call.inputs[0].dtype, *SCATTER)


def _check_multiplied(call: Any) -> None:
    if (call.kwargs.get("reduce") or call.args[4:5]) in ("multiply", ("multiply",)):
        _check(call.inputs[0].dtype, *SCATTER)


def _check_put(call: Any) -> None:
    target, value = call.args[0], call.args[2]
    if target.dtype != value.dtype:
        kinds = scalar_type(target.dtype), scalar_type(value.dtype)
        raise RuntimeError(PUT.format(*kinds))


def _check_convolution(call: Any) -> None:
    x, weight = call.inputs[:2]
    dtype = x.dtype
    if dtype != weight.dtype:
        kinds = (each.type().replace("torch", "torch.cuda", 1) for each in (x, weight))
        raise RuntimeError("Input type ({}) and weight type ({}) should be the same".format(*kinds))
    if not dtype.is_floating_point and not dtype.is_complex:
        text = CUDNN if torch.backends.cudnn.enabled else NOT_IMPLEMENTED
        raise RuntimeError(text.format("slow_conv2d_cuda", scalar_type(dtype)))


def _check_scaled(call: Any) -> None:
    if torch.cuda.get_device_capability(call.home) < FLOAT8_CAPABILITY:
        raise (NotImplementedError if call.fact.name.endswith("_v2") else RuntimeError)(FLOAT8)
    first, second = (tensor.dtype for tensor in call.inputs[:2])
    for name, dtype in (("mat_a", first), ("mat_b", second)):
        if dtype not in EIGHT_BITS:
            raise RuntimeError(
                f"Expected {name} to be Float8 or Float4_x2 matrix got {scalar_type(dtype)}"
            )
    if first == second == torch.float8_e5m2:
        raise RuntimeError("Multiplication of two Float8_e5m2 matrices is not supported")


@functools.cache
def in_other_words() -> dict[str, list[tuple[set[str], str]]]:
    """Kernel of the CPU, or operator/kernel → [(dtypes that CUDA lacks, too; its kernel, or its exception: words)]."""
    found: dict = {}
    rows = OTHER_WORDS.read_text().splitlines()[1:] if OTHER_WORDS.exists() else []
    for key, dtypes, words in (row.split("\t") for row in rows):
        found.setdefault(key, []).append((set(dtypes.split()), words))
    return found


def cuda_lacks(operator: str, text: str) -> Exception | None:
    """CUDA's exception where the CPU raised NotImplementedError with this text; None: CUDA may have what the CPU lacks."""
    match = LACKING.search(text)
    if match is None:
        return None if OF_CPU.search(text) else NotImplementedError(text)
    kernel, dtype = match.groups()
    alike = re.sub(r"^UInt\d+", "UInt16", re.sub("^Float8.*", "Float8_e4m3fn", dtype))
    known = in_other_words()
    for dtypes, words in known.get(f"{operator}/{kernel}", known.get(kernel, [])):
        if alike in dtypes:
            kind, _, told = words.partition(": ")
            if not told:
                return NotImplementedError(NOT_IMPLEMENTED.format(kind, dtype))
            return getattr(builtins, kind)(told.format(dtype))
    return None


def scalar_type(dtype: torch.dtype) -> str:
    """The name that C++ gives to a dtype, such as Long."""
    names = {torch.complex32: "ComplexHalf", torch.complex64: "ComplexFloat"}
    names |= {torch.complex128: "ComplexDouble", torch.bool: "Bool", torch.bfloat16: "BFloat16"}
    if dtype in names:
        return names[dtype]
    if dtype in EIGHT_BITS or "float8" in str(dtype):
        return str(dtype).removeprefix("torch.").capitalize()
    return torch.empty(0, dtype=dtype, device="meta").type().split(".")[-1].removesuffix("Tensor")
