"""What a training loop forgets and no error tells: zero_grad, set_epoch, train() after eval(), the scale of what is added up."""

from __future__ import annotations

import enum
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from practice_gpus.machine import framework, line, origin, within

if TYPE_CHECKING:
    from practice_gpus.pytorch.operators import Call
    from practice_gpus.reports.recorder import Recorder

OFTEN = 3  # steps in a row
LOOKED_AT = 8  # gradients of an optimizer
MEAN = 1  # the reduction of a loss, in ATen/core/Reduction.h


class Habit(str, enum.Enum):
    """What was forgotten."""

    KEPT_GRADIENTS = "kept-gradients"
    SAME_EPOCH = "same-epoch"
    LEFT_IN_EVAL = "left-in-eval"
    UNSCALED = "unscaled-accumulation"


class Habits:
    """Looks at what a program's own loop does between the steps of its optimizers."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.resets = 0  # of gradients, by whoever
        self.reset: set = set()  # ids of the optimizers that reset theirs since their last step
        self.gradients: dict = {}  # id of an optimizer → (its gradients, resets) at its last step
        self.kept: dict = {}  # id of an optimizer → [steps in a row with the gradients of before, place]
        self.samplers: Any = weakref.WeakKeyDictionary()  # → [epochs, steps at each pass, place]
        self.passed: list = []  # the same, of all of them
        self.parents: Any = weakref.WeakKeyDictionary()
        self.owners: dict = {}  # id of a parameter → its module
        self.sensitive: Any = weakref.WeakSet()  # modules that compute otherwise in eval()
        self.modes: dict = {}  # id of an optimizer → [its modules, steps in train, then in eval, place]
        self.evaluated = ("", 0)
        self.passes: dict = {}  # line of a backward() → [since the step, all means of new batches]
        self.sums: dict = {}  # the same line → [steps, passes in each]
        self.arrivals = 0

    def patches(self) -> Iterator[tuple[Any, str, Callable]]:
        """(class or module, name, what stands in for it during a report)."""
        yield torch.optim.Optimizer, "zero_grad", before(torch.optim.Optimizer.zero_grad, self.zero)
        yield nn.Module, "zero_grad", before(nn.Module.zero_grad, self.zero_all)
        yield nn.Module, "eval", before(nn.Module.eval, self.eval)
        yield torch.autograd, "backward", before(torch.autograd.backward, self.backward)
        sampler = torch.utils.data.distributed.DistributedSampler
        yield sampler, "__iter__", before(sampler.__iter__, self.iterated)

    def zero(self, optimizer: Any, *rest: Any, **options: Any) -> None:
        """An optimizer resets its gradients."""
        self.reset.add(id(optimizer))

    def zero_all(self, *rest: Any, **options: Any) -> None:
        """Gradients are reset by other means."""
        self.resets += 1

    def written(self, call: Call) -> None:
        """Something was written into, outside of the backward pass and of an optimizer."""
        name = call.fact.name
        if "zero_" in name or name == "fill_":
            self.zero_all()
        elif "mul_" in name or "div_" in name:  # it may scale what was added up
            for entry in self.passes.values():
                entry[1] = False

    def eval(self, *rest: Any) -> None:
        """A module is switched to eval()."""
        if not framework(within())[0]:
            self.evaluated = line(origin())

    def nested(self, module: nn.Module, name: str, child: nn.Module | None) -> None:
        """A module got a module."""
        if child is None:
            return
        self.parents[child] = weakref.ref(module)
        norm = isinstance(child, nn.modules.batchnorm._BatchNorm)
        if norm or isinstance(child, nn.modules.dropout._DropoutNd) and child.p > 0:
            self.sensitive.add(child)

    def root(self, module: Any) -> Any:
        """The outermost module around one."""
        while (above := self.parents.get(module)) is not None and above() is not None:
            module = above()
        return module

    def iterated(self, sampler: Any) -> None:
        """A pass over a rank's share of the data begins."""
        if sampler.shuffle and not framework(within())[0]:
            place = line(origin())
            if sampler not in self.samplers:
                self.samplers[sampler] = (set(), set(), place)
                self.passed.append(self.samplers[sampler])
            epochs, steps, _ = self.samplers[sampler]
            epochs.add(sampler.epoch)
            steps.add(self.recorder.steps)

    def backward(self, tensors: Any, *rest: Any, **options: Any) -> None:
        """A backward pass begins."""
        if framework(within())[0]:
            return
        place = line(origin())
        root = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        entry = self.passes.setdefault(place, [0, True])
        new = self.recorder.arrivals != self.arrivals
        self.arrivals = self.recorder.arrivals
        entry[0] += 1
        entry[1] = entry[1] and new and is_mean(getattr(root, "grad_fn", None))

    def stepped(self, optimizer: Any, fresh: bool) -> None:
        """An optimizer has stepped; ``fresh``: there was a backward pass before."""
        key = id(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None][:LOOKED_AT]
        refs, resets = self.gradients.get(key, ([], -1))
        same = len(refs) == len(gradients) > 0 and all(
            ref() is gradient for ref, gradient in zip(refs, gradients, strict=True)
        )
        forgot = fresh and same and resets == self.resets and key not in self.reset
        entry = self.kept.setdefault(key, [0, ("", 0)])
        self.kept[key] = [entry[0] + 1, here()] if forgot else [0, entry[1]]
        self.gradients[key] = [weakref.ref(gradient) for gradient in gradients], self.resets
        self.reset.discard(key)
        if entry[0] + forgot >= OFTEN:
            self.recorder.note(Habit.KEPT_GRADIENTS, self.kept[key][1], entry[0] + forgot)
        self._mode(key, parameters)
        self._accumulated()

    def _mode(self, key, parameters):
        if key not in self.modes:
            owners = [self.owners[id(p)]() for p in parameters if id(p) in self.owners]
            roots = {self.root(module) for module in owners if module is not None}
            inner = {module for module in self.sensitive if self.root(module) in roots}
            modules = weakref.WeakSet(roots | inner if inner else ())
            self.modes[key] = [modules, 0, 0, ("", 0)]
        entry = self.modes[key]
        modules, trained, evaluating, place = entry
        if any(module.training for module in modules):
            entry[1:3] = trained + 1, 0
        elif modules and trained:
            entry[2:] = evaluating + 1, place if evaluating else self.evaluated

    def _accumulated(self):
        for place, (count, scaled_badly) in self.passes.items():
            steps, before = self.sums.get(place, (0, count))
            sums = count > 1 and scaled_badly and count == before
            self.sums[place] = (steps + 1 if sums else 0, count)
            if sums and steps + 1 >= OFTEN:
                self.recorder.note(Habit.UNSCALED, place, count)
        self.passes = {}

    def finish(self) -> None:
        """The program has ended."""
        for epochs, passes, place in self.passed:
            trained = len(passes | {self.recorder.steps}) - 1
            if len(epochs) == 1 and len(passes) > 1 and trained > 1:
                self.recorder.note(Habit.SAME_EPOCH, place, trained)
        for *_, count, place in self.modes.values():
            if count >= OFTEN:
                self.recorder.note(Habit.LEFT_IN_EVAL, place, count)


def before(original: Callable, tell: Callable) -> Callable:
    """A function that tells of each of its calls first."""

    @functools.wraps(original)
    def told(*args, **options):
        tell(*args, **options)
        return original(*args, **options)

    return told


def here() -> tuple:
    """The line of a person's own that is running, or ("", 0) inside of a framework."""
    return ("", 0) if framework(within())[0] else line(origin())


def is_mean(node: Any) -> bool:
    """Whether a loss is the mean over its batch, and nothing was done with it."""
    if node is None:
        return False
    return node.name().startswith("MeanBackward") or getattr(node, "_saved_reduction", 0) == MEAN
