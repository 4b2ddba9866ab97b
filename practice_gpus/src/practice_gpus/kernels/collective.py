"""Instructions that threads do together: of a warp (shuffles, votes, tensor cores), of a block (barriers)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from practice_gpus.kernels import access, matrices, mbarrier, warps
from practice_gpus.kernels.counters import Access
from practice_gpus.kernels.lanes import reader

WHOLE = ("-1", "0xffffffff", "0xFFFFFFFF", "4294967295")  # every lane of the warp


@dataclass(frozen=True)
class Barrier:
    """A barrier of a block: functions of its number and of how many threads it counts (None: all of the block).

    `gather` is (target, function, predicate) of bar.red, whose result every thread gets.
    """

    number: Callable
    count: Callable | None
    arrive: bool
    gather: tuple | None


def _together(run, members=None):
    """A step at which the warp's threads that `members` (a function of the lanes) names meet; None: all."""
    return "warp", run, members


def _members(instruction, machine):
    word = instruction.operands[-1]
    return None if word in WHOLE else reader(word, "u32", machine.names)


def _by_members(function, lanes, mask, members):
    """Call function(threads) for each set of threads that do the instruction by themselves, and join what it gives."""
    active = lanes.on(mask)
    wanted = members(lanes) if members else None
    if wanted is None or wanted.size == 1 or len(different := np.unique(wanted[active])) < 2:
        return function(active)
    return np.select(
        [wanted == each for each in different],
        [function(active & (wanted == each)) for each in different],
    )


def _shfl(instruction, machine):
    mode = instruction.parts[2]
    target, source, amount, clamp, _ = instruction.operands
    first, _, second = target.partition("|")
    read, amount, clamp = (reader(each, "u32", machine.names) for each in (source, amount, clamp))

    def run(machine, lanes, mask):
        step = amount(lanes).astype(np.int64) & 31
        found, inside, lane = warps.shuffle(
            mode, lanes.spread(read(lanes)), step, clamp(lanes).astype(np.int64)
        )
        found = warps.undefined(machine, lanes, lane, mask, found, instruction.line)
        lanes.write(first, found, mask)
        if second:
            lanes.write(second, inside, mask)

    return _together(run, _members(instruction, machine))


def _vote(instruction, machine):
    mode = instruction.parts[2]
    target, predicate, _ = instruction.operands
    read, members = reader(predicate, "pred", machine.names), _members(instruction, machine)

    def run(machine, lanes, mask):
        values = lanes.spread(read(lanes))

        def found(active):
            if mode == "ballot":
                return warps.ballot(values, active)
            return warps.vote(mode, values, active)

        lanes.write(target, _by_members(found, lanes, mask, members), mask)

    return _together(run, members)


def _match(instruction, machine):
    """match: in each thread, which threads of its warp have its value; .all: the mask and true where all have one."""
    target, source, _ = instruction.operands
    first, _, second = target.partition("|")
    read = reader(source, f"u{instruction.type[1:]}", machine.names)
    members = _members(instruction, machine)

    def run(machine, lanes, mask):
        values = lanes.spread(read(lanes))
        same = _by_members(lambda active: warps.equals(values, active), lanes, mask, members)
        if instruction.parts[1] == "all":
            active = lanes.on(mask)
            whole = _by_members(lambda some: warps.ballot(some, some), lanes, mask, members)
            agreed = same == whole
            lanes.write(first, np.where(agreed, whole, 0).astype("u4"), mask)
            if second:
                lanes.write(second, agreed & active, mask)
            return
        lanes.write(first, same, mask)

    return _together(run, members)


def _redux(instruction, machine):
    target, source, _ = instruction.operands
    kind = instruction.type.replace("b", "u")
    read, members = reader(source, kind, machine.names), _members(instruction, machine)

    def run(machine, lanes, mask):
        values = lanes.spread(read(lanes))
        values = np.abs(values) if "abs" in instruction.parts else values
        mode = instruction.parts[2] + (" with NaN" if "NaN" in instruction.parts else "")
        found = _by_members(lambda active: warps.reduce(mode, values, active), lanes, mask, members)
        lanes.write(target, found, mask)

    return _together(run, members)


