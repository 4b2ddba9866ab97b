"""What checks look through: waits counted, classifiers that notice things, small batches, a step written by hand."""

import copy
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

GPU = "cuda:0"
RATE = 0.5  # learning rate of plain SGD in the checks


class Watched(nn.Module):
    """A small classifier with batch norm that notes at each call whether it was in training mode, and whether a graph was recorded.

    Input float [N, 3, 2, 2], output logits [N, 5].
    """

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(12)
        self.linear = nn.Linear(12, 5)
        self.modes = []
        self.recorded = []

    def forward(self, x):
        self.modes.append(self.training)
        self.recorded.append(torch.is_grad_enabled())
        return self.linear(self.norm(x.flatten(1)))


class Mark(torch.autograd.Function):
    """Gives its input back; its node in the graph is a Python object, so that one can see how long it lives."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class GraphWatched(Watched):
    """A Watched that also notes in `alive`, at each call, how many graphs of its earlier calls still exist."""

    def __init__(self):
        super().__init__()
        self.graphs = []
        self.alive = []

    def forward(self, x):
        self.alive.append(sum(graph() is not None for graph in self.graphs))
        logits = Mark.apply(super().forward(x))
        if logits.grad_fn is not None:
            self.graphs.append(weakref.ref(logits.grad_fn))
        return logits


def count_waits(function: Callable, *args: Any) -> int:
    """Return how often PyTorch says that it waited for the GPU while `function(*args)` ran."""
    return waits_and_result(function, *args)[0]


def waits_and_result(function: Callable, *args: Any) -> tuple[int, Any]:
    """Return (how often PyTorch said that it waited, the result) of `function(*args)` (lesson 07).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            result = function(*args)
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("called a synchronizing" in str(w.message) for w in caught), result


def batches(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of random pictures [n, 3, 2, 2] and labels 0 to 4, on the CPU, one for each n in `sizes`."""
    return [(torch.randn(n, 3, 2, 2), torch.randint(5, (n,))) for n in sizes]


def far(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-4) -> bool:
    """Return whether two tensors, on any devices, differ by more than rounding."""
    a = a.detach().cpu().float()
    b = b.detach().cpu().float()
    return not torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def train_by_hand(model: nn.Module, loader: Iterable) -> tuple[nn.Module, list[float], list[int]]:
    """Train a copy of `model` on the CPU with gradients from torch.autograd.grad; returns it, losses, right answers."""
    twin = copy.deepcopy(model).cpu().train()
    losses, right = [], []
    for x, y in loader:
        logits = twin(x)
        loss = F.cross_entropy(logits, y)
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
                parameter -= RATE * gradient
        losses.append(loss.item())
        right.append((logits.argmax(1) == y).sum().item())
    return twin, losses, right
