"""Counting what fusing saves: bytes of PyTorch's separate operations, and the kernels that torch.compile makes of them."""

import re

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

KERNEL = re.compile(r"^ +(\w*fused\w*|extern_kernels\.\w+)(?:\.run)?\(", flags=re.M)


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


def compiled_kernels(function, *args):
    """Return the names of the kernels that `torch.compile` makes of `function`, in their order, and what it returns.

    Where nothing can be compiled, the names are one sentence that says why, and the result is the plain function's.
    """
    torch.compiler.reset()
    try:
        from torch._inductor import config
        from torch._inductor.utils import run_and_get_code

        with config.patch(compile_threads=1):
            result, programs = run_and_get_code(torch.compile(function), *args)
    except Exception as error:  # noqa: BLE001 - no compiler, or no such function in this release
        why = str(error).strip().splitlines() or [type(error).__name__]
        return [f"(nothing compiled here: {why[0][:70]})"], function(*args)
    return [name for text in programs for name in KERNEL.findall(text)], result
