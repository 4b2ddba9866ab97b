"""Loads, stores, atomics and asynchronous copies: reads and writes memory, checks each address, counts each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels.counters import count_global, count_shared
from practice_gpus.kernels.errors import Race
from practice_gpus.kernels.formats import DTYPES, UNSIGNED
from practice_gpus.kernels.lanes import reader
from practice_gpus.kernels.ptx_parser import BITS

if TYPE_CHECKING:
    from practice_gpus.kernels.lanes import Lanes
    from practice_gpus.kernels.ptx_parser import Instruction

WINDOWS = {"shared": 1 << 56, "local": 1 << 57}  # where generic addresses of these spaces begin
COMBINE: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}
COMBINE |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


class Local:
    """Each thread's own memory: arrays that registers can't hold. Not counted: a compiler spills there on its own, too."""

    def __init__(self, size, count):
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
        return np.clip(addresses, 0, self.stride - size) + self.begin


class Reach:
    """One instruction's way to memory: which space, which addresses, and where its counts go."""

    def __init__(self, instruction, names, address, kind, size, access):
        self.line = instruction.line
        self.space = instruction.space
        self.kind = kind
        self.size = size
        self.access = access
        self.offset = address[2]
        self.base = reader(
            address[1], "s64" if self.space in ("global", "", "const") else "u32", names
        )
        if self.space == "local":
            self.base = reader(address[1], "s64", names)

    def go(self, machine: Any, lanes: Lanes, mask: np.ndarray | None) -> tuple:
        """Return (memory, places of all threads in its bytes, threads that are on or None); counts the request."""
        active = lanes.active(mask)
        addresses = lanes.spread(self.base(lanes)).astype(np.int64) + self.offset
        space = self.space or self._generic(addresses, active)
        if not self.space and space != "global":
            addresses = addresses - WINDOWS[space]
        memory = machine.spaces["global" if space in ("global", "const") else space]

        def blame(thread, kind, words):
            lanes.fail(thread, kind, words, self.line)

        places = memory.places(addresses, self.size, active, self.kind, blame)
        if space == "shared":
            count_shared(self.access, addresses, active, self.size, lanes.blocks)
        elif space == "global":
            count_global(self.access, addresses, active)
            touched = memory.sectors["load" if self.kind == "load" else "store"]
            touched[(places if active is None else places[active]) // 32] = True
            if machine.notes:
                machine.notes.add(self.kind, self.line, lanes, addresses, active)
        return memory, places, active

    def _generic(self, addresses, active):
        first = int((addresses if active is None else addresses[active]).max(initial=0))
        return next((name for name in ("local", "shared") if first >= WINDOWS[name]), "global")

    def blame(self, lanes: Lanes) -> Callable:
        """Return the function that raises an error of this line."""
        return lambda thread, kind, words: lanes.fail(thread, kind, words, self.line)


def load(instruction: Instruction, names: Any, access: Any) -> Callable:
    """Return run(machine, lanes, mask) of ld."""
    size = BITS[instruction.type] // 8
    reach = Reach(
        instruction, names, instruction.operands[1], "load", size * instruction.width, access
    )
    targets = _listed(instruction.operands[0])
    signed = instruction.type[0] == "s"

    def run(machine, lanes, mask):
        memory, places, active = reach.go(machine, lanes, mask)
        if memory is machine.spaces["shared"]:
            memory.note(
                places, reach.size, active, "load", lanes.step, reach.line, reach.blame(lanes)
            )
        places = places // size
        view = memory.views[size]
        for place, target in enumerate(targets):
            if target != "_":
                lanes.write(
                    target, view[places + place], active if mask is not None else None, signed
                )

    return run


def store(instruction: Instruction, names: dict, access: Any) -> Callable:
    """Return run(machine, lanes, mask) of st."""
    kind = instruction.type
    size = BITS[kind] // 8
    reach = Reach(
        instruction, names, instruction.operands[0], "store", size * instruction.width, access
    )
    sources = [reader(each, f"u{8 * size}", names) for each in _listed(instruction.operands[1])]

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
    if shared:
        changes: Any = np.zeros(len(cells), bool)
        for place, each in enumerate(values):
            changes |= view[cells + place] != each
        whole = lanes.index if active is None else lanes.index[active]
        spread = np.zeros(lanes.count, np.int64)
        spread[whole] = places
        memory.note(
            spread,
            size * len(values),
            active,
            "store",
            lanes.step,
            reach.line,
            reach.blame(lanes),
            changes,
        )
    for place, each in enumerate(values):
        view[cells + place] = each
        if (
            shared and machine.compiled.language == "cuda"
        ):  # Triton lets threads hold the same value, but for rounding
            lost = view[cells + place] != each
            if lost.any():
                thread = int(
                    (lanes.index if active is None else lanes.index[active])[lost.argmax()]
                )
                words = "race in shared memory: another thread writes something else to the same place at once"
                lanes.fail(thread, Race, words, reach.line)


def atomic(instruction: Instruction, names: dict, access: Any) -> Callable | None:
    """Return run(machine, lanes, mask) of atom and red; None where the operation isn't known."""
    returns = instruction.name == "atom"
    operands = instruction.operands if returns else ["_", *instruction.operands]
    target, address, *rest = operands
    operation = next(
        (each for each in instruction.parts if each in (*COMBINE, "exch", "cas", "inc", "dec")),
        None,
    )
    kind = (
        instruction.type.replace("b", "u")
        if instruction.type[0] == "b" and instruction.type[1] != "f"
        else instruction.type
    )
    if operation is None or kind not in DTYPES or instruction.width > 1:
        return None
    size = BITS[kind] // 8
    reach = Reach(instruction, names, address, "atomic", size, access)
    sources = [reader(each, kind, names) for each in rest]

    def run(machine, lanes, mask):
        memory, places, active = reach.go(machine, lanes, mask)
        if memory is machine.spaces["shared"]:
            memory.note(places, size, active, "atomic", lanes.step, reach.line, reach.blame(lanes))
        cells = places // size if active is None else places[active] // size
        values = [lanes.spread(source(lanes)) for source in sources]
        values = values if active is None else [each[active] for each in values]
        view = memory.views[size].view(DTYPES[kind])
        if target == "_" and operation in COMBINE:
            COMBINE[operation].at(view, cells, values[0])
            return
        old = (
            _add_in_order(view, cells, values[0])
            if operation == "add"
            else _in_order(view, cells, operation, values)
        )
        if target != "_":
            found = np.zeros(lanes.count, old.dtype)
            found[lanes.index if active is None else active] = old
            lanes.write(target, found, active if mask is not None else None)

    return run


def _add_in_order(view, cells, values):
    """Add and return what each thread found: the threads come one after the other, lowest first."""
    order = np.argsort(cells, kind="stable")
    sums = np.cumsum(values[order], dtype=values.dtype)
    before = np.concatenate([np.zeros(1, sums.dtype), sums[:-1]])
    start = np.concatenate([[True], np.diff(cells[order]) != 0])
    group = np.cumsum(start) - 1
    old = np.empty_like(values)
    old[order] = view[cells[order]] + (before - before[start][group])
    np.add.at(view, cells, values)
    return old


def _in_order(view, cells, operation, values):
    """Do an atomic operation one thread after the other; returns what each found."""
    old = np.empty(len(cells), view.dtype)
    for place, cell in enumerate(cells):
        old[place] = view[cell]
        value = values[-1][place]
        if operation == "cas":
            view[cell] = value if old[place] == values[0][place] else old[place]
        elif operation == "exch":
            view[cell] = value
        elif operation == "inc":
            view[cell] = 0 if old[place] >= value else old[place] + 1
        elif operation == "dec":
            view[cell] = value if old[place] == 0 or old[place] > value else old[place] - 1
        else:
            view[cell] = COMBINE[operation](old[place], value)
    return old


def parameter(instruction: Instruction, machine_parameters: Any) -> Callable:
    """Return run(machine, lanes, mask) of ld.param: the bytes of an argument."""
    _, name, offset = instruction.operands[1]
    size = BITS[instruction.type] // 8
    blob = machine_parameters[name]
    targets = _listed(instruction.operands[0])
    parts = [blob[offset + place * size :][:size] for place in range(len(targets))]
    values: list[np.ndarray] = [np.frombuffer(part, UNSIGNED[size]) for part in parts]
    signed = instruction.type[0] == "s"

    def run(machine, lanes, mask):
        for target, value in zip(targets, values, strict=True):
            lanes.write(target, value, mask, signed)

    return run


def copy_async(instruction: Instruction, names: dict, read: Any, written: Any) -> Callable:
    """Return run(machine, lanes, mask) of cp.async: the copy is under way until its group is waited for."""
    target, origin, size, *rest = instruction.operands
    size = int(size, 0)
    part = min(size, 8)
    source = Reach(instruction, names, origin, "load", size, read)
    source.space = "global"
    source.base = reader(origin[1], "s64", names)
    place = Reach(instruction, names, target, "store", size, written)
    place.space = "shared"
    place.base = reader(target[1], "u32", names)
    length = reader(rest[0], "u32", names) if rest else lambda lanes: np.array([size], "u4")

    def run(machine, lanes, mask):
        count = lanes.spread(length(lanes))
        active = lanes.active(mask)
        on = np.ones(lanes.count, bool) if active is None else active
        reads = on & (count > 0)
        values = [np.zeros(lanes.count, UNSIGNED[part]) for _ in range(size // part)]
        if reads.any():
            memory, places, _ = source.go(machine, lanes, reads)
            for number, each in enumerate(values):
                found = memory.views[part][places // part + number]
                each[reads] = found[reads]
        shared, places, _ = place.go(machine, lanes, mask)
        machine.copies.add(
            lanes, on, lambda ready: put(machine, lanes, place, shared, places, ready, values, part)
        )

    return run


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


def _listed(operand):
    return operand if isinstance(operand, list) else [operand]
