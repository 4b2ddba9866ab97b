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
            T.grad.__set__: self.set_grad, T.tolist: self.tolist, T.record_stream: self.nothing,
            torch.as_tensor: self.as_tensor, torch.asarray: self.as_tensor, torch.tensor: self.tensor,
            T.new_tensor: self.new_tensor,
        }
        self.table.update({func: self.create for func in _device._device_constructors() if func not in self.table})
        self.table.update({func: functools.partial(casting.cast, policy, self) for func, policy in casting.policies().items()})

    def __torch_function__(self, func, types, args=(), kwargs=None):
        handler = self.table.get(func) if self.on else None
        if handler is not None:
            return handler(func, args, kwargs or {})
        if kwargs:
            return self.create(func, args, kwargs) if self.on and "device" in kwargs else func(*args, **kwargs)
        return func(*args)

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

    def nothing(self, func, args, kwargs):
        return None

    # --- making tensors ---

    def create(self, func, args, kwargs):
        """A call with ``device=``, or of a factory that follows the default device."""
        device = kwargs.get("device")
        pin = kwargs.pop("pin_memory", False)
        if device is None:
            device = self.default(func)
        if device is None:
            with self.toward(self.machine.place(args[0]) if args and isinstance(args[0], T) else CPU):
                out = func(*args, **kwargs)
        else:
            device = self.machine.device(device)
            if device.type not in ("cuda", "cpu"):
                return func(*args, **kwargs)
            generator = kwargs.get("generator")
            if generator is not None and generator.device.type != device.type:
                raise RuntimeError(f"Expected a '{device.type}' device type for generator but found "
                                   f"'{generator.device.type}'")
            with self.toward(device):
                out = func(*args, **kwargs | {"device": CPU})
            self.settle(out, device)
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
        return self.move(args[0], self.machine.device("cuda" if device is None else device), **options)

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
        if isinstance(value, T) and (value.requires_grad or not value.dim()):
            value = self.move(value, self.machine.place(target) or CPU)
        return func(target, index, value)

    def set_grad(self, func, args, kwargs):
        x, grad = args
        if isinstance(grad, T) and self.machine.place(grad) != self.machine.place(x):
            types = [(self.machine.place(t) or t.device).type for t in (grad, x)]
            raise RuntimeError(GRAD.format(*types))
        return func(x, grad)