def _elect(instruction, machine):
    target, _ = instruction.operands
    lane, _, predicate = target.partition("|")
    members = _members(instruction, machine)

    def run(machine, lanes, mask):
        bits = _by_members(lambda some: warps.ballot(some, some), lanes, mask, members)
        leader = np.log2(bits & (~bits + np.uint32(1))).astype("u4")  # the lowest bit
        lanes.write(predicate, leader == lanes.thread % 32, mask)
        if lane != "_":
            lanes.write(lane, leader, mask)

    return _together(run, members)


def _activemask(instruction, machine):
    def run(machine, lanes, mask):
        active = lanes.on(mask)
        lanes.write(instruction.operands[0], warps.ballot(active, active), mask)

    return "plain", run, None


def _bar(instruction, machine):
    if "warp" in instruction.parts:
        return _together(
            lambda machine, lanes, mask: machine.meet(lanes, mask), _members(instruction, machine)
        )
    target, gather, operands = "", None, list(instruction.operands)
    if "red" in instruction.parts:
        target, *operands, predicate = operands
        mode = next(each for each in ("popc", "and", "or") if each in instruction.parts)
        gather = (target, mode, reader(predicate, "pred", machine.names))
    number, *count = (reader(each, "u32", machine.names) for each in operands)
    return (
        "barrier",
        None,
        Barrier(number, count[0] if count else None, "arrive" in instruction.parts, gather),
    )


def _mma(instruction, machine):
    target, *sources = [each if isinstance(each, list) else [each] for each in instruction.operands]
    parts = instruction.parts
    operations = matrices.operations(parts)

    def run(machine, lanes, mask):
        machine.tensor_flops += operations * int(lanes.on(mask).reshape(-1, 32).any(1).sum())
        groups = [[lanes.spread(lanes.read(each)) for each in group] for group in sources]
        for name, values in zip(target, matrices.multiply(parts, *groups), strict=True):
            lanes.write(name, values, mask)

    return _together(run)


def _moved_matrices(instruction, machine):
    """ldmatrix and stmatrix: eight rows of eight 16-bit numbers for each register, a row's address in each lane."""
    stores = instruction.name == "stmatrix"
    registers, address = instruction.operands[::-1] if stores else instruction.operands
    registers = registers if isinstance(registers, list) else [registers]
    count, kind = len(registers), "store" if stores else "load"
    found = Access(instruction.line, kind, "shared", 16)
    machine.accesses.append(found)
    reach = access.Reach(instruction, machine, address, kind, 16, found)
    turned = "trans" in instruction.parts

    def run(machine, lanes, mask):
        used = (lanes.thread % 32 < 8 * count) & lanes.on(mask)
        used = None if used.all() else used
        shared, places, _ = reach.go(machine, lanes, used)
        if stores:
            values = [lanes.spread(lanes.read(each)) for each in registers]
            rows = warps.rows_of_matrices(values, turned)
            access.put(machine, lanes, reach, shared, places, used, rows, 8)
            return
        reach.note(machine, lanes, shared, places if used is None else places[used], used)
        values = warps.load_matrices(shared.views[2], places, count, turned)
        values = [machine.doubt.spoil(lanes, machine.order, each) for each in values]
        for name, each in zip(registers, values, strict=True):
            lanes.write(name, each, mask)

    return _together(run)


def _movmatrix(instruction, machine):
    target, source = instruction.operands

    def run(machine, lanes, mask):
        lanes.write(target, warps.transposed(lanes.spread(lanes.read(source))), mask)

    return _together(run)


MAKERS = {"shfl": _shfl, "vote": _vote, "match": _match, "redux": _redux, "elect": _elect}
MAKERS |= {"activemask": _activemask, "bar": _bar, "barrier": _bar, "mma": _mma}
MAKERS |= {"ldmatrix": _moved_matrices, "stmatrix": _moved_matrices, "movmatrix": _movmatrix}
MAKERS |= {"wmma": matrices.wmma, "mbarrier": mbarrier.make}
