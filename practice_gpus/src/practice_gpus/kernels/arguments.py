"""A kernel's arguments: checked against its parameters, and as the bytes that it reads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from practice_gpus.kernels.compiler import Compiled
    from practice_gpus.kernels.ptx_parser import Module

CODES = {"f4": ["float"], "f8": ["double"], "?": ["bool"], "bf2": ["__nv_bfloat16", "nv_bfloat16"]}
CODES |= {"f2": ["half", "__half"], "i1": ["char", "signed char"], "u1": ["unsigned char", "uchar"]}
CODES |= {
    "i2": ["short"],
    "u2": ["unsigned short", "ushort"],
    "i4": ["int", "signed int", "signed"],
}
CODES |= {"u4": ["unsigned int", "unsigned", "uint"], "i8": ["long", "long long", "ptrdiff_t"]}
CODES |= {"u8": ["unsigned long", "unsigned long long", "size_t", "ulong"]}
NUMBERS = {name: code for code, names in CODES.items() for name in names}
NUMBERS |= {f"{u}int{8 * n}_t": f"{u or 'i'}{n}" for u in ("", "u") for n in (1, 2, 4, 8)}
BASES = (
    "float",
    "double",
    "int",
    "uint",
    "char",
    "uchar",
    "short",
    "ushort",
    "long",
    "half",
    "__half",
)
VECTORS = {f"{name}{n}": (NUMBERS[name], n) for name in BASES for n in (1, 2, 3, 4)}
VECTORS |= {"dim3": ("u4", 3), "nv_bfloat162": ("bf2", 2), "__nv_bfloat162": ("bf2", 2)}


def check(compiled: Compiled, arguments: tuple) -> list[tuple[str, Any]]:
    """Return [(parameter, argument)]; raises TypeError or ValueError for what the kernel doesn't take."""
    names = compiled.parameters or tuple(f"argument {n}" for n in range(len(arguments)))
    if len(arguments) != len(names):
        note = " (without constants)" if compiled.language == "triton" else ""
        takes = f"{len(names)}: {', '.join(names)}{note}" if names else "none"
        raise TypeError(f"{len(arguments)} arguments; {compiled.name} takes {takes}")
    for name, value in zip(names, arguments, strict=True):
        if name in compiled.divisible and isinstance(value, int) and value % 16:
            raise ValueError(f"{name} is {value}; this code was compiled for multiples of 16")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise ValueError(f"{name} is on {value.device}; run executes on the CPU's tensors")
    for each, value in zip(compiled.kinds, arguments, strict=False):
        _check_kind(each, value)
    return list(zip(names, arguments, strict=True))


def tensors(named: list) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors among arguments and among the members of structs, with their names."""
    for name, value in named:
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, Mapping):
            yield from tensors([(f"{name}.{key}", each) for key, each in value.items()])
        elif isinstance(value, (tuple, list)):
            yield from tensors([(f"{name}[{place}]", each) for place, each in enumerate(value)])


def _check_kind(parameter, value):
    code = _code(parameter.kind)[0]
    came = f"a tensor of {_dtype(value)}" if isinstance(value, torch.Tensor) else repr(value)
    words = f"{parameter.name} is {came}; the kernel takes {parameter}"
    if parameter.pointer:
        if not isinstance(value, (torch.Tensor, type(None))):
            raise TypeError(f"{words}: a tensor, or None for a null pointer")
        if value is not None and code and not _holds(value.dtype, code):
            raise TypeError(words)
    elif parameter.kind in NUMBERS and not parameter.count:
        if not isinstance(value, (int, float)):
            raise TypeError(f"{words}, a number")
        if code[0] in "iu" and value != int(value):
            raise TypeError(f"{words}, a whole number")
        if code[0] in "iu" and not np.iinfo(code).min <= value <= np.iinfo(code).max:
            info = np.iinfo(code)
            raise TypeError(f"{words}, which holds {info.min:,} to {info.max:,}")


def _dtype(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _holds(dtype, code):
    """True where a tensor's elements are what the pointer points to; whole numbers with a sign or without."""
    size = 1 if code == "?" else int(code[-1])
    if code[0] in "fb":
        return (
            dtype.itemsize == size
            and dtype.is_floating_point
            and (dtype == torch.bfloat16) == (code == "bf2")
        )
    return dtype.itemsize == size and (size == 1 or not dtype.is_floating_point)


