"""One line for each of many small situations with CUDA devices; situations that need two say so where there is one.

Nothing in them depends on the GPU's model.
"""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from practice_gpus.situations import SITUATIONS

# What differs from release to release or from machine to machine, and what stands for it in a line.
VARIABLE = (
    (r"0x[0-9a-f]+", "ADDRESS"),
    (r"Expected one of [a-z, ]+ device type", "Expected one of NAMES device type"),
    (r"device_count\(\) is \d+", "device_count() is N"),
    (r"(GPU 0 has a total capacity of ).*", r"\1…"),
    (r"(Could not run '[\w:]+' with arguments from the '\w+' backend).*", r"\1"),
    (r"Invalid device argument .*: did", "Invalid device argument N: did"),
    (r"Event device .*", "Event device …"),
)


def text(value: Any) -> str:
    """Return `value` on one line: parts separated by commas, of a tensor its values, its device and its dtype."""
    if isinstance(value, torch.Tensor):
        value = value.tolist(), value.device, value.dtype
    if isinstance(value, (tuple, list)) and type(value) is not torch.Size:
        return ", ".join(text(part) for part in value)
    if isinstance(value, set):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    return value.__name__ if isinstance(value, type) else " ".join(str(value).split())


def failure(error: Exception) -> str:
    """Return the type and the first line of an error; later lines hold advice that varies by release."""
    line = (str(error).splitlines() or [""])[0]
    for pattern, stand_in in VARIABLE:
        line = re.sub(pattern, stand_in, line)
    return f"{type(error).__name__}: {line}"


def settle() -> None:
    """Bring devices, seeds and gradients back to how a new process has them."""
    torch.set_default_device(None)
    torch.cuda.set_device(0)
    torch.manual_seed(0)


def outcome(one: Any) -> str:
    """Run one situation and return its result as text."""
    if torch.cuda.device_count() < one.gpus:
        return f"needs {one.gpus} GPUs"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return text(one.action())
    except Exception as error:  # an error is a result here
        return failure(error)
    finally:
        settle()


def lines() -> Iterator[str]:
    """Run every situation and yield the lines `NNN name: result`."""
    gc.collect()
    gc.freeze()
    for number, one in enumerate(SITUATIONS, 1):
        yield f"{number:03} {one.name}: {outcome(one)}"
    gc.unfreeze()
