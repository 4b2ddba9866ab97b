"""Turns each instruction of a kernel into a function that does it for all threads at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels import access, arithmetic, warps
from practice_gpus.kernels.conversions import convert
from practice_gpus.kernels.counters import Access
from practice_gpus.kernels.errors import Unsupported
from practice_gpus.kernels.formats import UNSIGNED, encode, resize
from practice_gpus.kernels.lanes import lanes_know, reader
from practice_gpus.kernels.ptx_parser import BITS

if TYPE_CHECKING:
    from practice_gpus.kernels.ptx_parser import Instruction

NOTHING = {
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "nanosleep",
    "griddepcontrol",
    "discard",
    "applypriority",
}
BRANCHES = {
    "bra": "branch",
    "ret": "return",
    "exit": "return",
    "bar": "barrier",
    "barrier": "barrier",
}
HINTS = {"wgmma": "A100", "tcgen05": "A100", "mbarrier": "A100", "elect": "A100", "mapa": "A100"}


def translate(instruction: Instruction, machine: Any) -> tuple:
    """Return (what it is, run): "plain" instructions run(machine, lanes, mask); others are the scheduler's.

    Raises Unsupported by the instruction's name.
    """
    name = instruction.name
    if name in BRANCHES and "warp" not in instruction.parts:
        if name in ("bar", "barrier") and (
            "red" in instruction.parts or len(instruction.operands) > 1
        ):
            _refuse(instruction)
        return BRANCHES[name], None
    if name in NOTHING:
        return "plain", lambda machine, lanes, mask: None
    if name == "trap":
        return "trap", None
    make = globals().get(f"_{name}") or _arithmetic
    run = make(instruction, machine)
    if run is None:
        _refuse(instruction)
    return "plain", run


def _refuse(instruction):
    name = ".".join(instruction.parts)
    card = HINTS.get(instruction.name)
    advice = f'; its code for an older card runs: compile with card="{card}"' if card else ""
    raise Unsupported(f"{name} isn't executed here{advice}. It comes of {instruction.line}")


def _arithmetic(instruction, machine):
    made = arithmetic.make(instruction.parts)
    if made is None:
        return None
    function, kinds, result = made
    target, *rest = instruction.operands
    kinds = kinds if isinstance(kinds, list) else [kinds] * len(rest)
    sources = [reader(each, kind, machine.names) for each, kind in zip(rest, kinds, strict=False)]
    if instruction.name == "setp":
        return _predicates(target, function, sources)
    signed = result[0] == "s"
    keep = not signed and result[:2] != "bf" and not result.endswith("x2")

    def run(machine, lanes, mask):
        values = function(*[source(lanes) for source in sources])
        lanes.write(
            target, values if keep and result == "pred" else encode(values, result), mask, signed
        )

    return run


def _predicates(target, function, sources):
    first, _, second = target.partition("|")

    def run(machine, lanes, mask):
        values = function(*[source(lanes) for source in sources])
        if first != "_":
            lanes.write(first, values, mask)
        if second and second != "_":
            lanes.write(second, ~values, mask)

    return run


def _cvt(instruction, machine):
    function = convert(instruction.parts)
    if function is None:
        return None
    target, *rest = instruction.operands
    sources = [_raw(each, instruction, machine) for each in rest]
    known = [each for each in instruction.parts if each in BITS]
    signed = known[0][0] == "s"

    def run(machine, lanes, mask):
        lanes.write(target, function(*[source(lanes) for source in sources]), mask, signed)

    return run


def _raw(operand, instruction, machine):
    """A function lanes → bits of an operand, whatever they mean."""
    if operand.startswith("%") and lanes_know(operand):
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
    space = next((each for each in ("shared", "local") if each in instruction.parts), None)
    shift = access.WINDOWS[space] if space else 0
    shift = -shift if "to" in instruction.parts else shift
    read = reader(source, "s64", machine.names)

    def run(machine, lanes, mask):
        lanes.write(target, read(lanes) + np.int64(shift), mask)

    return run


def _ld(instruction, machine):
    if instruction.space == "param":
        return access.parameter(instruction, machine.parameters)
    return access.load(instruction, machine.names, _counted(instruction, machine, "load"))


def _st(instruction, machine):
    return access.store(instruction, machine.names, _counted(instruction, machine, "store"))


def _atom(instruction, machine):
    return access.atomic(instruction, machine.names, _counted(instruction, machine, "atomic"))


_red = _atom


def _redux(instruction, machine):
    target, source, _ = instruction.operands
    kind = instruction.type.replace("b", "u")
    mode = next(
        each for each in ("add", "min", "max", "and", "or", "xor") if each in instruction.parts
    )
    read = reader(source, kind, machine.names)

    def run(machine, lanes, mask):
        lanes.write(target, warps.reduce(mode, lanes.spread(read(lanes)), _on(lanes, mask)), mask)

    return run


def _counted(instruction, machine, kind, space=None):
    """Return the `Access` that an instruction's requests go to."""
    found = Access(
        instruction.line, kind, space or instruction.space or "global", instruction.bytes
    )
    machine.accesses.append(found)
    return found


