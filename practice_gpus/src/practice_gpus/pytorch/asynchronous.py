"""Asynchronous machines: operators become work for a stream, and their results are filled in later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from practice_gpus.machine import storage_of
from practice_gpus.pytorch import halves
from practice_gpus.pytorch.operators import DIVISIONS, T, blocking, expected, tensors

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.operators import Call

# The CPU's results have sizes of their own.
UNSURE = {"_embedding_bag", "_embedding_bag_forward_only"}


def launch(machine: Machine, call: Call) -> tuple:
    """Queue an operator. Returns (True, its result, to be filled in), or (False, None) if it must run at once."""
    fact = call.fact
    if not call.inputs:  # new memory: nothing to wait for
        return False, None
    places = {machine.place(t) for t in call.inputs} - {None}
    stream = machine.streams.current(call.home or next(iter(places), None))
    if at_once(machine, call):
        stream.drain()
        return False, None
    out = expected_result(call)
    if not (places or fact.copies) or out is None and not fact.inplace:  # nothing to queue
        stream.drain()
        return False, None
    for other_stream in {machine.streams.current(place) for place in places} - {stream}:
        stream.wait_stream(other_stream)
    args, kwargs = tree_map_only(T, lambda t: captured(machine, t, call), (call.args, call.kwargs))
    if fact.inplace:
        stream.put(lambda: call.func(*args, **kwargs))
        return True, out if call.func._schema.returns else None
    out = tree_map_only(T, blank, out)
    if call.home is not None:
        for tensor in tensors(out):
            machine.put(tensor, call.home, fact.name)
    goals = tree_leaves(out)

    def fill():
        results = tree_leaves(halves.run(call.func, fact, args, kwargs))
        for goal, result in zip(goals, results, strict=True):
            if isinstance(goal, T) and isinstance(result, T):  # a gradient may be left out
                goal.data.copy_(result)

    stream.put(fill)
    return True, out


def expected_result(call: Call) -> torch.Tensor | tuple | None:
    """The tensor that an operator writes to, or the shapes of its results (tensors without data); None: unknown."""
    fact = call.fact
    if fact.inplace and fact.mutates:
        return call.args[fact.written.index(True)]
    if fact.mutates:
        return None
    out = expected(call)
    if any(t.layout != torch.strided for t in tensors(out)):
        return None
    return out


def blank(shape: torch.Tensor) -> torch.Tensor:
    """Zeros of a shape (a tensor without data), until the result is there."""
    return torch.empty_strided(shape.size(), shape.stride(), dtype=shape.dtype).zero_()


def at_once(machine: Machine, call: Call) -> bool:
    """Whether the CPU waits for an operator, or draws random numbers for it, which keep their order; or whether it is
    not known before what the results look like."""
    fact = call.fact
    if fact.name in DIVISIONS and not call.inputs[0].is_floating_point():
        return True  # zeros in its divisor are known when it has run
    if fact.waits or fact.waits_if or fact.random or fact.name in UNSURE:
        return True
    if any([t.layout != torch.strided for t in call.inputs]):
        return True
    if fact.copies and blocking(call):
        return True
    to_host = fact.name == "copy_" and call.home is None
    return to_host and storage_of(call.args[0]).practice is not machine.pinned


def captured(machine: Machine, tensor: torch.Tensor, call: Call) -> torch.Tensor:
    """The bytes of a tensor as they will be, where the CPU must not change them until then; else as they are."""
    fact = call.fact
    pinned = fact.copies and storage_of(tensor).practice is machine.pinned
    written = fact.inplace and tensor is call.args[0]
    if pinned or written or machine.place(tensor) is not None:
        return tensor.data
    return tensor.detach().clone()