def _code(kind):
    """Return (code of an element, how many) of a type; ("", 0) of one that isn't known."""
    return (NUMBERS[kind], 1) if kind in NUMBERS else VECTORS.get(kind, ("", 0))


def to_bytes(
    compiled: Compiled, module: Module, named: list, address: Callable
) -> dict[str, bytes]:
    """Return {parameter of the PTX: its bytes}; Triton adds two pointers of its own, which are null.

    `address(tensor)` says where it is in the card's memory.
    """
    found = {}
    if not 0 <= len(module.parameters) - len(named) <= 2:
        raise TypeError(f"{len(named)} arguments; the kernel takes {len(module.parameters)}")
    kinds = [*compiled.kinds, *[None] * len(module.parameters)]
    for place, (name, kind, size) in enumerate(module.parameters):
        label, value = named[place] if place < len(named) else (name, None)
        data = _as_is(value, size, address)
        if data is None and kinds[place] and _is_known(compiled, kinds[place]):
            data = _packed(compiled.unit, kinds[place], label, value, address)[0]
        elif data is None:
            data = _by_ptx(label, value, kind, size)
        if len(data) != size:
            raise TypeError(f"{label} is {len(data)} bytes; the kernel takes {size}")
        found[name] = data
    return found


def _as_is(value, size, address):
    """Return the bytes of what needs no type: a pointer, null, or bytes; else None."""
    if value is None:
        return bytes(size)
    if isinstance(value, torch.Tensor):
        return address(value).to_bytes(8, "little")
    return (
        bytes(value) if isinstance(value, (bytes, ctypes.Structure, np.void, np.ndarray)) else None
    )


def _is_known(compiled, parameter):
    return bool(_code(parameter.kind)[0] or compiled.unit.members(parameter.kind))


def _by_ptx(label, value, kind, size):
    """Return the bytes of a number whose type is known from the PTX alone."""
    if not isinstance(value, (int, float)):
        raise TypeError(
            f"{label} is {value!r}; the kernel takes {size} bytes of a type that isn't known here: give bytes"
        )
    number = "f" if kind[0] == "f" or isinstance(value, float) else "u" if value >= 0 else "i"
    return np.array([value]).astype(f"{number}{size}").tobytes()


def _packed(unit, parameter, label, value, address):
    """Return (bytes, alignment) of a value of a known type: a number, a vector, an array, or a struct as C++ lays it out."""
    if parameter.count:
        one = replace(parameter, count=0, pointer=False)
        parts = [_packed(unit, one, f"{label}[{i}]", each, address) for i, each in enumerate(value)]
        return b"".join(data for data, _ in parts), parts[0][1]
    _check_kind(parameter, value)
    code, count = _code(parameter.kind)
    if parameter.pointer:
        return _as_is(value, 8, address), 8
    if code == "bf2":
        return torch.tensor(value).bfloat16().view(torch.int16).numpy().tobytes(), 2 * count
    if code:
        data = np.array(value).astype(code).tobytes()
        return data, len(data) if count != 3 else len(data) // 3
    members = unit.members(parameter.kind)
    if len(members) != len(value):
        raise TypeError(
            f"{label} is {value!r}; {parameter.kind} has {', '.join(each.name for each in members)}"
        )
    values = [value[each.name] for each in members] if isinstance(value, Mapping) else value
    data, widest = b"", 1
    for each, one in zip(members, values, strict=True):
        part, align = _packed(unit, each, f"{label}.{each.name}", one, address)
        data += bytes(-len(data) % align) + part
        widest = max(widest, align)
    return data + bytes(-len(data) % widest), widest
