"""Where a program failed, and on which devices the tensors of the failing line are."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from practice_gpus.machine import is_own
from practice_gpus.reports import findings


def failed(error: Any) -> dict | None:
    """The text of an error, its place in the person's own code, and the devices of what is there."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return None
    frames = traceback.walk_tb(error.__traceback__)
    own_frames = [(f, number) for f, number in frames if is_own(f.f_code.co_filename)]
    place = ("", 0)
    devices = {}
    while own_frames:
        frame, number = own_frames.pop()
        place = frame.f_code.co_filename, number
        devices = devices_of(frame, number)
        if not is_callers_fault(frame, devices):
            break
    listing = ", ".join(f"{word}: {device}" for word, device in devices.items())
    return {"text": f"{type(error).__name__}: {error}", "place": place, "devices": listing}


def is_callers_fault(frame: Any, devices: dict) -> bool:
    """Whether what is on the CPU, among tensors on GPUs, came in as an argument: then the caller's line is the one."""
    code = frame.f_code
    arguments = set(code.co_varnames[: code.co_argcount]) - {"self"}
    odd = {word.split(".")[0] for word, device in devices.items() if device == "cpu"}
    return bool(odd) and odd <= arguments and len(set(devices.values())) > 1


def devices_of(frame: Any, number: int) -> dict:
    """Where the tensors and modules are whose names the failing line holds: {"x": "cpu", "self.fc": "cuda:0"}."""
    names = frame.f_globals | frame.f_locals
    code = findings.source(frame.f_code.co_filename, number, 400)
    devices = {}
    for word in re.findall(r"[A-Za-z_][\w.]*", code):
        value: Any = named(word, names)
        if isinstance(value, torch.nn.Module):
            value = list(value.parameters())
        tensor = next((leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)), None)
        if tensor is not None:
            devices[word] = str(tensor.device)
    return devices


def named(word: str, names: dict) -> Callable | None:
    """The value of "self.fc.weight" among ``names``, as far as it is a tensor, a module or leads to one; else None."""
    first, *attributes = word.split(".")
    value = names.get(first)
    for attribute in attributes:
        if not isinstance(value, (torch.Tensor, torch.nn.Module)):
            value = getattr(value, attribute, None)
        elif isinstance(value, torch.nn.Module):
            value = getattr(value, attribute, value)
    return value
