"""Puts back what practice GPUs changed in PyTorch: attributes, modes, the default device."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

MISSING = object()  # the value of an attribute that was not there


def restore_default_device(device: torch.device | None) -> None:
    """Make ``device`` the default again, where it is no longer."""
    if _device.CURRENT_DEVICE != device:
        torch.set_default_device(device)


def exchange(patch: list) -> None:
    """Exchange an attribute with the value kept in ``patch``: [object, name, value]."""
    owner, name, value = patch
    patch[2] = vars(owner).get(name, MISSING)
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def take_out(mode: Any, stack: Any, length: Callable[[], int]) -> int | None:
    """Remove ``mode`` from one of PyTorch's stacks of modes, and return its place, counted from below; None: it isn't there."""
    modes = [stack._pop_mode() for _ in range(length())][::-1]
    for other in modes:
        if other is not mode:
            stack._push_mode(other)
    return modes.index(mode) if mode in modes else None


def set_aside(mode: Any, stack: Any, length: Callable[[], int]) -> Callable[[], None]:
    """Remove ``mode`` from one of PyTorch's stacks of modes, and return a function that puts it back where it was."""
    place = take_out(mode, stack, length)

    def put_back():
        if place is not None:
            above = [stack._pop_mode() for _ in range(length() - place)][::-1]
            for other in [mode, *above]:
                stack._push_mode(other)

    return put_back
