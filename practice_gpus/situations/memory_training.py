"""Memory of training: peaks, saved activations, gradients, optimizer states. Elementwise work only, as in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from practice_gpus.situations.memory import MIB, buffer, fresh, grown
from practice_gpus.situations.registry import DOCS, situation, table


@situation(DOCS + "generated/torch.cuda.memory.max_memory_allocated.html")
def peak_counts_temporaries() -> Any:
    before = fresh()
    x = torch.empty(MIB, device="cuda")
    y = (x * 2 + 1) / 3
    return torch.cuda.max_memory_allocated() - before[0], *grown(before), y.numel()


@situation(DOCS + "generated/torch.cuda.memory.max_memory_allocated.html")
def peak_of_in_place_operations() -> Any:
    before = fresh()
    x = torch.empty(MIB, device="cuda")
    x.mul_(2).add_(1).div_(3)
    return torch.cuda.max_memory_allocated() - before[0]


@situation(DOCS + "generated/torch.cuda.memory.reset_peak_memory_stats.html")
def reset_peak_takes_the_current_value() -> Any:
    before = fresh()
    x, y = buffer(4 * MIB), buffer(2 * MIB)
    del y
    first = torch.cuda.max_memory_allocated() - before[0]
    torch.cuda.reset_peak_memory_stats()
    return first, torch.cuda.max_memory_allocated() - before[0], x.numel()


@situation(DOCS + "generated/torch.cuda.memory.max_memory_reserved.html")
def peak_reserved_outlives_empty_cache() -> Any:
    before = fresh()
    x = buffer(30 * MIB)
    del x
    torch.cuda.empty_cache()
    return torch.cuda.max_memory_reserved() - before[1], grown(before)[1]


@situation(DOCS + "notes/autograd.html#saved-tensors")
def forward_keeps_activations() -> Any:
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    before = fresh()
    y = x.exp().sin()
    return *grown(before), y.requires_grad


@situation(DOCS + "generated/torch.no_grad.html")
def no_grad_keeps_no_activations() -> Any:
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    before = fresh()
    with torch.no_grad():
        y = x.exp().sin()
    return *grown(before), y.requires_grad


@situation(DOCS + "notes/autograd.html#saved-tensors")
def backward_frees_activations_and_makes_gradients() -> Any:
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    before = fresh()
    loss = x.exp().sin().sum()
    held = grown(before)[0]
    loss.backward()
    return held, grown(before)[0], loss.dim()


@situation(DOCS + "checkpoint.html")
def checkpoint_keeps_only_its_input() -> Any:
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    before = fresh()
    y = checkpoint(lambda t: t.exp().sin().exp().sin(), x, use_reentrant=False)
    return grown(before)[0], y.requires_grad


@situation(DOCS + "generated/torch.optim.Optimizer.zero_grad.html")
def zero_grad_frees_gradients() -> Any:
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    before = fresh()
    x.sum().backward()
    held = grown(before)[0]
    torch.optim.SGD([x], lr=0.1).zero_grad()
    return held, grown(before)[0]


def optimizer_state_bytes(make: Any) -> int:
    """Return the bytes that the first step of an optimizer leaves allocated."""
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    optimizer = make([x])
    x.grad = torch.zeros_like(x)
    before = fresh()
    optimizer.step()
    return grown(before)[0]


OPTIMIZERS = {
    "memory of SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "memory of SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "memory of Adam": lambda p: torch.optim.Adam(p, lr=0.1),
}
table(DOCS + "optim.html", OPTIMIZERS, through=optimizer_state_bytes)
