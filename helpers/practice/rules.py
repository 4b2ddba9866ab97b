"""When tensors of several devices meet: what CUDA allows, and the words in which PyTorch refuses the rest.

The dispatcher tells which operator runs; PyTorch's own list of operators (``native_functions.yaml``, installed with it)
tells the names of its arguments and whether its CUDA kernel checks devices by itself. It is read at the first meeting.
"""
import functools
import importlib.util
import pathlib
import re

import torch

TWO = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
GOT = ("Expected all tensors to be on the same device, but got {} is on {}, different from other tensors on {} "
       "(when checking argument in method wrapper_CUDA_{})")
TYPES = "Input type ({}) and {} type ({}) should be the same"
# Operators that end in another one, which words the refusal: the operator, and which of its arguments come first.
INNER = {"embedding": ("index_select", {"weight": "self", "indices": "index"}),
         "convolution": ("_slow_conv2d_forward", {"input": "self"})}
FREE = {"copy_", "_to_copy", "set_", "record_stream", "is_same_size", "_foreach_copy_", "result_type"}


@functools.cache
def operators():
    """Name with overload → (text of the entry in native_functions.yaml)."""
    spec = importlib.util.find_spec("torchgen")
    if spec is None:
        return {}
    path = pathlib.Path(spec.origin).parent / "packaged/ATen/native/native_functions.yaml"
    entries = re.split(r"^- func: ", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {re.match(r"[\w.]+", entry)[0]: entry for entry in entries}


@functools.cache
def entry(func):
    """(checks devices itself, name of its wrapper) for an operator."""
    name = str(func._schema.name).removeprefix("aten::")
    overload = func._schema.overload_name
    text = operators().get(f"{name}.{overload}" if overload else name, "")
    structured = "structured" in text
    free = "device_check: NoCheck" in text
    wrapper = f"{overload}_{name}" if not structured else f"{name}_{overload}".rstrip("_")
    return free, wrapper


def named(func, args, kwargs):
    """(argument name, tensor) for every tensor in a call, in the order of the operator's signature."""
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield argument.name, item


def kind(tensor, device):
    """Old name of a tensor's type, as PyTorch's convolution prints it."""
    return tensor.type() if device is None else tensor.type().replace("torch.", "torch.cuda.")


def meet(machine, func, args, kwargs):
    """The device where a call with tensors of several devices runs; raises as CUDA does where that is not allowed."""
    name = func._schema.name.removeprefix("aten::")
    found = [(label, tensor, machine.place(tensor)) for label, tensor in named(func, args, kwargs)]
    found = [(label, tensor, place) for label, tensor, place in found
             if tensor.device.type == "cpu" and not machine.floats(tensor)]
    first = found[0][2]
    if name in FREE:
        return first
    if name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
        return _index(name, found)
    free, wrapper = entry(func)
    if name == "convolution":
        _convolution(found)
    if name in INNER:
        name, rename = INNER[name]
        found = [(rename.get(label, label), tensor, place) for label, tensor, place in found]
        free, wrapper = entry(getattr(torch.ops.aten, name).default)
    if free:
        return _iterator(found, first)
    for label, _, place in found:
        if place != first:
            raise RuntimeError(GOT.format(label, place or "cpu", first or "cpu", wrapper))
    return first


def _iterator(found, first):
    """TensorIterator's rule: CPU tensors without dimensions may join in, unless they are written to."""
    home = next(place for _, _, place in found if place is not None)
    for label, tensor, place in found:
        if place != home and (place is not None or tensor.dim() or label in ("out",)):
            raise RuntimeError(TWO.format(home, place or "cpu"))
    if first is None and found[0][0] == "self" and found[0][1].dim():
        raise RuntimeError(TWO.format(home, "cpu"))
    return home


def _index(name, found):
    home = found[0][2]
    for label, tensor, place in found[1:]:
        if label == "indices" and place is not None and place != home:
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor "
                               f"({home or 'cpu'})")
        if label == "values" and place != home and (place is not None or tensor.numel() > 1 or tensor.dim()):
            raise RuntimeError(TWO.format(home or "cpu", place or "cpu"))
    return home


def _convolution(found):
    (_, input, home), *others = found
    for label, tensor, place in others:
        if home is not None and place is None:
            raise RuntimeError(TYPES.format(kind(input, home), label, kind(tensor, place)))
