"""What a report collects while a program runs.

A machine that is being reported on has a `Recorder` as its ``watch``, and each of its allocators a `Memory`; a few lines in
`machine`, `memory`, `functions` and `dispatch` call them. Without a report these are None, and nothing is collected.
"""

import sys
import threading

import torch
from torch.optim import optimizer as optimizers
from torch.utils._pytree import tree_leaves

from . import leaks
from .machine import inner, listeners
from .origins import block_of, line, origin, purpose

KINDS = ("parameters", "gradients", "optimizer", "activations", "other")
in_backward = torch._C._current_graph_task_id


class Enough(SystemExit):
    """Ends a program after so many optimizer steps, as ``sys.exit()`` would."""


class Memory:
    """What one device holds, in the order of the allocator's books: its blocks now, and those at the peak."""

    def __init__(self, allocator):
        self.allocator = allocator
        self.live = {}  # block → its size now: later it may join others
        self.peak = 0
        self.reserved = 0
        self.highest = None  # the block whose coming made the peak
        self.at_peak = []
        self.rising = False

    def placed(self, block):
        """A block was taken."""
        self.live[block] = block.size
        allocated = self.allocator.used.now
        if allocated > self.peak:
            self.peak = allocated
            self.highest = block
            self.rising = True
            self.reserved = max(self.reserved, self.allocator.reserved.now)

    def freed(self, block):
        """A block was given back: if the peak has just passed, what it consisted of is noted first."""
        if self.rising:
            self.settle()
        self.live.pop(block, None)

    def settle(self):
        """Note what the peak consists of."""
        self.at_peak = list(self.live.items())
        self.rising = False

    def parts(self):
        """Kind → bytes at the peak."""
        parts = dict.fromkeys(KINDS, 0)
        for block, size in self.at_peak:
            parts[block.kind] += size
        return parts


class Recorder:
    """Counts copies, waits and refusals by line, says what memory is for, and ends the program after ``limit`` steps."""

    def __init__(self, machine, limit=None):
        self.machine = machine
        self.limit = limit
        self.steps = 0
        self.stepping = False
        self.noted = -1  # the highest peak whose blocks have their kinds
        self.copies = {}  # (direction, file, line) → [count, bytes, in how many steps, the latest of them]
        self.waits = {}  # (reason, file, line) → the same
        self.refusals = {}  # (feature, file, line) → the same
        self.leak = None
        self.lock = threading.Lock()
        self.memory = [Memory(allocator) for allocator in machine.allocators]

    def __enter__(self):
        self.machine.watch = self
        for allocator, memory in zip(self.machine.allocators, self.memory, strict=True):
            allocator.watch = memory
            allocator.taking = self.taking
        self.hooks = [
            optimizers.register_optimizer_step_pre_hook(self.before_step),
            optimizers.register_optimizer_step_post_hook(self.after_step),
            torch.nn.modules.module.register_module_parameter_registration_hook(self.registered),
        ]
        self.apply = torch.nn.Module._apply
        torch.nn.Module._apply = marking(self)
        listeners.append(self)
        return self

    def __exit__(self, *error):
        listeners.remove(self)
        torch.nn.Module._apply = self.apply
        for hook in self.hooks:
            hook.remove()
        self.machine.watch = None
        for allocator in self.machine.allocators:
            allocator.settle()
            allocator.watch = allocator.taking = None

    def taking(self, block, label):
        """A block is being taken: from where, when, and what it probably is for."""
        block.origin = origin()
        block.step = self.steps
        if self.stepping:
            block.kind = "optimizer"
        elif label and in_backward() < 0:
            block.kind = "activations"
        else:
            block.kind = "other"

    def count(self, table, event, size=0):
        """Count something that happens at the line that is running."""
        key = event, *line(origin())
        with self.lock:
            entry = table.setdefault(key, [0, 0, 0, -1])
            entry[0] += 1
            entry[1] += size
            if entry[3] != self.steps:
                entry[2] += 1
                entry[3] = self.steps

    def copied(self, direction, tensor):
        """A copy between devices."""
        with torch._C.DisableTorchFunction():
            size = inner(tensor).nbytes if tensor.layout != torch.strided else tensor.nbytes
        self.count(self.copies, direction, size)

    def waited(self, reason):
        """The CPU waits; ``reason`` is the direction of the copy that it waits for, or "" for another one."""
        self.count(self.waits, purpose() or reason)

    def refused(self, feature):
        """Something was asked for that practice GPUs do not imitate, or run without it."""
        self.count(self.refusals, feature)

    def registered(self, module, name, parameter):
        """A module got a parameter."""
        self.classify([parameter], "parameters")

    def classify(self, tensors, kind):
        """Say what the memory of tensors is for."""
        with torch._C.DisableTorchFunction():
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor):
                    block = block_of(tensor)
                    if block is not None:
                        block.kind = kind

    def before_step(self, optimizer, *rest):
        """An optimizer steps: at a new peak its parameters and gradients are looked at."""
        self.settle()
        if sum(memory.peak for memory in self.memory) != self.noted:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            self.classify(parameters, "parameters")
            with torch._C.DisableTorchFunction():
                self.classify([p.grad for p in parameters if p.grad is not None], "gradients")
        self.stepping = True

    def after_step(self, optimizer, *rest):
        """An optimizer has stepped."""
        self.stepping = False
        self.steps += 1
        self.settle()
        peak = sum(memory.peak for memory in self.memory)
        if peak != self.noted or self.steps <= 3:
            self.classify(tree_leaves(list(optimizer.state.values())), "optimizer")
            self.noted = peak
        last = self.limit is not None and self.steps >= self.limit
        if self.steps >= 5 and (last or self.steps % 5 == 0 and (self.steps // 5).bit_count() == 1):
            self.leak = leaks.find(self, sys._getframe(1)) or self.leak
        if last:
            raise Enough(0)

    def settle(self):
        """Bring the books of all devices up to date."""
        for allocator in self.machine.allocators:
            allocator.settle()

    def finish(self):
        """The program has ended: settle the books."""
        self.settle()
        for memory in self.memory:
            if memory.rising:
                memory.settle()


def marking(recorder):
    """``Module._apply``, which moves a module; afterwards its parameters and buffers are known as such."""

    def _apply(module, *args, **options):
        out = recorder.apply(module, *args, **options)
        recorder.classify([*module._parameters.values(), *module._buffers.values()], "parameters")
        return out

    return _apply
