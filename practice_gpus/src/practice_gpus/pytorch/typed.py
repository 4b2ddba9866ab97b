"""``torch.cuda.FloatTensor``, ``torch.FloatTensor`` and their like: types of old, which name a device and a dtype at once."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

NAMES = "Float Double Half BFloat16 Byte Char Short Int Long Bool"
PLAIN: Any = type(torch.FloatTensor)


def patches(machine: Machine) -> Iterator[Any]:
    """(module, name, type) for every dtype, of GPUs and of the CPU, and what asks for one as the default."""
    for name in NAMES.split():
        plain = getattr(torch, f"{name}Tensor")
        for module, device in ((torch.cuda, "cuda"), (torch, "cpu")):
            yield module, plain.__name__, typed(machine, plain, module.__name__, device)
    set_default = torch._C._set_default_tensor_type

    def set_type(kind):
        machine.default_type = kind if isinstance(kind, Typed) and kind.device == "cuda" else None
        if machine.default_type is not None:
            torch.set_default_device("cuda")
        elif torch.get_default_device().type == "cuda":
            torch.set_default_device(None)
        set_default(kind.plain if isinstance(kind, Typed) else kind)

    yield torch._C, "_set_default_tensor_type", set_type


class Typed(type):
    """The type of ``torch.cuda.FloatTensor`` and its like."""

    plain: Any

    def __instancecheck__(cls, value):
        plain = isinstance(value, torch.Tensor) and value.layout == torch.strided
        return plain and value.device.type == cls.device and value.dtype == cls.dtype


def typed(machine: Machine, plain: Any, module: str, kind: str) -> type:
    """One of these types: called with sizes or with numbers, it makes a tensor on its device."""

    def make(cls, *args, device=None):
        given = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if given is not None and given.device.type != kind:
            raise TypeError(mismatch(plain.dtype, kind, given))
        if kind == "cpu":
            return plain(*args, **{} if device is None else {"device": device})
        goal = machine.device(device if given is None else given.device)
        if args and not isinstance(args[0], (int, torch.Size)):
            return plain(*args).to(goal)  # numbers are copied, and the CPU waits for that
        return torch.empty_like(plain(*args), device=goal)

    attributes = {"__new__": make, "__module__": module, "dtype": plain.dtype, "plain": plain}
    return Typed(plain.__name__, (), attributes | {"device": kind})


def mismatch(dtype: torch.dtype, device: str, given: torch.Tensor) -> str:
    """PyTorch's words for a tensor of another device."""
    rest = "layout=Strided, requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)"
    options = f"TensorOptions(dtype={word(dtype)}, device={device}, {rest})"
    got = f"TensorOptions(dtype={word(given.dtype)}, device={given.device}, {rest})"
    return f"expected {options} (got {got})"


@functools.cache
def word(dtype: torch.dtype) -> str:
    """The name of a dtype in C++, as the CPU's types say it."""
    other = torch.LongTensor if dtype == torch.float32 else torch.FloatTensor
    other = other.plain if isinstance(other, Typed) else other
    try:
        other(torch.empty(0, dtype=dtype, device="cpu"))
    except TypeError as error:
        return re.findall(r"dtype=([^,]+),", str(error))[1]
    return str(dtype)
