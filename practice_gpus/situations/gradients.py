"""Autograd: where gradients live, and how it speaks of devices."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from practice_gpus.situations.mismatch import square
from practice_gpus.situations.placement import on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

AUTOGRAD = DOCS + "notes/autograd.html"
ENGINE = CODE + "torch/csrc/autograd/engine.cpp"


def leaf(device: Any = "cuda") -> torch.Tensor:
    """Return the leaf [1, 2] on `device` that requires a gradient."""
    return on(device).requires_grad_()


LEAVES = {
    "made on the device is a leaf": lambda: (
        torch.ones(2, device="cuda", requires_grad=True).is_leaf
    ),
    "moved to the device is not a leaf": lambda: leaf("cpu").to("cuda").is_leaf,
    "moved before requires_grad_ is a leaf": lambda: on("cpu").to("cuda").requires_grad_().is_leaf,
    "function of a move": lambda: leaf("cpu").to("cuda").grad_fn.name(),
    "no function for a move to the same device": lambda: leaf().to("cuda").grad_fn,
    "requires_grad survives the move": lambda: leaf("cpu").cuda().requires_grad,
    "detach on the device": lambda: (leaf().detach().requires_grad, leaf().detach().device),
}
table(DOCS + "generated/torch.Tensor.is_leaf.html", LEAVES)


@situation(DOCS + "generated/torch.Tensor.is_leaf.html")
def move_under_no_grad() -> Any:
    with torch.no_grad():
        return leaf("cpu").to("cuda").requires_grad


@situation(AUTOGRAD)
def gradient_lives_with_its_leaf() -> Any:
    x = leaf()
    (x * x).sum().backward()
    return x.grad


@situation(AUTOGRAD)
def gradient_of_a_cpu_leaf_used_on_the_device() -> Any:
    x = leaf("cpu")
    (x.to("cuda") * 3).sum().backward()
    return x.grad


@situation(AUTOGRAD)
def no_gradient_for_a_moved_tensor() -> Any:
    x = torch.ones(2, requires_grad=True).to("cuda")
    x.sum().backward()
    return x.grad


@situation(AUTOGRAD)
def retain_grad_of_a_moved_tensor() -> Any:
    x = torch.ones(2, requires_grad=True)
    y = x.to("cuda")
    y.retain_grad()
    (y * 2).sum().backward()
    return y.grad.device, x.grad.device


@situation(AUTOGRAD, gpus=2)
def backward_across_two_gpus() -> Any:
    x = leaf("cuda:0")
    loss = (x.to("cuda:1") * 3).sum()
    loss.backward()
    return loss.device, x.grad


@situation(AUTOGRAD, gpus=2)
def backward_over_three_devices() -> Any:
    x, w = leaf("cpu"), leaf("cuda:1")
    loss = ((x.to("cuda:0") * 2).to("cuda:1") * w).sum().cpu()
    loss.backward()
    return loss.device, x.grad.device, w.grad.device, x.grad.tolist(), w.grad.tolist()


@situation(AUTOGRAD, gpus=2)
def model_split_over_two_gpus() -> Any:
    first, second = nn.Linear(2, 2).to("cuda:0"), nn.Linear(2, 1).to("cuda:1")
    second(first(on("cuda:0")).to("cuda:1")).sum().backward()
    return first.weight.grad.device, second.weight.grad.device


@situation(DOCS + "generated/torch.Tensor.backward.html")
def gradients_accumulate() -> Any:
    x = leaf()
    for _ in range(2):
        (x * 2).sum().backward()
    return x.grad


@situation(DOCS + "generated/torch.autograd.grad.html")
def autograd_grad_gives_the_device() -> Any:
    x = leaf()
    (gradient,) = torch.autograd.grad((x * x).sum(), x)
    return gradient, x.grad


@situation(ENGINE)
def backward_with_a_cpu_gradient() -> None:
    x = leaf()
    (x * 2).backward(torch.ones(2))


@situation(ENGINE)
def backward_with_a_gradient_on_the_device() -> Any:
    x = leaf()
    (x * 2).backward(on("cuda", 1, 10))
    return x.grad


@situation(CODE + "torch/csrc/autograd/python_variable.cpp")
def assign_a_cpu_gradient() -> None:
    x = leaf()
    x.grad = torch.ones(2)


@situation(CODE + "torch/csrc/autograd/python_variable.cpp")
def assign_a_gradient_on_the_device() -> Any:
    x = leaf()
    x.grad = on()
    return x.grad


@situation(DOCS + "generated/torch.Tensor.register_hook.html")
def hook_sees_a_gradient_on_the_device() -> Any:
    seen = []
    x = leaf()
    x.register_hook(lambda gradient: seen.append(gradient.device))
    (x * 2).sum().backward()
    return seen


class Double(torch.autograd.Function):
    """Twice the input, written as a function with its own backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Return 2 x and keep x."""
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the gradient on the device of the saved x."""
        (x,) = ctx.saved_tensors
        return torch.full_like(x, 2) * gradient


@situation(DOCS + "notes/extending.html")
def own_function_on_the_device() -> Any:
    x = leaf()
    Double.apply(x).sum().backward()
    return x.grad


@situation(DOCS + "generated/torch.autograd.graph.save_on_cpu.html")
def saved_tensors_on_the_cpu() -> Any:
    x = leaf()
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()
    y.backward()
    return x.grad


@situation(DOCS + "generated/torch.optim.Optimizer.zero_grad.html")
def leaf_changed_in_place() -> None:
    leaf().add_(1)


@situation(AUTOGRAD)
def loss_of_two_branches() -> Any:
    x = leaf()
    (x.cpu().sum().to("cuda") + x.sum()).backward()
    return x.grad


@situation(DOCS + "func.html")
def functional_grad_on_the_device() -> Any:
    return torch.func.grad(lambda x: (x**2).sum())(square("cuda"))
