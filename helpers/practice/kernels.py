"""`Kernels` sees every operator that PyTorch really runs, those of autograd's backward pass too.

It compares the devices of the inputs, labels the outputs, accounts for their memory, and, on an asynchronous machine,
hands the work to the current stream instead of doing it.
"""
import functools
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .machine import ASYNC, storage
from .rules import meet

T, has_kernel = torch.Tensor, torch._C._dispatch_has_kernel_for_dispatch_key
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_consecutive", "unique_dim",
         "bincount", "is_nonzero", "repeat_interleave"}
SMALL = ("backward", "_foreach_", "pool", "norm", "softmax", "loss")  # results no larger than the inputs together
GROWS = ("repeat", "pad", "im2col", "upsample")  # results larger than their only input
DEAD = ("CUDA error: device-side assert triggered\n" + ASYNC + "Compile with `TORCH_USE_CUDA_DSA` to enable "
        "device-side assertions.\n\n(practice GPU: {})")


@functools.cache
def facts(func):
    """What `Kernels` needs to know about an operator, read once from its schema."""
    schema, name = func._schema, func._schema.name.removeprefix("aten::")
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    out = [r.alias_info for r in schema.returns]
    return SimpleNamespace(
        name=name, written=written,
        composite=func.namespace == "aten" and func._can_decompose() and not has_kernel(func.name(), "CPU"),
        mutates=any(written), copies=name in ("copy_", "_to_copy", "_foreach_copy_"),
        waits=name in WAITS, indexes=name in ("index", "index_put", "index_put_", "_index_put_impl_"),
        targeted=name == "_to_copy" or "new_" in name or "_like" in name, inplace=all(a and a.is_write for a in out),
        view=name in ("detach", "set_") or bool(out) and all(a and not a.is_write for a in out),
        small=any(part in name for part in SMALL), grows=any(part in name for part in GROWS),
        pointwise=torch.Tag.pointwise in func.tags, device=any(a.name == "device" for a in schema.arguments))


def tensors(values):
    """The tensors among ``values`` (a tensor, or a list of tensors, of lists of tensors and of other things)."""
    for value in (values,) if isinstance(values, T) else values if type(values) in (list, tuple) else ():
        if isinstance(value, T):
            yield value
        elif type(value) in (list, tuple):
            yield from (item for item in value if isinstance(item, T))


def swap(value, function):
    """``value`` with ``function`` applied to each tensor in it."""
    if isinstance(value, dict):
        return {key: swap(item, function) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(swap(item, function) for item in value)
    return function(value) if isinstance(value, T) else value


def shapes(func, fact, args, kwargs):
    """The result of an operator as tensors without data, or None where PyTorch cannot tell it beforehand."""
    def meta(x):
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")
    options = {key: value for key, value in kwargs.items() if key not in ("generator", "device", "pin_memory")}
    try:
        return func(*swap(args, meta), **swap(options, meta), **{"device": "meta"} if fact.device else {})
    except (NotImplementedError, RuntimeError):
        return None


class Kernels(TorchDispatchMode):
    """Checks, labels and accounts for every operator; ``target`` says where a factory's result goes."""

    def __init__(self, machine, target):
        super().__init__()
        self.machine, self.target, self.on = machine, target, True

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else every operator would pass through torch.compile's machinery

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.on:
            return func(*args, **kwargs or {})
        fact = facts(func)
        if fact.composite:  # in inference mode PyTorch leaves it to the mode to take such operators apart
            with self:
                return func.decompose(*args, **kwargs or {})
        with torch._C.DisableTorchFunction():  # in here tensors are what they really are
            return self._see(func, fact, args, kwargs or {})

    def _see(self, func, fact, args, kwargs):
        machine, target, home, alone, mixed, floating = self.machine, self.target.device, None, True, False, []
        for tensor in tensors((*args, *kwargs.values()) if kwargs else args):
            place = storage(tensor).practice
            if place is machine.floating:
                floating.append(tensor)
                continue
            device = place.device if place is not None and place.machine is machine else None
            home, alone, mixed = device if alone else home, False, mixed or not alone and device is not home
        mine = home is not None or mixed
        if mixed:
            home = meet(machine, func, args, kwargs)
        for tensor in floating if home is not None else ():
            if tensor.dim():
                machine.put(tensor, home)
        if fact.copies:
            self._count(fact, args, kwargs, target)
        elif home is not None and (fact.waits or fact.indexes and any(t.dtype == torch.bool for t in tensors(args[1]))):
            machine.transfers["d2h"] += fact.name == "_local_scalar_dense"
            machine.waits(home)
        if target is not None and (alone or fact.targeted):
            home = target if target.type == "cuda" else None
        if home is not None or fact.copies and mine:
            return self._run(func, fact, args, kwargs, home)
        out = func(*args, **kwargs)
        if alone and target is None and isinstance(out, T) and out.is_cpu and storage(out).practice is None:
            storage(out).practice = machine.floating
        return out

    def _run(self, func, fact, args, kwargs, device):
        """Run an operator whose result lives on ``device`` (None: the CPU, copied from a practice GPU)."""
        if device is not None and not (fact.mutates or fact.view):
            self._fit(func, fact, args, kwargs, device)
        if self.machine.asynchronous and not fact.view:
            queued, out = self.machine.streams.launch(func, fact, args, kwargs, device)
            if queued:
                return out
        try:
            out = func(*args, **kwargs)
        except IndexError as error:
            raise torch.AcceleratorError(DEAD.format(error)) from error
        except RuntimeError as error:  # where the CPU's kernel words it otherwise
            error.args = tuple(str(text).replace("expected m1 and m2", "expected mat1 and mat2") for text in error.args)
            raise
        if fact.name.startswith("resize"):
            storage(out).practice = None  # its bytes are counted anew
            fact = SimpleNamespace(inplace=False, name=fact.name)
        for tensor in tensors(out) if device is not None and not fact.inplace else ():
            if tensor.is_cpu:
                self.machine.put(tensor, device, fact.name)
        return out

    def _fit(self, func, fact, args, kwargs, device):
        """Raise ``torch.OutOfMemoryError`` for a result that cannot fit, before anything is computed."""
        allocator, inputs = self.machine.allocators[device.index], list(tensors(args))
        sizes = sorted(t.numel() for t in inputs)
        bound = sum(sizes) if inputs else float("inf")
        if not fact.small and (fact.grows or len({t.shape for t in inputs} if fact.pointwise else inputs) > 1):
            bound = sizes[-1] * sizes[-2] if len(sizes) > 1 else float("inf")
        room = allocator.limit - allocator.now("allocated_bytes")
        if bound * 8 > room:
            need = [t.nbytes for t in tensors(shapes(func, fact, args, kwargs))]
            for size in need if sum(need) > room else ():  # raises when it comes to the first that does not fit
                allocator.release(allocator.malloc(size))

    def _count(self, fact, args, kwargs, target):
        """Count copies between devices, and the wait of the CPU that a blocking one means."""
        machine, into = self.machine, fact.name != "_to_copy"
        pairs = zip(*args[:2], strict=True) if "foreach" in fact.name else [(args[0], args[1] if into else args[0])]
        for goal, source in pairs:
            here = machine.place(source)
            there = machine.place(goal) if into or target is None else target if target.type == "cuda" else None
            if here != there:
                way = "h2d" if here is None else "d2h" if there is None else "d2d"
                machine.transfers[way] += 1
                if way != "d2d" and not (kwargs.get("non_blocking") or len(args) > 2 and args[2]):
                    machine.waits(here or there)
