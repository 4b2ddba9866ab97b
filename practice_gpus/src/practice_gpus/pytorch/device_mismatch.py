"""When tensors of several devices meet: what CUDA allows, and the words in which PyTorch refuses the rest.

The dispatcher says which operator runs; PyTorch's own list of operators (``native_functions.yaml``, installed with it)
says whether its CUDA kernel compares devices itself, and how its wrapper is called. It is read at the first meeting.
"""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from practice_gpus.machine import OTHER_STORAGE, storage_of
from practice_gpus.pytorch.dtypes import CPU_ONLY
from practice_gpus.pytorch.operators import INDEXING, T, meta, tensors

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.operators import Call

TWO = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
GOT = (
    "Expected all tensors to be on the same device, but got {} is on {}, different from other tensors on {} "
    "(when checking argument in method wrapper_CUDA_{})"
)
OUTPUT = "Expected out tensor to have device {}, but got {} instead"
INDICES = "indices should be either on cpu or on the same device as the indexed tensor ({})"
MASK = "expected self and mask to be on the same device, but got mask on {1} and self on {0}"
MASK_OF_CPU = "masked_fill_: Expected inputs to be on same device"
DISTANCE_TYPES = "X1 and X2 must have the same device type. X1: {} X2: {}"
DISTANCE = "device of X1 ({}) must match device of X2 ({})"
TYPES = "Input type ({}) and {} type ({}) should be the same"
MKLDNN = " or input should be a MKLDNN tensor and weight is a dense tensor"
FREE = {"copy_", "fill_", "_to_copy", "_foreach_copy_", "_to_cpu", "result_type"}
FREE |= {
    "bernoulli",
    "bernoulli_",
    "_pack_padded_sequence",
    "is_same_size",
    "is_set_to",
    "resize_as_",
    "linspace",
    "logspace",
}
FREE |= {
    "slice_scatter",
    "select_scatter",
    "diagonal_scatter",
    "as_strided_scatter",
}  # copy into it
ITERATED = {"soft_margin_loss", "ldexp", "allclose", "isclose", "add_"}
WITH_OUT = {"linalg_lstsq", "complex", "polar"}  # call themselves with out=
LOOKING = {"block_diag"}  # compare devices themselves, not the dispatcher for them
# Operators → arguments of theirs that may be on any device.
TAKES_NUMBERS = dict.fromkeys(
    ("masked_fill", "masked_fill_", "index_fill", "index_fill_"), {"value"}
)
TAKES_NUMBERS |= dict.fromkeys(
    ("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"), {"indices"}
)
LOGICAL = {"logical_and", "logical_or", "logical_xor"}
REFUSE_NUMBERS = {"addcdiv": (), "addcmul": ("tensor2",), "addcdiv_": (), "addcmul_": ("tensor2",)}
NO_NUMBER = (
    "CPU Scalar support for {} argument is not supported when calling addcmul on CUDA tensors."
)
SWAP = " However, CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms."
SWAPPED = {"rsub"}  # hands its tensors on in the other order
SAME_DEVICE = re.compile(
    r"(?i)same (cuda )?device|DeviceType|does not match device|to have \w+ Device"
)
OF_SHAPES = re.compile(
    r"is not on the expected device|cross-device copies|^index_copy|as `a`|^Expected divisor"
)
# Operators whose CUDA kernel calls another one, which then refuses: its name, and what it calls the arguments.
INNER = {
    "embedding": ("index_select", {"weight": "self", "indices": "index"}),
    "stack": ("cat", {}),
    "mv": ("addmv_", {"self": "mat"}),
}


