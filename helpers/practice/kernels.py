"""`Kernels` sees every operator that PyTorch really runs, those of autograd's backward pass too.

It compares the devices of the inputs, labels the outputs, accounts for their memory, and, on an asynchronous machine,
hands the work to the current stream instead of doing it.
"""
import functools
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .machine import CPU, storage
from .rules import meet

T = torch.Tensor
COPIES = {"copy_", "_to_copy", "_foreach_copy_"}
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_consecutive", "unique_dim",
         "bincount", "is_nonzero", "repeat_interleave"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
GROWS = {"repeat", "constant_pad_nd", "reflection_pad2d", "replication_pad2d", "im2col", "upsample_nearest2d"}
SMALL = ("backward", "_foreach_", "pool", "norm", "softmax", "loss")  # results no larger than the inputs together
DEAD = (
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API "
    "call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile "
    "with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n\n(practice GPU: {})"
)


@functools.cache
def facts(func):
    """What `Kernels` needs to know about an operator, read once from its schema."""
    schema, name = func._schema, func._schema.name.removeprefix("aten::")
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    aliases = [r.alias_info for r in schema.returns]
    return SimpleNamespace(
        name=name, copies=name in COPIES, waits=name in WAITS, indexing=name in INDEXING, written=written,
        targeted=name == "_to_copy" or "new_" in name or "_like" in name, mutates=any(written),
        view=bool(aliases) and all(a is not None and not a.is_write for a in aliases) or name in ("detach", "set_"),
        inplace=all(a is not None and a.is_write for a in aliases), small=any(part in name for part in SMALL),
        pointwise=torch.Tag.pointwise in func.tags, grows=name in GROWS,
        device=any(a.name == "device" for a in schema.arguments))


def tensors(values):
    """The tensors among ``values`` and in the lists among them."""
    for value in values:
        if isinstance(value, T):
            yield value
        elif type(value) in (list, tuple):
            yield from (item for item in value if isinstance(item, T))


def swap(value, function):
    """``value`` with ``function`` applied to each tensor in it."""
    if isinstance(value, T):
        return function(value)
    return type(value)(swap(item, function) for item in value) if type(value) in (list, tuple) else value


def meta(x):
    """A tensor like ``x`` without data."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")


class Kernels(TorchDispatchMode):
    """Checks, labels and accounts for every operator; ``target`` says where a factory's result goes."""

    def __init__(self, machine, target):
        super().__init__()
        self.machine, self.target, self.on = machine, target, True

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else every operator passes through torch.compile's machinery, which takes seconds to import

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.on:
            return func(*args, **kwargs or {})
        with torch._C.DisableTorchFunction():  # here tensors are what they really are
            return self._see(func, args, kwargs or {})

    def _see(self, func, args, kwargs):
        machine, fact, target = self.machine, facts(func), self.target.device
        home, alone, mixed, floating = None, True, False, ()
        for tensor in tensors((*args, *kwargs.values()) if kwargs else args):
            place = storage(tensor).practice
            device = place.device if place is not None and place.machine is machine else None
            if device is None and place is machine.floating:
                floating = (*floating, tensor)
            elif alone:
                home, alone = device, False
            elif device is not home:
                mixed = True
        source = home
        if mixed:
            home = meet(machine, func, args, kwargs)
        for tensor in floating if home is not None else ():
            if tensor.dim():
                machine.put(tensor, home)
        if fact.copies:
            self._count(fact, args, kwargs, target)
        elif home is not None and (fact.waits or fact.indexing and _masked(args[1])):
            machine.synchronized(machine.streams.current(home))
        if target is not None and (alone or fact.targeted):
            home = target if target.type == "cuda" else None
        if home is not None or fact.copies and source is not None:
            return self._run(func, fact, args, kwargs, home, mixed)
        out = func(*args, **kwargs)
        if alone and target is None and isinstance(out, T) and out.device.type == "cpu":
            held = storage(out)
            if held.practice is None:
                held.practice = machine.floating
        return out

    def _run(self, func, fact, args, kwargs, device, mixed):
        """Run an operator whose result lives on ``device`` (None: the CPU, copied from a practice GPU)."""
        machine = self.machine
        if device is not None and not (fact.mutates or fact.view):
            self._fit(func, fact, args, kwargs, device)
        if machine.asynchronous and not fact.view:
            done, out = machine.streams.launch(func, fact, args, kwargs, device)
            if done:
                return out
        try:
            out = func(*args, **kwargs)
        except IndexError as error:
            raise torch.AcceleratorError(DEAD.format(error)) from error
        except RuntimeError as error:
            if "expected m1 and m2" in str(error):  # the CPU's words
                raise RuntimeError(str(error).replace("m1 and m2", "mat1 and mat2")) from None
            raise
        if device is not None and not fact.inplace:
            for tensor in tensors((out,) if isinstance(out, T) else out if type(out) in (list, tuple) else ()):
                if tensor.device.type == "cpu":
                    machine.put(tensor, device, fact.name)
        return out

    def _fit(self, func, fact, args, kwargs, device):
        """Raise ``torch.OutOfMemoryError`` for a result that cannot fit, before anything is computed."""
        allocator, sizes = self.machine.allocators[device.index], [t.numel() for t in tensors(args)]
        bound = sum(sizes) if sizes else float("inf")
        if not (fact.small or len(sizes) == 1 and not fact.grows):
            if not fact.pointwise or max(sizes, default=0) * 4 > allocator.room() or len({t.shape for t in tensors(args)}) > 1:
                largest = sorted(sizes)[-2:]
                bound = largest[0] * largest[-1] if len(largest) == 2 else float("inf")
        if bound * 8 <= allocator.room():
            return
        extra = {key: swap(value, meta) for key, value in kwargs.items() if key != "generator"}
        if fact.device:
            extra["device"] = "meta"
        try:
            out = func(*swap(args, meta), **extra)
        except (NotImplementedError, RuntimeError):
            return
        need = [t.nbytes for t in tensors((out,) if isinstance(out, T) else out)]
        if sum(need) > allocator.room():
            for size in need:  # raises when it comes to the first that does not fit
                allocator.release(allocator.malloc(size))

    def _count(self, fact, args, kwargs, target):
        """Count a copy between devices, and the wait of the CPU that a blocking one means."""
        machine, into = self.machine, fact.name != "_to_copy"
        if fact.name == "_foreach_copy_":
            pairs = list(zip(*args[:2], strict=True))
        else:
            pairs = [(args[0], args[1] if into else args[0])]
        for goal, source in pairs:
            here, there = machine.place(source), machine.place(goal) if into else target if target is not None else None
            if not into and target is None:
                there = here
            there = None if there == CPU else there
            if here == there:
                continue
            way = "h2d" if here is None else "d2h" if there is None else "d2d"
            machine.transfers[way] += 1
            free = kwargs.get("non_blocking") or len(args) > 2 and args[2]
            if way != "d2d" and not free:
                machine.synchronized(machine.streams.current(here or there))


def _masked(indices):
    return any(isinstance(index, T) and index.dtype in (torch.bool, torch.uint8) for index in indices)
