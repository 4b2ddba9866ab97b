"""Counting what fusing saves: the bytes of PyTorch's separate operations, and their times on a GPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.timing import time_ms


class _Traffic(TorchDispatchMode):
    """Counts the bytes of what each operation reads and writes; views move nothing."""

    def __init__(self):
        super().__init__()
        self.rows = []  # (operation, bytes read, bytes written)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            read = _bytes(args) + _bytes(kwargs)
            self.rows.append((func.__name__.split(".")[0], read, _bytes(result)))
        return result


def _bytes(values):
    return sum(leaf.nbytes for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def traffic(function, *args):
    """Return [(operation, bytes read, bytes written)] of each operation that `function(*args)` calls."""
    with _Traffic() as counting:
        function(*args)
    return counting.rows


def race(functions, device):
    """Print the milliseconds of softmax functions, {name: function}, and of PyTorch's own, on a GPU; else say so."""
    if device != "cuda":
        print("No GPU here, and an interpreter's time means nothing: see the figure above.")
        return
    x = torch.randn(4096, 4096, device=device)
    for name, function in {**functions, "PyTorch's": lambda x: x.softmax(1)}.items():
        took = time_ms(lambda function=function: function(x), torch.device(device))
        print(
            f"{name:10} {took.median_ms:.3f} ms, {2 * x.nbytes / took.median_ms / 1e6:.0f} GB/s if nothing is read twice"
        )
