"""Turning practice GPUs on and off."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import unittest
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch
from torch import overrides
from torch.utils import _device, _python_dispatch

from practice_gpus.cards import get_card
from practice_gpus.machine import OTHER_THREAD, Machine, Place, interrupts
from practice_gpus.pytorch import (
    MISSING,
    DispatchMode,
    FunctionMode,
    attention,
    exchange,
    patches,
    processes,
    refusals_of,
    restore_default_device,
    set_aside,
    take_out,
)
from practice_gpus.settings import Settings

if TYPE_CHECKING:
    from practice_gpus.clock import Forecast

active: list[Session] = []  # those that are on, outermost first; the last one rules
FUNCTION_MODES = overrides, overrides._len_torch_function_stack
OPERATOR_MODES = _python_dispatch, _python_dispatch._len_torch_dispatch_stack
turning = threading.RLock()  # held by the thread that turns some on
CPU_TENSOR = "Pointer argument (at {}) cannot be accessed from Triton (cpu tensor?)"
OUT_OF_ORDER = (
    "practice GPUs are turned off while {} turned on later are on: those are off now, too. End the inner with block, or "
    "stop() what was started last, first"
)


def computes(index: int) -> bool:
    """Whether the real GPU ``index`` runs this build's code; a card older than the build has no kernels in it."""
    try:
        return bool((torch.ones(1, device=f"cuda:{index}") == 1).item())
    except RuntimeError:
        return False


def enough_real_gpus(n: int) -> bool:
    """Whether PyTorch has ``n`` CUDA GPUs that compute."""
    return torch.cuda.device_count() >= n and all(computes(index) for index in range(n))


def _takes_real_gpus(settings: Settings) -> bool:
    """Whether to leave real GPUs alone. Raises unittest.SkipTest (pytest knows it) where there are some and it is asked."""
    if settings.real == "hide" or not settings.values or not enough_real_gpus(settings.n):
        return False
    if settings.real == "skip":
        raise unittest.SkipTest("for practice GPUs only, and there are real ones")
    return True


def _check_thread() -> None:
    """Raise RuntimeError where practice GPUs are on in another thread: PyTorch's modes belong to one."""
    for session in active[-1:]:
        if session.thread is not threading.current_thread():
            raise RuntimeError(OTHER_THREAD.format(session.thread.name))


def practice_gpus(
    n: int = 1,
    memory: int | str | None = None,
    *,
    card: str | None = None,
    values: bool = True,
    stand_in: float | Callable[[torch.Tensor], float | torch.Tensor] | None = None,
    clock: bool = False,
    asynchronous: bool = False,
    asserts: Literal["once", "sticky"] = "once",
    real: Literal["use", "hide", "skip"] = "use",
) -> Session:
    """``n`` practice GPUs: a `Session` for a ``with`` block, a decorated function, or ``start()`` and ``stop()``.

    The arguments are those of `settings.Settings`, which raises TypeError or ValueError for what does not fit.
    """
    return Session(Settings(n, memory, card, values, stand_in, clock, asynchronous, asserts, real))


