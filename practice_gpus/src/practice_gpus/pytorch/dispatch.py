"""`DispatchMode` sees every operator that PyTorch really runs, those of autograd's backward pass too.

It compares the devices of the inputs, labels the outputs, accounts for their memory, and, on an asynchronous machine,
hands the work to the current stream instead of doing it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_map_only

from practice_gpus.machine import CPU, NO_KERNEL, OTHER_STORAGE, PARTS, refusal, storage_of
from practice_gpus.pytorch import compute, shapes
from practice_gpus.pytorch.asynchronous import launch
from practice_gpus.pytorch.collectives import averages, check
from practice_gpus.pytorch.determinism import alert
from practice_gpus.pytorch.device_mismatch import FREE, meet
from practice_gpus.pytorch.dtypes import scalar_type
from practice_gpus.pytorch.operators import (
    FACTS,
    FAKE,
    Call,
    T,
    blocking,
    expected,
    facts,
    fake,
    tensors,
)

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

computes = torch._C._dispatch_has_computed_kernel_for_dispatch_key
NoFunctions = torch._C.DisableTorchFunction


class DispatchMode(TorchDispatchMode):
    """Checks, labels and accounts for every operator."""

    supports_higher_order_operators = True

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.on = False

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else every operator would pass through torch.compile's machinery

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        if not self.on or fake(FAKE) is not None:  # whose tensors say themselves where they are
            return func(*args, **kwargs or {})
        fact = FACTS.get(id(func))
        if fact is None and isinstance(func, torch._ops.HigherOrderOperator):  # slow to ask
            return self._run_inside(func, args, kwargs or {})
        if kinds and any(has_own_code(kind) for kind in kinds):
            told = labeled(self.machine, func, args, kwargs)
            if told is kwargs:
                return NotImplemented  # a type of its own, such as a nested tensor: its own code comes first
            with self:
                return func(*args, **told)
        fact = fact or facts(func)
        if fact.composite:  # in inference mode PyTorch leaves it to the mode to take it apart
            with self:
                return func.decompose(*args, **kwargs or {})
        if fact.device and kwargs and is_cuda(kwargs.get("device")):  # PyTorch's C++ asks for it
            with self.machine.functions.toward(self.machine.device(kwargs["device"])):
                return self.__torch_dispatch__(func, kinds, args, {**kwargs, "device": CPU})
        with NoFunctions():  # in here tensors are what they really are
            if fact.passes and args[0].layout not in PARTS:
                return func._op(*args, **kwargs or {})
            try:
                call = Call(self.machine, func, fact, args, kwargs or {})
                out = self._dispatch(call)
            except Exception as error:
                self.machine.local.last_error = str(error)
                raise
            for observer in self.machine.observers:
                observer.operator(call, out)
            return out

    def _run_inside(self, func, args, kwargs):
        """``torch.cond`` runs the function it chooses; other operators that are given functions are refused."""
        if func is not torch.ops.higher_order.cond:
            instead = "write it without, in operators of PyTorch"
            refusal(f"torch.ops.higher_order.{func.name()}", instead=instead)()
        for device in self.machine.devices:
            self.machine.streams.drain(device)
        args, kwargs = tree_map_only(types.FunctionType, self._with_mode, (args, kwargs))
        return func.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **kwargs)

    def _with_mode(self, function):
        """A function whose operators pass through here."""

        def call(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return call

    def _dispatch(self, call):
        """Find out where an operator runs, and run it there."""
        machine = self.machine
        fact = call.fact
        homes = call.homes
        if fact.collective and any(homes) and (divided := averages(call)):
            return divided(self._dispatch(call))
        if len(homes) == 1:
            call.home = homes[0]
        elif homes and in_lists(call):
            return self._one_by_one(call)
        elif homes:
            call.home = meet(machine, call)
        if call.loose and call.home is not None:
            self._label_loose(call)
        if fact.counted:
            self._count(call)
        if fact.python:
            return self._run_python(call)
        target = None
        if fact.targeted or not homes:
            target = machine.local.target
            if target is not None:
                call.home = target if target.type == "cuda" else None
        if call.home is not None or fact.copies and any(homes):
            return self._run(call)
        out = call.func._op(*call.args, **call.kwargs)
        is_new = not homes and target is None and not fact.view
        if is_new and isinstance(out, T) and out.is_cpu:
            storage = storage_of(out)
            if storage.practice is None:
                storage.practice = machine.floating
        return out

    def _one_by_one(self, call):
        """A foreach operator on lists of several devices, which PyTorch's slow path takes element by element."""
        count = len(call.args[0])

        def at(index, value):
            is_list = isinstance(value, (list, tuple)) and len(value) == count
            return [value[index]] if is_list else value

        results: list = []
        for index in range(count):
            args = [at(index, value) for value in call.args]
            kwargs = {name: at(index, value) for name, value in call.kwargs.items()}
            results += self._dispatch(Call(self.machine, call.func, call.fact, args, kwargs)) or []
        return results or None

    def _run_python(self, call):
        """A user's own kernel, registered in Python for CUDA, for the CPU, or for both."""
        key = "CPU" if call.home is None else "CUDA"
        name = call.func.name()
        if key == "CUDA" and not computes(name, key):
            raise NotImplementedError(NO_KERNEL.format(name, key))
        if not computes(name, key):
            return call.func._op(*call.args, **call.kwargs)
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        with torch._C._EnableTorchFunction(), self.machine.functions.seeing(), self:
            return call.func.redispatch(keys, *call.args, **call.kwargs)

    def _label_loose(self, call):
        """Tensors that PyTorch made on the way live where the others are."""
        for tensor in call.loose:
            storage = storage_of(tensor)
            if tensor.dim() and storage.practice is self.machine.floating:
                self.machine.put(tensor, call.home)

    def _run(self, call):
        """Run an operator whose result lives on a practice GPU, or on the CPU, copied from one."""
        machine = self.machine
        fact = call.fact
        home = call.home
        if machine.broken:
            for device in (home, *call.homes):
                machine.check_alive(device)
        if fact.dtype_check is not None and home is not None:
            fact.dtype_check(call)
        if fact.alerts and home is not None:
            alert(call)
        sparse = bool(call.inputs) and call.inputs[0].layout in PARTS  # a view of it may be a copy
        if fact.view and not sparse:
            return call.func._op(*call.args, **call.kwargs)
        if home is not None and not fact.mutates:
            self._fit(call)
        if machine.asynchronous and machine.values:
            queued, out = launch(machine, call)
            if queued:
                return out
        run = compute.computed if machine.values else shapes.computed
        out = run(machine, call)
        if fact.resizes:
            storage_of(out).practice = None  # its bytes are counted anew
        if home is not None and (call.loose or not fact.inplace or sparse):
            for tensor in tensors(out):
                if tensor.is_cpu:
                    machine.put(tensor, home, fact.name)
        return out

    def _fit(self, call):
        """Raise ``torch.OutOfMemoryError`` for a result that cannot fit, before anything is computed."""
        allocator = self.machine.allocators[call.home.index]
        need = 8 * call.fact.most_elements(call)
        if allocator.has_room(need):
            return
        room = allocator.limit - allocator.now("allocated_bytes")
        results = tensors(expected(call)) if need > room else []
        sizes = [t.nbytes for t in results if t.layout == torch.strided]
        if sum(sizes) > room:
            self.machine.streams.drain(call.home)  # work that is done gives back what it held
            for size in sizes:
                self.machine.placed(call.home, size)  # raises when it comes to what does not fit

    def _count(self, call):
        """Count copies, and how often the CPU waits in an operator for its values."""
        machine = self.machine
        fact = call.fact
        if fact.collective:
            check(machine, call)
        if fact.name == "set_":
            check_storage(call)
        if fact.copies:
            self._count_copies(call)
            return
        if call.home is None:
            return
        if fact.name == "_local_scalar_dense":
            machine.copied("d2h", call.inputs[0])
        count = fact.waits
        if fact.waits_if is not None:
            count = fact.waits_if(*call.args, **call.kwargs)
        elif fact.indexes:
            count, copied = self._index_waits(call)
            for _ in range(copied):
                machine.waits(call.home, "indices")
        for _ in range(count):
            machine.waits(call.home, fact.name)

    def _index_waits(self, call):
        """(waits for the number of ones in masks on the GPU, waits for copies of indices or a number of the CPU).

        The rules of ``expandTensors`` in IndexingUtils.h and of ``_index_put_impl_`` in TensorAdvancedIndexing.cpp.
        """
        machine = self.machine
        home = call.home
        indices = [index for index in call.args[1] if index is not None]
        value = call.args[2] if len(call.args) > 2 else None
        accumulate = len(call.args) > 3 and call.args[3]
        if (
            value is not None
            and value.dtype != call.args[0].dtype
            and machine.place(value) is not None
        ):
            kinds = scalar_type(call.args[0].dtype), scalar_type(value.dtype)
            raise RuntimeError(INDEX_PUT.format(*kinds))
        has_cpu_number = value is not None and value.dim() == 0 and machine.on_cpu(value)
        on_gpu_masks = waiting = 0
        for index in indices:
            is_mask = index.dtype in (torch.bool, torch.uint8)
            on_gpu_masks += is_mask and machine.place(index) == home
            if machine.on_cpu(index):
                waiting += (
                    not is_mask
                )  # a mask's positions are found on the CPU, and copied without a wait
        is_masked_fill = len(indices) == on_gpu_masks == 1
        if has_cpu_number and is_masked_fill and not accumulate:
            return 0, 0
        for tensor in [index for index in indices if machine.on_cpu(index)]:
            machine.copied("h2d", tensor, home)
        if has_cpu_number:
            machine.copied("h2d", value, home)
        return on_gpu_masks, waiting + has_cpu_number

    def _count_copies(self, call):
        """Count copies between devices, and the wait of the CPU that a blocking one means."""
        machine = self.machine
        target = machine.local.target
        into = call.fact.name != "_to_copy"
        pairs = [(call.args[0], call.args[1] if into else call.args[0])]
        if "foreach" in call.fact.name:
            pairs = zip(*call.args[:2], strict=True)
        for goal, source in pairs:
            start = end = machine.place(source) if isinstance(source, T) else None
            if into:
                end = machine.place(goal)
            elif target is not None:
                end = target if target.type == "cuda" else None
            if not isinstance(source, T) or start == end or source.numel() == 0:
                continue
            if machine.local.arriving and start is None:
                continue
            if start is not None and end is not None:
                machine.copied("d2d", source, end)
                continue
            direction = "h2d" if start is None else "d2h"
            host = source if start is None else goal
            pinned = storage_of(host).practice is machine.pinned
            pinned |= (
                direction == "d2h" and not into and not blocking(call)
            )  # PyTorch pins the result
            machine.copied(direction, source, end, pinned)
            if blocking(call):
                for _ in PARTS.get(source.layout, ("itself",)):  # each tensor of a sparse one
                    machine.waits(start or end, direction)


