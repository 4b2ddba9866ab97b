"""What a report collects while a program runs.

A machine that is being reported on has a `Recorder` as its ``watch``, and each of its allocators a `Memory`; a few lines in
`machine`, `memory`, `functions` and `dispatch` call them. Without a report these are None, and nothing is collected.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils._pytree import tree_leaves

from practice_gpus.machine import (
    Observer,
    block_of,
    cause,
    framework,
    inner,
    line,
    origin,
    purpose,
    storage_of,
    taker,
    within,
)
from practice_gpus.reports import leaks
from practice_gpus.reports.habits import Habits
from practice_gpus.reports.pace import Pace
from practice_gpus.reports.rounds import Rounds
from practice_gpus.reports.shards import Shards
from practice_gpus.reports.slow import Watch
from practice_gpus.reports.step_limit import end_with_loop

if TYPE_CHECKING:
    from practice_gpus.machine import Allocator, Block
    from practice_gpus.pytorch.operators import Call

KINDS = "parameters gradients optimizer activations backward data buckets replicas".split()
FACTORIES = set(
    "empty zeros ones full rand randn randint arange eye linspace empty_strided".split()
)
FIRST_LOOK = 16  # blocks, after which a program without an optimizer is looked at
in_backward = torch._C._current_graph_task_id


class Memory:
    """What one device holds, in the order of the allocator's books: its blocks now, and those at the peak."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.live: dict = {}  # block → its size now: later it may join others
        self.peak = 0
        self.reserved = 0
        self.highest: Block | None = None  # the block whose coming made the peak
        self.at_peak: list = []
        self.rising = False

    def placed(self, block: Block) -> None:
        """A block was taken."""
        self.live[block] = block.size
        allocated = self.allocator.used.now
        if allocated > self.peak:
            self.peak = allocated
            self.highest = block
            self.rising = True
            self.reserved = max(self.reserved, self.allocator.reserved.now)

    def freed(self, block: Block) -> None:
        """A block was given back: if the peak has just passed, what it consisted of is noted first."""
        if self.rising:
            self.settle()
        self.live.pop(block, None)

    def settle(self) -> None:
        """Note what the peak consists of."""
        self.at_peak = list(self.live.items())
        self.rising = False

    def parts(self) -> dict:
        """Kind → bytes at the peak."""
        parts = dict.fromkeys(KINDS, 0)
        for block, size in self.at_peak:
            parts[block.kind] += size
        return parts


