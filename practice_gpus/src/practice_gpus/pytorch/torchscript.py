"""``torch.jit`` on practice GPUs: it traces and compiles operators; code that asks for devices runs as it is.

TorchScript's interpreter would ask the driver for them, or keep the CPU's tensors as constants.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from practice_gpus.machine import CPU, refusal, tell_refused

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

DEVICES = re.compile(r"Device = prim::Constant|= (aten::cpu|aten::cuda|prim::is_cuda)\(")
NOTICE = (
    "torch.jit.{}: the code asks for devices, so practice GPUs run it as it is, with the same values; it has no graph, "
    "and cannot be saved. Make such tensors outside, and pass them"
)
WORDLESS = "RuntimeError: \n"


class Devices(Exception):
    """What is being traced asks for a device."""


def patches(machine: Machine) -> Iterator[Any]:
    """(``torch.jit``, name, replacement)."""
    for name in ("trace", "trace_module"):
        yield torch.jit, name, traced(machine, name, getattr(torch.jit, name))
    yield torch.jit, "script", scripted(torch.jit.script)
    yield torch.jit, "load", loaded(machine, torch.jit.load)
    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        yield kind, "__call__", worded(machine, kind.__call__)


def as_it_is(name: str, code: Callable) -> Callable:
    """Say that ``code`` is not for TorchScript, and give it back."""
    tell_refused(f"torch.jit.{name} (run as it is)")
    warnings.warn(NOTICE.format(name), stacklevel=3)
    return code


def traced(machine: Machine, name: str, original: Callable) -> Callable:
    """Tracing loses what passes through a mode for operators, which is PyTorch's own limit: it is off meanwhile."""

    @functools.wraps(original)
    def trace(func, *args, **options):
        inputs = [*tree_leaves((args, options)), *getattr(func, "parameters", list)()]
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        machine.local.tracing = any(map(machine.place, tensors))
        if machine.local.tracing and not machine.values:
            machine.local.tracing = False
            refusal(f"torch.jit.{name} without values", instead="give values=True")()
        try:
            with torch._C._DisableTorchDispatch():
                return original(func, *args, **options)
        except Devices:
            return as_it_is(name, func)
        finally:
            machine.local.tracing = False

    return trace


def scripted(original: Callable) -> Callable:
    """Compiling; what holds devices is given back."""

    @functools.wraps(original)
    def script(code, *args, **options):
        try:
            compiled = original(code, *args, **options)
        except RuntimeError as error:
            if "practice_gpus" not in str(error):
                raise
            return as_it_is("script", code)  # it calls what stands in for the driver
        graph = getattr(compiled, "inlined_graph", None)
        if graph is not None and (DEVICES.search(str(graph)) or any(map(moves, graph.nodes()))):
            return as_it_is("script", code)
        return compiled

    return script


def loaded(machine: Machine, original: Callable) -> Callable:
    """A module from a file, on a practice GPU if ``map_location`` says so."""

    @functools.wraps(original)
    def load(file, map_location=None, *args, **options):
        goal = machine.device(map_location) if map_location is not None else CPU
        if goal.type != "cuda":
            return original(file, map_location, *args, **options)
        return original(file, CPU, *args, **options).to(goal)

    return load


def worded(machine: Machine, original: Any) -> Callable:
    """A call of compiled code: the interpreter loses the words of an error that is raised in Python."""

    def call(code, *args, **options):
        machine.local.last_error = ""  # nobody else's words
        try:
            return original(code, *args, **options)
        except RuntimeError as error:
            text = str(error)
            if text.endswith(WORDLESS):
                error.args = (f"{text[:-1]}{machine.local.last_error}\n",)
            raise

    return call


def moves(node: Any) -> bool:
    """Whether a step of a graph moves a tensor to a device."""
    return node.kind() == "aten::to" and "Device" in [str(value.type()) for value in node.inputs()]
