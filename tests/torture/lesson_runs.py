"""Run a lesson's cells in a kernel of an odd machine: started through other programs, with other variables."""

import json
import queue
import shutil
import sys
import tempfile
import time
import uuid
from collections import namedtuple
from pathlib import Path

from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.paths import jupyter_runtime_dir
from lanes import LESSONS

from helpers.commands import _notebooks
from helpers.commands._environment import ROOT
from helpers.commands.execute import environment

Failure = namedtuple(
    "Failure", "cell kind text"
)  # number of the cell, name of the exception, its message
SECONDS = 240  # for one cell, on a busy machine
PATIENCE = 20  # seconds after an interrupt until a reply counts as lost
LOST = ("DeadKernel", "TimeoutError")  # what a cell that ends the kernel, or never ends, fails with


class Kernel:
    """A kernel in the folder of the lessons of the course at `root`, until the block ends.

    `prefix` are the words before the kernel's command line, such as ["taskset", "-c", "0"]; `variables` are added to
    those of the environment (None takes one away); several kernels run at once, so each has one thread, or their
    threads would wait for each other. With `sockets` it is reached through files, without a network.
    """

    def __init__(self, root=ROOT, prefix=(), variables=(), sockets=False):
        self.root, self.prefix = root, prefix
        self.variables, self.sockets = dict(variables), sockets

    def __enter__(self):
        self.home = tempfile.mkdtemp()
        spec = Path(self.home, "kernels", "torture", "kernel.json")
        spec.parent.mkdir(parents=True)
        line = [*self.prefix, sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": line, "display_name": "torture", "language": "python"}))
        folders = KernelSpecManager(kernel_dirs=[str(spec.parents[1])], ensure_native_kernel=False)
        self.manager = KernelManager(
            kernel_name="torture",
            kernel_spec_manager=folders,
            transport="ipc" if self.sockets else "tcp",
            connection_file=str(Path(jupyter_runtime_dir(), f"{uuid.uuid4()}.json")),
        )
        Path(jupyter_runtime_dir()).mkdir(parents=True, exist_ok=True)
        if self.sockets:
            self.manager.ip = str(Path(self.home, "socket"))
        variables = environment(
            Path(self.home, "kept"),
            CUDA_VISIBLE_DEVICES="",
            OMP_NUM_THREADS="1",
            **({} if self.root == ROOT else {"PYTHONPATH": str(self.root)}),
        )
        variables |= self.variables
        self.manager.start_kernel(
            cwd=str(self.root / "notebooks"),
            env={name: value for name, value in variables.items() if value is not None},
        )
        self.client = self.manager.client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=120)
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def run(self, source, stop_after=None):
        """Run `source`; interrupt it after `stop_after` seconds. Return (None or (kind, text), was interrupted)."""
        message = self.client.execute(
            source, allow_stdin=False, stop_on_error=False
        )  # else the next may be dropped
        start, stopped, probe = time.monotonic(), False, None
        while time.monotonic() - start < SECONDS:
            if stopped and probe is None and time.monotonic() - start > stop_after + PATIENCE:
                probe = self.client.execute("pass", allow_stdin=False)
            wait = stop_after if stop_after and not stopped else 1
            try:
                reply = self.client.get_shell_msg(timeout=wait)
            except queue.Empty:
                if stop_after and not stopped:
                    self.manager.interrupt_kernel()
                    stopped = True
                if not self.manager.is_alive():
                    return ("DeadKernel", "the kernel's process is gone"), stopped
                continue
            if (
                reply["parent_header"].get("msg_id") == probe
            ):  # answered after the cell, so the kernel is free again
                return (
                    "KeyboardInterrupt",
                    "the interrupt came as the cell was over, and took its reply",
                ), stopped
            if reply["parent_header"].get("msg_id") == message:
                told = reply["content"]
                return None if told["status"] == "ok" else (
                    told.get("ename"),
                    told.get("evalue", ""),
                ), stopped
        self.manager.interrupt_kernel()
        return ("TimeoutError", f"still running after {SECONDS} s"), stopped

    def cells(self, cells):
        """Run these cells in order; return a Failure for each that raises and is not meant to."""
        found = []
        for number, cell in cells:
            error, _ = self.run(cell.source)
            if error and "raises-exception" not in _notebooks.tags(cell):
                found.append(Failure(number, *error))
                if error[0] in LOST:
                    break
        return found


def code(lesson, root=ROOT):
    """Return the lesson's code cells as (number, cell)."""
    notebook = _notebooks.read(root / "notebooks" / LESSONS[lesson].name)
    return [
        (number, cell)
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and cell.source
    ]


def sections(lesson):
    """Return [(heading, code cells)]; the first holds what stands before any heading, the set-up."""
    found = [("", [])]
    for number, cell in enumerate(_notebooks.read(LESSONS[lesson]).cells):
        heading = next(
            (line[3:] for line in cell.source.splitlines() if line.startswith("## ")), None
        )
        if cell.cell_type == "markdown" and heading:
            found.append((heading, []))
        elif cell.cell_type == "code" and cell.source:
            found[-1][1].append((number, cell))
    return [section for section in found if section[1]]


def run_lesson(lesson, **options):
    """Run a whole lesson in a new kernel (see `Kernel`); return its failures."""
    with Kernel(**options) as kernel:
        return kernel.cells(code(lesson, options.get("root", ROOT)))
