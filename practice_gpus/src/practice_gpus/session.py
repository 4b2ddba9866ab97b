"""Turning practice GPUs on and off."""

import contextlib
import functools
import sys
import threading
from importlib.machinery import PathFinder

import torch
from torch import overrides
from torch.utils import _device, _python_dispatch

from . import interrupts, processes
from .dispatch import Kernels
from .functions import Calls
from .machine import Machine, Place
from .memory import parse_size
from .patches import attention, patches

MISSING = object()
active = []  # the sessions that are on, outermost first; the last one rules


def computes(index):
    """Whether the real GPU ``index`` runs this build's code; a card older than the build has no kernels in it."""
    try:
        return bool((torch.ones(1, device=f"cuda:{index}") == 1).item())
    except RuntimeError:
        return False


def enough_real_gpus(n):
    """Whether PyTorch has ``n`` CUDA GPUs that compute."""
    return torch.cuda.device_count() >= n and all(computes(index) for index in range(n))


class practice_gpus(contextlib.ContextDecorator):
    """``n`` practice GPUs, on for a ``with`` block, a decorated function, or from ``start()`` to ``stop()``.

    ``memory`` is the size of each: bytes, or text such as "1 GiB". On an ``asynchronous`` machine calls return before
    the work is done, as on hardware. Where PyTorch has ``n`` real CUDA GPUs, and code for them, nothing is changed, and
    ``real`` is True. Raises TypeError or ValueError for arguments that do not fit.
    """

    def __init__(self, n=1, memory="1 GiB", asynchronous=False):
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n={n!r}: give the number of practice GPUs as an int")
        if not 1 <= n <= 64:
            raise ValueError(f"n={n}: a machine has 1 to 64 practice GPUs")
        if not isinstance(asynchronous, bool):
            raise TypeError(f"asynchronous={asynchronous!r}: give True or False")
        self.settings = (n, parse_size(memory), asynchronous)
        self.real = False
        self.machine = None
        self.depth = 0
        self.started = False

    def __enter__(self):
        if self.depth == 0:
            self.real = not active and enough_real_gpus(self.settings[0])
            if not self.real:
                self._install()
        self.depth += 1  # not before: what could not be turned on is off
        return self

    def __exit__(self, *exception):
        self.depth -= 1
        if self.depth == 0 and not self.real:
            active.remove(self)
            self.undo.close()

    def start(self):
        """Turn on for the rest of the program or notebook, and return self. Instead of an earlier start, not beside it:
        where that one asked for the same machine, the machine stays, and so do the tensors on it."""
        earlier = next((session for session in active if session.started), None)
        if earlier is not None and earlier is not self:
            if earlier.settings == self.settings:
                self.__dict__.update(earlier.__dict__)
                active[active.index(earlier)] = self
                earlier.started = False
                earlier.depth = 0
            else:
                earlier.stop()
        if not self.started:
            self.__enter__()
            self.started = True
        return self

    def stop(self):
        """Turn off what ``start`` turned on; does nothing when it is off already."""
        if self.started:
            self.started = False
            self.__exit__()

    def _recreate_cm(self):
        return practice_gpus(*self.settings)  # a decorated function has new ones at each call

    @property
    def synchronizations(self):
        """How often the CPU has waited for a practice GPU."""
        return self._counted("synchronizations")

    @property
    def transfers(self):
        """Copies so far: ``{"h2d": to a GPU, "d2h": from a GPU, "d2d": between GPUs}``."""
        return dict(self._counted("transfers"))

    @property
    def timeline(self):
        """List of (seconds, device index, bytes allocated, bytes reserved, label), the latest 100,000."""
        if self.machine:
            for allocator in self.machine.allocators:
                allocator.settle()
        return list(self._counted("timeline"))

    def _counted(self, name):
        if self.real:
            raise NotImplementedError(
                f"{name}: counted on practice GPUs only, and these GPUs are real"
            )
        if self.machine is None:
            raise RuntimeError(f"{name}: the practice GPUs were not turned on yet")
        return getattr(self.machine, name)

    def _install(self):
        machine = Machine(*self.settings)
        self.patched = []
        self.calls = Calls(machine)
        self.kernels = Kernels(machine)
        if machine.asynchronous:
            _import_dynamo()
        # so that a failure, or an interrupt, leaves nothing behind
        with contextlib.ExitStack() as undo:
            for owner, name, value in (*self._switches(), *patches(machine, self.calls)):
                self.patched.append([owner, name, vars(owner).get(name, MISSING)])
                undo.callback(exchange, self.patched[-1])
                setattr(owner, name, value)
            undo.callback(_restore_default_device, _device.CURRENT_DEVICE)
            self.calls.__enter__()
            undo.callback(_take_out, self.calls, overrides, overrides._len_torch_function_stack)
            self.kernels.__enter__()
            length = _python_dispatch._len_torch_dispatch_stack
            undo.callback(_take_out, self.kernels, _python_dispatch, length)
            undo.enter_context(processes.sent(machine))
            undo.callback(sys.meta_path.remove, Importer)
            sys.meta_path.insert(0, Importer)
            undo.callback(machine.streams.close)
            self.machine = machine
            self.undo = undo.pop_all()
            active.append(self)

    def _switches(self):
        """(object, name, value) that turn the outer session off and this one on."""
        for session in active[-1:]:
            yield session.calls, "on", False
            yield session.kernels, "on", False
        yield self.calls, "on", True
        yield self.kernels, "on", True
        yield threading.Thread, "start", inherited(self)
        yield sys, "unraisablehook", interrupts.passed_on(sys.unraisablehook, Place.__del__)


