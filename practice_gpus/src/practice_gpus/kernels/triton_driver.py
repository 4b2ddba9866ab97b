"""A driver for Triton: `kernel[grid](…)` of an unchanged program compiles for a card that isn't here, and runs on the CPU.

Triton itself binds, specializes, tunes and compiles; this is what it asks of a driver (triton/backends/driver.py), and what
it launches by. Autotuning measures nothing: it takes the first configuration that the card can hold.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from practice_gpus.kernels import triton_stages
from practice_gpus.kernels.cards import multiprocessor
from practice_gpus.kernels.compiler import Compiled
from practice_gpus.kernels.errors import Unsupported
from practice_gpus.kernels.interpreter import COLLECTORS, run
from practice_gpus.kernels.result import Result

CARD = "A100"
LIMIT = 600.0  # seconds for the run of one launch
LIMITS = [LIMIT]
NO_GPU = (
    "0 active drivers: no GPU is here that Triton could use. Turn practice GPUs on, as in `with practice_gpus():`, or launch "
    "inside `with practice_gpus.kernels.launches():`"
)
NO_TIMES = "practice GPUs have no times to measure: triton.testing.{} needs a real GPU"


class Cpu:
    """Where tensors are while no practice GPUs are on; their `Session` has the same methods."""

    computes = True

    @staticmethod
    def aside() -> contextlib.AbstractContextManager:
        """Tensors are the CPU's anyway."""
        return contextlib.nullcontext()

    @staticmethod
    def check_pointer(tensor: torch.Tensor, place: int) -> None:
        """Every tensor will do."""


SESSION: list = [Cpu]  # the practice GPUs that are on, the innermost last


@contextlib.contextmanager
def launches(
    card: str = CARD, limit: float = LIMIT, compile_limit: float = triton_stages.LIMIT
) -> Iterator[list[Result]]:
    """Collect a `Result` for each kernel that is launched or run in here; Triton's are compiled for `card`.

    `limit` in seconds for one run, `compile_limit` for one compilation by Triton. With practice GPUs on it takes their
    tensors, else the CPU's. Raises CompilerMissing where Triton isn't installed.
    """
    from practice_gpus.kernels.client import need

    multiprocessor(card)
    need("triton")
    install()
    found: list[Result] = []
    COLLECTORS.append((card, found))
    LIMITS.append(limit)
    triton_stages.LIMITS.append(compile_limit)
    try:
        yield found
    finally:
        COLLECTORS.remove((card, found))
        LIMITS.remove(limit)
        triton_stages.LIMITS.remove(compile_limit)


def install() -> None:
    """Make Triton use the `Driver`, unless a real GPU is in use already."""
    import triton

    if triton.runtime.driver._active is None:
        triton.runtime.driver.set_active(Driver())
        _change_tuning()
        triton_stages.install(counts_launches)


@functools.cache
def _change_tuning():
    import triton
    from triton.runtime.autotuner import Autotuner

    original, on_disk = Autotuner._bench, Autotuner.check_disk_cache
    Autotuner._bench = lambda self, *args, **kwargs: _first(self, original, args, kwargs)
    Autotuner.check_disk_cache = lambda self, key, configs, bench: (
        bench() if counts_launches() else on_disk(self, key, configs, bench)
    )
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(triton.testing, name, _refusing(name, getattr(triton.testing, name)))
    triton.testing.Mark.run = _skipped(triton.testing.Mark.run)
    from triton._C.libtriton import nvidia

    library = nvidia.cublas.CublasLt
    nvidia.cublas.CublasLt = lambda space: Products() if counts_launches() else library(space)


class Products:
    """What programs of Triton's compare themselves with: its way to cuBLAS, here by PyTorch."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write a × bᵀ into c, computed in float32."""
        c.copy_(a.float() @ b.float().T)

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """Write alpha · a × bᵀ + beta · c into d."""
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())


def leave(session: Any) -> None:
    """Forget practice GPUs that are off; real ones count again."""
    import triton

    if session in SESSION:
        SESSION.remove(session)
        if not _on_gpus() and torch.cuda.is_available() and counts_launches():
            triton.runtime.driver._active = None


def _on_gpus():
    return SESSION[-1] is not Cpu


def counts_launches() -> bool:
    """Whether Triton's kernels run here, and not on a real GPU."""
    import triton

    return isinstance(triton.runtime.driver._active, Driver)


def _first(tuner, original, args, kwargs):
    """Return the times of a configuration: those behind the first that fits count as endless."""
    if not counts_launches():
        return original(tuner, *args, **kwargs)
    if tuner.__dict__.get("fits") is tuner.nargs:
        return [float("inf")] * 3
    tuner.do_bench = _benchmark
    times = original(tuner, *args, **kwargs)
    if times[0] != float("inf"):
        tuner.fits = tuner.nargs
    return times


def _benchmark(call, **_):
    """Launch without running: Triton refuses what doesn't fit on the card."""
    Launcher.dry = True
    try:
        call()
    finally:
        Launcher.dry = False
    return [1.0] * 3


def _refusing(name, original):
    def refuse(*args, **kwargs):
        if not counts_launches():
            return original(*args, **kwargs)
        raise NotImplementedError(NO_TIMES.format(name))

    return refuse


def _skipped(original):
    def skip(mark, *args, **kwargs):
        if not counts_launches():
            return original(mark, *args, **kwargs)
        warnings.warn(f"{NO_TIMES.format('perf_report')}; left out", RuntimeWarning, stacklevel=2)

    return skip