class Recorder(Observer):
    """Counts copies, waits and refusals by line, says what memory is for, and ends the program after ``limit`` steps."""

    def __init__(self, machine: Any, limit: int | None = None) -> None:
        self.machine = machine
        self.limit = limit
        self.steps = 0
        self.rounds = Rounds()
        self.stepping = False
        self.fresh = False  # there was a backward pass since the last step
        self.weights: set = set()  # blocks of parameters
        self.habits = Habits(self)
        self.shards = Shards()
        self.arrivals = 0  # copies to a GPU
        self.notes: dict = {}  # (habit, file, line) → how often
        self.read: tuple | None = None  # the line that read a number last
        self.moving = False  # a module
        self.arriving = False  # a tensor of the CPU
        self.pinned = False  # the last of them
        self.taken = 0
        self.waited_at = 0  # how much was taken at the last wait
        self.turns: dict = {}  # line → how often it took memory before the first step
        self.boxes: dict = {}  # containers that keep memory, as of the latest look: see `leaks`
        # (event, file, line, (framework, its function)) → [count, bytes, in how many steps, the latest of them, idle ones]
        self.copies: dict = {}  # by direction
        self.waits: dict = {}  # by reason
        self.refusals: dict = {}  # by feature
        self.again: dict = {}  # of tensors that were copied before
        self.leak = None
        self.pace = Pace(machine)
        self.lock = threading.Lock()
        self.memory = [Memory(allocator) for allocator in machine.allocators]

    def __enter__(self):
        self.machine.observers.append(self)
        self.hooks = [
            optimizers.register_optimizer_step_pre_hook(self.before_step),
            optimizers.register_optimizer_step_post_hook(self.after_step),
            torch.nn.modules.module.register_module_parameter_registration_hook(self.registered),
            torch.nn.modules.module.register_module_buffer_registration_hook(self.registered),
            torch.nn.modules.module.register_module_module_registration_hook(self.nested),
        ]
        self.patched = []
        for owner, name, replacement in self.habits.patches():
            self.patched.append((owner, name, getattr(owner, name)))
            setattr(owner, name, replacement)
        self.slow = Watch(self).start()
        self.apply = torch.nn.Module._apply
        torch.nn.Module._apply = marking(self)
        return self

    def __exit__(self, *error):
        self.slow.stop()
        self.pace.stop()
        torch.nn.Module._apply = self.apply
        for owner, name, original in self.patched:
            setattr(owner, name, original)
        for hook in self.hooks:
            hook.remove()
        self.settle()
        self.machine.observers.remove(self)

    def placed(self, allocator: Allocator, block: Block) -> None:
        """A block was taken."""
        self.memory[allocator.index].placed(block)

    def freed(self, allocator: Allocator, block: Block) -> None:
        """A block was given back."""
        self.memory[allocator.index].freed(block)
        self.weights.discard(block)

    def taking(self, allocator: Allocator, block: Block) -> None:
        """A block is being taken: from where, when, and what it probably is for."""
        block.origin, owner = taker()
        block.step = self.steps or -self.turn(block.origin)
        block.kind = self.purpose_of(block.label, owner)
        self.taken += 1
        if not self.steps and self.taken >= FIRST_LOOK and is_due(self.taken):
            self.settle()
            self.leak = leaks.find(self, sys._getframe(1)) or self.leak

    def turn(self, place: tuple | None) -> int:
        """How often a line has taken memory."""
        key = place and (id(place[0]), place[1])
        self.turns[key] = self.turns.get(key, 0) + 1
        return self.turns[key]

    def purpose_of(self, label: str, owner: str) -> str:
        """What memory is for that the operator ``label`` takes, as far as it can be told now."""
        arriving = self.arriving
        self.arriving = False
        behind = in_backward() >= 0
        self.fresh |= behind
        if owner or self.stepping:
            return owner or "optimizer"
        if arriving or not label or label in FACTORIES:
            return "data"
        return "backward" if behind else "activations"

    def count(
        self,
        table: dict,
        event: str,
        size: int = 0,
        idle: bool = False,
        codes: list | None = None,
    ) -> None:
        """Count something that happens at the line that is running; ``idle``: with nothing computed before.

        ``codes``: those that are running `within` it, where they are known already.
        """
        key = event, *line(origin()), framework(within() if codes is None else codes)
        with self.lock:
            entry = table.setdefault(key, [0, 0, 0, -1, 0])
            entry[0] += 1
            entry[1] += size
            entry[4] += idle
            if entry[3] != self.steps:
                entry[2] += 1
                entry[3] = self.steps

    def copied(
        self, direction: str, tensor: torch.Tensor, goal: torch.device | None, pinned: bool
    ) -> None:
        """A copy between devices."""
        with torch._C.DisableTorchFunction():
            size = inner(tensor).nbytes if tensor.layout != torch.strided else tensor.nbytes
            if direction == "h2d":
                self.arriving = True
                self.arrivals += not self.moving
                self.pinned = storage_of(tensor).practice is self.machine.pinned
                if not self.moving and tensor.layout == torch.strided and self.is_again(tensor):
                    self.count(self.again, "again", size)
                if self.machine.values and not self.moving and tensor.layout == torch.strided:
                    self.shards.copied(tensor)
        self.count(self.copies, "set-up" if self.moving else direction, size)

    def is_again(self, tensor: torch.Tensor) -> bool:
        """Whether a part of a storage was copied in this step or the one before, and not written to since.

        What comes back later, such as a batch in the next epoch, isn't the same again and again.
        """
        if tensor.is_inference():  # it doesn't count what is written to it
            return False
        copied = vars(storage_of(tensor)).setdefault("copied", {})
        part = tensor.storage_offset(), tensor.size(), tensor._version
        before = copied.get(part)
        copied[part] = self.steps
        return before is not None and before >= self.steps - 1

    def waited(self, stream: Any, device: torch.device | None, event: Any, reason: str) -> None:
        """The CPU waits; ``reason`` is the direction of the copy that it waits for, or the name of an operator."""
        codes = within()
        idle = reason == "d2h" and self.taken == self.waited_at
        self.waited_at = self.taken
        if reason not in ("h2d", "d2h", ""):
            self.read = origin()
        if self.moving:
            reason = "set-up"
        elif reason == "h2d":
            reason = "pinned" if self.pinned else "h2d"
        elif purpose(codes):
            reason = purpose(codes)
        elif any(code.co_name == "__format__" for code in codes):
            reason = "print"
        elif cause(codes) and not framework(codes)[0]:
            reason = f"{reason} in {cause(codes)}"
        self.count(self.waits, reason, idle=idle, codes=codes)

    def refused(self, feature: str, ended: bool) -> None:
        """Something was asked for that practice GPUs do not imitate, or run without it."""
        self.count(self.refusals, feature)

    def registered(self, module: torch.nn.Module, name: str, parameter: torch.Tensor) -> None:
        """A module got a parameter, or a buffer."""
        self.classify([parameter], "parameters")
        if isinstance(parameter, torch.nn.Parameter):
            self.habits.owners[id(parameter)] = weakref.ref(module)
            self.known([parameter])

    def nested(self, module: torch.nn.Module, name: str, child: torch.nn.Module | None) -> None:
        """A module got a module."""
        self.habits.nested(module, name, child)
        self.shards.parallel |= isinstance(module, torch.nn.parallel.DistributedDataParallel)

    def known(self, parameters: Iterable) -> None:
        """Note the memory of weights."""
        with torch._C.DisableTorchFunction():
            blocks = {block_of(p) for p in parameters if p is not None and p.requires_grad}
        self.weights |= blocks - {None}

    def note(self, habit: str, place: tuple, count: int) -> None:
        """Note something that the program's own loop forgets."""
        if place[0]:
            key = habit, *place
            self.notes[key] = count

    def classify(self, tensors: list, kind: str) -> None:
        """Say what the memory of tensors is for."""
        with torch._C.DisableTorchFunction():
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor):
                    block = block_of(tensor)
                    if block is not None:
                        block.kind = kind

    def before_step(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        """An optimizer steps: its parameters and gradients are looked at."""
        self.settle()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.classify(parameters, "parameters")
        with torch._C.DisableTorchFunction():
            self.classify([p.grad for p in parameters if p.grad is not None], "gradients")
        self.stepping = True

    def after_step(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        """An optimizer has stepped."""
        self.stepping = False
        self.settle()
        self.classify(tree_leaves(list(optimizer.state.values())), "optimizer")
        with torch._C.DisableTorchFunction():
            self.habits.stepped(optimizer, self.fresh)
        self.stepped(id(optimizer))

    def operator(self, call: Call, out: Any) -> None:
        """An operator ran: one that writes into weights after a backward pass is a step of an optimizer of another class."""
        if not call.fact.mutates or self.stepping or in_backward() >= 0:
            return
        self.habits.written(call)
        if self.fresh and not self.moving and self.is_weight(call.args[0] if call.args else None):
            self.stepped("own")

    def is_weight(self, target: Any) -> bool:
        """Whether an operator writes into weights."""
        tensor = next(iter(target), None) if isinstance(target, (list, tuple)) else target
        if not isinstance(tensor, torch.Tensor):
            return False
        return tensor.requires_grad and tensor.is_leaf or block_of(tensor) in self.weights

    def stepped(self, optimizer: Hashable) -> None:
        """A step of an optimizer has ended."""
        self.fresh = False
        new = self.rounds.stepped(optimizer)
        self.steps = self.rounds.steps
        self.slow.stepped()
        if new:
            self.pace.stepped()
        self.settle()
        last = self.limit is not None and self.steps >= self.limit
        due = self.steps % 5 == 0 and (self.steps // 5).bit_count() == 1
        if new and self.steps >= 5 and (last or due):
            self.leak = leaks.find(self, sys._getframe(1)) or self.leak
        if last:
            end_with_loop(sys._getframe(1))

    def settle(self) -> None:
        """Bring the books of all devices up to date."""
        for allocator in self.machine.allocators:
            allocator.settle()

    def finish(self) -> None:
        """The program has ended: settle the books."""
        self.habits.finish()
        self.settle()
        for memory in self.memory:
            if memory.rising:
                memory.settle()


def is_due(count: int) -> bool:
    """Whether to look at so many blocks: at 16, 24, 32, 48, 64 …"""
    return count.bit_count() == 1 or count.bit_count() == 2 and bool(count & count << 1)


def marking(recorder: Recorder) -> Callable:
    """``Module._apply``, which moves a module; afterwards its parameters and buffers are known as such."""

    def _apply(module, *args, **options):
        before = recorder.moving
        recorder.moving = True
        try:
            out = recorder.apply(module, *args, **options)
        finally:
            recorder.moving = before
        recorder.classify([*module._parameters.values(), *module._buffers.values()], "parameters")
        recorder.known(module._parameters.values())
        return out

    return _apply
