"""What snippets.txt says in a word."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn
from torch.nn import functional as F

ones = torch.ones
numbers = itertools.count()
libraries: list = []
nn.RNNBase.flatten_parameters = lambda self: None  # asks cuDNN for the places of weights
used = (copy, io, pickle, F)  # by snippets
MADE = {
    "A": lambda: ones(2, 2, device="cuda"),
    "B": lambda: ones(2, device="cuda"),
    "M": lambda: ones(3, 3, device="cuda"),
    "D": lambda: ones(3, 3, device="cuda"),
    "S": lambda: torch.eye(3, device="cuda").to_sparse(),
    "V": lambda: ones(2, device="cuda"),
    "W": lambda: ones(2, device="cuda"),
    "G": lambda: torch.Generator("cuda"),
    "H": lambda: ones(3, device="cuda").half(),
    "X": lambda: ones(2, device="cuda", requires_grad=True),
}


def function(forward: Callable, backward: Callable) -> type:
    """An autograd function named F."""
    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("F", (torch.autograd.Function,), parts)


def hidden(*shape: int, device: str = "cuda", swap: bool = False, **options: Any) -> Any:
    """A hidden state, contiguous or not."""
    made = ones(*shape, device=device, **options)
    return made.transpose(0, 1).contiguous().transpose(0, 1) if swap else made


def parameter(device: str) -> nn.Parameter:
    """A parameter with a gradient."""
    made = nn.Parameter(ones(2, device=device))
    made.grad = ones(2, device=device)
    return made


def group(backend: str) -> None:
    """Begin a process group of one rank."""
    distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)


def lib(schema: str, kernels: dict) -> Any:
    """An operator of a library of its own, with these kernels."""
    name = f"oracle{next(numbers)}"
    library = torch.library.Library(name, "DEF")
    libraries.append(library)
    library.define(schema)
    for key, kernel in kernels.items():
        library.impl("f", kernel, key)
    return getattr(torch.ops, name).f


def custom(devices: Any) -> Any:
    """A custom operator for some types of devices."""
    name = f"oracle{next(numbers)}::f"

    @torch.library.custom_op(name, mutates_args=(), device_types=devices)
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.clone()

    return f


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A kernel."""
    return x.clone()


def sub(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Another kernel, whose results can be told from the first's."""
    return x.double()


def clean() -> None:
    """End what a snippet may have begun."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    torch.set_default_device(None)
    torch.cuda.set_device(0)
    torch.cuda.set_sync_debug_mode(0)
    libraries.clear()
