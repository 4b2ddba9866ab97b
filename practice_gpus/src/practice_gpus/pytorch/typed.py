"""``torch.cuda.FloatTensor`` and its like: types of old, which name a device and a dtype at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

NAMES = "Float Double Half BFloat16 Byte Char Short Int Long Bool"


def patches(machine: Machine) -> Iterator[Any]:
    """(``torch.cuda``, name, type) for every dtype, and the types of the CPU, which a practice tensor is not."""
    for name in NAMES.split():
        plain = getattr(torch, f"{name}Tensor")
        yield torch.cuda, plain.__name__, typed(machine, plain)
    set_default = torch._C._set_default_tensor_type

    def set_type(kind):
        if isinstance(kind, Typed):
            torch.set_default_device("cuda")
            kind = kind.plain
        elif torch.get_default_device().type == "cuda":
            torch.set_default_device(None)
        set_default(kind)

    yield torch._C, "_set_default_tensor_type", set_type


class Typed(type):
    """The type of ``torch.cuda.FloatTensor`` and its like."""

    def __instancecheck__(cls, value):
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype


def typed(machine: Machine, plain: Any) -> type:
    """One of these types: called with sizes or with numbers, it makes a tensor on the current device."""

    def make(cls, *args, device=None):
        given = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if given is not None and not given.is_cuda:
            name = str(plain.dtype).removeprefix("torch.")
            raise TypeError(f"expected a tensor of {name} on cuda, but got one on {given.device}")
        out = plain(*args)
        goal = machine.device(device if given is None else given.device)
        if args and not isinstance(args[0], (int, torch.Size)):
            return out.to(goal)  # numbers are copied, and the CPU waits for that
        return torch.empty_like(out, device=goal)

    attributes = {"__new__": make, "__module__": "torch.cuda", "dtype": plain.dtype, "plain": plain}
    return Typed(plain.__name__, (), attributes)
