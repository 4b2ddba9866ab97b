"""The GPU's own compilers and the code they make, run and counted on a CPU.

    compiled = kernels.compile(function, {"x": x, "n": 1000, "BLOCK": 1024}, card="H100")
    result = kernels.run(compiled, grid, None, x, 1000)

CUDA C++ files as they are: `compile(file("my.cu"), "transpose<32>", card="H100")`.

Needs Triton (Linux), and for CUDA C also NVRTC, which comes with CUDA builds of PyTorch. No GPU.
"""

from practice_gpus.kernels.client import missing, start
from practice_gpus.kernels.compiler import Compiled, compile
from practice_gpus.kernels.errors import (
    AssertFailed,
    BarrierError,
    CompileError,
    CompilerMissing,
    CompileTimeout,
    Contract,
    Endless,
    KernelError,
    Misaligned,
    OutOfBounds,
    Race,
    Uninitialized,
    Unsupported,
)
from practice_gpus.kernels.interpreter import run
from practice_gpus.kernels.translation_unit import file
from practice_gpus.kernels.triton_driver import counts_launches, launches

__all__ = [
    "AssertFailed",
    "BarrierError",
    "CompileError",
    "CompileTimeout",
    "Compiled",
    "CompilerMissing",
    "Contract",
    "Endless",
    "KernelError",
    "Misaligned",
    "OutOfBounds",
    "Race",
    "Uninitialized",
    "Unsupported",
    "compile",
    "counts_launches",
    "file",
    "launches",
    "missing",
    "run",
    "start",
]