class Device(int):
    """The number of a device; Triton keeps what it compiled by it, so each card has its own."""

    card = ""

    def __hash__(self):
        return hash((int(self), self.card))

    def __eq__(self, other):
        return int(self) == other and self.card == getattr(other, "card", self.card)


class Driver:
    """What Triton asks for a GPU."""

    def __init__(self):
        self.utils = Utilities()
        self.launcher_cls = Launcher

    def get_current_device(self) -> int:
        """Return the current device; raises RuntimeError where there is none."""
        card = current_card()
        device = Device(torch.cuda.current_device() if _on_gpus() else 0)
        device.card = card
        return device

    def set_current_device(self, device: int) -> None:
        torch.cuda.set_device(device)

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple:
        return divmod(multiprocessor(current_card()).capability, 10)

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", multiprocessor(current_card()).capability, 32)

    def get_active_torch_device(self) -> torch.device:
        device = self.get_current_device()
        return torch.device("cuda", int(device)) if _on_gpus() else torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable:
        return _benchmark

    def get_empty_cache_for_benchmark(self) -> Any:
        raise NotImplementedError(NO_TIMES.format("do_bench"))

    def clear_cache(self, cache: Any) -> None:
        """There is none."""

    def map_python_to_cpp_type(self, kind: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(kind)


def current_card() -> str:
    """Return the card that Triton compiles for; raises RuntimeError where nothing could run it."""
    if COLLECTORS:
        return COLLECTORS[-1][0]
    if _on_gpus():
        return CARD
    raise RuntimeError(NO_GPU)


class Utilities:
    """The part of a driver that knows devices and binaries."""

    def get_device_properties(self, device: int) -> dict:
        sm = multiprocessor(current_card())
        return {
            "max_shared_mem": sm.shared_of_block,
            "max_num_regs": sm.registers,
            "multiprocessor_count": 1,  # as torch.cuda.get_device_properties of a practice GPU
            "warpSize": 32,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple:
        """Return (module, function, registers, spills, threads at most); the function is what its machine code shows."""
        found = triton_stages.inspected(name, binary)
        return binary, found, found["registers"], found["stack"] // 4, 1024

    def unload_module(self, module: Any) -> None:
        """Nothing was loaded."""


class Launcher:
    """Launches one compiled kernel."""

    dry = False  # autotuning only asks whether it fits

    def __init__(self, source: Any, metadata: Any) -> None:
        from triton.runtime.cache import get_cache_manager

        self.source, self.metadata = source, metadata
        group = get_cache_manager(metadata.hash).get_group(f"{source.name[:150]}.json")
        self.ptx = Path(group[f"{source.name[:150]}.ptx"]).read_text()
        self.compiled: Compiled | None = None

    def __call__(self, x: int, y: int, z: int, stream: int, function: dict, *rest: Any) -> None:
        """Run the kernel with a grid of x, y and z programs; `rest` is metadata, hooks and the arguments."""
        arguments = rest[4:]
        if self.dry or x * y * z == 0 or not SESSION[-1].computes:
            return
        pairs = zip(self.source.signature.items(), arguments, strict=True)
        named = [one for (name, kind), value in pairs for one in self._flat(name, kind, value)]
        compiled = self._compiled(function, tuple(name for name, _ in named))
        for place, (_, value) in enumerate(named):
            if isinstance(value, torch.Tensor):
                SESSION[-1].check_pointer(value, place)
        with SESSION[-1].aside():
            run(compiled, (x, y, z), None, *(value for _, value in named), limit=LIMITS[-1])

    def _flat(self, name, kind, value):
        """Yield (name, value) of what the kernel takes: members of tuples, parts of a descriptor, no constants."""
        if isinstance(kind, tuple):
            for place, (one, each) in enumerate(zip(kind, value, strict=True)):
                yield from self._flat(f"{name}[{place}]", one, each)
        elif kind.startswith("tensordesc"):
            if self.metadata.tensordesc_meta:
                raise Unsupported(
                    f"{name} is a tensor descriptor (TMA), which isn't executed here; card='A100' has none"
                )
            from triton.backends.driver import decompose_descriptor

            parts = decompose_descriptor(value)
            yield from (
                (f"{name}[{place}]" if place else name, each) for place, each in enumerate(parts)
            )
        elif kind != "constexpr":
            value = getattr(value, "base", value) if hasattr(value, "data_ptr") else value
            if kind[0] == "*" and not isinstance(value, (torch.Tensor, type(None))):
                raise Unsupported(
                    f"{name} is {type(value).__name__}; here a pointer has to be a tensor"
                )
            yield name, value

    def _compiled(self, found, names):
        if self.compiled is None:
            code = self.source.fn.fn.__code__
            path = code.co_filename
            self.compiled = Compiled(
                name=self.source.fn.__name__,
                card=current_card(),
                language="triton",
                text="".join(linecache.getlines(path)),
                ptx=self.ptx,
                machine_code=found["sass"],
                loops=found["loops"],
                registers=found["registers"],
                stack=found["stack"],
                static_shared=found["static"],
                dynamic_shared=self.metadata.shared,
                threads=self.metadata.num_warps * 32,
                parameters=names,
                entry=self.metadata.name,
                file=os.path.basename(path),
            )
        return self.compiled