def _import_dynamo():
    """An asynchronous machine's first operator would import it; in a thread no interrupt cuts that."""
    importer = threading.Thread(target=__import__, args=("torch._dynamo",))
    importer.start()
    importer.join()


def _restore_default_device(device):
    if _device.CURRENT_DEVICE != device:
        torch.set_default_device(device)


def resume():
    """Turn on what the environment of a child process asks for."""
    return practice_gpus(*processes.requested()).start()


def exchange(patch):
    """Exchange an attribute with the value kept in ``patch``: [object, name, value]."""
    owner, name, value = patch
    patch[2] = vars(owner).get(name, MISSING)
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


class Importer:
    """Imports torch._dynamo, which keeps what it finds in ``torch.cuda``, with practice GPUs off for the moment, and
    patches what comes late."""

    @staticmethod
    def find_spec(name, path, target=None):
        """The module's spec, as Python's import system asks for it."""
        loaders = {"torch._dynamo": Importer.load, "torch.nn.attention.bias": Importer.late}
        if name in loaders:
            spec = PathFinder.find_spec(name, path)
            spec.loader.exec_module = functools.partial(loaders[name], spec.loader.exec_module)
            return spec

    @staticmethod
    def load(original, module):
        """Run the module's code."""
        patched = [patch for session in active for patch in session.patched]
        for patch in patched[::-1]:
            exchange(patch)
        try:
            original(module)
        finally:
            for patch in patched:
                exchange(patch)

    @staticmethod
    def late(original, module):
        """Run the module's code, and patch it."""
        original(module)
        for patch in map(list, attention()):
            exchange(patch)
            active[-1].undo.callback(exchange, patch)


def _take_out(mode, stack, length):
    """Remove ``mode`` from one of PyTorch's stacks of modes, wherever in it it is."""
    for other in [stack._pop_mode() for _ in range(length())][::-1]:
        if other is not mode:
            stack._push_mode(other)


def inherited(session, original=threading.Thread.start):
    """``Thread.start``: a thread started while practice GPUs are on has them, too."""

    def start(thread):
        def inside(run=thread.run):
            with session.calls, session.kernels:
                run()

        thread.run = inside
        original(thread)

    return start
