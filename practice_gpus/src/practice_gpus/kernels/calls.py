"""Functions that aren't inlined: their arguments, and the two that every CUDA program has, printf and assert.

Arguments are bytes, a row for each thread: a caller writes them, the function reads them by its own names for them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels.access import WINDOWS, space_of
from practice_gpus.kernels.errors import AssertFailed, Unsupported
from practice_gpus.kernels.formats import UNSIGNED
from practice_gpus.kernels.lanes import check_operands, reader
from practice_gpus.kernels.ptx_parser import BITS

if TYPE_CHECKING:
    from practice_gpus.kernels.lanes import Lanes
    from practice_gpus.kernels.ptx_parser import Instruction

CONVERSION = re.compile(
    r"%([-+ #0]*)(\*|\d*)(\.(?:\*|\d+)?)?(?:hh|h|ll|l|z|j|t)?([diouxXeEfFgGaAcsp%])"
)


def call(instruction: Instruction, machine: Any) -> tuple:
    """Return the step of a call: of a function of this code, or of one that the GPU's system has."""
    returns, name, takes, *more = instruction.operands
    if name in machine.module.functions and not more:
        return "call", None, (machine.module.functions[name], returns, takes)
    if name in BUILT_IN:
        return "plain", BUILT_IN[name](instruction, machine), None
    raise Unsupported(f"a call of {name} isn't executed here. It comes of {instruction.line}")


def hand_over(lanes: Lanes, sources: list, targets: list, mask: np.ndarray) -> None:
    """Copy the bytes of arguments (or results) to the names that the other side has for them."""
    for source, target in zip(sources, targets, strict=True):
        given = lanes.arguments.get(source)
        if given is not None:
            _grown(lanes, target, given.shape[1])[mask, : given.shape[1]] = given[mask]


def _grown(lanes, name, size):
    """Return a parameter's bytes, at least `size` for each thread."""
    old = lanes.arguments.get(name, np.zeros((lanes.count, 0), np.uint8))
    if old.shape[1] < size:
        more = np.zeros((lanes.count, size - old.shape[1]), np.uint8)
        old = lanes.arguments[name] = np.concatenate([old, more], axis=1)
    return old


def write_argument(instruction: Instruction, machine: Any) -> Callable:
    """Return run(machine, lanes, mask) of st.param."""
    (_, name, offset), values = instruction.operands
    size = BITS[instruction.type] // 8
    values = values if isinstance(values, list) else [values]
    check_operands(values, machine.module, machine.names)
    sources = [reader(each, f"u{8 * size}", machine.names) for each in values]

    def run(machine, lanes, mask):
        bytes_ = _grown(lanes, name, offset + size * len(sources))
        on = slice(None) if mask is None else mask
        for place, source in enumerate(sources):
            found = np.ascontiguousarray(lanes.spread(source(lanes))).view("u1")
            begin = offset + place * size
            bytes_[on, begin : begin + size] = found.reshape(-1, size)[on]

    return run


def read_parameter(instruction: Instruction, machine: Any) -> Callable:
    """Return run(machine, lanes, mask) of ld.param: bytes of the kernel's arguments, or of a function's."""
    targets, (_, name, offset) = instruction.operands
    size = BITS[instruction.type] // 8
    targets = targets if isinstance(targets, list) else [targets]
    signed = instruction.type[0] == "s"
    places = [offset + place * size for place in range(len(targets))]
    check_operands(targets, machine.module, machine.names)
    address = reader(name, "u64", machine.names) if machine.module.is_register(name) else None
    blob = machine.parameters.get(name)

    def of_thread(lanes, place):
        if blob is not None:
            return np.frombuffer(blob[place : place + size], UNSIGNED[size])
        if address is not None:
            at = address(lanes).astype("i8")[:, None] + np.arange(place, place + size)
            return machine.blob[at].view(UNSIGNED[size]).reshape(-1)
        found = _grown(lanes, name, place + size)[:, place : place + size]
        return np.ascontiguousarray(found).view(UNSIGNED[size]).reshape(-1)

    def run(machine, lanes, mask):
        for target, place in zip(targets, places, strict=True):
            lanes.write(target, of_thread(lanes, place), mask, signed)

    return run


def _argument(lanes, name, thread, kind="u8", place=0):
    size = np.dtype(kind).itemsize
    found = lanes.arguments[name][thread, place : place + size]
    return np.ascontiguousarray(found).view(kind)[0]


def _text(machine, address):
    """Return the text at a generic address, up to its zero."""
    start = machine.memory.offset(int(address))
    whole = machine.memory.bytes[start : start + 4096].tobytes()
    return whole.partition(b"\0")[0].decode(errors="replace")


def _printf(instruction, machine):
    text, values = instruction.operands[2]

    def run(machine, lanes, mask):
        active = lanes.active(mask)
        for thread in np.flatnonzero(lanes.exists if active is None else active):
            address, data = int(_argument(lanes, values, thread)), b""
            if address:
                inside = machine.spaces[str(space_of(np.array([address]))[0])]
                data = inside.bytes[address - WINDOWS["local"] + int(inside.begin[thread]) :]
            told = _formatted(machine, _text(machine, _argument(lanes, text, thread)), data)
            machine.printed.append((*lanes.coordinates(thread), told))

    return run


def _formatted(machine, text, data):
    """Write what C's printf writes: `data` holds the arguments, each aligned to its size."""
    place = 0

    def take(code):
        nonlocal place
        size = struct.calcsize(code)
        place = -(-place // size) * size + size
        return struct.unpack_from(f"<{code}", data, place - size)[0]

    def one(found):
        flags, width, precision, kind = found.groups()
        if kind == "%":
            return "%"
        width = str(take("i")) if width == "*" else width
        precision = f".{take('i')}" if precision == ".*" else precision or ""
        long = re.search(r"ll|l|z|j|t", found[0][1:-1])
        if kind in "eEfFgGaA":
            value = take("d")
        elif kind == "s":
            value = _text(machine, take("Q"))
        elif kind == "p":
            value, kind, flags = take("Q"), "x", "#"
        else:
            code = "q" if long else "i"
            value = take(code if kind in "dic" else code.upper())
        return (
            f"%{flags}{width}{precision}{ {'a': 'g', 'A': 'G', 'i': 'd'}.get(kind, kind) }" % value
        )

    return CONVERSION.sub(one, text)


def _assert(instruction, machine):
    message, file, line, function, _ = instruction.operands[2]

    def run(machine, lanes, mask):
        active = lanes.active(mask)
        thread = int((lanes.exists if active is None else active).argmax())
        told = _text(machine, _argument(lanes, message, thread))
        where = _text(machine, _argument(lanes, function, thread))
        words = f"assertion `{told}` failed in {where}"
        lanes.fail(thread, AssertFailed, words, instruction.line)

    return run


BUILT_IN = {"vprintf": _printf, "__assertfail": _assert}
