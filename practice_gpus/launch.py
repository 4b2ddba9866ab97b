"""Asynchronous machines: operators become work for a stream, and their results are filled in later."""

import torch
from torch.utils._pytree import tree_map_only

from .machine import storage
from .operators import T, blocking, shapes, tensors


def launch(machine, func, fact, args, kwargs, device):
    """Queue an operator. Returns (True, its result, to be filled in), or (False, None) if it must run at once."""
    inputs = list(tensors((*args, *kwargs.values())))
    if not inputs:  # new memory: nothing to wait for
        return False, None
    places = {machine.place(t) for t in inputs} - {None}
    stream = machine.streams.current(device or next(iter(places), None))
    out = args[fact.written.index(True)] if fact.inplace and fact.mutates else None
    if out is None and not fact.mutates:
        out = shapes(func, fact, args, kwargs)
    if (
        at_once(machine, fact, args, kwargs, device)
        or not (places or fact.copies)
        or out is None
        and not fact.inplace
    ):
        stream.drain()
        return False, None
    for other in {machine.streams.current(place) for place in places} - {stream}:
        stream.wait_stream(other)
    args, kwargs = tree_map_only(T, lambda t: kept(machine, t, fact, args), (args, kwargs))
    if fact.inplace:
        stream.put(lambda: func(*args, **kwargs))
        return True, out if func._schema.returns else None
    out = tree_map_only(
        T, lambda m: torch.empty_strided(m.size(), m.stride(), dtype=m.dtype).zero_(), out
    )
    for tensor in tensors(out) if device is not None else ():
        machine.put(tensor, device, fact.name)
    goals = [t.data for t in tensors(out)]
    stream.put(
        lambda: [
            goal.copy_(result)
            for goal, result in zip(goals, tensors(func(*args, **kwargs)), strict=True)
        ]
    )
    return True, out


def at_once(machine, fact, args, kwargs, device):
    """Whether the CPU waits for an operator, or draws random numbers for it, which keep their order."""
    to_host = (
        fact.name == "copy_" and device is None and storage(args[0]).practice is not machine.pinned
    )
    return fact.copies and blocking(args, kwargs) or to_host or fact.waits or fact.random


def kept(machine, tensor, fact, args):
    """The bytes of a tensor as they will be, where the CPU must not change them until then; else as they are."""
    pinned = fact.copies and storage(tensor).practice is machine.pinned
    late = pinned or machine.place(tensor) is not None or fact.inplace and tensor is args[0]
    return tensor.data if late else tensor.detach().clone()
