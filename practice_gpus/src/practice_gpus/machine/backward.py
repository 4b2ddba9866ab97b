"""Streams of the backward pass: each of its operators runs on the stream of its forward operator, whatever is current.

Autograd numbers the operators of the forward pass in each thread. A thread notes the number at each change of its stream,
and in the backward pass an operator's number tells the stream it had. A leaf's gradient is added up on the stream of the
leaf's first use. https://docs.pytorch.org/docs/stable/notes/cuda.html#stream-semantics-of-backward-passes
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensor

from practice_gpus.machine.errors import refusal

if TYPE_CHECKING:
    from practice_gpus.machine.machine import Local, Machine
    from practice_gpus.machine.streams import Stream

node_now = torch._C._current_autograd_node
next_number = torch.autograd._get_sequence_nr
LEAF = 2**64 - 1  # the number of the nodes that add up gradients
MOST = 10_000  # changes that are remembered


def changed(local: Local) -> None:
    """Note that the streams of this thread have changed."""
    number = next_number()
    if local.changes and local.changes[-1][0] == number:
        local.changes.pop()  # nothing was made under them
    before = local.changes[-1][1] if local.changes else {}
    if local.streams != before:
        local.changes.append((number, dict(local.streams)))
    del local.changes[:-MOST]


def streams_of(local: Local, node: Any) -> dict:
    """{device index: stream} where ``node``'s forward operator ran, or what the node itself has chosen since."""
    task, chosen = local.inside
    if task == (torch._C._current_graph_task_id(), node):
        return chosen
    number = node._sequence_nr()
    if number == LEAF:
        number = local.first_uses.get(id(getattr(node, "variable", None)), LEAF)
    place = bisect.bisect_right(local.changes, number, key=lambda change: change[0])
    return local.changes[place - 1][1] if place else {}


def choose(local: Local, node: Any, stream: Stream) -> None:
    """A stream is chosen inside ``node``: for the rest of it."""
    chosen = streams_of(local, node) | {stream.device_index: stream}
    local.inside = ((torch._C._current_graph_task_id(), node), chosen)


def first_uses(outputs: tuple) -> dict:
    """id of each leaf → the number of the operator that used it first."""
    found: dict = {}
    nodes = [output.grad_fn for output in outputs if isinstance(output, torch.Tensor)]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        for child, _ in node.next_functions if node is not None else ():
            if child is not None and child._sequence_nr() == LEAF:
                leaf = id(getattr(child, "variable", None))
                found[leaf] = min(found.get(leaf, LEAF), node._sequence_nr())
            elif child not in seen:
                seen.add(child)
                nodes.append(child)
    return found


@contextlib.contextmanager
def joined(machine: Machine, outputs: tuple) -> Iterator[None]:
    """In here each stream that comes next in the backward pass waits for the one before, at the end the current one."""
    local = machine.local
    before = local.first_uses, local.latest
    ambient = machine.streams.current()
    local.first_uses = first_uses(outputs)
    local.latest = ambient
    try:
        yield
        if local.latest is not ambient:
            ambient.wait_stream(local.latest)
    finally:
        local.first_uses, local.latest = before


def passes(machine: Machine, original: Callable = torch.autograd._engine_run_backward) -> Callable:
    """Autograd's engine, where streams have been changed."""

    def run(outputs, *args, **options):
        if any(isinstance(out, FakeTensor) and out.is_cuda for out in outputs):
            refusal("the backward pass of fake tensors on GPUs")()
        with joined(machine, outputs) if machine.local.changes else contextlib.nullcontext():
            grads = original(outputs, *args, **options)
        for leaf, grad in zip(args[3] if len(args) > 3 else (), grads or (), strict=False):
            if isinstance(grad, torch.Tensor) and isinstance(leaf, torch.Tensor):
                machine.settle(grad, leaf)
        return grads

    return run
