"""Autocast for "cuda": which calls compute in half precision, which in float32.

PyTorch's own lists say it (https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference); its headers hold them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

MODES = torch._C._len_torch_function_stack
OWN_MODES = ("practice_gpus.pytorch", "torch.utils._device")
HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
# Policy → PyTorch's own lists of operators for it, and what calls them in C++ where no mode sees it.
LISTS = {
    "lower": ("LOWER_PRECISION_FP", "gru lstm rnn_relu rnn_tanh"),
    "float": ("FP32 FP32_SET_OPT_DTYPE", "cross_entropy_loss nll_loss_nd norm rdiv rtruediv"),
    "widest": ("PROMOTE", ""),
    "banned": ("", "binary_cross_entropy"),
}


@functools.cache
def policies() -> dict:
    """Callable → policy, for every place where PyTorch exposes an operator of the lists in its ``autocast_mode.h``."""
    if not HEADER.exists():  # then patches refuse autocast
        return {}
    text = HEADER.read_text(encoding="utf-8")
    policy_of: dict = {}
    namespaces = (torch, torch.Tensor, torch._C._nn, torch._C._linalg, torch._C._VariableFunctions)
    for policy, (macros, names) in LISTS.items():
        lists = [
            re.findall(rf"define AT_FORALL_{macro}\(_\)(.*?)\n\n", text, re.S)[0]
            for macro in macros.split()
        ]
        for name in names.split() + re.findall(r"_\((\w+)", "".join(lists)):
            policy_of |= {
                getattr(namespace, form): policy
                for namespace in namespaces
                for form in (name, f"__{name}__", f"__r{name}__")
                if hasattr(namespace, form)
            }
    return policy_of


def cast(policy: str, machine: Machine, func: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call ``func`` with its floating-point inputs on practice GPUs cast as ``policy`` says."""
    if not torch.is_autocast_enabled("cuda") and not torch.is_autocast_enabled("cpu"):
        return func(*args, **kwargs)
    gpu_dtypes = {}
    for x in tree_leaves((args, kwargs)):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and machine.place(x) is not None:
            gpu_dtypes[id(x)] = x.dtype
    on_cpu = not gpu_dtypes and torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=on_cpu):  # for tensors of the CPU
        if not torch.is_autocast_enabled("cuda") or not gpu_dtypes or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        if policy == "banned":
            with torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.AutocastCUDA):
                return func(*args, **kwargs)  # where PyTorch's own autocast refuses it
        dtypes = {
            "lower": torch.get_autocast_dtype("cuda"),
            "float": torch.float32,
            "widest": max(gpu_dtypes.values(), key=lambda dtype: dtype.itemsize),
        }
        goal = dtypes[policy]

        def change(x):
            stays = gpu_dtypes.get(id(x)) in (None, goal, torch.float64)
            return x if stays else converted(machine, x, goal)

        args, kwargs = tree_map(change, (args, kwargs))
        return func(*args, **kwargs)


def converted(machine: Machine, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x`` in ``dtype``; a weight is cast once in a region, as PyTorch's weight cache does."""
    weight = x.is_leaf and x.requires_grad and x.dtype == torch.float32
    if not weight or torch._C._is_cached_tensor(x) or not torch.is_autocast_cache_enabled():
        return x.to(dtype)
    if id(x) not in machine.casts:
        machine.casts[id(x)] = (x, x.to(dtype))
    return machine.casts[id(x)][1]


def dropout(func: Callable, x: torch.Tensor, p: float = 0.5, train: bool = True) -> torch.Tensor:
    """A GPU's dropout keeps a mask of bytes for the backward pass, where the CPU's keeps one of floats."""
    if not train or not 0 < p < 1 or x.numel() == 0:
        return func(x, p, train)
    return torch.native_dropout(x, p, True)[0]


def overridden(values: list | tuple) -> bool:
    """Whether a value brings its own ``__torch_function__``. PyTorch's Python functions ask this at their start; they
    would hand themselves over to any mode, which is then off inside them, but devices must be seen inside, too."""
    if MODES() > 1 and asks_more():
        return True
    for value in values:
        kind = type(value)
        if kind is not torch.Tensor and value is not None:
            plain = torch._C._disabled_torch_function_impl
            if getattr(value, "__torch_function__", plain) is not plain:
                return torch._C._is_torch_function_enabled()
    return False


def asks_more() -> bool:
    """Whether a user's mode is on above ours: it sees PyTorch's Python functions, as without practice GPUs."""
    mode = torch.overrides._get_current_function_mode()
    return hasattr(mode, "__torch_function__") and not type(mode).__module__.startswith(OWN_MODES)


def one_overridden(x: Any) -> bool:
    """``overridden`` for one value."""
    return overridden((x,))


def any_overridden(*values: Any) -> bool:
    """``overridden`` for values given one by one."""
    return overridden(values)


def gates() -> Iterator[Any]:
    """(module, name, replacement) for what PyTorch's Python functions ask at their start."""
    asking = {
        "has_torch_function": overridden,
        "has_torch_function_unary": one_overridden,
        "has_torch_function_variadic": any_overridden,
    }
    for gate in asking.values():  # TorchScript takes them for what they replace
        torch.jit._builtins._register_builtin(gate, "aten::has_torch_function")
    functional = (torch.functional, torch.nn.functional)
    for module in (torch.overrides, *functional, torch._tensor, torch.autograd):
        for name, gate in asking.items():
            if name in vars(module):
                yield module, name, gate