def in_lists(call: Call) -> bool:
    """Whether a call is of a foreach operator on several tensors."""
    return (
        call.fact.name.startswith("_foreach_")
        and call.fact.name not in FREE
        and len(call.args[0]) > 1
    )


INDEX_PUT = "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source."


def check_storage(call: Call) -> None:
    """A tensor takes no storage of another device; where it takes a tensor, `device_mismatch.meet` says so."""
    storage: Any = call.args[1] if len(call.args) > 1 else None
    home = call.home or CPU
    given = isinstance(storage, torch.UntypedStorage) and call.homes
    if given and "cuda" in (home.type, storage.device.type) and storage.device != home:
        raise RuntimeError(OTHER_STORAGE.format(home, storage.device))


def is_cuda(device: Any) -> bool:
    """Whether a device that an operator is given is a GPU."""
    return device is not None and device.type == "cuda"


def seeing(machine: Machine, original: Callable = TorchDispatchMode.__enter__) -> Callable:
    """``TorchDispatchMode.__enter__``: a user's mode sees where tensors are, and where new ones are asked for."""

    def enter(mode):
        if not isinstance(mode, DispatchMode) and not mode.is_infra_mode():
            dispatch = functools.partial(shown, machine, type(mode).__torch_dispatch__)
            mode.__torch_dispatch__ = types.MethodType(dispatch, mode)
        return original(mode)

    return enter


