"""Asynchronous machines: operators become work for a stream, and their results are filled in later."""

import torch
from torch.utils._pytree import tree_map_only

from .machine import storage
from .operators import T, blocking, shapes, tensors

# The CPU's results have sizes of their own.
UNSURE = {"_embedding_bag", "_embedding_bag_forward_only"}


def launch(machine, call):
    """Queue an operator. Returns (True, its result, to be filled in), or (False, None) if it must run at once."""
    fact = call.fact
    device = call.home
    if not call.inputs:  # new memory: nothing to wait for
        return False, None
    places = {machine.place(t) for t in call.inputs} - {None}
    stream = machine.streams.current(device or next(iter(places), None))
    out = None
    if at_once(machine, call):
        stream.drain()
        return False, None
    if fact.inplace and fact.mutates:
        out = call.args[fact.written.index(True)]
    elif not fact.mutates:
        out = shapes(call)
        if any(t.layout != torch.strided for t in tensors(out)):
            out = None
    if not (places or fact.copies) or out is None and not fact.inplace:  # nothing to queue
        stream.drain()
        return False, None
    for other in {machine.streams.current(place) for place in places} - {stream}:
        stream.wait_stream(other)
    args, kwargs = tree_map_only(T, lambda t: kept(machine, t, call), (call.args, call.kwargs))
    if fact.inplace:
        stream.put(lambda: call.func(*args, **kwargs))
        return True, out if call.func._schema.returns else None
    out = tree_map_only(T, blank, out)
    if device is not None:
        for tensor in tensors(out):
            machine.put(tensor, device, fact.name)
    goals = [t.data for t in tensors(out)]

    def fill():
        for goal, result in zip(goals, tensors(call.func(*args, **kwargs)), strict=True):
            goal.copy_(result)

    stream.put(fill)
    return True, out


def blank(shape):
    """Zeros of a shape (a tensor without data), until the result is there."""
    return torch.empty_strided(shape.size(), shape.stride(), dtype=shape.dtype).zero_()


def at_once(machine, call):
    """Whether the CPU waits for an operator, or draws random numbers for it, which keep their order; or whether it is
    not known before what the results look like."""
    fact = call.fact
    if fact.waits or fact.waits_if or fact.random or fact.name in UNSURE:
        return True
    if any([t.layout != torch.strided for t in call.inputs]):
        return True
    if fact.copies and blocking(call):
        return True
    to_host = fact.name == "copy_" and call.home is None
    return to_host and storage(call.args[0]).practice is not machine.pinned


def kept(machine, tensor, call):
    """The bytes of a tensor as they will be, where the CPU must not change them until then; else as they are."""
    fact = call.fact
    pinned = fact.copies and storage(tensor).practice is machine.pinned
    written = fact.inplace and tensor is call.args[0]
    if pinned or written or machine.place(tensor) is not None:
        return tensor.data
    return tensor.detach().clone()
