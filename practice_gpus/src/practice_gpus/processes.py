"""Practice GPUs in child processes: handed on by the environment variables PRACTICE_GPUS and PYTHONPATH.

A process that ``multiprocessing`` spawns has the machine of its parent, and so has everything below
``python -m practice_gpus``: torchrun's workers, for example. Each process has memory of its own to count, and tensors
that go from one to another share their bytes. A forked process is refused, as on hardware.
"""

import contextlib
import os
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import torch

from .machine import storage_of

receivers = []  # the machines that are on, the innermost last
START = BaseProcess.start
VARIABLE = "PRACTICE_GPUS"
REPORT = "PRACTICE_GPUS_REPORT"  # the number of steps, and the folder for the facts of a report
FOLDER = str(Path(__file__).parent / "children")


def variables(settings):
    """The environment variables that turn on a machine with such ``settings``: (n, bytes, asynchronous)."""
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [FOLDER, *(path for path in before if path and path != FOLDER)]
    return {VARIABLE: " ".join(map(str, map(int, settings))), "PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def handed_on(settings):
    """Processes that start in here have such a machine, too."""
    new = variables(settings)
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def requested():
    """(n, bytes, asynchronous) of the machine that the environment asks for. Raises ValueError if it is not readable."""
    text = os.environ.get(VARIABLE, "")
    try:
        n, memory, asynchronous = map(int, text.split())
    except ValueError:
        raise ValueError(
            f"{VARIABLE}={text!r}: it takes three numbers: GPUs, bytes of each, 1 if asynchronous"
        ) from None
    return n, memory, bool(asynchronous)


def patches(machine):
    """(class, name, replacement) for what starts a process."""
    settings = machine.n, machine.capacity, machine.asynchronous

    def handing_on(process):
        with handed_on(settings):
            START(process)

    yield BaseProcess, "start", handing_on


@contextlib.contextmanager
def sent(machine):
    """Tensors of practice GPUs may be sent to other processes, as those of real ones."""
    reducers = ForkingPickler._extra_reducers
    kinds = (torch.Tensor, torch.nn.Parameter, torch.UntypedStorage)
    before = {kind: reducers.get(kind) for kind in kinds}
    if None in before.values():  # PyTorch's own are not there
        yield
        return
    for kind, reduce in before.items():
        ForkingPickler.register(kind, sender(machine, reduce))
    receivers.append(machine)
    try:
        yield
    finally:
        receivers.remove(machine)
        reducers.update(before)


def sender(machine, reduce):
    """How a tensor is taken apart: as one of the CPU, in shared memory, and its device."""

    def send(value):
        storage = storage_of(value) if isinstance(value, torch.Tensor) else value
        device = machine.label(storage)
        if device is None:
            return reduce(value)
        place = storage.practice
        storage.practice = None
        try:
            rebuild, arguments = reduce(value)
        finally:
            storage.practice = place
        if storage is value:
            return rebuild, arguments
        return received, (device.index, rebuild, arguments)

    return send


def received(index, rebuild, arguments):
    """A tensor from another process, on the device of the same number here."""
    tensor = rebuild(*arguments)
    if receivers:
        machine = receivers[-1]
        machine.put(tensor, machine.device(index))
    return tensor
