"""Asks the compiling process: starts it once, gives each request a time limit, and ends it where that runs out."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from importlib import util
from pathlib import Path

from practice_gpus.kernels.errors import CompileError, CompilerMissing, CompileTimeout
from practice_gpus.kernels.worker import nvrtc_libraries

LOCK = threading.Lock()
RUNNING: list = []  # the process, where there is one
TOO_LONG = "{}: no code after {:g} seconds; try smaller tiles, fewer unrolled loops or more warps"
NEEDED = {
    "triton": "Triton has no build for this machine, or isn't installed (Linux: pip install triton)",
    "stages": "Triton isn't whole",
    "cuda": "NVRTC isn't installed (Linux: pip install triton nvidia-cuda-nvrtc cuda-bindings)",
}


if hasattr(os, "register_at_fork"):  # two processes would read one another's answers
    os.register_at_fork(after_in_child=RUNNING.clear)


def ask(request: dict, limit: float) -> dict:
    """Return what the compiler made of `request`, a dict; `limit` in seconds. Raises the errors of `errors`."""
    with LOCK:
        process = _process()
        data = pickle.dumps(request)
        try:
            process.stdin.write(struct.pack("q", len(data)) + data)
            process.stdin.flush()
            status, found = _read(process, limit, request["name"])
        except (
            BaseException
        ):  # an interrupt: the next request would take this one's answer for its own
            _end()
            raise
    if status == "missing":
        raise CompilerMissing(f"{NEEDED[request['language']]}: {found}")
    if status == "failed":
        raise CompileError(found)
    return found


def missing(language: str = "triton") -> str:
    """Return what lacks here to compile "triton" or "cuda": "Triton", "NVRTC", or "" for nothing."""
    if not util.find_spec("triton"):
        return "Triton"  # CUDA C needs its tools to read machine code
    if language == "cuda" and not (util.find_spec("cuda") and nvrtc_libraries()):
        return "NVRTC"
    return ""


def need(language: str) -> None:
    """Raise CompilerMissing where "triton" or "cuda" can't be compiled here."""
    if missing(language):
        raise CompilerMissing(NEEDED[language])


def start() -> None:
    """Start the compiling process, so that the first answer comes sooner."""
    with LOCK:
        _process()


def _process():
    if RUNNING and RUNNING[0].poll() is None:
        return RUNNING[0]
    RUNNING.clear()
    worker = Path(__file__).with_name("worker.py")
    command = [
        sys.executable,
        "-c",
        f"import runpy; runpy.run_path({str(worker)!r}, run_name='__main__')",
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    RUNNING.append(subprocess.Popen(command, bufsize=0, start_new_session=True, **pipes))
    atexit.register(_end)
    return RUNNING[0]


def _end():
    while RUNNING:
        process = RUNNING.pop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # ptxas and nvdisasm, too
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _read(process, limit, name):
    deadline = time.monotonic() + limit
    [size] = struct.unpack("q", _bytes(process, 8, deadline, limit, name))
    return pickle.loads(_bytes(process, size, deadline, limit, name))


def _bytes(process, count, deadline, limit, name):
    found = b""
    while len(found) < count:
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            _end()
            raise CompileTimeout(TOO_LONG.format(name, limit))
        part = process.stdout.read(count - len(found))
        if not part:
            _end()
            raise CompileError(f"{name}: the compiler ended without an answer")
        found += part
    return found