class Session(contextlib.ContextDecorator):
    """Practice GPUs, on for a ``with`` block, a decorated function, or from ``start()`` to ``stop()``.

    Where PyTorch has as many real CUDA GPUs, and code for them, nothing is changed, and ``real`` is True, unless the
    settings say otherwise.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.real = False
        self.machine: Machine | None = None
        self.thread = threading.current_thread()
        self.depth = 0
        self.started = False

    def __enter__(self) -> Session:
        depth = self.depth
        try:
            with interrupts.held_back():
                if depth == 0:
                    self._turn_on()
                self.depth += 1  # not before: what could not be turned on is off
        except BaseException:
            if self.depth > depth:  # an interrupt has waited until it was on
                self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self.depth == 0:
            return  # turned off already, with one that was outside of it
        depth = self.depth
        try:
            with interrupts.held_back():
                self._leave()
        except KeyboardInterrupt:
            if self.depth == depth:  # it came before the first line
                with interrupts.held_back():
                    self._leave()
            raise

    def _leave(self):
        if self.depth == 1 and not self.real:
            self._uninstall()
        self.depth -= 1

    def _turn_on(self):
        with turning:
            _check_thread()
            self.real = not active and _takes_real_gpus(self.settings)
            if not self.real:
                self._install()

    def _uninstall(self) -> None:
        """Turn off this session, and before it those that were turned on later and are on still."""
        _check_thread()
        later = active[active.index(self) + 1 :]
        if later:
            warnings.warn(OUT_OF_ORDER.format(len(later)), RuntimeWarning, stacklevel=5)
        for session in later[::-1]:
            session.depth = 1
            session.started = False
            session.__exit__()
        active.remove(self)
        self.undo.close()

    def start(self) -> Session:
        """Turn on for the rest of the program or notebook, and return self.

        What an earlier ``start`` turned on is turned off, unless it asked for the same machine: that one stays, with
        the tensors on it, and belongs to this session from now on.
        """
        earlier = next((session for session in active if session.started), None)
        if earlier is not None and earlier is not self:
            if earlier.settings == self.settings:
                self._take_over(earlier)
            else:
                earlier.stop()
        if not self.started:
            self.__enter__()
            self.started = True
        return self

    def _take_over(self, earlier: Session) -> None:
        """Become the session ``earlier``, which is off from now on and leaves its machine on."""
        self.__dict__.update(earlier.__dict__)
        active[active.index(earlier)] = self
        earlier.started = False
        earlier.depth = 0

    def stop(self) -> None:
        """Turn off what ``start`` turned on; does nothing when it is off already."""
        if self.started:
            self.started = False
            self.__exit__()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "practice GPUs cannot be pickled: processes started inside have them anyway"
        )

    def _recreate_cm(self) -> Session:
        return Session(self.settings)  # a decorated function has new ones at each call

    def forecast(
        self,
        step: Callable[[], object],
        repeat: int = 1,
        card: str | None = None,
        fused: bool = False,
    ) -> Forecast:
        """What ``step()``, run ``repeat`` times, would take on a card: see `clock.forecast.forecast`."""
        from practice_gpus.clock import forecast

        return forecast(self, step, repeat, card, fused)

    def largest_batch(self, run: Callable[[int], object], start: int = 1) -> int:
        """The largest batch for which ``run(batch)``, a whole step, fits: see `clock.questions.largest_batch`."""
        from practice_gpus.clock import largest_batch

        self._counted("transfers")  # practice GPUs that are on
        return largest_batch(run, start)

    @property
    def synchronizations(self) -> int:
        """How often the CPU has waited for a practice GPU."""
        return self._counted("synchronizations")

    @property
    def transfers(self) -> dict[str, int]:
        """Copies so far: ``{"h2d": to a GPU, "d2h": from a GPU, "d2d": between GPUs}``."""
        return dict(self._counted("transfers"))

    @property
    def timeline(self) -> list[tuple]:
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
        machine = Machine(self.settings)
        self.patched: list[list] = []
        self.thread = threading.current_thread()
        self.functions = FunctionMode(machine)
        self.operators = DispatchMode(machine)
        machine.functions = self.functions
        if machine.asynchronous:
            _import_dynamo()
        _leave_alone()
        torch._C._ensureCUDADeviceGuardSet()  # without a driver, autograd of fake tensors asks one that is none
        if self.settings.clock:
            _start_clock(machine)
        # so that a failure, or an interrupt, leaves nothing behind
        with contextlib.ExitStack() as undo:
            undo.callback(self._leave_triton)
            for session in active[-1:]:  # else each operator would pass through its modes, too
                undo.callback(set_aside(session.functions, *FUNCTION_MODES))
                undo.callback(set_aside(session.operators, *OPERATOR_MODES))
            for owner, name, value in (*self._switches(), *patches(machine, self.functions)):
                self.patched.append([owner, name, vars(owner).get(name, MISSING)])
                undo.callback(exchange, self.patched[-1])
                setattr(owner, name, value)
            undo.callback(restore_default_device, _device.CURRENT_DEVICE)
            self.functions.__enter__()
            undo.callback(take_out, self.functions, *FUNCTION_MODES)
            self.operators.__enter__()
            undo.callback(take_out, self.operators, *OPERATOR_MODES)
            undo.enter_context(processes.sent(machine))
            undo.callback(sys.meta_path.remove, Importer)
            sys.meta_path.insert(0, Importer)
            undo.callback(machine.streams.close)
            machine.local.has_modes = True
            machine.initialized = False
            self.machine = machine
            self.undo = undo.pop_all()
            active.append(self)
        if "triton" in sys.modules:
            self.give_triton_a_driver()

    def give_triton_a_driver(self) -> None:
        """Have Triton's kernels run on these GPUs, until they are turned off."""
        from practice_gpus.kernels import triton_driver

        triton_driver.install()
        triton_driver.SESSION.append(self)

    def _leave_triton(self):
        driver = sys.modules.get("practice_gpus.kernels.triton_driver")
        if driver is not None:
            driver.leave(self)

    @property
    def computes(self) -> bool:
        """Whether values are computed, or shapes alone."""
        return self.settings.values

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work in here finds the tensors' bytes on the CPU, after what was queued."""
        machine: Any = self.machine
        for device in machine.devices:
            machine.streams.drain(device)
        with _off():
            yield

    def check_pointer(self, tensor: torch.Tensor, place: int) -> None:
        """Raise as Triton does for a tensor of the CPU; a pinned one can be read from a GPU."""
        machine: Any = self.machine
        if machine.on_cpu(tensor) and not tensor.is_pinned():
            raise ValueError(CPU_TENSOR.format(place))

    def _switches(self):
        """(object, name, value) that turn the outer session off and this one on."""
        for session in active[-1:]:
            yield session.functions, "on", False
            yield session.operators, "on", False
        yield self.functions, "on", True
        yield self.operators, "on", True
        yield threading.Thread, "start", inherited(self)
        yield sys, "unraisablehook", interrupts.passed_on(sys.unraisablehook, Place.__del__)


