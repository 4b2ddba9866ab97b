"""The source of a Triton kernel as one file, with every function and constant that it names."""

from __future__ import annotations

import dis
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

HEAD = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class Source:
    """`text` of a file that defines the kernel `name`; the kernel's own lines begin after `offset` lines."""

    text: str
    name: str
    offset: int
    parameters: tuple  # of names
    constants: tuple  # the parameters marked tl.constexpr


def of_triton(kernel: Any) -> Source:
    """Return the `Source` of a function under @triton.jit, whether Triton compiles or interprets here."""
    function = getattr(kernel, "fn", kernel)
    if not inspect.isfunction(function):
        raise TypeError(
            f"function is {type(kernel).__name__}; it takes a function under @triton.jit, or CUDA C as text"
        )
    parts = [HEAD, *_needed(function, set())]
    before = "\n".join(parts)
    text = _text(function)
    parameters = inspect.signature(function).parameters
    constants = tuple(name for name, each in parameters.items() if _is_constant(each.annotation))
    offset = before.count("\n") + 1 + _decorators(text)
    return Source(f"{before}\n{text}", function.__name__, offset, tuple(parameters), constants)


def _decorators(text):
    """How many lines stand before `def`; "line 1" of a kernel is the one with its name."""
    return [line.startswith("def ") for line in text.splitlines()].index(True)


def _text(function):
    text = textwrap.dedent(inspect.getsource(function))
    return text if "@triton.jit" in text else f"@triton.jit\n{text}"


def _is_constant(annotation):
    return "constexpr" in str(getattr(annotation, "__name__", annotation))


def _globals(function):
    """Return the global names that a function reads, each once."""
    reads = (each.argval for each in dis.get_instructions(function) if each.opname == "LOAD_GLOBAL")
    return list(dict.fromkeys(reads))


def _needed(function, seen):
    """Return sources of the kernels and numbers that `function` names, those first that others need."""
    found = []
    for name in _globals(function):
        value = function.__globals__.get(name)
        inner = getattr(value, "fn", value)
        if name in seen or value is None or inspect.ismodule(value):
            continue
        if inspect.isfunction(inner) and not inner.__module__.startswith("triton"):
            seen.add(name)
            found += [*_needed(inner, seen), _text(inner)]
        elif isinstance(getattr(value, "value", value), (int, float)):
            seen.add(name)
            found.append(f"{name} = tl.constexpr({getattr(value, 'value', value)!r})\n")
    return found