def _on(lanes, mask):
    active = lanes.active(mask)
    return np.ones(lanes.count, bool) if active is None else active


def _shfl(instruction, machine):
    mode = instruction.parts[2]
    target, source, amount, clamp, members = instruction.operands
    first, _, second = target.partition("|")
    read = reader(source, "u32", machine.names)
    amount, clamp, members = (
        reader(each, "u32", machine.names) for each in (amount, clamp, members)
    )

    def run(machine, lanes, mask):
        lanes.check_warp("shfl.sync", lanes.active(mask), members(lanes), instruction.line)
        step = amount(lanes).astype(np.int64) & 31
        found, inside, lane = warps.shuffle(
            mode, lanes.spread(read(lanes)), step, clamp(lanes).astype(np.int64)
        )
        warps.check_source(lanes, lane, mask, instruction.line)
        lanes.write(first, found, mask)
        if second:
            lanes.write(second, inside, mask)

    return run


def _vote(instruction, machine):
    mode = instruction.parts[2]
    target, predicate, members = instruction.operands
    negated = predicate.startswith("!")
    read = reader(predicate.lstrip("!"), "pred", machine.names)
    members = reader(members, "u32", machine.names)

    def run(machine, lanes, mask):
        lanes.check_warp("vote.sync", lanes.active(mask), members(lanes), instruction.line)
        values = lanes.spread(read(lanes) ^ negated)
        on = _on(lanes, mask)
        found = warps.ballot(values, on) if mode == "ballot" else warps.vote(mode, values, on)
        lanes.write(target, found, mask)

    return run


def _match(instruction, machine):
    """match.any: in each thread, which threads of its warp have its value."""
    if instruction.parts[1] != "any":
        return None
    target, source, members = instruction.operands
    read = reader(source, f"u{instruction.type[1:]}", machine.names)
    members = reader(members, "u32", machine.names)

    def run(machine, lanes, mask):
        lanes.check_warp("match.sync", lanes.active(mask), members(lanes), instruction.line)
        lanes.write(target, warps.equals(lanes.spread(read(lanes)), _on(lanes, mask)), mask)

    return run


def _activemask(instruction, machine):
    def run(machine, lanes, mask):
        on = _on(lanes, mask)
        lanes.write(instruction.operands[0], warps.ballot(on, on), mask)

    return run


def _bar(instruction, machine):
    """bar.warp.sync: the scheduler has brought the warp's threads together already."""
    members = reader(instruction.operands[0], "u32", machine.names)

    def run(machine, lanes, mask):
        active = lanes.active(mask)
        lanes.check_warp("__syncwarp()", active, members(lanes), instruction.line)
        machine.spaces["shared"].warp_barrier[slice(None) if active is None else active] = (
            lanes.step
        )

    return run


_barrier = _bar


def _mma(instruction, machine):
    target, a, b, c = instruction.operands[:4]
    parts = instruction.parts
    known = {"f32", "f16", "bf16", "tf32", "s32", "s8", "u8"}
    kinds = [each for each in parts if each in BITS]
    if warps.size(parts) is None or not set(kinds) <= known or parts[1:3] != ("sync", "aligned"):
        return None
    operations = 2 * 16 * 8 * warps.size(parts)

    def run(machine, lanes, mask):
        machine.tensor_flops += operations * int(_on(lanes, mask).reshape(-1, 32).any(1).sum())
        groups = [[lanes.spread(lanes.read(each)) for each in group] for group in (a, b, c)]
        for name, values in zip(target, warps.multiply(parts, *groups), strict=True):
            lanes.write(name, values, mask)

    return run


def _ldmatrix(instruction, machine):
    targets, address = instruction.operands
    count = int(next(each for each in instruction.parts if each in ("x1", "x2", "x4"))[1:])
    found = Access(instruction.line, "load", "shared", 16)
    machine.accesses.append(found)
    reach = access.Reach(instruction, machine.names, address, "load", 16, found)

    def run(machine, lanes, mask):
        active = lanes.active(mask)
        rows = lanes.thread % 32 < 8 * count
        on = rows if active is None else rows & active
        shared, places, _ = reach.go(machine, lanes, None if on.all() else on)
        used = None if on.all() else on
        shared.note(places, 16, used, "load", lanes.step, instruction.line, reach.blame(lanes))
        registers = warps.load_matrices(
            shared.views[2], places, count, "trans" in instruction.parts
        )
        for name, values in zip(targets, registers, strict=True):
            lanes.write(name, values, mask)

    return run


def _cp(instruction, machine):
    if instruction.parts[1] != "async" or "bulk" in instruction.parts:
        return None
    if instruction.parts[2] == "commit_group":
        return lambda machine, lanes, mask: machine.copies.commit(lanes.active(mask))
    if instruction.parts[2] in ("wait_group", "wait_all"):
        left = int(instruction.operands[0], 0) if instruction.operands else 0
        return lambda machine, lanes, mask: machine.copies.wait(lanes.active(mask), left)
    read = _counted(instruction, machine, "load", "global")
    written = _counted(instruction, machine, "store", "shared")
    return access.copy_async(instruction, machine.names, read, written)
