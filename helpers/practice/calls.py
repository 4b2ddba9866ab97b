"""`Calls` sees every call from Python: it turns ``device=`` arguments into labels, and labels into answers.

PyTorch's own Python functions run with the mode on (see `cuda.overridden`), so only C functions arrive here.
"""
import contextlib
import functools
import threading

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import _device

from . import casting
from .machine import CPU, storage
from .rules import recurrent

T = torch.Tensor
NUMPY = "can't convert {} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
GRAD = ("attempting to assign a gradient with device type '{}' to a tensor with device type '{}'. Please ensure that "
        "the gradient and the tensor are on the same device")


class Target(threading.local):
    """Where a factory called in this thread puts its result; None outside such calls."""
    device = None


class Calls(TorchFunctionMode):
    """Turns devices in calls into labels, and labels into answers."""

    def __init__(self, machine, target):
        super().__init__()
        self.machine, self.target, self.on = machine, target, True
        self.table = {
            T.device.__get__: self.device, T.is_cuda.__get__: self.is_cuda, T.is_cpu.__get__: self.is_cpu,
            T.get_device: self.get_device, torch.get_device: self.get_device, T.to: self.to, T.cuda: self.cuda,
            T.cpu: self.cpu, T.numpy: self.numpy, T.type: self.type, T.is_pinned: self.is_pinned,
            T.pin_memory: self.pin_memory, T.copy_: self.copy_, T.__setitem__: self.setitem,
            T.grad.__set__: self.set_grad, T.tolist: self.tolist, T.type_as: self.type_as,
            torch.as_tensor: self.as_tensor, torch.asarray: self.as_tensor, torch.tensor: self.tensor,
            T.new_tensor: self.new_tensor,
        }
        self.table.update({func: self.create for func in _device._device_constructors() if func not in self.table})
        self.table.update({func: functools.partial(casting.cast, policy, self)
                           for func, policy in casting.policies().items()})
        V = torch._C._VariableFunctions
        self.table.update({getattr(V, name): self.recurrent for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")})
        self.table[V._pack_padded_sequence] = self.pack_padded

    def __torch_function__(self, func, types, args=(), kwargs=None):
        handler = self.table.get(func) if self.on else None
        if handler is not None:
            return handler(func, args, kwargs or {})
        if kwargs:
            if self.on and ("device" in kwargs or kwargs.get("generator") is not None):
                return self.create(func, args, kwargs)
            return func(*args, **kwargs)
        return func(*args)

    def around(self, hook):
        """``hook`` with the mode on: PyTorch calls saved-tensor hooks from inside other calls."""
        @functools.wraps(hook)
        def inside(*args):
            if self in _get_current_function_mode_stack() or not self.on:
                return hook(*args)
            with self:
                return hook(*args)
        return inside

    @contextlib.contextmanager
    def toward(self, device):
        before, self.target.device = self.target.device, device
        try:
            yield
        finally:
            self.target.device = before

    # --- questions ---

    def device(self, func, args, kwargs):
        return self.machine.place(args[0]) or func(*args)

    def is_cuda(self, func, args, kwargs):
        return self.machine.place(args[0]) is not None or func(*args)

    def is_cpu(self, func, args, kwargs):
        return self.machine.place(args[0]) is None and func(*args)

    def get_device(self, func, args, kwargs):
        device = self.machine.place(args[0])
        return func(*args) if device is None else device.index

    def is_pinned(self, func, args, kwargs):
        return storage(args[0]).practice is self.machine.pinned

    def tolist(self, func, args, kwargs):
        place = self.machine.place(args[0])
        if place is not None:
            self.machine.synchronized(self.machine.streams.current(place))
        return func(*args)

    def numpy(self, func, args, kwargs):
        device = self.machine.place(args[0])
        if device is None:
            return func(*args, **kwargs)
        if not kwargs.get("force"):
            raise TypeError(NUMPY.format(device))
        return func(self.move(args[0].detach(), CPU), **kwargs)

    # --- making tensors ---

    def create(self, func, args, kwargs):
        """A call with ``device=`` or ``generator=``, or of a factory that follows the default device."""
        device, like = kwargs.get("device"), args[0] if args and isinstance(args[0], T) else None
        if device is None:
            device = self.default(func)
        goal = self.machine.device(device) if device is not None else like is not None and self.machine.place(like) or CPU
        if goal.type not in ("cpu", "cuda"):
            return func(*args, **kwargs)
        generator, pin = kwargs.get("generator"), kwargs.pop("pin_memory", False)
        if generator is not None and generator.device.type != goal.type:
            raise RuntimeError(f"Expected a '{goal.type}' device type for generator but found '{generator.device.type}'")
        if pin and goal.type == "cuda":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        with self.toward(goal):
            out = func(*args, **kwargs if device is None else kwargs | {"device": CPU})
        if device is not None:
            self.settle(out, goal)
        if pin:
            storage(out).practice = self.machine.pinned
        return out

    def default(self, func):
        """The device set by ``torch.set_default_device`` or ``with torch.device(…)``, for a factory."""
        if _device.CURRENT_DEVICE is None or func not in _device._device_constructors():
            return None
        stack = _get_current_function_mode_stack()
        return next((mode.device for mode in stack if isinstance(mode, _device.DeviceContext)), None)

    def settle(self, out, device):
        """Label what a factory made without the dispatcher's knowledge."""
        for tensor in out if type(out) in (list, tuple) else (out,):
            if isinstance(tensor, T) and tensor.device.type == "cpu":
                if device.type == "cuda":
                    self.machine.put(tensor, device)
                elif storage(tensor).practice is self.machine.floating:
                    storage(tensor).practice = None

    def as_tensor(self, func, args, kwargs):
        if isinstance(args[0], T):
            device = kwargs.pop("device", None) or self.machine.place(args[0]) or CPU
            return self.move(func(*args, **kwargs), self.machine.device(device))
        return self.create(func, args, kwargs)

    def tensor(self, func, args, kwargs):
        if args and isinstance(args[0], T) and kwargs.get("device") is None:
            kwargs["device"] = self.machine.place(args[0]) or CPU
        return self.create(func, args, kwargs)

    def new_tensor(self, func, args, kwargs):
        if kwargs.get("device") is None:
            kwargs["device"] = self.machine.place(args[0]) or CPU
        return self.create(func, args, kwargs)

    # --- moving tensors ---

    def move(self, x, device, non_blocking=False, **options):
        """``x`` on ``device``: itself if it is there, else a copy through which gradients flow back to its device."""
        source = self.machine.place(x) or CPU
        if device == source or x.device.type != "cpu" or device.type not in ("cpu", "cuda"):
            rest = options if device.type in ("cpu", "cuda") and x.device.type == "cpu" else {"device": device, **options}
            return T.to(x, **rest) if rest else x
        options = {"dtype": x.dtype, **options, "copy": True, "non_blocking": non_blocking}
        with self.toward(device):
            y = T.to(x, CPU, **options)
        self.settle(y, device)
        if device == CPU and non_blocking:
            storage(y).practice = self.machine.pinned
        if y.grad_fn is not None:
            back = functools.partial(self._back, source)
            y.grad_fn.register_hook(back)
        return y

    def _back(self, source, inputs, outputs):
        with torch._C.DisableTorchFunction():
            return tuple(g if g is None else self.move(g, source) for g in inputs)

    def to(self, func, args, kwargs):
        x, *rest = args
        if rest and isinstance(rest[0], T) or "other" in kwargs:
            other = kwargs.pop("other", None) if "other" in kwargs else rest.pop(0)
            kwargs = {"dtype": other.dtype, **kwargs, "device": self.machine.place(other) or other.device}
        elif rest and isinstance(rest[0], (int, str, torch.device)) and not isinstance(rest[0], bool):
            kwargs["device"] = rest.pop(0)
            kwargs.update(zip(("dtype", "non_blocking", "copy"), rest))
            rest = []
        elif rest and rest[0] is None:
            kwargs.update(zip(("device", "dtype", "non_blocking", "copy"), rest))
            rest = []
        device = kwargs.pop("device", None)
        if device is None:
            return func(x, *rest, **kwargs)
        kwargs.update(zip(("non_blocking", "copy"), rest))
        return self.move(x, self.machine.device(device), **{k: v for k, v in kwargs.items() if v is not None})

    def cuda(self, func, args, kwargs):
        options = dict(zip(("device", "non_blocking"), args[1:])) | kwargs
        device = options.pop("device", None)
        device = self.machine.device("cuda" if device is None else device)
        if device.type != "cuda":
            raise RuntimeError("Invalid device, must be cuda device")
        return self.move(args[0], device, **options)

    def type_as(self, func, args, kwargs):
        return self.to(T.to, args, kwargs)

    def cpu(self, func, args, kwargs):
        return self.move(args[0], CPU, **kwargs)

    def type(self, func, args, kwargs):
        x, name = args[0], args[1] if len(args) > 1 else kwargs.get("dtype")
        device = self.machine.place(x)
        if name is None:
            return func(x) if device is None else func(x).replace("torch.", "torch.cuda.", 1)
        if isinstance(name, str) and name.startswith("torch.cuda."):
            return self.move(func(x, name.replace("cuda.", "", 1)), self.machine.device("cuda"))
        return func(*args, **kwargs) if isinstance(name, torch.dtype) else self.move(func(*args, **kwargs), CPU)

    def pin_memory(self, func, args, kwargs):
        device = self.machine.place(args[0])
        if device is not None:
            raise RuntimeError(f"cannot pin '{self.type(T.type, args[:1], {})}' only dense CPU tensors can be pinned")
        if storage(args[0]).practice is self.machine.pinned:
            return args[0]
        out = args[0].clone()
        storage(out).practice = self.machine.pinned
        return out

    def copy_(self, func, args, kwargs):
        target, source = args[0], args[1] if len(args) > 1 else kwargs.pop("src")
        if source.requires_grad and torch.is_grad_enabled():
            source = self.move(source, self.machine.place(target) or CPU)
        return func(target, source, *args[2:], **kwargs)

    def setitem(self, func, args, kwargs):
        target, index, value = args
        place = self.machine.place(target)
        if isinstance(value, T) and (value.requires_grad or not value.dim()):
            value = self.move(value, place or CPU)
        elif place is not None and isinstance(value, (int, float, complex)):
            value = target.new_full((), value)
        return func(target, index, value)

    def set_grad(self, func, args, kwargs):
        x, grad = args
        if isinstance(grad, T) and self.machine.place(grad) != self.machine.place(x):
            types = [(self.machine.place(t) or t.device).type for t in (grad, x)]
            raise RuntimeError(GRAD.format(*types))
        return func(x, grad)

    # --- sequences ---

    def recurrent(self, func, args, kwargs):
        recurrent(self.machine, args)
        return casting.cast("lower", self, func, args, kwargs)

    def pack_padded(self, func, args, kwargs):
        device = self.machine.place(args[1])
        if device is not None:
            raise RuntimeError("'lengths' argument should be a 1D CPU int64 tensor, but got "
                               f"{args[1].dim()}D {device} Long tensor")
        data, sizes = func(*args, **kwargs)
        storage(sizes).practice = None  # PyTorch keeps them on the CPU
        return data, sizes
