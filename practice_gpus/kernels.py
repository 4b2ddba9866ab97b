"""`Kernels` sees every operator that PyTorch really runs, those of autograd's backward pass too.

It compares the devices of the inputs, labels the outputs, accounts for their memory, and, on an asynchronous machine,
hands the work to the current stream instead of doing it.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .launch import launch
from .machine import refusal, storage
from .operators import T, blocking, facts, most_elements, shapes, tensors
from .rules import meet
from .streams import dead

fake, FAKE = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.FAKE


class Kernels(TorchDispatchMode):
    """Checks, labels and accounts for every operator."""

    def __init__(self, machine):
        super().__init__()
        self.machine, self.on = machine, False

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else every operator would pass through torch.compile's machinery

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.on:
            return func(*args, **kwargs or {})
        fact = facts(func)
        if (
            fact.composite
        ):  # in inference mode PyTorch leaves it to the mode to take such operators apart
            with self:
                return func.decompose(*args, **kwargs or {})
        with torch._C.DisableTorchFunction():  # in here tensors are what they really are
            return self._see(func, fact, args, kwargs or {})

    def _see(self, func, fact, args, kwargs):
        machine, target = self.machine, self.machine.local.target
        inputs = list(tensors((*args, *kwargs.values())))
        placed = [t for t in inputs if storage(t).practice is not machine.floating]
        homes = {machine.place(t) for t in placed}
        mine, home = (
            homes - {None},
            meet(machine, func, args, kwargs) if len(homes) > 1 else next(iter(homes), None),
        )
        for tensor in inputs if home is not None and len(placed) < len(inputs) else ():
            if tensor.dim() and storage(tensor).practice is machine.floating:
                machine.put(tensor, home)
        if fact.copies:
            self._count(fact, args, kwargs)
        elif home is not None and (
            fact.waits or fact.indexes and any(t.dtype == torch.bool for t in tensors(args[1]))
        ):
            machine.transfers["d2h"] += fact.name == "_local_scalar_dense"
            machine.waits(home)
        if target is not None and (not placed or fact.targeted):
            home = target if target.type == "cuda" else None
        if home is not None or fact.copies and mine:
            return self._run(func, fact, args, kwargs, home)
        out = func(*args, **kwargs)
        if (
            not placed
            and target is None
            and isinstance(out, T)
            and out.is_cpu
            and storage(out).practice is None
        ):
            storage(out).practice = machine.floating
        return out

    def _run(self, func, fact, args, kwargs, device):
        """Run an operator whose result lives on ``device`` (None: the CPU, copied from a practice GPU)."""
        if fake(FAKE) is not None:
            refusal("devices under FakeTensorMode")()
        if device is not None and not (fact.mutates or fact.view):
            self._fit(func, fact, args, kwargs, device)
        if self.machine.asynchronous and not fact.view:
            queued, out = launch(self.machine, func, fact, args, kwargs, device)
            if queued:
                return out
        out = computed(func, args, kwargs)
        if fact.name.startswith("resize"):
            storage(out).practice = None  # its bytes are counted anew
        for tensor in tensors(out) if device is not None else ():
            if tensor.is_cpu:
                self.machine.put(tensor, device, fact.name)
        return out

    def _fit(self, func, fact, args, kwargs, device):
        """Raise ``torch.OutOfMemoryError`` for a result that cannot fit, before anything is computed."""
        allocator = self.machine.allocators[device.index]
        room = allocator.limit - allocator.now("allocated_bytes")
        if 8 * most_elements(fact, list(tensors(args))) > room:
            need = [t.nbytes for t in tensors(shapes(func, fact, args, kwargs))]
            for size in (
                need if sum(need) > room else ()
            ):  # raises when it comes to the first that does not fit
                allocator.release(allocator.malloc(size))

    def _count(self, fact, args, kwargs):
        """Count copies between devices, and the wait of the CPU that a blocking one means."""
        machine, target, into = self.machine, self.machine.local.target, fact.name != "_to_copy"
        pairs = (
            zip(*args[:2], strict=True)
            if "foreach" in fact.name
            else [(args[0], args[1] if into else args[0])]
        )
        for goal, source in pairs:
            here = machine.place(source)
            there = (
                machine.place(goal)
                if into or target is None
                else target
                if target.type == "cuda"
                else None
            )
            if here != there:
                way = "h2d" if here is None else "d2h" if there is None else "d2d"
                machine.transfers[way] += 1
                if way != "d2d" and blocking(args, kwargs):
                    machine.waits(here or there)


def computed(func, args, kwargs):
    """The result of the CPU's kernel; its errors in the words of CUDA's where they differ."""
    try:
        return func(*args, **kwargs)
    except IndexError as error:
        raise dead(error) from error
    except RuntimeError as error:
        error.args = tuple(
            str(text).replace("expected m1 and m2", "expected mat1 and mat2") for text in error.args
        )
        raise
