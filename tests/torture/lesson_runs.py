"""Run a lesson's cells in a kernel of an odd machine: started through other programs, with other variables."""

import asyncio
import copy
import json
import sys
import tempfile
import uuid
from collections import namedtuple
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.paths import jupyter_runtime_dir
from lanes import LESSONS
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from tools import _notebooks
from tools._environment import ROOT
from tools.execute import environment

Failure = namedtuple("Failure", "cell kind text")  # place among the cells, exception, its message
SECONDS = 240  # for one cell, on a busy machine
LOST = ("DeadKernelError", "CellTimeoutError")  # a cell that ends the kernel, or never ends


def run_cells(cells, root=ROOT, prefix=(), variables=(), sockets=False):
    """Run code cells in order, in a new kernel; return a Failure for each that raises and is not meant to.

    The kernel is in the folder of the lessons of the course at `root`. `prefix` are the words before its command line,
    such as ["taskset", "-c", "0"]; `variables` are added to those of the environment (None takes one away); several
    kernels run at once, so each has one thread, or their threads would wait for each other. With `sockets` it is
    reached through files, without a network. A cell that has "interrupt_after" in its metadata is interrupted after that
    many seconds.
    """
    notebook = nbformat.v4.new_notebook(cells=copy.deepcopy(cells))
    lost = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        more = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
        wanted = {**environment(Path(home, "kept"), **more), **dict(variables)}
        known = {name: value for name, value in wanted.items() if value is not None}
        client = Client(notebook, kernel(home, prefix, sockets), timeout=SECONDS, allow_errors=True)
        try:
            client.execute(cleanup_kc=True, env=known, cwd=str(root / "notebooks"))
        except (CellTimeoutError, DeadKernelError) as error:
            lost.append(Failure(client.running, type(error).__name__, str(error)))
    return failures(notebook.cells) + lost


class Client(NotebookClient):
    """A client that notes the place of the cell that runs, and interrupts cells that ask for it."""

    running = 0

    async def async_execute_cell(self, cell, cell_index, **options):
        """Execute one cell."""
        self.running = cell_index
        stop = asyncio.ensure_future(self.interrupt(cell.metadata.get("interrupt_after")))
        try:
            return await super().async_execute_cell(cell, cell_index, **options)
        finally:
            stop.cancel()

    async def interrupt(self, seconds):
        """Interrupt the kernel after so many seconds; with None, never."""
        if seconds:
            await asyncio.sleep(seconds)
            await self.km.interrupt_kernel()


def kernel(home, prefix, sockets):
    """Return the manager of a kernel that is started by the words `prefix` and its own command line."""
    spec = Path(home, "kernels", "torture", "kernel.json")
    spec.parent.mkdir(parents=True)
    line = [*prefix, sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": line, "display_name": "torture", "language": "python"}))
    folders = KernelSpecManager(kernel_dirs=[str(spec.parents[1])], ensure_native_kernel=False)
    Path(jupyter_runtime_dir()).mkdir(parents=True, exist_ok=True)
    manager = AsyncKernelManager(
        kernel_name="torture",
        kernel_spec_manager=folders,
        transport="ipc" if sockets else "tcp",
        connection_file=str(Path(jupyter_runtime_dir(), f"{uuid.uuid4()}.json")),
    )
    if sockets:
        manager.ip = str(Path(home, "socket"))
    return manager


def failures(cells):
    """Return a Failure for each error in the outputs of cells that are not meant to raise."""
    return [
        Failure(place, output.ename, output.evalue)
        for place, cell in enumerate(cells)
        if "raises-exception" not in _notebooks.tags(cell)
        for output in cell.outputs
        if output.output_type == "error"
    ]


def code(lesson, root=ROOT):
    """Return the lesson's code cells."""
    cells = _notebooks.read(root / "notebooks" / LESSONS[lesson].name).cells
    return [cell for cell in cells if cell.cell_type == "code" and cell.source]


def sections(lesson):
    """Return the code cells of each section; the first holds what stands before any heading, the set-up."""
    found = [[]]
    for cell in _notebooks.read(LESSONS[lesson]).cells:
        if cell.cell_type == "markdown" and "\n## " in f"\n{cell.source}":
            found.append([])
        elif cell.cell_type == "code" and cell.source:
            found[-1].append(cell)
    return list(filter(None, found))


def run_lesson(lesson, **options):
    """Run a whole lesson in a new kernel (see `run_cells`); return its failures."""
    return run_cells(code(lesson, options.get("root", ROOT)), **options)
