"""What autograd checks of gradients, and makes of those that are missing: it knows the CPU, where labels know the GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from practice_gpus.machine import storage_of

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

T = torch.Tensor
INVALID = "Function {} returned an invalid gradient at index {} - expected device {} but got {}"
CHANGED = "hook '{}' has changed the type of value (was {} got {})"
Node = torch.autograd.function.BackwardCFunction


def applied(machine: Machine) -> Callable:
    """``Function.apply``, which notes where inputs and outputs are."""
    original = vars(torch.autograd.Function)["apply"].__get__

    def apply(cls, *args, **options):
        out = original(None, cls)(*args, **options)
        outputs = out if isinstance(out, tuple) else (out,)
        node = next(
            (x.grad_fn for x in outputs if isinstance(x, T) and x.grad_fn is not None), None
        )
        if isinstance(node, Node):
            node.practice = [
                [machine.place(x) if isinstance(x, T) else None for x in outputs],
                [isinstance(x, T) for x in args],
                [machine.place(x) for x in args if isinstance(x, T)],
            ]
        return out

    return apply


def returned(machine: Machine, original: Callable = Node.apply) -> Callable:
    """A step of the backward pass of a user's function: gradients made of zeros are where its outputs are."""

    def apply(node, *grads):
        homes, is_tensor, places = getattr(node, "practice", ((), (), ()))
        for grad, home in zip(grads, homes, strict=False):
            if home is not None and isinstance(grad, T) and is_loose(machine, grad):
                machine.put(grad, home)
        out = original(node, *grads)
        values = out if isinstance(out, tuple) else (out,)
        found = [x for x, tensor in zip(values, is_tensor, strict=False) if tensor]
        for index, (grad, place) in enumerate(zip(found, places, strict=False)):
            if (
                isinstance(grad, T)
                and not is_loose(machine, grad)
                and node.next_functions[index][0]
            ):
                if (got := machine.place(grad)) != place:
                    words = INVALID.format(node.name(), index, place or "cpu", got or "cpu")
                    raise RuntimeError(words)
        return out

    return apply


def is_loose(machine: Machine, x: Any) -> bool:
    """Whether PyTorch made a tensor on the way, of nowhere in particular."""
    return storage_of(x).practice is machine.floating


def hooked(machine: Machine, original: Callable = T.register_hook) -> Callable:
    """``Tensor.register_hook``: what a hook returns must be where the gradient is."""

    def register(x, hook):
        @functools.wraps(hook)
        def checked(grad):
            out = hook(grad)
            if isinstance(out, T) and machine.place(out) != machine.place(grad):
                name = getattr(hook, "__name__", type(hook).__name__)
                raise RuntimeError(CHANGED.format(name, grad.type(), out.type()))
            return out

        return original(x, checked)

    return register
