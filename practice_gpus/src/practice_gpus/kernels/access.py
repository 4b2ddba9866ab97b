"""Loads, stores, atomics and asynchronous copies: reads and writes memory, checks each address, counts each request."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels import exact
from practice_gpus.kernels.counters import Access, Wide, count
from practice_gpus.kernels.errors import KernelError, OutOfBounds, Race, Unsupported
from practice_gpus.kernels.formats import DTYPES, NUMBERS, UNSIGNED, decode, encode, is_float
from practice_gpus.kernels.lanes import NUMBER, reader
from practice_gpus.kernels.ptx_parser import BITS

if TYPE_CHECKING:
    from practice_gpus.kernels.lanes import Lanes
    from practice_gpus.kernels.ptx_parser import Instruction

WINDOWS = {"shared": 1 << 56, "local": 1 << 57}  # where generic addresses of these spaces begin
COMBINE: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}
COMBINE |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
OPERATIONS: dict[str, Callable] = {
    **COMBINE,
    "cas": lambda old, wanted, new: np.where(old == wanted, new, old),
    "exch": lambda old, new: new,
    "inc": lambda old, top: np.where(old >= top, 0, old + 1).astype(old.dtype),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - 1).astype(old.dtype),
}


SPACES = np.array(["global", "shared", "local"])


def space_of(addresses: np.ndarray) -> np.ndarray:
    """Return the names of the spaces that generic addresses lie in."""
    return SPACES[np.clip(addresses >> 56, 0, 2)]


def counted(
    instruction: Any, machine: Any, kind: str, space: str | None = None, size: int | None = None
) -> Access:
    """Return the `Access` that an instruction's requests go to."""
    size = size or instruction.bytes
    space = space or instruction.space or "global"
    found = Access(instruction.line, kind, space, size)
    issued = machine.compiled.widths.get((instruction.line, kind, space))
    found.predicted = kind != "atomic" and (len(issued or ()) != 1 or instruction.name == "wmma")
    wider = sorted(each for each in issued or () if each > size)
    for width in wider if instruction.name in ("ld", "st") else ():
        key = (instruction.line, kind, space, width)
        lower = found.wide
        if key not in machine.wide:
            machine.accesses.append(Access(*key))
            machine.wide[key] = Wide(machine.accesses[-1])
        found.wide = machine.wide[key]
        found.wide.lower = lower
    machine.accesses.append(found)
    return found


