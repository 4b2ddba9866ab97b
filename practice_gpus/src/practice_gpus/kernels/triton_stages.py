"""Triton's compiler under `kernel[grid](…)`, with a limit: all behind the reading of the function is done by the
compiling process, which can be ended. A compiler that crashes there ends that process, not the program."""

from __future__ import annotations

import functools
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from practice_gpus.kernels import client, worker
from practice_gpus.kernels.errors import CompileTimeout

LIMIT = 120.0  # seconds for one compilation
LIMITS = [LIMIT]
STATE = threading.local()  # .deadline of the function that is being read


@functools.cache
def install(active: Callable[[], bool]) -> None:
    """Change Triton's compiler for the times when `active()`: kernels that run here."""
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler.code_generator import CodeGenerator
    from triton.compiler.compiler import ASTSource

    stages, read, visit = CUDABackend.add_stages, ASTSource.make_ir, CodeGenerator.visit

    def add_stages(backend, found, options, language):
        stages(backend, found, options, language)
        if active():
            client.start()
            asked = Asked(backend.target.arch, options, language)
            found.update({name: functools.partial(asked.stage, name) for name in found})

    def make_ir(source, *args):
        return _reading(source, lambda: read(source, *args)) if active() else read(source, *args)

    def check_and_visit(generator, node):
        if time.monotonic() > getattr(STATE, "deadline", float("inf")):
            raise TimeoutError
        return visit(generator, node)

    CUDABackend.add_stages, ASTSource.make_ir = add_stages, make_ir
    CodeGenerator.visit = check_and_visit


def _reading(source, read):
    """Return what Triton makes of a function's Python; unrolled loops may take it very long."""
    STATE.deadline = deadline = time.monotonic() + LIMITS[-1]
    try:
        return read()
    except Exception as error:
        if time.monotonic() > deadline:
            raise CompileTimeout(client.TOO_LONG.format(source.fn.__name__, LIMITS[-1])) from None
        _leave_out_ours(error.__traceback__)
        raise
    finally:
        del STATE.deadline


def _leave_out_ours(trace):
    """Take our frames out of a traceback, as Triton does with those of its own compiler."""
    while trace and trace.tb_next:
        if trace.tb_next.tb_frame.f_code.co_filename == __file__:
            trace.tb_next = trace.tb_next.tb_next
        else:
            trace = trace.tb_next


class Asked:
    """The stages of one compilation, which the compiling process does all at once."""

    def __init__(self, arch: int, options: Any, language: Any) -> None:
        self.request = {"language": "stages", "capability": arch, "options": options.__dict__}
        self.request["dialect"] = language.name
        self.made: dict = {}

    def stage(self, name: str, module: Any, metadata: dict) -> Any:
        """Return what a stage makes, such as the text of "ptx"; adds to `metadata` what the compiler notes there."""
        if not self.made:
            names = {"text": str(module), "name": module.get_entry_func_name()}
            self.made = client.ask(self.request | names, LIMITS[-1])
            metadata.update(self.made["metadata"])
        if self.made["refused"]:
            from triton.runtime.errors import PTXASError

            raise PTXASError(self.made["refused"])
        return self.made[name]


def inspected(name: str, cubin: bytes) -> dict:
    """Return what `worker.inspect` finds in Triton's machine code, within the limit."""
    try:
        return worker.inspect(cubin, "", "", LIMITS[-1])
    except subprocess.TimeoutExpired:
        raise CompileTimeout(client.TOO_LONG.format(name, LIMITS[-1])) from None
