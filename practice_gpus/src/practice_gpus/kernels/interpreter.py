"""Executes the PTX of a compiled kernel on CPU tensors, and counts what it does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from practice_gpus.kernels import arguments, instructions, launch
from practice_gpus.kernels.access import Copies, Local
from practice_gpus.kernels.lanes import Lanes
from practice_gpus.kernels.memory import Memory
from practice_gpus.kernels.races import Shared
from practice_gpus.kernels.result import Result
from practice_gpus.kernels.schedule import Scheduler
from practice_gpus.kernels.touches import Notes

if TYPE_CHECKING:
    from practice_gpus.kernels.compiler import Compiled

AT_ONCE = 32768  # threads that run together, in whole blocks


class Machine:
    """What a run has beside its threads: memory, parameters, counts."""

    def __init__(self, compiled, grid, block, named):
        self.compiled = compiled
        self.module = compiled.module
        self.grid = grid
        self.block = block
        self.accesses = []
        self.divergent = {}
        self.executed = np.zeros(len(self.module.instructions), np.int64)  # by warps
        self.threads = np.zeros(len(self.module.instructions), np.int64)
        self.tensor_flops = 0
        self.step = 0
        self.changed = False  # whether memory changed since the scheduler looked
        self.done = 0  # blocks
        self.printed = []  # ((x, y, z) of the block, of the thread, text) of printf
        self.notes = None
        variables = self.module.variables.values()
        tensors = list(arguments.tensors(named))
        self.memory = Memory(
            tensors, [each for each in variables if each.space in ("global", "const")]
        )
        self.layout = _layout([each for each in variables if each.space == "shared"])
        self.local = _layout([each for each in variables if each.space == "local"])
        self.shared_size = max(self.layout.pop(""), compiled.shared)
        self.local_size = self.local.pop("")
        self.names = self.memory.names | self.layout | self.local
        self.parameters = arguments.to_bytes(compiled, self.module, named, self.memory.address)
        self.blob, places = _in_a_row(self.parameters)
        self.names |= {name: at for name, at in places.items() if name not in self.names}
        self.spaces = {"global": self.memory}

    def go(self, program: list, first: int, blocks: int) -> None:
        """Run blocks `first` to `first + blocks`."""
        dynamic = self.compiled.dynamic_shared
        lanes = Lanes(self.module, self.grid, self.block, first, blocks, dynamic)
        grain = self.module.smallest_shared
        self.spaces["shared"] = Shared(
            self.shared_size, blocks, lanes.padded, grain, self.layout, lanes.name
        )
        self.spaces["local"] = Local(self.local_size, lanes.count)
        self.copies = Copies(lanes.count)
        Scheduler(self, program, lanes).run()

    def meet(self, lanes: Lanes, mask: Any, block: bool = False) -> None:
        """Note a barrier of warps, or of blocks: what threads did before it, those of `mask` see after it."""
        shared, on = self.spaces["shared"], lanes.on(mask)
        shared.warp_barrier[on] = lanes.step
        if block:
            shared.block_barrier[on] = lanes.step


def run(
    compiled: Compiled,
    grid: Any,
    block: Any,
    *values: Any,
    touches: bool = False,
    symbols: dict | None = None,
    limit: float = 60,
) -> Result:
    """Run a compiled kernel: its tensors are changed in place. Returns the `Result`, what was counted.

    `grid` and `block`: up to three sizes; `block` None for a Triton kernel, whose warps decide it. Arguments as at a launch,
    without those of tl.constexpr; None is a null pointer, a tuple or dict a struct. `symbols`: values of __constant__ and
    __device__ variables, by name. With `touches`, the result says which block touched what. Raises OutOfBounds, Misaligned,
    Race, BarrierError, AssertFailed, Endless after `limit` seconds, and Unsupported by the name of what isn't executed here.
    """
    grid, block = launch.sizes("grid", grid, launch.GRID), launch.block_of(compiled, block)
    launch.check_resources(compiled, int(np.prod(block)))
    machine = Machine(compiled, grid, block, arguments.check(compiled, values))
    launch.set_symbols(compiled, machine.module, machine.memory, symbols or {})
    machine.notes = Notes(machine) if touches else None
    machine.seconds, machine.deadline = limit, time.monotonic() + limit
    program = [instructions.translate(each, machine) for each in machine.module.instructions]
    total = int(np.prod(grid))
    threads = -(-int(np.prod(block)) // 32) * 32
    batch = max(1, AT_ONCE // threads)
    with np.errstate(all="ignore"):
        for first in range(0, total, batch):
            machine.go(program, first, min(batch, total - first))
            machine.done = min(total, first + batch)
    machine.memory.give_back()
    return Result(compiled, machine)


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
