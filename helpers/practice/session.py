"""Turning practice GPUs on and off."""
import functools
import threading

import torch
from torch.overrides import _len_torch_function_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import _len_torch_dispatch_stack
from torch.utils._python_dispatch import _pop_mode as _pop_dispatch
from torch.utils._python_dispatch import _push_mode as _push_dispatch

from . import casting, cuda
from .calls import Calls, Target
from .kernels import Kernels
from .machine import Machine
from .memory import parse_size
from .streams import Streams

MISSING = object()
active = []  # the sessions that are on, outermost first


class practice_gpus:
    """``n`` practice GPUs: a context manager, a decorator, ``.start()`` and ``.stop()``, or a pytest fixture.

    ``memory`` is the size of each ("1 GiB", or bytes); ``asynchronous`` lets work run behind the caller's back, as on
    hardware. Where PyTorch has at least ``n`` real CUDA GPUs nothing is changed and ``real`` is True.
    Attributes: ``real``, ``synchronizations``, ``transfers``, ``timeline``. Raises ValueError or TypeError for bad arguments.
    """

    def __init__(self, n=1, memory="1 GiB", asynchronous=False):
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n={n!r}: give the number of practice GPUs as an int")
        if not 1 <= n <= 64:
            raise ValueError(f"n={n}: a machine has 1 to 64 practice GPUs")
        self.n, self.capacity, self.asynchronous = n, parse_size(memory), bool(asynchronous)
        self.real, self.machine, self.saved, self.started, self.depth = False, None, [], False, 0

    # --- on and off ---

    def __enter__(self):
        self.depth += 1
        if self.depth > 1:
            return self
        self.real = not active and torch.cuda.is_available() and torch.cuda.device_count() >= self.n
        if not self.real:
            self.machine = Machine(self.n, self.capacity, self.asynchronous)
            self._install()
        return self

    def __exit__(self, *exception):
        self.depth -= 1
        if not self.depth and not self.real:
            self._remove()

    def start(self):
        """Turn on for the rest of the program (or the notebook). Returns self; a second start replaces the first."""
        for other in [session for session in active if session.started]:
            if other is not self and (other.n, other.capacity, other.asynchronous) == (
                    self.n, self.capacity, self.asynchronous):
                self.__dict__.update(other.__dict__)
                active[active.index(other)] = self
                other.__dict__.update(started=False, depth=0)
            elif other is not self:
                other.stop()
        if not self.started:
            self.__enter__()
            self.started = True
        return self

    def stop(self):
        """Turn off after ``start``; does nothing when it is off already."""
        if self.started:
            self.started = False
            self.__exit__(None, None, None)

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with practice_gpus(self.n, self.capacity, self.asynchronous):
                return function(*args, **kwargs)
        return inside

    # --- what to look at ---

    @property
    def synchronizations(self):
        """How often the CPU had to wait for a practice GPU so far."""
        return self._seen("synchronizations")

    @property
    def transfers(self):
        """Copies so far: ``{"h2d": to a GPU, "d2h": from a GPU, "d2d": between GPUs}``."""
        return dict(self._seen("transfers"))

    @property
    def timeline(self):
        """List of (seconds, device index, bytes allocated, bytes reserved, label), the latest 100,000."""
        for allocator in self.machine.allocators if self.machine else ():
            allocator.settle()
        return list(self._seen("timeline"))

    def _seen(self, name):
        if self.real:
            raise NotImplementedError(f"{name} are counted on practice GPUs only, and these are real")
        if self.machine is None:
            raise RuntimeError(f"{name}: the practice GPUs were not turned on yet")
        return getattr(self.machine, name)

    # --- patches ---

    def _install(self):
        import torch._dynamo  # noqa: F401  (optimizers import it; it must not keep what is patched here)
        active.append(self)
        self.machine.streams = Streams(self.machine)
        torch.nn.parallel._functions._streams, self.streams = None, torch.nn.parallel._functions._streams
        self.default_device = torch.utils._device.CURRENT_DEVICE, getattr(
            torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        for owner, name, value in cuda.functions(self.machine):
            self._patch(owner, name, value)
        self._patch(threading.Thread, "start", started_inside(self))
        self._patch(torch, "Stream", self.machine.streams.Stream)
        self._patch(torch, "Event", self.machine.streams.Event)
        clear = torch.clear_autocast_cache
        self._patch(torch, "clear_autocast_cache", lambda: (casting.cache.clear(), clear()) and None)
        target = Target()
        self.calls, self.kernels = Calls(self.machine, target), Kernels(self.machine, target)
        push = torch._C._autograd._push_saved_tensors_default_hooks
        self._patch(torch._C._autograd, push.__name__, lambda *hooks: push(*map(self.calls.around, hooks)))
        self.package = register(self.machine)
        self.calls.__enter__()
        self.kernels.__enter__()

    def _patch(self, owner, name, value):
        self.saved.append((owner, name, vars(owner).get(name, MISSING)))
        setattr(owner, name, value)

    def _remove(self):
        self.machine.streams.close()
        self.calls.on = self.kernels.on = False
        if torch.utils._device.CURRENT_DEVICE != self.default_device[0]:
            torch.set_default_device(self.default_device[0])
        take_out(self.kernels, _len_torch_dispatch_stack, _pop_dispatch, _push_dispatch)
        take_out(self.calls, _len_torch_function_stack, _pop_mode, _push_mode)
        torch.serialization._package_registry.remove(self.package)
        while self.saved:
            owner, name, value = self.saved.pop()
            if value is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        casting.cache.clear()
        torch.nn.parallel._functions._streams = self.streams
        active.remove(self)


def take_out(mode, length, pop, push):
    """Remove ``mode`` from PyTorch's stack of modes, wherever in it it is."""
    above = []
    while length():
        top = pop()
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        push(other)


def started_inside(session, original=threading.Thread.start):
    """``Thread.start``: a thread started while practice GPUs are on sees them too."""
    def start(thread):
        run = thread.run

        def inside():
            if session not in active:
                return run()
            with session.calls, session.kernels:
                return run()
        thread.run = inside
        original(thread)
    return start


def register(machine):
    """Teach ``torch.save`` and ``torch.load`` where practice tensors live; returns what to remove later."""
    def tag(held):
        device = cuda.label(machine, held) if isinstance(held, torch.UntypedStorage) else None
        machine.streams.drain(device)
        return None if device is None else str(device)

    def restore(held, location):
        if not location.startswith("cuda"):
            return None
        device = machine.devices[torch.serialization._validate_device(location, "cuda").index]
        machine.put(torch.empty(0, dtype=torch.uint8).set_(held), device)
        return held
    torch.serialization.register_package(5, tag, restore)
    return next(entry for entry in torch.serialization._package_registry if entry[1] is tag)
