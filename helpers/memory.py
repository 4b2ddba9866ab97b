"""Sizes: how many bytes a tensor's elements take, and bytes as text that a person reads.

`tensor_bytes(weight)`, `format_bytes(torch.cuda.max_memory_allocated())`; MIB is a mebibyte, the allocator's unit.
Lesson 05 says what else a training step holds, lesson 10 who holds it.
"""

import math

from torch import Tensor

MIB = 2**20


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of the elements of `tensor`: `element_size() * nelement()`.

    A view counts its own elements, whoever owns the memory; an allocator rounds up. TypeError for anything else.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor is a {type(tensor).__name__}; it takes a torch.Tensor")
    return tensor.element_size() * tensor.nelement()


def format_bytes(n: float) -> str:
    """`n` bytes as text in powers of 1024: "512 B", "1.5 KiB", "37.5 MiB", "141 GiB".

    Three significant digits, none after the point where they would be zeros; whole bytes below 1 KiB. Negative
    differences keep their sign. TypeError where `n` is not a number, ValueError where it is not finite.
    """
    if isinstance(n, bool) or not isinstance(n, (int, float)):
        raise TypeError(f"n is {n!r}; it takes a number of bytes")
    if not math.isfinite(n):
        raise ValueError(f"n is {n!r}; it takes a finite number of bytes")
    sign = "-" if round(n) < 0 else ""
    value: float = abs(round(n))
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while len(units) > 1 and _three_digits(value) >= 1024:
        value = value / 1024
        units = units[1:]
    return f"{sign}{_three_digits(value):.10g} {units[0]}"


def _three_digits(value: float) -> float:
    """`value` rounded to three significant digits, and to whole numbers from 100 on."""
    return round(value, 2 if value < 10 else 1 if value < 100 else 0)
