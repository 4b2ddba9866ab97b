"""`Calls` sees every call from Python: it turns ``device=`` arguments into labels, and labels into answers.

PyTorch's own Python functions run with the mode on (see `patches.overridden`), so only C functions arrive here.
"""
import contextlib
import functools

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import _device

from . import casting
from .kernels import tensors
from .machine import CPU, storage
from .rules import recurrent

T, FACTORIES = torch.Tensor, _device._device_constructors()
NUMPY = "can't convert {} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
GRAD = ("attempting to assign a gradient with device type '{}' to a tensor with device type '{}'. Please ensure that "
        "the gradient and the tensor are on the same device")
LENGTHS = "'lengths' argument should be a 1D CPU int64 tensor, but got {}D {} Long tensor"


class Calls(TorchFunctionMode):
    """Turns devices in calls into labels, and labels into answers."""

    def __init__(self, machine):
        super().__init__()
        self.machine, self.on, place = machine, False, machine.place
        names, functions = torch._C._VariableFunctions, torch._C._nn
        made = [*FACTORIES, T.new_tensor, functions.one_hot, functions.unflatten_dense_tensors]  # some of them in C++
        self.table = dict.fromkeys(made, self.create) | {
            func: functools.partial(casting.cast, policy, machine) for func, policy in casting.policies().items()}
        self.table |= dict.fromkeys([names.lstm, names.gru, names.rnn_tanh, names.rnn_relu], self.recurrent)
        self.table |= dict.fromkeys([T.get_device, torch.get_device], self.get_device) | {
            T.device.__get__: lambda func, args, kwargs: place(args[0]) or func(*args),
            T.is_cuda.__get__: lambda func, args, kwargs: place(args[0]) is not None or func(*args),
            T.is_cpu.__get__: lambda func, args, kwargs: place(args[0]) is None and func(*args),
            T.is_pinned: lambda func, args, kwargs: storage(args[0]).practice is machine.pinned,
            T.cpu: lambda func, args, kwargs: self.move(args[0], CPU, **kwargs),
            T.type_as: lambda func, args, kwargs: self.to(T.to, args, kwargs),
            T.to: self.to, T.cuda: self.cuda, T.numpy: self.numpy, T.tolist: self.tolist, T.type: self.type,
            T.pin_memory: self.pin_memory, T.copy_: self.copy_, T.__setitem__: self.setitem,
            T.grad.__set__: self.set_grad, names._pack_padded_sequence: self.pack_padded}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        handler = self.table.get(func) if self.on else None
        if handler is not None:
            return handler(func, args, kwargs or {})
        if kwargs and self.on and ("device" in kwargs or kwargs.get("generator") is not None):
            return self.create(func, args, kwargs)
        return func(*args, **kwargs) if kwargs else func(*args)

    def around(self, hook):
        """``hook`` with the mode on: PyTorch calls saved-tensor hooks from inside other calls."""
        @functools.wraps(hook)
        def inside(*args):
            with contextlib.nullcontext() if self in _get_current_function_mode_stack() or not self.on else self:
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

    # --- making tensors ---

    def create(self, func, args, kwargs):
        """A call with ``device=`` or ``generator=``, or of a factory that follows the default device."""
        machine, like = self.machine, args[0] if args and isinstance(args[0], T) else None
        device, pin = kwargs.get("device"), kwargs.pop("pin_memory", False)
        device = default_device(func) if device is None else device
        goal = machine.device(device) if device is not None else like is not None and machine.place(like) or CPU
        if goal.type not in ("cpu", "cuda"):
            return func(*args, **kwargs)
        check(goal, kwargs.get("generator"), pin)
        if like is not None and func in (torch.as_tensor, torch.asarray):
            return self.move(func(*args, **kwargs | {"device": None}), goal)
        with self.toward(goal):
            out = func(*args, **kwargs if device is None else kwargs | {"device": CPU})
        for tensor in tensors(out) if goal.type == "cuda" else ():
            machine.put(tensor, goal)
        if pin:
            storage(out).practice = machine.pinned
        return out

    # --- moving tensors ---

    def move(self, x, device, non_blocking=False, **options):
        """``x`` on ``device``: itself if it is there, else a copy through which gradients flow back to its device."""
        source = self.machine.place(x) or x.device
        if device == source:
            return T.to(x, **options) if options else x
        if {device.type, source.type} - {"cpu", "cuda"}:
            return T.to(x, device=device, non_blocking=non_blocking, **options)
        with self.toward(device):
            y = T.to(x, CPU, **{"dtype": x.dtype} | options | {"copy": True, "non_blocking": non_blocking})
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

    def to(self, func, args, kwargs):
        """``x.to(device, dtype, …)``, ``x.to(dtype, …)`` or ``x.to(other, …)``."""
        x, *rest = args
        first = rest[0] if rest else kwargs.pop("other", None)
        if isinstance(first, T):
            rest[:1] = self.machine.place(first) or first.device, first.dtype
        elif isinstance(first, torch.dtype):
            rest.insert(0, None)
        options = dict(zip(("device", "dtype", "non_blocking", "copy"), rest, strict=False)) | kwargs
        device = options.pop("device", None)
        options = {key: value for key, value in options.items() if value is not None}
        return func(x, **options) if device is None else self.move(x, self.machine.device(device), **options)

    def cuda(self, func, args, kwargs):
        options = dict(zip(("device", "non_blocking"), args[1:], strict=False)) | kwargs
        device = self.machine.device(options.pop("device", None))
        if device.type != "cuda":
            raise RuntimeError("Invalid device, must be cuda device")
        return self.move(args[0], device, **options)

    def type(self, func, args, kwargs):
        x, name = args[0], args[1] if len(args) > 1 else kwargs.get("dtype")
        if name is None:
            return func(x) if self.machine.place(x) is None else func(x).replace("torch.", "torch.cuda.", 1)
        if isinstance(name, torch.dtype):
            return func(*args, **kwargs)
        goal = self.machine.device(None) if "cuda." in str(name) else CPU
        return self.move(func(x, name.replace("cuda.", "", 1) if isinstance(name, str) else name), goal)

    def pin_memory(self, func, args, kwargs):
        x, pinned = args[0], self.machine.pinned
        if self.machine.place(x) is not None:
            raise RuntimeError(f"cannot pin '{self.type(T.type, args[:1], {})}' only dense CPU tensors can be pinned")
        if storage(x).practice is not pinned:
            x = x.clone()
            storage(x).practice = pinned
        return x

    def copy_(self, func, args, kwargs):
        target, source, *rest = args
        if source.requires_grad and torch.is_grad_enabled():  # so that gradients find the way back
            source = self.move(source, self.machine.place(target) or CPU)
        return func(target, source, *rest, **kwargs)

    def setitem(self, func, args, kwargs):
        (target, index, value), place = args, self.machine.place(args[0])
        if isinstance(value, T) and (value.requires_grad or not value.dim()):
            value = self.move(value, place or CPU)
        elif place is not None and isinstance(value, (int, float, complex)):
            value = target.new_full((), value)
        return func(target, index, value)

    # --- questions and checks ---

    def get_device(self, func, args, kwargs):
        device = self.machine.place(args[0])
        return func(*args) if device is None else device.index

    def tolist(self, func, args, kwargs):
        device = self.machine.place(args[0])
        if device is not None:
            self.machine.transfers["d2h"] += 1
            self.machine.waits(device)
        return func(*args)

    def numpy(self, func, args, kwargs):
        device = self.machine.place(args[0])
        if device is not None and not kwargs.get("force"):
            raise TypeError(NUMPY.format(device))
        return func(*args, **kwargs) if device is None else func(self.move(args[0].detach(), CPU), **kwargs)

    def set_grad(self, func, args, kwargs):
        if isinstance(args[1], T) and self.machine.place(args[1]) != self.machine.place(args[0]):
            raise RuntimeError(GRAD.format(*((self.machine.place(t) or t.device).type for t in args[::-1])))
        return func(*args)

    def recurrent(self, func, args, kwargs):
        recurrent(self.machine, args)
        return casting.cast("lower", self.machine, func, args, kwargs)

    def pack_padded(self, func, args, kwargs):
        device = self.machine.place(args[1])
        if device is not None:
            raise RuntimeError(LENGTHS.format(args[1].dim(), device))
        data, sizes = func(*args, **kwargs)
        storage(sizes).practice = None  # PyTorch keeps them on the CPU
        return data, sizes


def default_device(func):
    """The device that ``torch.set_default_device`` or ``with torch.device(…)`` gives to a factory in this thread."""
    if _device.CURRENT_DEVICE is not None and func in FACTORIES:
        modes = _get_current_function_mode_stack()
        return next((mode.device for mode in modes if isinstance(mode, _device.DeviceContext)), None)


def check(device, generator, pin):
    """Refuse, as PyTorch does, a generator of another device, and pinned memory on a GPU."""
    if generator is not None and generator.device.type != device.type and generator is not torch.default_generator:
        raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{generator.device.type}'")
    if pin and device.type == "cuda":
        raise RuntimeError("Only dense CPU tensors can be pinned")
