"""Executes the PTX of a compiled kernel on CPU tensors, and counts what it does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels import arguments, instructions, launch
from practice_gpus.kernels.access import Copies, Local
from practice_gpus.kernels.errors import KernelError, Race, Uninitialized, Unsupported
from practice_gpus.kernels.lanes import Lanes
from practice_gpus.kernels.memory import Memory
from practice_gpus.kernels.ptx_parser import Variable
from practice_gpus.kernels.races import Card, Doubt, Order, Shared
from practice_gpus.kernels.result import Result
from practice_gpus.kernels.schedule import Scheduler
from practice_gpus.kernels.touches import Notes

if TYPE_CHECKING:
    from practice_gpus.kernels.compiler import Compiled

COLLECTORS: list = []  # [(card, results)]: where each run is noted, too
GRID_BARRIER = "the barrier of the grid"
AT_ONCE = 32768  # threads that run together, in whole blocks


class Machine:
    """What a run has beside its threads: memory, parameters, counts."""

    def __init__(self, compiled, grid, block, named, fill=0):
        self.compiled = compiled
        self.module = compiled.module
        self.grid = grid
        self.block = block
        self.accesses = []
        self.wide = {}  # what is counted by the widths of the machine code
        self.divergent = {}
        self.executed = np.zeros(len(self.module.instructions), np.int64)  # by warps
        self.threads = np.zeros(len(self.module.instructions), np.int64)
        self.tensor_flops = 0
        self.step = 0
        self.changed = False  # whether memory changed since the scheduler looked
        self.done = 0  # blocks
        self.printed = []  # ((x, y, z) of the block, of the thread, text) of printf
        self.notes = None
        variables = [*self.module.variables.values(), *self._grid_barrier()]
        tensors = list(arguments.tensors(named))
        self.memory = Memory(
            tensors, [each for each in variables if each.space in ("global", "const")]
        )
        self.layout = _layout([each for each in variables if each.space == "shared"])
        self.local = _layout([each for each in variables if each.space == "local"])
        self.shared_size = max(self.layout.pop(""), compiled.shared)
        self.local_size = self.local.pop("")
        self.names = self.memory.names | self.layout | self.local
        if address := self.names.get(GRID_BARRIER):  # as CUDA's driver_abi.h takes it
            self.names |= {"%envreg1": address >> 32, "%envreg2": address & 0xFFFFFFFF}
        self.parameters = arguments.to_bytes(compiled, self.module, named, self.memory.address)
        self.blob, places = _in_a_row(self.parameters)
        self.names |= {name: at for name, at in places.items() if name not in self.names}
        self.spaces = {"global": self.memory}
        self.flow = compiled.flow
        self.fill = fill  # the byte that memory holds before anybody writes it
        self.card = None
        self.unset: Any = None  # (kind of error, words, thread, line) of the first undefined value
        self.doubt: Any = None

    def _grid_barrier(self):
        """Return the variable through which blocks meet in grid.sync(), where the kernel does."""
        if not any("%envreg" in each.text for each in self.module.instructions):
            return []
        total = int(np.prod(self.grid))
        most = AT_ONCE // (-(-int(np.prod(self.block)) // 32) * 32)
        if total > most:
            raise Unsupported(
                f"a barrier of {total:,} blocks isn't executed here: of this kernel {most:,} blocks run at once"
            )
        return [Variable(GRID_BARRIER, "global", 16, 16)]

    def execute(self) -> None:
        """Run the whole grid."""
        program = [instructions.translate(each, self) for each in self.module.instructions]
        total = int(np.prod(self.grid))
        threads = -(-int(np.prod(self.block)) // 32) * 32
        batch = max(1, AT_ONCE // threads)
        with np.errstate(all="ignore"):
            for first in range(0, total, batch):
                self.go(program, first, min(batch, total - first))
                self.done = min(total, first + batch)
        for each in sorted(self.wide.values(), key=lambda each: -each.access.bytes):
            each.close()

    def go(self, program: list, first: int, blocks: int) -> None:
        """Run blocks `first` to `first + blocks`."""
        dynamic = self.compiled.dynamic_shared
        lanes = Lanes(self.module, self.grid, self.block, first, blocks, dynamic)
        self.order = Order(lanes)
        self.card = self.card or Card(
            self.memory, self.module.smallest("global"), lanes, self.compiled.language == "triton"
        )
        self.card.order, self.card.ledger.doubt = self.order, self.doubt
        shared = Shared(
            self.shared_size,
            lanes,
            self.module.smallest("shared"),
            self.layout,
            self.order,
            self.fill,
        )
        shared.ledger.doubt = self.doubt
        self.spaces |= {"shared": shared, "local": Local(self.local_size, lanes.count)}
        self.copies = Copies(lanes.count)
        Scheduler(self, program, lanes).run()
        for thread, line in filter(None, (shared.unset, self.memory.unset)):
            words = "memory is read that nobody has written"
            self.unset = self.unset or (Uninitialized, words, thread, line)

    def meet(self, lanes: Lanes, mask: Any, block: bool = False) -> None:
        """Note a barrier of warps, or of blocks: what threads did before it, those of `mask` see after it."""
        self.order.meet(lanes.on(mask), lanes.step, block)


def run(
    compiled: Compiled,
    grid: Any,
    block: Any,
    *values: Any,
    touches: bool = False,
    symbols: dict | None = None,
    limit: float = 60,
    outputs: tuple = (),
    inplace: tuple = (),
) -> Result:
    """Run a compiled kernel: its tensors are changed in place. Returns the `Result`, what was counted.

    `grid` and `block`: up to three sizes; `block` None for a Triton kernel, whose warps decide it. Arguments as at a launch,
    without those of tl.constexpr; None is a null pointer, a tuple or dict a struct. `symbols`: values of __constant__ and
    __device__ variables, by name. With `touches`, the result says which block touched what. With `outputs`, names of tensors,
    the kernel must write them whole, read nothing of them before, and write no other tensor but those of `inplace`.
    Raises OutOfBounds, Misaligned, Race, BarrierError, Uninitialized, AssertFailed, Contract, Endless after `limit` seconds,
    and Unsupported by the name of what isn't executed here.
    """
    grid, block = launch.sizes("grid", grid, launch.GRID), launch.block_of(compiled, block)
    launch.check_resources(compiled, int(np.prod(block)))
    named, deadline = arguments.check(compiled, values), time.monotonic() + limit

    def execute(fill, doubt):
        machine = Machine(compiled, grid, block, named, fill)
        launch.set_symbols(compiled, machine.module, machine.memory, symbols or {})
        machine.seconds, machine.deadline, machine.doubt = limit, deadline, doubt
        if outputs or inplace:
            _check_names(machine, (*outputs, *inplace))
            machine.memory.promise(outputs, inplace, fill)
        machine.notes = Notes(machine) if touches and not fill else None
        machine.execute()
        return machine

    doubt = Doubt()
    machine = _where_races_count(execute, doubt)
    if machine.unset:
        _check_unset(machine, lambda fill: execute(fill, doubt))
    machine.memory.check_outputs()
    machine.memory.give_back()
    result = Result(compiled, machine)
    for _, found in COLLECTORS:
        found.append(result)
    return result


POISON = (0x7F, 0xFE)  # bytes of large positive and large negative numbers, of every type


def _check_names(machine, names):
    for name in names:
        known = [each.name for each in machine.memory.regions if each.tensor is not None]
        if name not in known:
            raise ValueError(f"outputs has {name!r}; the kernel's tensors are {', '.join(known)}")


def _where_races_count(execute, doubt):
    """Return the machine after its run; a race of a load whose value changes nothing in the outcome is let pass."""
    while True:
        doubt.last = None
        try:
            return execute(0, doubt)
        except Race:
            if doubt.last is None:
                raise
            if _counts(execute, doubt.last):
                raise
            doubt.passed.add(doubt.last)


def _counts(execute, pair):
    """True where other values of the loads that race by this pair of lines lead to another outcome."""
    trial = Doubt(pair)
    try:
        before = execute(0, trial).memory.bytes
        trial = Doubt(pair, trial.loads)
        return not np.array_equal(before, execute(0, trial).memory.bytes)
    except KernelError:
        return True


def _check_unset(machine, execute):
    """Raise Uninitialized where other values in memory that nobody has written lead to another outcome."""
    kind, words, thread, line = machine.unset
    written = True if machine.memory.fresh is None else ~machine.memory.fresh
    for fill in POISON:
        try:
            other = execute(fill).memory.bytes
            if not ((other != machine.memory.bytes) & written).any():
                continue
        except KernelError:
            pass
        raise kind(
            f"{words}, and what the kernel computes hangs on it. First by {thread}, in {line}"
        )


def _in_a_row(parameters):
    """Return the bytes of all parameters one behind the other, and {name: where it begins}."""
    blob, places = b"", {}
    for name, data in parameters.items():
        blob += bytes(-len(blob) % 16)
        places[name] = len(blob)
        blob += data
    return np.frombuffer(blob + bytes(16), np.uint8), places


def _layout(variables):
    """Return {name: address} of variables of one space, those of unknown size last; "" has the size of all."""
    found, place = {}, 0
    for each in sorted(variables, key=lambda each: each.extern):
        place = -(-place // each.align) * each.align
        found[each.name] = place
        place += each.size
    return found | {"": place}
