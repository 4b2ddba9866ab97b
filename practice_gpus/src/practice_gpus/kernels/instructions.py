"""Turns each instruction of a kernel into a function that does it for all threads at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels import access, arithmetic, calls, collective, mbarrier
from practice_gpus.kernels.conversions import convert
from practice_gpus.kernels.errors import Unsupported
from practice_gpus.kernels.formats import UNSIGNED, encode, resize
from practice_gpus.kernels.forms import known
from practice_gpus.kernels.lanes import check_operands, reader
from practice_gpus.kernels.ptx_parser import BITS

if TYPE_CHECKING:
    from practice_gpus.kernels.ptx_parser import Instruction

NOTHING: tuple[str, ...] = (
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "nanosleep",
    "griddepcontrol",
    "discard",
)
NOTHING += ("applypriority", "createpolicy")
SCHEDULED = {"bra": "branch", "ret": "return", "exit": "exit", "trap": "trap"}
CHAINED = ("addc", "subc", "madc")
NEWER = ("wgmma", "tcgen05", "elect", "mapa", "setmaxnreg", "mbarrier", "cp", "fence")


def translate(instruction: Instruction, machine: Any) -> tuple:
    """Return (what it is, run, more): "plain" instructions run(machine, lanes, mask); others are the scheduler's.

    `more`: of a warp's instruction, the threads that it waits for; of a barrier, its `Barrier`; of a call, its function.
    Raises Unsupported by the instruction's name, or by the operand's.
    """
    name, operands = instruction.name, instruction.operands
    if not known(instruction.parts, len(operands)):
        _refuse(instruction)
    if name == "call":
        return calls.call(instruction, machine)
    if name == "bra":
        return "branch", None, machine.module.labels[operands[0]]
    if instruction.space != "param":
        check_operands(operands, machine.module, machine.names)
    if name in SCHEDULED:
        return SCHEDULED[name], None, None
    if name in NOTHING:
        return "plain", lambda machine, lanes, mask: None, None
    if name in collective.MAKERS:
        return collective.MAKERS[name](instruction, machine)
    run = MAKERS.get(name, _arithmetic)(instruction, machine)
    if run is None:
        _refuse(instruction)
    return "plain", run, None


def _refuse(instruction):
    newer = instruction.name in NEWER and instruction.parts[1:2] != ("async",)
    advice = '; its code for an older card may run: compile with card="A100"' if newer else ""
    raise Unsupported(
        f"{'.'.join(instruction.parts)} isn't executed here{advice}. It comes of {instruction.line}"
    )


def _arithmetic(instruction, machine):
    made = arithmetic.make(instruction.parts)
    if made is None:
        return None
    if "cc" in instruction.parts or instruction.name in CHAINED:
        return _carrying(instruction, machine)
    function, kinds, result = made
    target, *rest = instruction.operands
    kinds = kinds if isinstance(kinds, list) else [kinds] * len(rest)
    sources = [reader(each, kind, machine.names) for each, kind in zip(rest, kinds, strict=False)]
    if instruction.name == "setp":
        return _predicates(target, function, sources)
    signed = result[0] == "s"
    plain = result == "pred"

    def run(machine, lanes, mask):
        values = function(*[source(lanes) for source in sources])
        lanes.write(target, values if plain else encode(values, result), mask, signed)

    return run


def _predicates(target, function, sources):
    targets = target.split("|")

    def run(machine, lanes, mask):
        for name, values in zip(targets, function(*[source(lanes) for source in sources])):  # noqa: B905
            if name != "_":
                lanes.write(name, values, mask)

    return run


def _carrying(instruction, machine):
    """add.cc, addc, sub.cc, subc, mad.cc, madc: sums that hand on a carry in the register CC."""
    kind = f"u{instruction.type[1:]}"
    subtract = instruction.name.startswith("sub")
    target, *rest = instruction.operands
    *factors, last = [reader(each, kind, machine.names) for each in rest]
    if instruction.name.startswith("mad"):
        half = ("mul", "hi" if "hi" in instruction.parts else "lo", instruction.type)
        multiply, own, _ = arithmetic.make(half)
        factors = [reader(each, own, machine.names) for each in rest[:2]]
    chained = instruction.name in CHAINED

    def run(machine, lanes, mask):
        first = [each(lanes) for each in factors]
        a = multiply(*first).view(f"u{first[0].itemsize}") if len(first) == 2 else first[0]
        b = last(lanes)
        old = (lanes.read("CC") != 0).astype(a.dtype) if chained else a.dtype.type(0)
        part = a - b if subtract else a + b
        found = part - old if subtract else part + old
        carry = (a < b) | (part < old) if subtract else (part < a) | (found < part)
        lanes.write(target, found, mask)
        if "cc" in instruction.parts:
            lanes.write("CC", carry, mask)

    return run


def _cvt(instruction, machine):
    function = convert(instruction.parts)
    target, *rest = instruction.operands
    sources = [_raw(each, instruction, machine) for each in rest]
    signed = next(each for each in instruction.parts if each in BITS)[0] == "s"

    def run(machine, lanes, mask):
        lanes.write(target, function(*[source(lanes) for source in sources]), mask, signed)

    return run


def _raw(operand, instruction, machine):
    """A function lanes → bits of an operand, whatever they mean."""
    if machine.module.is_register(operand):
        return lambda lanes: lanes.read(operand)
    return reader(operand, f"u{BITS[instruction.type]}", machine.names)


def _mov(instruction, machine):
    target, source = instruction.operands
    kind = instruction.type
    if isinstance(source, list):
        return _pack(target, source, kind, machine)
    if isinstance(target, list):
        return _unpack(target, source, kind)
    read = reader(source, kind if kind == "pred" else f"u{BITS[kind]}", machine.names)

    def run(machine, lanes, mask):
        lanes.write(target, read(lanes), mask)

    return run


def _pack(target, parts, kind, machine):
    bits = BITS[kind] // len(parts)
    sources = [reader(each, f"u{bits}", machine.names) for each in parts]

    def run(machine, lanes, mask):
        columns = np.broadcast_arrays(*[source(lanes) for source in sources])
        joined = np.ascontiguousarray(np.stack(columns, axis=1))
        lanes.write(target, joined.view(UNSIGNED[BITS[kind] // 8]).reshape(-1), mask)

    return run


def _unpack(targets, source, kind):
    size = BITS[kind] // 8

    def run(machine, lanes, mask):
        whole = np.ascontiguousarray(resize(lanes.read(source), size))
        parts = whole.view(UNSIGNED[size // len(targets)]).reshape(-1, len(targets))
        for place, target in enumerate(targets):
            if target != "_":
                lanes.write(target, np.ascontiguousarray(parts[:, place]), mask)

    return run


def _cvta(instruction, machine):
    target, source = instruction.operands
    shift = access.WINDOWS.get(instruction.space, 0)
    shift = -shift if "to" in instruction.parts else shift
    read = reader(source, "s64", machine.names)

    def run(machine, lanes, mask):
        lanes.write(target, read(lanes) + np.int64(shift), mask)

    return run


def _isspacep(instruction, machine):
    target, source = instruction.operands
    read = reader(source, "s64", machine.names)
    space = instruction.space

    def run(machine, lanes, mask):
        lanes.write(target, access.space_of(read(lanes)) == space, mask)

    return run


def _ld(instruction, machine):
    if instruction.space == "param":
        return calls.read_parameter(instruction, machine)
    return access.load(instruction, machine, access.counted(instruction, machine, "load"))


def _st(instruction, machine):
    if instruction.space == "param":
        return calls.write_argument(instruction, machine)
    return access.store(instruction, machine, access.counted(instruction, machine, "store"))


def _atom(instruction, machine):
    return access.atomic(instruction, machine, access.counted(instruction, machine, "atomic"))


def _cp(instruction, machine):
    if instruction.parts[2] == "mbarrier":
        return mbarrier.after_copies(instruction, machine)
    if instruction.parts[2] == "commit_group":
        return lambda machine, lanes, mask: machine.copies.commit(lanes.active(mask))
    if instruction.parts[2] == "wait_all":
        return lambda machine, lanes, mask: machine.copies.wait_all(lanes.active(mask))
    if instruction.parts[2] == "wait_group":
        left = int(instruction.operands[0], 0)
        return lambda machine, lanes, mask: machine.copies.wait(lanes.active(mask), left)
    read = access.counted(instruction, machine, "load", "global")
    written = access.counted(instruction, machine, "store", "shared")
    return access.copy_async(instruction, machine, read, written)


MAKERS = {"cvt": _cvt, "mov": _mov, "cvta": _cvta, "isspacep": _isspacep, "ld": _ld, "st": _st}
MAKERS |= {"atom": _atom, "red": _atom, "cp": _cp}
