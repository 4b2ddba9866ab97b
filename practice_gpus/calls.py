"""`Calls` sees every call from Python: it turns ``device=`` arguments into labels, and labels into answers.

PyTorch's own Python functions run with the mode on (see `patches.overridden`), so only C functions arrive here.
"""

import contextlib
import functools

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import _device
from torch.utils._pytree import tree_leaves

from . import casting
from .machine import CPU, storage
from .operators import meta, tensors
from .rules import asked

T, FACTORIES = torch.Tensor, _device._device_constructors()


class Calls(TorchFunctionMode):
    """Turns devices in calls into labels, and labels into answers. A handler gets the function, then its arguments."""

    def __init__(self, machine):
        super().__init__()
        self.machine, self.on, place = machine, False, machine.place
        names, functions = torch._C._VariableFunctions, torch._C._nn
        made = [
            *FACTORIES,
            T.new_tensor,
            functions.one_hot,
            functions.unflatten_dense_tensors,
        ]  # some of them in C++
        self.table = (
            dict.fromkeys(made, self.create)
            | {
                func: functools.partial(casting.cast, policy, machine)
                for func, policy in casting.policies().items()
            }
            | {
                T.device.__get__: lambda func, x: place(x) or func(x),
                T.is_cuda.__get__: lambda func, x: place(x) is not None or func(x),
                T.is_cpu.__get__: lambda func, x: place(x) is None and func(x),
                T.is_pinned: lambda func, x, device=None: storage(x).practice is machine.pinned,
                T.cpu: lambda func, x, **options: self.move(x, CPU, **options),
                T.type_as: lambda func, x, other: self.to(T.to, x, other),
                T.get_device: self.get_device,
                torch.get_device: self.get_device,
                T.to: self.to,
                T.cuda: self.cuda,
                T.numpy: self.numpy,
                T.tolist: self.tolist,
                T.type: self.type,
                T.pin_memory: self.pin_memory,
                T.copy_: self.copy_,
                T.__setitem__: self.setitem,
                T.grad.__set__: self.set_grad,
                names._pack_padded_sequence: self.pack_padded,
            }
        )
        self.table |= dict.fromkeys(
            [
                names.lstm,
                names.gru,
                names.rnn_tanh,
                names.rnn_relu,
                functions.scaled_dot_product_attention,
            ],
            self.fused,
        )

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        handler = self.table.get(func) if self.on else func
        if handler is None:
            handler = (
                self.create if "device" in kwargs or kwargs.get("generator") is not None else func
            )
        return func(*args, **kwargs) if handler is func else handler(func, *args, **kwargs)

    def around(self, hook):
        """``hook`` with the mode on: PyTorch calls saved-tensor hooks from inside other calls."""

        @functools.wraps(hook)
        def inside(*args):
            with (
                contextlib.nullcontext()
                if self in _get_current_function_mode_stack() or not self.on
                else self
            ):
                return hook(*args)

        return inside

    @contextlib.contextmanager
    def toward(self, device):
        """Factories put their results on ``device``."""
        local = self.machine.local
        before, local.target = local.target, device
        try:
            yield
        finally:
            local.target = before

    def create(self, func, *args, device=None, pin_memory=False, **kwargs):
        """A call with ``device=`` or ``generator=``, or of a factory that follows the default device."""
        machine, like = self.machine, args[0] if args and isinstance(args[0], T) else None
        device = default_device(func) if device is None else device
        goal = (
            machine.device(device)
            if device is not None
            else like is not None and machine.place(like) or CPU
        )
        if goal.type not in ("cpu", "cuda"):
            return func(*args, device=device, **kwargs)
        check(goal, kwargs.get("generator"), pin_memory)
        if like is not None and func in (torch.as_tensor, torch.asarray):
            return self.move(func(*args, **kwargs), goal)
        with self.toward(goal):
            out = func(*args, **kwargs if device is None else kwargs | {"device": CPU})
        for tensor in tensors(out) if goal.type == "cuda" else ():
            machine.put(tensor, goal)
        if pin_memory:
            storage(out).practice = machine.pinned
        return out

    def move(self, x, device, non_blocking=False, **options):
        """``x`` on ``device``: itself if it is there, else a copy through which gradients flow back to its device."""
        source = self.machine.place(x) or x.device
        if device == source:
            return T.to(x, **options) if options else x
        if device.type == "cuda" and source.type not in ("cpu", "cuda"):  # an Apple or Intel GPU
            x, source = T.to(x, CPU), CPU
        if {device.type, source.type} - {"cpu", "cuda"}:
            return T.to(x, device=device, non_blocking=non_blocking, **options)
        with self.toward(device):
            y = T.to(
                x,
                CPU,
                **{"dtype": x.dtype} | options | {"copy": True, "non_blocking": non_blocking},
            )
        if device.type == "cuda":
            self.machine.put(y, device)
        elif non_blocking:
            storage(y).practice = self.machine.pinned
        if y.grad_fn is not None:
            y.grad_fn.register_hook(functools.partial(self._back, source))
        return y

    def _back(self, source, inputs, outputs):
        with torch._C.DisableTorchFunction():
            return tuple(g if g is None else self.move(g, source) for g in inputs)

    def to(self, func, x, *rest, **options):
        """``x.to(device, dtype, …)``, ``x.to(dtype, …)`` or ``x.to(other, …)``."""
        first = rest[0] if rest else options.pop("other", None)
        if isinstance(first, T):
            rest = self.machine.place(first) or first.device, first.dtype, *rest[1:]
        elif isinstance(first, torch.dtype):
            rest = None, *rest
        options |= dict(zip(("device", "dtype", "non_blocking", "copy"), rest, strict=False))
        device = options.pop("device", None)
        options = {key: value for key, value in options.items() if value is not None}
        return (
            func(x, **options)
            if device is None
            else self.move(x, self.machine.device(device), **options)
        )

    def cuda(self, func, x, device=None, non_blocking=False, **options):
        device = self.machine.device(device)
        if device.type != "cuda":
            raise RuntimeError("Invalid device, must be cuda device")
        return self.move(x, device, non_blocking, **options)

    def type(self, func, x, dtype=None, **options):
        if dtype is None:
            return (
                func(x)
                if self.machine.place(x) is None
                else func(x).replace("torch.", "torch.cuda.", 1)
            )
        if isinstance(dtype, torch.dtype):
            return func(x, dtype, **options)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        return self.move(
            func(x, name.replace("cuda.", "")),
            self.machine.device(None) if "cuda." in name else CPU,
        )

    def pin_memory(self, func, x, device=None):
        if self.machine.place(x) is not None:
            raise RuntimeError(
                f"cannot pin '{self.type(T.type, x)}' only dense CPU tensors can be pinned"
            )
        if storage(x).practice is not self.machine.pinned:
            x = x.clone()
            storage(x).practice = self.machine.pinned
        return x

    def copy_(self, func, target, source, *rest, **options):
        if source.requires_grad and torch.is_grad_enabled():  # so that gradients find the way back
            source = self.move(source, self.machine.place(target) or CPU)
        return func(target, source, *rest, **options)

    def setitem(self, func, target, index, value):
        place = self.machine.place(target)
        if isinstance(value, T) and (value.requires_grad or not value.dim()):
            value = self.move(value, place or CPU)
        elif place is not None and isinstance(value, (int, float, complex)):
            value = target.new_full((), value)
        return func(target, index, value)

    def get_device(self, func, x):
        device = self.machine.place(x)
        return func(x) if device is None else device.index

    def tolist(self, func, x):
        device = self.machine.place(x)
        if device is not None:
            self.machine.transfers["d2h"] += 1
            self.machine.waits(device)
        return func(x)

    def numpy(self, func, x, *, force=False):
        if self.machine.place(x) is not None and not force:
            asked(self.machine, func, x)
        return func(x if self.machine.place(x) is None else self.move(x.detach(), CPU), force=force)

    def set_grad(self, func, x, grad):
        if isinstance(grad, T) and self.machine.place(grad) != self.machine.place(x):
            asked(self.machine, lambda *pair: func(*pair), x, grad)
        return func(x, grad)

    def fused(self, func, *args, **kwargs):
        """Attention or a recurrent layer, which compare the devices of their inputs first."""
        if (
            len({self.machine.place(x) for x in tree_leaves((args, kwargs)) if isinstance(x, T)})
            > 1
        ):
            asked(self.machine, func, *args, **kwargs)
        return casting.cast("lower", self.machine, func, *args, **kwargs)

    def pack_padded(self, func, x, lengths, *rest):
        if self.machine.place(lengths) is not None:
            asked(self.machine, lambda it: func(meta(x), it, *rest), lengths)
        data, sizes = func(x, lengths, *rest)
        storage(sizes).practice = None  # PyTorch keeps them on the CPU
        return data, sizes


def default_device(func):
    """The device that ``torch.set_default_device`` or ``with torch.device(…)`` gives to a factory in this thread."""
    if _device.CURRENT_DEVICE is not None and func in FACTORIES:
        modes = _get_current_function_mode_stack()
        return next(
            (mode.device for mode in modes if isinstance(mode, _device.DeviceContext)), None
        )


def check(device, generator, pin):
    """Refuse, as PyTorch does, a generator of another device, and pinned memory on a GPU."""
    if (
        generator is not None
        and generator.device.type != device.type
        and generator is not torch.default_generator
    ):
        raise RuntimeError(
            f"Expected a '{device.type}' device type for generator but found '{generator.device.type}'"
        )
    if pin and device.type == "cuda":
        raise RuntimeError("Only dense CPU tensors can be pinned")