def fetch(machine: Any, lanes: Lanes, mask: Any, reach: Any, more: Any) -> np.ndarray:
    """Return the bits that each thread finds at its address and `more` bytes."""
    memory, places, active = reach.go(machine, lanes, mask, more)
    reach.note(machine, lanes, memory, places if active is None else places[active], active)
    found = memory.views[reach.size][places // reach.size]
    return machine.doubt.spoil(lanes, machine.order, found)


class Local:
    """Each thread's own memory: arrays that registers can't hold. Not counted: a compiler spills there on its own, too."""

    def __init__(self, size, count):
        self.size = size
        self.stride = -(-max(size, 16) // 16) * 16
        self.bytes = np.zeros(self.stride * count, np.uint8)
        self.views = {size: self.bytes.view(kind) for size, kind in UNSIGNED.items()}
        self.begin = np.arange(count) * self.stride

    def places(
        self,
        addresses: np.ndarray,
        size: int,
        active: np.ndarray | None,
        kind: str,
        blame: Callable,
    ) -> np.ndarray:
        """Return indices into the bytes of all threads."""
        wrong = (addresses < 0) | (addresses + size > self.size)
        wrong &= True if active is None else active
        if wrong.any():
            thread = int(wrong.argmax())
            words = f"byte {addresses[thread]}, and the thread's arrays have {self.size:,} bytes"
            blame(
                thread,
                OutOfBounds,
                f"out-of-bounds {kind} of {size} bytes in local memory: {words}",
            )
        return np.clip(addresses, 0, self.stride - size) + self.begin


class Reach:
    """One instruction's way to memory: which space, which addresses, and where its counts go."""

    def __init__(self, instruction, machine, address, kind, size, access):
        self.line = instruction.line
        self.space = instruction.space
        self.kind = kind
        self.size = size
        self.access = access
        self.offset = address[2]
        flow = machine.flow
        self.tracked = flow.shares(instruction)  # races are looked for in the card's memory
        self.updates = instruction.name == "st" and flow.updates(instruction)
        self.constant = instruction.name == "st" and NUMBER.fullmatch(str(instruction.operands[1]))
        self.waits = flow.waits(instruction)
        self.base = reader(address[1], "u32" if self.space == "shared" else "s64", machine.names)

    def go(
        self,
        machine: Any,
        lanes: Lanes,
        mask: np.ndarray | None,
        more: np.ndarray | int = 0,
        extent: dict | None = None,
    ) -> tuple:
        """Return (memory, places of all threads in its bytes, threads that are on or None); counts the request.

        `more`: bytes that are added to the addresses; `extent`: {"extent": bytes that each thread touches}, where it is
        fewer than the access has.
        """
        active = lanes.active(mask)
        addresses = lanes.spread(self.base(lanes)).astype(np.int64) + self.offset + more
        if self.space == "shared":
            addresses = addresses.astype(np.int32).astype(np.int64)  # they have 32 bits, and wrap
        space = self.space or self._generic(addresses if active is None else addresses[active])
        if not self.space and space != "global":
            addresses = addresses - WINDOWS[space]
        memory = machine.spaces["global" if space in ("global", "const") else space]
        blame = self.blame(lanes)
        places = memory.places(addresses, self.size, active, self.kind, blame, **(extent or {}))
        if space == "shared" or space == "global":
            count(self.access, addresses, active, lanes.blocks, space)
        if space == "global":
            touched = memory.sectors["load" if self.kind == "load" else "store"]
            touched[(places if active is None else places[active]) // 32] = True
            if machine.notes:
                machine.notes.add(self.access, lanes, addresses, active)
        return memory, places, active

    def note(
        self, machine: Any, lanes: Lanes, memory: Any, at: Any, active: Any, changes: Any = True
    ) -> None:
        """Tell whoever keeps account of races of an access to the places `at`, those of the threads that are on."""
        threads = lanes.index if active is None else lanes.index[active]
        if self.waits:  # a lock or a flag orders others; its own accesses are meant to meet
            machine.order.waited(threads, lanes.step, True)
        elif memory is machine.spaces["shared"]:
            memory.note(self, lanes, at, threads, changes)
        elif memory is machine.memory:
            if self.tracked:
                machine.card.note(self, lanes, at, threads, changes)
            if memory.fresh is not None:
                memory.keep_contract(self, lanes, at, threads)

    def _generic(self, addresses):
        names = np.unique(space_of(addresses))
        if len(names) > 1:
            raise Unsupported(
                f"one access to {' and '.join(names)} memory isn't executed here: {self.line}"
            )
        return str(names[0]) if len(names) else "global"

    def blame(self, lanes: Lanes) -> Callable:
        """Return the function that raises an error of this line."""
        return lambda thread, kind, words: lanes.fail(thread, kind, words, self.line)


def load(instruction: Instruction, machine: Any, access: Any) -> Callable:
    """Return run(machine, lanes, mask) of ld."""
    size = BITS[instruction.type] // 8
    reach = Reach(
        instruction, machine, instruction.operands[1], "load", size * instruction.width, access
    )
    targets = _listed(instruction.operands[0])
    signed = instruction.type[0] == "s"

    def run(machine, lanes, mask):
        memory, places, active = reach.go(machine, lanes, mask)
        reach.note(machine, lanes, memory, places if active is None else places[active], active)
        places = places // size
        view = memory.views[size]
        for place, target in enumerate(targets):
            if target != "_":
                found = view[places + place]
                found = machine.doubt.spoil(lanes, machine.order, found)
                lanes.write(target, found, active if mask is not None else None, signed)

    return run


def store(instruction: Instruction, machine: Any, access: Any) -> Callable:
    """Return run(machine, lanes, mask) of st."""
    kind = instruction.type
    size = BITS[kind] // 8
    reach = Reach(
        instruction, machine, instruction.operands[0], "store", size * instruction.width, access
    )
    sources = [
        reader(each, f"u{8 * size}", machine.names) for each in _listed(instruction.operands[1])
    ]

    def run(machine, lanes, mask):
        memory, places, active = reach.go(machine, lanes, mask)
        values = [lanes.spread(source(lanes)) for source in sources]
        put(machine, lanes, reach, memory, places, active, values, size)

    return run


def put(
    machine: Any,
    lanes: Lanes,
    reach: Any,
    memory: Any,
    places: np.ndarray,
    active: np.ndarray | None,
    values: list,
    size: int,
) -> None:
    """Store `values`, one array for each element, and look for races where the memory is shared."""
    view = memory.views[size]
    if active is not None:
        places = places[active]
        values = [each[active] for each in values]
    cells: Any = places // size
    shared = memory is machine.spaces["shared"]
    changes: Any = np.zeros(len(cells), bool)
    if shared or reach.tracked:
        for place, each in enumerate(values):
            changes |= view[cells + place] != each
    machine.changed |= bool(changes.any()) or not (shared or reach.tracked)
    reach.note(machine, lanes, memory, places, active, changes)
    for place, each in enumerate(values):
        view[cells + place] = each
        if memory is not machine.spaces["local"]:
            _check_lost(machine, lanes, reach, view[cells + place] != each, cells, active)


def _check_lost(machine, lanes, reach, lost, cells, active):
    """Raise a Race where threads at once stored different values to one place, of which one stays.

    Triton's threads of one block may hold a value twice, with another rounding.
    """
    if not lost.any():
        return
    threads = lanes.index if active is None else lanes.index[active]
    if machine.compiled.language == "triton":
        winner = dict(zip(cells.tolist(), lanes.block_number[threads].tolist(), strict=True))
        lost &= [
            winner[cell] != block
            for cell, block in zip(
                cells.tolist(), lanes.block_number[threads].tolist(), strict=True
            )
        ]
        if not lost.any():
            return
    space = "shared" if reach.space == "shared" else "global"
    words = (
        f"race in {space} memory: another thread writes something else to the same place at once"
    )
    lanes.fail(int(threads[lost.argmax()]), Race, words, reach.line)


def atomic(instruction: Instruction, machine: Any, access: Any) -> Callable:
    """Return run(machine, lanes, mask) of atom and red."""
    operands = instruction.operands if instruction.name == "atom" else ["_", *instruction.operands]
    target, address, *rest = operands
    operation = next(each for each in instruction.parts if each in OPERATIONS)
    rest = rest[: 2 if operation == "cas" else 1]  # what follows is a hint for the caches
    kind = re.sub(r"^b(\d)", r"u\1", instruction.type)
    size = BITS[kind] // 8
    reach = Reach(instruction, machine, address, "atomic", size, access)
    sources = [reader(each, kind, machine.names) for each in rest]

    def run(machine, lanes, mask):
        memory, places, active = reach.go(machine, lanes, mask)
        shared = memory is machine.spaces["shared"]
        reach.note(machine, lanes, memory, places if active is None else places[active], active)
        if target != "_":
            machine.order.waited(slice(None) if active is None else active, lanes.step, False)
        cells = places // size if active is None else places[active] // size
        values = [
            np.broadcast_to(each, (lanes.count, *each.shape[1:]))
            for each in (s(lanes) for s in sources)
        ]
        values = values if active is None else [each[active] for each in values]
        view = memory.views[size]
        before = view[cells]
        flushed = (
            kind == "f32" and not shared
        )  # PTX ISA, atom: on global memory, subnormals are flushed
        plain = kind in NUMBERS and not (flushed and _any_small(values[0], decode(before, kind)))
        if target == "_" and operation in COMBINE and plain:
            COMBINE[operation].at(view.view(DTYPES[kind]), cells, values[0])
        elif operation == "add" and not is_float(kind):
            old = _add_in_order(view.view(DTYPES[kind]), cells, values[0])
        else:
            old = _in_turn(view, cells, operation, values, kind, flushed)
        machine.changed |= bool((view[cells] != before).any())
        if target != "_":
            found = np.zeros(lanes.count, old.dtype)
            found[lanes.index if active is None else active] = old
            lanes.write(target, found, active if mask is not None else None)

    return run


def _any_small(*numbers):
    return any(((np.abs(each) < 2.0**-100) & (each != 0)).any() for each in numbers)


def _add_in_order(view, cells, values):
    """Add integers and return what each thread found: the threads come one after the other, lowest first."""
    order = np.argsort(cells, kind="stable")
    sums = np.cumsum(values[order], dtype=values.dtype)
    before = np.concatenate([np.zeros(1, sums.dtype), sums[:-1]])
    start = np.concatenate([[True], np.diff(cells[order]) != 0])
    group = np.cumsum(start) - 1
    old = np.empty_like(values)
    old[order] = view[cells[order]] + (before - before[start][group])
    np.add.at(view, cells, values)
    return old


def _in_turn(view, cells, operation, values, kind, flushed):
    """Do an atomic operation; threads that meet at one place come one after the other, lowest first. Returns what each found.

    Round n is of the threads that come n-th at their place: within a round no place occurs twice.
    """
    old = np.empty(len(cells), view.dtype)
    order = np.argsort(cells, kind="stable")
    start = np.flatnonzero(np.diff(cells[order], prepend=-1))
    turn = np.arange(len(cells)) - np.repeat(start, np.diff(start, append=len(cells)))
    for number in range(int(turn.max(initial=-1)) + 1):
        now = order[turn == number]
        found = view[cells[now]]
        old[now] = found
        new = OPERATIONS[operation](decode(found, kind), *(each[now] for each in values))
        new = exact.flush(new, kind) if flushed else new
        view[cells[now]] = encode(new, kind).view(view.dtype)
    return old


def copy_async(instruction: Instruction, machine: Any, read: Any, written: Any) -> Callable:
    """Return run(machine, lanes, mask) of cp.async: the copy is under way until its group is waited for.

    Bytes behind the source's own size are filled with zeros.
    """
    target, origin, size, *rest = instruction.operands
    size = int(size, 0)
    part = min(size, 8)
    source = Reach(instruction, machine, origin, "load", size, read)
    source.space = "global"
    source.base = reader(origin[1], "s64", machine.names)
    place = Reach(instruction, machine, target, "store", size, written)
    place.space = "shared"
    place.base = reader(target[1], "u32", machine.names)
    length = _bytes_copied(instruction, machine, size, rest)

    def run(machine, lanes, mask):
        count = lanes.spread(length(lanes)).astype(np.int64)
        active = lanes.active(mask)
        on = np.ones(lanes.count, bool) if active is None else active
        if (on & (count > size)).any():
            words = f"cp.async of {size} bytes is told to read more than that: undefined"
            lanes.fail(int((on & (count > size)).argmax()), KernelError, words, source.line)
        reads = on & (count > 0)
        values = [np.zeros(lanes.count, UNSIGNED[part]) for _ in range(size // part)]
        if reads.any():
            memory, places, _ = source.go(machine, lanes, reads, 0, {"extent": count})
            source.note(machine, lanes, memory, places[reads], reads)
            for number, each in enumerate(values):
                found = memory.views[part][places // part + number]
                found = machine.doubt.spoil(lanes, machine.order, found)
                each[reads] = (found & _low_bytes(count - number * part, found.dtype))[reads]
        shared, places, _ = place.go(machine, lanes, mask)
        machine.copies.add(
            lanes, on, lambda ready: put(machine, lanes, place, shared, places, ready, values, part)
        )

    return run


def _bytes_copied(instruction, machine, size, rest):
    """A function lanes → bytes that cp.async reads: its operand src-size, or none where the predicate ignore-src holds."""
    rest = rest[:-1] if "L2::cache_hint" in instruction.parts else rest
    if len(rest) > 1:
        raise Unsupported(f"{instruction.text} has an operand that isn't known here")
    if not rest:
        return lambda lanes: np.array([size], "u4")
    if machine.module.is_predicate(rest[0]):
        ignored = reader(rest[0], "pred", machine.names)
        return lambda lanes: np.where(ignored(lanes), 0, size)
    return reader(rest[0], "u32", machine.names)


def _low_bytes(count, dtype):
    """Return masks of the lowest `count` bytes, limited to what the type has."""
    count = np.clip(count, 0, dtype.itemsize)
    ones = np.uint64(2**64 - 1) >> (64 - 8 * np.maximum(count, 1)).astype("u8")
    return np.where(count > 0, ones, 0).astype(dtype)


class Copies:
    """Asynchronous copies under way; each thread counts the groups that it has committed."""

    def __init__(self, count):
        self.committed = np.zeros(count, np.int64)
        self.under_way = []  # [threads that wait for it, their group, how to finish]

    def add(self, lanes: Lanes, on: np.ndarray, finish: Callable) -> None:
        """Begin a copy of the threads `on`."""
        self.under_way.append([on.copy(), self.committed.copy(), finish])

    def commit(self, mask: np.ndarray | None) -> None:
        """End the group that the threads of `mask` are filling."""
        self.committed += 1 if mask is None else mask

    def wait(self, mask: np.ndarray | None, left: int) -> None:
        """Finish the copies of all groups but the last `left` of each thread in `mask`."""
        for copy in self.under_way:
            waiting, group, finish = copy
            ready = waiting & (group < self.committed - left)
            ready &= True if mask is None else mask
            if ready.any():
                finish(None if ready.all() else ready)
                copy[0] = waiting & ~ready
        self.under_way = [copy for copy in self.under_way if copy[0].any()]

    def wait_all(self, mask: np.ndarray | None) -> None:
        """Finish all copies of the threads in `mask`, those of no group, too (PTX ISA, cp.async.wait_all)."""
        self.commit(mask)
        self.wait(mask, 0)


def _listed(operand):
    return operand if isinstance(operand, list) else [operand]
