"""Autocast for "cuda": which calls compute in half precision, which in float32.

PyTorch's own lists say it (https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference); its headers hold them.
"""

import functools
import re
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves, tree_map

HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
# Policy → PyTorch's own lists of operators for it, and what calls them in C++ where no mode sees it.
LISTS = {
    "lower": ("LOWER_PRECISION_FP", "gru lstm rnn_relu rnn_tanh"),
    "float": ("FP32 FP32_SET_OPT_DTYPE", "cross_entropy_loss nll_loss_nd norm rdiv rtruediv"),
    "widest": ("PROMOTE", ""),
    "banned": ("", "binary_cross_entropy"),
}


@functools.cache
def policies():
    """Callable → policy, for every place where PyTorch exposes an operator of the lists in its ``autocast_mode.h``."""
    if not HEADER.exists():  # then patches refuse autocast
        return {}
    text, found = HEADER.read_text(encoding="utf-8"), {}
    homes = (torch, torch.Tensor, torch._C._nn, torch._C._linalg, torch._C._VariableFunctions)
    for policy, (macros, names) in LISTS.items():
        lists = [
            re.search(rf"define AT_FORALL_{macro}\(_\)(.*?)\n\n", text, re.S)[1]
            for macro in macros.split()
        ]
        for name in names.split() + re.findall(r"_\((\w+)", "".join(lists)):
            found |= {
                getattr(home, form): policy
                for home in homes
                for form in (name, f"__{name}__", f"__r{name}__")
                if hasattr(home, form)
            }
    return found


def cast(policy, machine, func, *args, **kwargs):
    """Call ``func`` with its floating-point inputs on practice GPUs cast as ``policy`` says."""
    if not torch.is_autocast_enabled("cuda") and not torch.is_autocast_enabled("cpu"):
        return func(*args, **kwargs)
    mine = {
        id(x): x.dtype
        for x in tree_leaves((args, kwargs))
        if isinstance(x, torch.Tensor)
        and x.dtype.is_floating_point
        and machine.place(x) is not None
    }
    with torch.autocast(
        "cpu", enabled=not mine and torch.is_autocast_enabled("cpu")
    ):  # for tensors of the CPU
        if not torch.is_autocast_enabled("cuda") or not mine or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        if policy == "banned":
            with torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.AutocastCUDA):
                return func(*args, **kwargs)  # where PyTorch's own autocast refuses it
        widest = max(mine.values(), key=lambda dtype: dtype.itemsize)
        dtype = {
            "lower": torch.get_autocast_dtype("cuda"),
            "float": torch.float32,
            "widest": widest,
        }[policy]
        args, kwargs = tree_map(
            lambda x: (
                converted(machine, x, dtype)
                if mine.get(id(x)) not in (None, dtype, torch.float64)
                else x
            ),
            (args, kwargs),
        )
        return func(*args, **kwargs)


def converted(machine, x, dtype):
    """``x`` in ``dtype``; a weight is cast once in a region, as PyTorch's weight cache does."""
    if not (
        x.is_leaf
        and x.requires_grad
        and x.dtype == torch.float32
        and torch.is_autocast_cache_enabled()
    ):
        return x.to(dtype)
    if id(x) not in machine.casts:
        machine.casts[id(x)] = (x, x.to(dtype))
    return machine.casts[id(x)][1]
