"""Expectations that checks share: each raises `NotYet` with what was found and what is expected.

`what` names the thing in the message: "row_sums(x)", "it", "the second batch".
"""

from collections.abc import Sequence
from typing import Any

import torch

from course.checks.core import NotYet


def tensor(
    value: object,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    what: str = "it",
) -> torch.Tensor:
    """Return `value`, a tensor of `shape` (a tuple), `dtype` and `device` ("cuda:0"); None does not look."""
    if value is None:
        raise NotYet(f"{what} is None, expected a tensor: is there a `return`?")
    if not isinstance(value, torch.Tensor):
        raise NotYet(f"{what} is of type {type(value).__name__}, expected a tensor.")
    if shape is not None and tuple(value.shape) != tuple(shape):
        raise NotYet(f"{what} has the shape {tuple(value.shape)}, expected {tuple(shape)}.")
    if dtype is not None and value.dtype != dtype:
        raise NotYet(f"{what} is of {value.dtype}, expected {dtype}.")
    if device is not None and value.device != torch.device(device):
        raise NotYet(f"{what} is on {value.device}, expected {device}.")
    return value


def number(value: Any, what: str = "it") -> float:
    """Return `value` as a float; it is a number of Python or NumPy, not a bool and not a tensor."""
    if value is None:
        raise NotYet(f"{what} is None, expected a number: is there a `return`?")
    if isinstance(value, torch.Tensor):
        raise NotYet(f"{what} is a tensor, expected a number: .item() reads it.")
    if isinstance(value, bool):
        raise NotYet(f"{what} is {value}, expected a number.")
    try:
        return float(value.item() if hasattr(value, "item") else value + 0)
    except (TypeError, ValueError, OverflowError):
        raise NotYet(f"{what} is of type {type(value).__name__}, expected a number.") from None