def shown(machine, dispatch, mode, func, kinds, args=(), kwargs=None):
    """What a user's mode does with an operator, with devices as they are labeled; below ours they are the CPU's."""
    if not any(isinstance(each, DispatchMode) for each in _get_current_dispatch_mode_stack()):
        return dispatch(mode, func, kinds, args, kwargs or {})
    kwargs = labeled(machine, func, args, kwargs)
    functions = machine.functions
    with torch._C._EnableTorchFunction(), functions.seeing(), functions.handing(func):
        return dispatch(mode, func, kinds, args, kwargs or {})


def labeled(machine, func, args, kwargs):
    """An operator's options with the GPU that a new tensor is asked for on; PyTorch's C++ asks for the CPU's instead."""
    if not kwargs or kwargs.get("device") != CPU:
        return kwargs
    like = args[0] if facts(func).targeted and isinstance(args[0], T) else None
    goal = machine.local.target or (None if like is None else machine.place(like))
    return kwargs if goal in (None, CPU) else {**kwargs, "device": goal}


@functools.cache
def has_own_code(kind: Any) -> bool:
    """Whether a type of tensors says itself what operators do with it."""
    overridden = kind.__torch_dispatch__ is not T.__torch_dispatch__
    return overridden and not issubclass(kind, torch._subclasses.FakeTensor)
