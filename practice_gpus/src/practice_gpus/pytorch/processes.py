"""Practice GPUs in child processes: handed on by the environment variables PRACTICE_GPUS and PYTHONPATH.

A process that ``multiprocessing`` spawns has the machine of its parent, and so has everything below
``python -m practice_gpus``: torchrun's workers, for example. Each process has memory of its own to count, and tensors
that go from one to another share their bytes. A forked process is refused, as CUDA refuses it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from practice_gpus.machine import refusal, storage_of
from practice_gpus.settings import Settings

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

receivers: list = []  # the machines that are on, the innermost last
START = BaseProcess.start
VARIABLE = "PRACTICE_GPUS"
REPORT = "PRACTICE_GPUS_REPORT"  # the number of steps, and the folder for the facts of a report
FOLDER = str(Path(__file__).parents[1] / "children")


def variables(settings: Settings) -> dict[str, str]:
    """The environment variables that turn on a machine with such ``settings``."""
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [FOLDER, *(path for path in before if path and path != FOLDER)]
    return {VARIABLE: settings.to_json(), "PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def handed_on(settings: Settings) -> Iterator[None]:
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


def requested() -> Settings:
    """The settings of the machine that the environment asks for. Raises ValueError if they are not readable."""
    text = os.environ.get(VARIABLE, "")
    try:
        return Settings.from_json(text)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{VARIABLE}={text!r}: it takes settings as JSON, such as '{{\"n\": 2}}' ({error})"
        ) from None


def patches(machine: Machine) -> Iterator[Any]:
    """(class, name, replacement) for what starts a process."""

    def handing_on(process):
        with handed_on(machine.settings):
            START(process)

    yield BaseProcess, "start", handing_on


@contextlib.contextmanager
def sent(machine: Machine) -> Iterator[None]:
    """Tensors of practice GPUs may be sent to other processes, as those of real ones."""
    reducers = vars(ForkingPickler)["_extra_reducers"]
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


def sender(machine: Machine, reduce: Callable) -> Callable:
    """How a tensor is taken apart: as one of the CPU, in shared memory, and its device."""

    def send(value):
        storage = storage_of(value) if isinstance(value, torch.Tensor) else value
        device = machine.label(storage)
        if device is None:
            return reduce(value)
        if not machine.values:
            refusal("sharing a tensor without values", instead="give values=True")()
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


def received(index: Any, rebuild: Any, arguments: Any) -> Any:
    """A tensor from another process, on the device of the same number here."""
    tensor = rebuild(*arguments)
    if receivers:
        machine = receivers[-1]
        machine.put(tensor, machine.device(index))
    return tensor