@contextlib.contextmanager
def _off() -> Iterator[None]:
    """All sessions' patches are put back in here, and are there again after it, whatever cuts it off."""
    back: list[list] = []
    try:
        with interrupts.held_back():
            for patch in [patch for session in active for patch in session.patched][::-1]:
                exchange(patch)
                back.append(patch)
        yield
    finally:
        with interrupts.held_back():
            for patch in back[::-1]:
                exchange(patch)


def _start_clock(machine):
    from practice_gpus.clock import Log, Queue

    machine.clock = Log(machine, Queue(get_card(machine.settings.card)))
    machine.observers.append(machine.clock)


def forecast_seconds() -> float | None:
    """The forecast time of the CPU, in seconds from the start; None where no session with ``clock=True`` is on."""
    machine = active[-1].machine if active else None
    log = machine.clock if machine is not None else None
    return log.queue.cpu if log is not None and log.queue is not None else None


def _leave_alone():
    """Where torch._dynamo is there, have it trace a user's code and not ours."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and not hasattr(dynamo, "practice"):  # each call makes its list longer
        dynamo.practice = True
        dynamo.trace_rules.add(__package__)


def _import_dynamo():
    """An asynchronous machine's first operator would import it; in a thread no interrupt cuts that."""
    importer = threading.Thread(target=__import__, args=("torch._dynamo",))
    importer.start()
    importer.join()


def resume() -> Session:
    """Turn on what the environment of a child process asks for."""
    return Session(processes.requested()).start()


class Importer:
    """Imports with practice GPUs off what keeps things that they replace, and patches what comes late.

    torch._dynamo keeps what it finds in ``torch.cuda``; the rules of forward derivatives are compiled by ``torch.jit``.
    """

    @staticmethod
    def find_spec(name: str, path: list | None, target: Any = None) -> Any:
        """The module's spec, as Python's import system asks for it."""
        loaders = {
            "triton": Importer.triton,
            "torch._dynamo": Importer.load,
            "torch._decomp.decompositions_for_jvp": Importer.load,
            "torch.nn.attention.bias": Importer.late,
        }
        if name in loaders:
            spec = PathFinder.find_spec(name, path)
            loader: Any = spec and spec.loader
            loader.exec_module = functools.partial(loaders[name], loader.exec_module)
            return spec

    @staticmethod
    def load(original: Any, module: Any) -> None:
        """Run the module's code; cut off in the middle, half of the patches and of the module would be missing."""
        with interrupts.held_back():
            with _off():
                original(module)
            _leave_alone()
            Importer.change(refusals_of("torch._dynamo"))

    @staticmethod
    def triton(original: Callable, module: ModuleType) -> None:
        """Run the module's code, and have its kernels run on practice GPUs."""
        original(module)
        active[-1].give_triton_a_driver()

    @staticmethod
    def late(original: Callable, module: ModuleType) -> None:
        """Run the module's code, and patch it."""
        with interrupts.held_back():
            original(module)
            Importer.change(attention())

    @staticmethod
    def change(patches: Iterator) -> None:
        """Patch a module, until practice GPUs are off."""
        for patch in map(list, patches):
            exchange(patch)
            active[-1].undo.callback(exchange, patch)


def inherited(session: Session, original: Callable = threading.Thread.start) -> Callable:
    """``Thread.start``: a thread started while practice GPUs are on has them, too."""

    def start(thread):
        def inside(run=thread.run):
            session.machine.local.has_modes = True
            with session.functions, session.operators:
                run()

        thread.run = inside
        original(thread)

    return start