@functools.cache
def operators() -> dict:
    """Name with overload → its entry in native_functions.yaml."""
    spec = importlib.util.find_spec("torchgen")
    if spec is None:
        return {}
    path = pathlib.Path(spec.origin or "").parent / "packaged/ATen/native/native_functions.yaml"
    entries = re.split(r"^- func: ", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {re.split(r"[^\w.]", entry, maxsplit=1)[0]: entry for entry in entries}


class Mismatch(RuntimeError):
    """Tensors of several devices, in the words of the operator that found them: who called it may have looked before."""

    operator = ""


def named(text: str) -> bool:
    """Whether PyTorch says with these words that devices differ, and not how its stand-ins for shapes say it."""
    return SAME_DEVICE.search(text) is not None and OF_SHAPES.search(text) is None


@functools.cache
def entry(name: str, overload: str, writes_out: bool) -> tuple:
    """(leaves devices to TensorIterator, name of its CUDA wrapper) for an operator."""
    text = operators().get(f"{name}.{overload}" if overload else name, "")
    if "CompositeExplicitAutograd:" in text and "CUDA" not in text and "structured" not in text:
        if f"{name}_" in operators():  # it clones, and calls what works in place
            return entry(f"{name}_", "", False)
    if name in WITH_OUT and not writes_out:
        return entry(name, "out", True)
    suffix = "_out" if writes_out else ""
    wrapper = f"{name}{suffix}_{overload}" if "structured" in text else f"{overload}_{name}{suffix}"
    if not overload and "structured" in text:
        wrapper = wrapper[:-1]
    return "device_check: NoCheck" in text, wrapper


def arguments(machine: Machine, call: Call) -> list:
    """[(name of the argument or, if it is written, "out"; tensor; its device)] for the tensors that are somewhere."""
    schema = call.func._schema.arguments
    values = (
        dict(zip([argument.name for argument in schema], call.args, strict=False)) | call.kwargs
    )
    placed = []
    for argument in schema:
        written = argument.alias_info is not None and argument.alias_info.is_write
        name = "out" if written else argument.name
        for tensor in tensors(values.get(argument.name)):
            if storage_of(tensor).practice is not machine.floating:
                placed.append((name, tensor, machine.place(tensor)))
    return placed


def meet(machine: Machine, call: Call) -> torch.device | None:
    """The device on which a call with tensors of several devices runs; raises as CUDA does where it must not."""
    name = call.fact.name
    if call.fact.python:  # nobody compares
        return next(home for home in call.homes if home is not None)
    overload = call.func._schema.overload_name
    placed = arguments(machine, call)
    first = placed[0][2]
    if name in FREE:
        if name.endswith("_scatter") and overload == "out":
            _refuse_output(placed)
        return next((place for label, _, place in placed if label == "out"), first)
    if not CPU_ONLY.isdisjoint(
        (name, f"{name}.{overload}")
    ):  # `dtypes` refuses it, wherever its tensors are
        return next(place for place in call.homes if place is not None)
    if name == "set_":
        raise RuntimeError(OTHER_STORAGE.format(first or "cpu", placed[1][2] or "cpu"))
    if name in INDEXING:
        if "put" in name and (first or name == "index_put"):  # it takes indices from anywhere
            placed = [each for each in placed if each[0] != "indices"]
        return _index(placed, first)
    if name in ("masked_fill", "masked_fill_") and (first is None or first != placed[1][2]):
        words = MASK_OF_CPU if first is None and overload == "Tensor" else MASK
        raise RuntimeError(words.format(first or "cpu", placed[1][2] or "cpu"))
    if name == "where":
        return _where(placed)
    if name in LOGICAL:  # the result is made where the first tensor is
        placed = [("out", *placed[0][1:]), *placed]
    if name == "_unsafe_masked_index":
        _index([each for each in placed if each[0] != "mask"], first)
    if name in TAKES_NUMBERS:
        placed = [each for each in placed if each[0] not in TAKES_NUMBERS[name]]
        if len({place for _, _, place in placed}) == 1:
            return placed[0][2]
    if name == "_euclidean_dist":  # of torch.cdist, which looks before it calls it
        raise RuntimeError(_distance(*(place for _, _, place in placed)))
    if name == "convolution":
        name, placed = _convolution(placed, first, call.args)
    if name == "native_batch_norm" and first and _uses_cudnn(call.args):
        name = "cudnn_batch_norm"
    if name in INNER:
        name, names = INNER[name]
        placed = [(names.get(label, label), tensor, place) for label, tensor, place in placed]
        if name == "addmv_":
            placed = [("self", *placed[1][1:]), *placed]
    try:
        return _joined(machine, call, name, overload, placed)
    except Mismatch as error:
        error.operator = "" if name in LOOKING else call.fact.name
        raise


def _uses_cudnn(args):
    """Whether a batch norm is cuDNN's: of images, with weights."""
    x, weight = args[:2]
    return torch.backends.cudnn.enabled and x.dim() > 2 and weight is not None


def _joined(machine, call, name, overload, placed):
    """The device on which operators run that follow the rules of the dispatcher, or of TensorIterator."""
    writes_out = any(argument.is_out for argument in call.func._schema.arguments)
    if writes_out and name not in FREE and _sets_output(name, overload):
        _refuse_output(placed)
    free, wrapper = entry(name, overload, writes_out)
    if free or name in ITERATED:
        return _iterator(machine, call, placed[::-1] if name in SWAPPED else placed)
    return _one_device(placed, wrapper)


@functools.cache
def _sets_output(name: str, overload: str) -> bool:
    """Whether an operator's ``out=`` is compared by itself: reductions, and those that PyTorch writes from others."""
    text = operators().get(f"{name}.{overload}")
    if text is None:
        return True
    reduces = "structured: True" in text and "device_check: NoCheck" in text
    return reduces and "structured_inherits: TensorIteratorBase" not in text


def _refuse_output(placed):
    """Raise where ``out=`` is elsewhere than the first tensor."""
    out = next(place for label, _, place in placed if label == "out")
    first = next((place for label, _, place in placed if label != "out"), out)
    if out != first:
        raise RuntimeError(OUTPUT.format(first or "cpu", out or "cpu"))


def _one_device(placed, wrapper):
    """The rule of operators without one of their own: all tensors on one device."""
    placed = sorted(placed, key=lambda argument: argument[0] != "out")
    first = placed[0][2]
    for label, _, place in placed:
        if place != first:
            raise Mismatch(GOT.format(label, place or "cpu", first or "cpu", wrapper))
    return first


def _distance(first, second):
    """What torch.cdist says of two places that differ."""
    if first is None or second is None:
        return DISTANCE_TYPES.format(*("cuda" if place else "cpu" for place in (first, second)))
    return DISTANCE.format(first.index, second.index)


def _iterator(machine, call, placed):
    """TensorIterator's rule: CPU tensors without dimensions may join in, unless they are the one that is written."""
    placed = sorted(placed, key=lambda argument: argument[0] != "out")
    home = next((place for _, _, place in placed if place is not None), None)
    if call.fact.name in REFUSE_NUMBERS:
        _refuse_numbers(placed, home, call.fact.name)
    for label, tensor, place in placed:
        if place != home and (place is not None or tensor.dim() or label == "out"):
            if machine.values:
                _refuse_shapes(call)
            raise Mismatch(TWO.format(home, place or "cpu"))
    return home


def _refuse_numbers(placed, home, name):
    """Raise for a number of the CPU that a kernel wants as a tensor of its own device."""
    for label, tensor, place in placed:
        if place is None and not tensor.dim() and label not in REFUSE_NUMBERS[name]:
            if name.startswith("addcdiv") or label == "out":
                raise Mismatch(TWO.format(home, "cpu"))
            raise RuntimeError(NO_NUMBER.format(label) + SWAP * (label != "self"))


def _where(placed):
    """The first GPU among them; numbers go there from anywhere, and all others must be there."""
    home = next((place for _, _, place in placed if place is not None), None)
    for _, tensor, place in placed:
        if tensor.dim() and place != home:
            raise Mismatch(TWO.format(home, place or "cpu"))
    return home


def _refuse_shapes(call):
    """Raise what PyTorch looks at before devices: shapes, and dtypes of results. Nothing of the caller's is written."""
    args, kwargs = tree_map_only(T, torch.clone, (call.args, call.kwargs))
    try:
        call.func._op(*args, **kwargs)
    except (NotImplementedError, IndexError):
        pass


def _index(placed, home):
    """Indices may be on the CPU; a value must be where the tensor is, or be a single number of the CPU."""
    for label, tensor, place in placed[1:]:
        if place == home:
            continue
        if label == "indices" and place is not None:
            raise RuntimeError(INDICES.format(home or "cpu"))
        is_number = tensor.dim() == 0 and (place is None or home is not None)
        if label == "values" and not is_number:
            both = (home, place or "cpu") if home else (place, "cpu")
            raise RuntimeError(TWO.format(*both))
    return home


def _convolution(placed, home, args):
    """(name, tensors) of the kernel that compares devices; before it, most kernels compare types, which name a device."""
    x, weight = args[:2]
    stride_padding_dilation, transposed, groups = args[3:6], args[6], args[8]
    if home is not None or _uses_mkldnn(x, weight, groups):
        _check_types(placed, home)
    dilated = max(stride_padding_dilation[2]) > 1
    depthwise = groups > 1 and groups == x.shape[1]
    name = _convolution_kernel(weight.dim() - 2, dilated, transposed, depthwise, home)
    if name.startswith("cudnn") and placed[0][2] == placed[1][2]:
        return "add_", placed  # the bias is added afterwards
    return name, placed


def _uses_mkldnn(x, weight, groups):
    """Whether the CPU convolves with MKLDNN (oneDNN), which compares types; its own slow kernels do not."""
    large = x.shape[0] > 1 or x.numel() > 20480 or min(weight.shape[-2:]) > 3
    return x.dtype == torch.float32 and (groups > 1 or large)


def _check_types(placed, home):
    """Raise where weight or bias is on the CPU and the input is not, or the reverse."""
    kinds = [_type_name(tensor, place) for _, tensor, place in placed]
    for (label, _, place), kind in zip(placed[1:], kinds[1:], strict=True):
        if (place is None) != (home is None):
            words = TYPES.format(kinds[0], label, kind)
            raise RuntimeError(words + (MKLDNN if home is None else ""))


def _type_name(tensor, place):
    """The type's name, such as torch.cuda.FloatTensor."""
    return tensor.type() if place is None else tensor.type().replace("torch", "torch.cuda")


def _convolution_kernel(dims, dilated, transposed, depthwise, home):
    if depthwise and not transposed:
        return "conv_depthwise3d" if dims == 3 else "_conv_depthwise2d"
    if home is not None and torch.backends.cudnn.enabled:
        return "cudnn_convolution_transpose" if transposed else "cudnn_convolution"
    if transposed:
        return f"slow_conv_transpose{max(dims, 2)}d"
    return f"slow_conv_dilated{max(dims, 2)}d" if dilated or dims == 3 else "_slow_conv2d_forward"


COMPRESSED = {"c": ("ccol_indices", "row_indices"), "r": ("crow_indices", "col_indices")}


def refuse_sparse(name: str, places: list, values: torch.device | None) -> None:
    """Refuse to make a sparse tensor of indices that are elsewhere than its values."""
    odd = next((index for index, place in enumerate(places) if place != values), None)
    if odd is None:
        return
    if "coo" in name:
        wrapper = "__sparse_coo_tensor_with_dims_and_tensors"
        words = GOT.format("values", values or "cpu", places[odd] or "cpu", wrapper)
        raise RuntimeError(words.replace("wrapper_CUDA", "wrapper_SparseCUDA"))
    parts = COMPRESSED.get(name.split("_")[1][-1], ("compressed_indices", "plain_indices"))
    raise RuntimeError(f"Values and {parts[odd]} need to be on the same device.")


def let_pytorch_refuse(
    machine: Machine, func: Callable, *args: Any, by_device: bool = False, **kwargs: Any
) -> None:
    """Have PyTorch refuse, in its own words, a call of a function that looks at devices before it looks at numbers.

    A meta tensor stands for each tensor on one practice GPU, the CPU's for one on another. With `by_device` only
    what it says of devices counts.
    """
    inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, T)]
    places = dict.fromkeys(str(machine.place(x) or "cpu") for x in inputs)
    gpus = [place for place in places if place != "cpu"]
    first, second = (gpus + ["cpu", "cpu"])[:2]

    def stand_in(x: torch.Tensor) -> torch.Tensor:
        if str(machine.place(x)) == first:
            return meta(x)
        return torch.zeros(x.shape, dtype=x.dtype) if by_device else x

    args, kwargs = tree_map_only(T, stand_in, (args, kwargs))
    try:
        with torch._C.DisableTorchFunction(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            func(*args, **kwargs)
    except NotImplementedError:
        pass
    except Exception as error:
        if by_device and not named(str(error)):
            return
        words = {"'meta'": "'cuda'", "meta": first, "cpu": second}
        text = str(error).replace("meta DeviceType", "cuda DeviceType")
        if text.startswith("Input tensors must all"):
            text = f"torch.block_diag: i{text[1:].rstrip('.')}"
        if not isinstance(error, (RuntimeError, TypeError)):
            raise
        raise type(error)(
            re.sub("'meta'|meta|cpu(?!\\()", lambda match: words[match[0]], text)
        ) from None
