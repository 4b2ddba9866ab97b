"""Executes the PTX of a compiled kernel on CPU tensors, and counts what it does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from practice_gpus.kernels import instructions
from practice_gpus.kernels.access import Copies, Local
from practice_gpus.kernels.errors import KernelError, Uninitialized
from practice_gpus.kernels.lanes import Lanes
from practice_gpus.kernels.memory import Memory
from practice_gpus.kernels.races import Card, Order, Shared
from practice_gpus.kernels.result import Result
from practice_gpus.kernels.schedule import Scheduler
from practice_gpus.kernels.touches import Notes

if TYPE_CHECKING:
    from practice_gpus.kernels.compiler import Compiled

AT_ONCE = 32768  # threads that run together, in whole blocks
CODES = {"b8": "u1", "s8": "i1", "u8": "u1", "b16": "u2", "s16": "i2", "u16": "u2", "f16": "f2"}
CODES |= {"b32": "u4", "s32": "i4", "u32": "u4", "f32": "f4", "b64": "u8", "s64": "i8", "u64": "u8"}
CODES |= {"f64": "f8"}


class Machine:
    """What a run has beside its threads: memory, parameters, counts."""

    def __init__(self, compiled, grid, block, arguments, fill=0):
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
        variables = self.module.variables.values()
        named = list(zip(_names(compiled, arguments), arguments, strict=True))
        tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
        self.memory = Memory(
            tensors, [each for each in variables if each.space in ("global", "const")]
        )
        self.layout = _layout([each for each in variables if each.space == "shared"])
        self.local = _layout([each for each in variables if each.space == "local"])
        self.shared_size = max(self.layout.pop(""), compiled.shared)
        self.local_size = self.local.pop("")
        self.names = self.memory.names | self.layout | self.local
        self.parameters = _parameters(self.module, named, self.memory)
        self.blob, places = _in_a_row(self.parameters)
        self.names |= {name: at for name, at in places.items() if name not in self.names}
        self.spaces = {"global": self.memory}
        self.flow = compiled.flow
        self.fill = fill  # the byte that memory holds before anybody writes it
        self.card = self.unset = None

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
        self.card.order = self.order
        shared = Shared(
            self.shared_size,
            lanes,
            self.module.smallest("shared"),
            self.layout,
            self.order,
            self.fill,
        )
        self.spaces |= {"shared": shared, "local": Local(self.local_size, lanes.count)}
        self.copies = Copies(lanes.count)
        Scheduler(self, program, lanes).run()
        self.unset = self.unset or shared.unset or self.memory.unset

    def meet(self, lanes: Lanes, mask: Any, block: bool = False) -> None:
        """Note a barrier of warps, or of blocks: what threads did before it, those of `mask` see after it."""
        self.order.meet(lanes.on(mask), lanes.step, block)


def run(
    compiled: Compiled,
    grid: Any,
    block: Any,
    *arguments: Any,
    touches: bool = False,
    limit: float = 60,
    outputs: tuple = (),
    inplace: tuple = (),
) -> Result:
    """Run a compiled kernel: its tensors are changed in place. Returns the `Result`, what was counted.

    `grid` and `block`: up to three sizes; `block` None for a Triton kernel, whose warps decide it. Arguments as at a launch,
    without those of tl.constexpr. With `touches`, the result says which block touched what. With `outputs`, names of tensors,
    the kernel must write them whole, read nothing of them before, and write no other tensor but those of `inplace`.
    Raises OutOfBounds, Misaligned, Race, BarrierError, Uninitialized, AssertFailed, Contract, Endless after `limit` seconds,
    and Unsupported by the name of what isn't executed here.
    """
    grid, block = _sizes("grid", grid), _block(compiled, block)
    arguments = _arguments(compiled, arguments)
    deadline = time.monotonic() + limit

    def execute(fill):
        machine = Machine(compiled, grid, block, arguments, fill)
        machine.seconds, machine.deadline = limit, deadline
        if outputs or inplace:
            _check_names(machine, (*outputs, *inplace))
            machine.memory.promise(outputs, inplace, fill)
        machine.notes = Notes(machine) if touches and not fill else None
        machine.execute()
        return machine

    machine = execute(0)
    if machine.unset:
        _check_unset(machine, execute)
    machine.memory.check_outputs()
    machine.memory.give_back()
    return Result(compiled, machine)


POISON = (0x7F, 0xFE)  # bytes of large positive and large negative numbers, of every type


def _check_names(machine, names):
    for name in names:
        known = [each.name for each in machine.memory.regions if each.tensor is not None]
        if name not in known:
            raise ValueError(f"outputs has {name!r}; the kernel's tensors are {', '.join(known)}")


def _check_unset(machine, execute):
    """Raise Uninitialized where other values in memory that nobody has written lead to another outcome."""
    thread, line = machine.unset
    written = True if machine.memory.fresh is None else ~machine.memory.fresh
    for fill in POISON:
        try:
            other = execute(fill).memory.bytes
            if not ((other != machine.memory.bytes) & written).any():
                continue
        except KernelError:
            pass
        words = "memory is read that nobody has written, and what the kernel computes hangs on it"
        raise Uninitialized(f"{words}. First by {thread}, in {line}")


def _sizes(name, sizes):
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not 1 <= len(sizes) <= 3 or any(not isinstance(each, int) or each < 1 for each in sizes):
        raise ValueError(f"{name} is {sizes}; it takes one to three whole numbers from 1 on")
    return sizes + (1,) * (3 - len(sizes))


def _block(compiled, block):
    if compiled.language == "triton":
        if block is not None and int(np.prod(block)) != compiled.threads:
            raise ValueError(
                f"block is {block}; this Triton kernel has {compiled.threads} threads: leave it None"
            )
        return (compiled.threads, 1, 1)
    if block is None:
        raise ValueError(
            "block is None; a CUDA C kernel takes the threads of a block, such as 256 or (32, 8)"
        )
    sizes = _sizes("block", block)
    if int(np.prod(sizes)) > 1024:
        raise ValueError(
            f"block is {block}, {int(np.prod(sizes))} threads; a block has at most 1,024"
        )
    return sizes


def _arguments(compiled, arguments):
    """Check the arguments against what was compiled; tensors must be on the CPU."""
    names = list(compiled.parameters)
    if names and len(arguments) != len(names):
        raise TypeError(
            f"{len(arguments)} arguments; {compiled.name} takes {', '.join(names)} (without constants)"
        )
    for name, value in zip(names, arguments, strict=False):
        if name in compiled.divisible and isinstance(value, int) and value % 16:
            raise ValueError(f"{name} is {value}; this code was compiled for multiples of 16")
    for value in arguments:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise ValueError(f"a tensor is on {value.device}; run executes on the CPU's tensors")
    return list(arguments)


def _names(compiled, arguments):
    if compiled.parameters:
        return compiled.parameters
    found = _declared(compiled)
    return (
        found if len(found) == len(arguments) else [f"argument {n}" for n in range(len(arguments))]
    )


def _declared(compiled):
    """Return the names of a CUDA C kernel's parameters, as its source writes them."""
    _, _, rest = compiled.text.partition(f"{compiled.name}(")
    return [
        each.split()[-1].lstrip("*&") for each in rest.partition(")")[0].split(",") if each.split()
    ]


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


def _parameters(module, named, memory):
    """Return {parameter of the PTX: its bytes}; Triton adds two pointers of its own, which are null."""
    found = {}
    extra = len(module.parameters) - len(named)
    if not 0 <= extra <= 2:
        raise TypeError(f"{len(named)} arguments; the kernel takes {len(module.parameters)}")
    for place, (name, kind, size) in enumerate(module.parameters):
        if place >= len(named):
            found[name] = bytes(size)
            continue
        label, value = named[place]
        if isinstance(value, torch.Tensor):
            found[name] = memory.address(value).to_bytes(8, "little")
            continue
        code = CODES[kind] if kind != "b8" else f"{'f' if isinstance(value, float) else 'i'}{size}"
        if isinstance(value, float) and kind in ("b32", "u32"):
            code = "f4"
        try:
            found[name] = np.array([value]).astype(code).tobytes()
        except (TypeError, ValueError) as error:
            raise KernelError(
                f"{label} is {value!r}; the kernel takes a number of type {kind}"
            ) from error
    return found
