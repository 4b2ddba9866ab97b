"""Which program of a Triton kernel touches what, and the bytes that PyTorch's separate operations move."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.checks.puzzle import CARD


@dataclass
class Trace:
    """What a kernel touched: `accesses` as `touches` of practice_gpus.kernels, and the `tensors` it left, by argument."""

    tensors: dict
    accesses: list
    result: object = None

    def bytes(self, kind: str, name: str | None = None) -> int:
        """Return how many bytes programs loaded ("load") or stored ("store"), in one tensor or in all."""
        return sum(
            len(each.places) * self.tensors[each.name].element_size()
            for each in self.accesses
            if each.kind == kind and name in (None, each.name)
        )

    def programs(self) -> list[tuple]:
        """Return the programs, (x, y, z), that touched anything, in the order of the grid."""
        return sorted({each.block for each in self.accesses}, key=lambda block: block[::-1])


def trace(kernel: Any, grid: Any, *arguments: Any, num_warps: int = 1, **constants: Any) -> Trace:
    """Run `kernel[grid](*arguments, **constants)` as compiled for an A100, on copies; returns the `Trace`."""
    from practice_gpus import kernels

    copies = [
        each.detach().cpu().clone() if isinstance(each, torch.Tensor) else each
        for each in arguments
    ]
    names = list(inspect.signature(getattr(kernel, "fn", kernel)).parameters)
    values = dict(zip(names, copies, strict=False)) | constants
    compiled = kernels.compile(kernel, values, CARD, aligned=False, num_warps=num_warps)
    chosen = [values[name] for name in compiled.parameters]
    result = kernels.run(compiled, grid, None, *chosen, touches=True)
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    return Trace(tensors, result.touches, result)


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


def traffic(function: Callable, *args: Any) -> list[tuple[str, int, int]]:
    """Return [(operation, bytes read, bytes written)] of each operation that `function(*args)` calls."""
    with _Traffic() as counting:
        function(*args)
    return counting.rows


def total(rows: Iterable[tuple[str, int, int]]) -> int:
    """Return the bytes of all operations in the rows of `traffic`."""
    return sum(read + written for _, read, written in rows)


def microseconds(card: str, moved: int, flops: int = 0, unit: str = "fp16") -> float:
    """Return the µs that the clock forecasts for a kernel that moves so many bytes and computes so many FLOPs in `unit`.

    The larger of bytes at 75% of the card's bandwidth and FLOPs at 80% of its peak (`practice_gpus.clock.kernel_times`).
    """
    # the clock imports Triton, which has to wait until the lesson has set TRITON_INTERPRET
    from practice_gpus.cards import find_card, get_card
    from practice_gpus.clock import Work, limits

    work = Work("kernel", [(0, moved)], [], flops, unit)
    return 1e6 * max(limits(work, get_card(find_card(card))).values())
