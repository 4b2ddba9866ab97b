"""What a Triton kernel touches: Triton's interpreter runs it, and each program's addresses are noted.

`trace` works on copies in main memory, so it needs no GPU, also where Triton compiles for one. Each copy lies between two
margins: what a kernel reads or writes beside a tensor does no harm, and is counted.
"""

import inspect
import types
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import util
from unittest import mock

import torch

MARGIN = 4096  # elements before and behind each copy
METHODS = ("create_masked_load", "create_masked_store", "create_atomic_rmw")
CHANGED = (
    "This release of Triton has another interpreter, which the course cannot look into: {error}."
)


class triton:
    """Stands in for Triton in model answers; the real one is imported when a kernel runs."""

    @staticmethod
    def jit(function):
        """Return the function as it is; `trace` makes a kernel of it."""
        return function


class tl:
    """Stands in for triton.language in model answers."""

    constexpr = "constexpr"


def is_there():
    """True where Triton is installed."""
    return util.find_spec("triton") is not None


@dataclass(frozen=True)
class Access:
    """One load or store of one program: `places` are positions in the tensor `name`, also those `outside` of it.

    `masked` are the positions that its mask ruled out.
    """

    program: tuple
    kind: str  # "read" or "write"
    name: str
    places: list
    outside: list
    masked: list = field(default_factory=list)


@dataclass
class Trace:
    """What a kernel touched: its `accesses` in their order, and the `tensors` it left behind, by argument name."""

    tensors: dict = field(default_factory=dict)
    accesses: list = field(default_factory=list)

    def bytes(self, kind, name=None):
        """Return how many bytes were read or written, each time counted, in one tensor or in all."""
        return sum(
            len(access.places) * self.tensors[access.name].element_size()
            for access in self.accesses
            if access.kind == kind and name in (None, access.name)
        )

    def outside(self):
        """Return the accesses that touched something beside their tensor."""
        return [access for access in self.accesses if access.outside]

    def programs(self):
        """Return the programs, (x, y, z), that touched anything, in their order."""
        return list(dict.fromkeys(access.program for access in self.accesses))


def trace(kernel, grid, *args, **options):
    """Run `kernel[grid](*args, **options)` on copies of the tensors, under Triton's interpreter; returns the `Trace`.

    Raises what the kernel raises, and NotImplementedError where this Triton's interpreter is not the one known here.
    """
    function = _with_triton(getattr(kernel, "fn", kernel))
    names = list(inspect.signature(function).parameters)
    result = Trace()
    spans = []
    copies = []
    for name, value in zip(names, args, strict=False):
        if isinstance(value, torch.Tensor):
            value, buffer = _between_margins(value)
            result.tensors[name] = value
            spans.append((name, value, buffer))
        copies.append(value)
    with _interpreting(), _noting(result.accesses, spans):
        _interpreter().InterpretedFunction(function)[grid](*copies, **options)
    return result


def _interpreter():
    from triton.runtime import interpreter

    return interpreter


def _with_triton(function):
    """Return `function` with the real Triton in the place of the two that stand in for it."""
    import triton as real
    import triton.language as language

    around = function.__globals__
    if around.get("tl") is not tl:
        return function
    twin = types.FunctionType(
        function.__code__,
        {**around, "triton": real, "tl": language},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    for name, kind in function.__annotations__.items():
        twin.__annotations__[name] = language.constexpr if kind == tl.constexpr else kind
    return twin


def _between_margins(tensor):
    """Return a copy of `tensor` in main memory with its strides, and the larger buffer it lies in."""
    strides = [step * (size - 1) for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
    extent = sum(strides) + 1 if tensor.numel() else 0
    buffer = torch.zeros(extent + 2 * MARGIN, dtype=tensor.dtype)
    if tensor.dtype.is_floating_point:
        buffer.fill_(float("nan"))  # whoever reads beside the tensor shall notice
    copy = torch.as_strided(buffer, tensor.shape, tensor.stride(), MARGIN)
    return copy.copy_(tensor.detach()), buffer


@contextmanager
def _interpreting():
    """Let Triton's own functions, such as tl.sum, be interpreted, also where Triton was imported to compile."""
    import triton.language as language
    from triton.runtime import jit

    jit.mangle_type(torch.empty(1))  # imports what must not be imported inside
    made = {}
    with ExitStack() as stack:
        for place in (language, language.standard, language.core, language.math, language.tensor):
            for name, value in list(vars(place).items()):
                if isinstance(value, jit.JITFunction):
                    new = made.setdefault(value, _interpreter().InterpretedFunction(value.fn))
                    stack.enter_context(mock.patch.object(place, name, new))
        yield


@contextmanager
def _noting(accesses, spans):
    """Note each load and store of the interpreter; `spans` are (name, tensor, buffer)."""
    builder = _interpreter().interpreter_builder
    missing = [name for name in METHODS if not hasattr(builder, name)]
    if missing:
        raise NotImplementedError(CHANGED.format(error=f"no {missing[0]}"))
    load, store, atomic = (getattr(builder, name) for name in METHODS)

    def note(kind, pointers, mask):
        return _note(accesses, spans, builder.grid_idx, kind, pointers.data, mask)

    def noted_load(pointers, mask, *others):
        return load(pointers, note("read", pointers, mask), *others)

    def noted_store(pointers, value, mask, *others):
        return store(pointers, value, note("write", pointers, mask), *others)

    def noted_atomic(operation, pointers, value, mask, *others):
        note("read", pointers, mask)
        mask = note("write", pointers, mask)
        return atomic(operation, pointers, value, mask, *others)

    with ExitStack() as stack:
        for name, new in zip(METHODS, (noted_load, noted_store, noted_atomic), strict=True):
            stack.enter_context(mock.patch.object(builder, name, new))
        yield


def _note(accesses, spans, program, kind, addresses, mask):
    """Note which elements `addresses` name where `mask` is set; returns the mask without what lies in no buffer."""
    import numpy

    addresses = numpy.asarray(addresses).astype(numpy.int64)
    wanted = numpy.broadcast_to(mask.data, addresses.shape)
    safe = numpy.zeros(addresses.shape, dtype=bool)
    for name, tensor, buffer in spans:
        places = (addresses - tensor.data_ptr()) // tensor.element_size()
        near = (places >= -MARGIN) & (places < len(buffer) - MARGIN)
        safe |= near
        touched = places[near & wanted]
        if touched.size:
            beside = touched[(touched < 0) | (touched >= len(buffer) - 2 * MARGIN)]
            masked = places[near & ~wanted].tolist()
            accesses.append(Access(program, kind, name, touched.tolist(), beside.tolist(), masked))
    lost = int((wanted & ~safe).sum())
    if lost:
        name = spans[0][0] if spans else "nothing"
        accesses.append(Access(program, kind, name, [], ["far away"] * lost))
    return type(mask)(wanted & safe, mask.dtype)
