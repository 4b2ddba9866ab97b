"""Attributes and methods of a tensor that ask for its device or change it, answered from its label."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from practice_gpus.machine import CPU, storage_of
from practice_gpus.pytorch.device_mismatch import let_pytorch_refuse
from practice_gpus.pytorch.dtypes import PUT, scalar_type

if TYPE_CHECKING:
    from practice_gpus.machine import Machine


T = torch.Tensor
NO_HALF = "value cannot be converted to type c10::{} without overflow"
LARGEST = {
    torch.float16: (65504, "Half"),
    torch.bfloat16: (torch.finfo(torch.bfloat16).max, "BFloat16"),
}
FILLED = (T, int, slice, type(...))  # parts of an index at which a number is filled in
DISPATCHED = torch._C._len_torch_dispatch_stack


def check_half(*values: Any, dtype: torch.dtype = torch.float16) -> None:
    """Refuse numbers that a half cannot hold, as CUDA's kernels do where a number becomes one."""
    largest, name = LARGEST[dtype]
    for value in values:
        if isinstance(value, (int, float)) and largest < abs(value) < math.inf:
            raise RuntimeError(NO_HALF.format(name))


class TensorMethods:
    """The part of `functions.FunctionMode` that stands in for a tensor's own; a handler gets the function first."""

    machine: Machine
    move: Callable
    create: Callable
    toward: Callable

    def tensor_handlers(self) -> dict:
        """Attribute or method of a tensor → what is called instead."""
        return {
            T.device.__get__: self.device,
            T.is_cuda.__get__: self.is_cuda,
            T.is_cpu.__get__: self.is_cpu,
            T.is_pinned: self.is_pinned,
            T.cpu: self.cpu,
            T.type_as: self.type_as,
            T.get_device: self.get_device,
            torch.get_device: self.get_device,
            T.to: self.to,
            T.cuda: self.cuda,
            T.numpy: self.numpy,
            T.tolist: self.tolist,
            T.item: self.item,
            T.new: self.new,
            T.data_ptr: self.data_ptr,
            T.type: self.type,
            T.pin_memory: self.pin_memory,
            T.copy_: self.copy_,
            torch.where: self.chosen,
            T.where: self.chosen,
            torch.threshold: self.chosen,
            T.__setitem__: self.setitem,
            T.grad.__get__: self.get_grad,
            T.grad.__set__: self.set_grad,
        }

    def to(self, func: Callable, x: Any, *rest: Any, **options: Any) -> Any:
        """``x.to(device, dtype, …)``, ``x.to(dtype, …)`` or ``x.to(other, …)``."""
        first = rest[0] if rest else options.pop("other", None)
        if isinstance(first, T):
            rest = self.machine.place(first) or first.device, first.dtype, *rest[1:]
        elif isinstance(first, torch.dtype):
            rest = None, *rest
        options |= dict(zip(("device", "dtype", "non_blocking", "copy"), rest, strict=False))
        device = options.pop("device", None)
        options = {key: value for key, value in options.items() if value is not None}
        if device is None:
            return func(x, **options)
        return self.move(x, self.machine.device(device), **options)

    def cuda(
        self,
        func: Callable,
        x: Any,
        device: Any = None,
        non_blocking: bool = False,
        **options: Any,
    ) -> Any:
        device = self.machine.device(device)
        if device.type != "cuda":
            raise RuntimeError("Invalid device, must be cuda device")
        return self.move(x, device, non_blocking, **options)

    def type(
        self, func: Callable, x: torch.Tensor, dtype: type | None = None, **options: Any
    ) -> str | torch.Tensor:
        if dtype is None and self.machine.place(x) is None:
            return func(x)
        if dtype is None:
            return func(x).replace("torch.", "torch.cuda.", 1)
        if isinstance(dtype, torch.dtype):
            return func(x, dtype, **options)
        if not isinstance(dtype, (str, type(torch.FloatTensor))) and not isinstance(dtype, type):
            return func(x, dtype)  # which refuses it
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        goal = (self.machine.place(x) or self.machine.device(None)) if "cuda." in name else CPU
        return self.move(func(x, name.replace("cuda.", "")), goal)

    def pin_memory(self, func: Callable, x: torch.Tensor, device: Any = None) -> torch.Tensor:
        if device is not None:
            self.machine.device(device)
        if self.machine.place(x) is not None:
            raise RuntimeError(
                f"cannot pin '{self.type(T.type, x)}' only dense CPU tensors can be pinned"
            )
        if storage_of(x).practice is not self.machine.pinned:
            x = x.clone()
            storage_of(x).practice = self.machine.pinned
        return x

    def copy_(
        self,
        func: Callable,
        target: torch.Tensor,
        source: float | torch.Tensor,
        *rest: Any,
        **options: Any,
    ) -> torch.Tensor:
        if not isinstance(source, T):  # as PyTorch has it: a number starts on the CPU
            with self.toward(CPU):
                source = torch.scalar_tensor(source, dtype=target.dtype)
        if source.requires_grad and torch.is_grad_enabled():  # so that gradients find the way back
            source = self.move(source, self.machine.place(target) or CPU)
        return func(target, source, *rest, **options)

    def chosen(self, func: Callable, *args: Any, **options: Any) -> torch.Tensor:
        """A number that takes the place of half-precision values must be one."""
        for x in args if any(isinstance(value, (int, float)) for value in args) else ():
            if isinstance(x, T) and x.dtype == torch.float16 and self.machine.place(x) is not None:
                check_half(*args)
        return func(*args, **options)

    def setitem(
        self, func: Callable, target: torch.Tensor, index: tuple, value: torch.Tensor
    ) -> Any:
        place = self.machine.place(target)
        if isinstance(value, T):
            value = self._masked_value(target, index, value)
        if place is None:  # the CPU takes indices from anywhere
            index = tree_map_only(T, lambda x: self.move(x, CPU), index)
        if isinstance(value, T):
            is_cpu_number = not value.dim() and self.machine.place(value) is None
            if value.requires_grad or value.numel() == 1 and not (place and is_cpu_number):
                value = self.move(value, place or CPU)
        elif place is not None and isinstance(value, (int, float, complex)):
            if target.dtype in LARGEST:
                check_half(value, dtype=target.dtype)
            index, is_filled = self._kept(index, place)
            if not is_filled:  # PyTorch makes a number for it on the GPU
                value = torch.scalar_tensor(value, dtype=target.dtype, device=place)
        return func(target, index, value)

    def _kept(self, index, place):
        """(An index whose numbers on the GPU are not read, whether PyTorch fills in there what is a number of Python.)"""
        parts = index if isinstance(index, tuple) else (index,)
        given = [part for part in parts if isinstance(part, T)]
        kept = tuple(
            part.reshape(1) if isinstance(part, T) and self._is_number(part, place) else part
            for part in parts
        )
        is_filled = len(given) < 2 and all(self.machine.place(part) == place for part in given)
        is_filled &= all(part is None or isinstance(part, FILLED) for part in parts)
        return kept if isinstance(index, tuple) else kept[0], is_filled

    def _is_number(self, part, place):
        whole = part.dtype in (torch.int64, torch.int32)
        return whole and not part.dim() and self.machine.place(part) == place

    def _masked_value(self, target, index, value):
        """A number of the CPU for one mask is filled in, whatever its dtype; all else must have the target's."""
        masks = [
            x
            for x in tree_leaves(index)
            if isinstance(x, T) and x.dtype in (torch.bool, torch.uint8)
        ]
        places = {self.machine.place(x) for x in (target, value, *masks)}
        if not masks or value.dtype == target.dtype or places == {None}:
            return value
        home = self.machine.place(target)
        there = [self.machine.place(mask) == home for mask in masks]
        if value.numel() == 1 and self.machine.place(value) is None and there == [True]:
            return value.to(target.dtype)
        raise RuntimeError(PUT.format(scalar_type(target.dtype), scalar_type(value.dtype)))

    def device(self, func: Any, x: Any) -> torch.device:
        return self.machine.place(x) or func(x)

    def is_cuda(self, func: Any, x: torch.Tensor) -> bool:
        return self.machine.place(x) is not None or func(x)

    def is_cpu(self, func: Any, x: torch.Tensor) -> bool:
        return self.machine.place(x) is None and func(x)

    def is_pinned(self, func: Any, x: Any, device: Any = None) -> Any:
        if device is not None:
            self.machine.device(device)
        return storage_of(x).practice is self.machine.pinned

    def cpu(self, func: Callable, x: torch.Tensor, **options: Any) -> torch.Tensor:
        return self.move(x, CPU, **options)

    def type_as(self, func: Any, x: Any, other: Any) -> Any:
        return self.to(T.to, x, other)

    def get_device(self, func: Callable, x: torch.Tensor) -> int:
        device = self.machine.place(x)
        return func(x) if device is None else device.index

    def tolist(self, func: Callable, x: torch.Tensor) -> Any:
        device = self.machine.place(x)
        if device is not None and not self.machine.values:
            return func(self.move(x.detach(), CPU))
        if device is not None:
            self.machine.copied("d2h", x)
            self.machine.waits(device)
        return func(x)

    def item(self, func: Callable, x: torch.Tensor) -> bool | int | float | complex:
        """A number of the CPU needs no look: an optimizer asks for one for each parameter."""
        if type(x) is not T or self.machine.place(x) is not None or DISPATCHED() > 1:
            return func(x)
        with torch._C._DisableTorchDispatch():
            return func(x)

    def new(self, func: Any, x: Any, *args: Any, **options: Any) -> Any:
        place = self.machine.place(x)
        if place is None:
            return func(x, *args, **options)
        goal = self.machine.device(options.get("device", place))
        out = func(x, *args)
        if args and not isinstance(args[0], (int, torch.Size)):
            return self.move(out, goal)
        return self.create(torch.empty_like, out, device=goal)

    def data_ptr(self, func: Any, x: Any) -> Any:
        """An address of a practice GPU, as its allocator gives it out; the CPU's is no one's business."""
        wraps = type(x) is not T and hasattr(x, "__tensor_flatten__")  # has no memory of its own
        if wraps or self.machine.place(x) is None or x.numel() == 0:
            return func(x)
        return self.machine.address(storage_of(x)) + x.storage_offset() * x.element_size()

    def numpy(self, func: Callable, x: torch.Tensor, *, force: Any = False) -> Any:
        if self.machine.place(x) is not None and not force:
            let_pytorch_refuse(self.machine, func, x)
        if self.machine.place(x) is not None:
            x = self.move(x.detach(), CPU)
        return func(x, force=force)

    def get_grad(self, func: Any, x: torch.Tensor) -> torch.Tensor | None:
        """Zeros that PyTorch's derivatives make are where their leaf is."""
        grad = func(x)
        if grad is not None and self.machine.place(x) is not None:
            self.machine.settle(grad, x)
        return grad

    def set_grad(self, func: Any, x: torch.Tensor, grad: torch.Tensor | None) -> Any:
        if isinstance(grad, T) and self.machine.place(grad) != self.machine.place(x):
            let_pytorch_refuse(self.machine, lambda *pair: func(*pair), x, grad)
        return func(x, grad)
