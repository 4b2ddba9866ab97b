"""The current device, device contexts and the default device."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader

from practice_gpus.situations.placement import devices, on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

CURRENT = DOCS + "generated/torch.cuda.device.html"
DEFAULT = DOCS + "generated/torch.set_default_device.html"
SEMANTICS = DOCS + "notes/cuda.html"


def within(context: Any, action: Any) -> Any:
    """Return what `action()` gives inside `context`."""
    with context:
        return action()


def current_in(context: Any) -> Any:
    """Return the current device inside the context that `context()` gives."""
    return within(context(), torch.cuda.current_device)


def under_cuda(action: Any) -> Any:
    """Return what `action()` gives inside the context torch.device("cuda")."""
    return within(torch.device("cuda"), action)


def on_the_second(action: Any) -> Any:
    """Return what `action()` gives while cuda:1 is current."""
    return within(torch.cuda.device(1), action)


def by_default(action: Any) -> Any:
    """Return what `action()` gives while the GPU is the default device."""
    torch.set_default_device("cuda")
    return action()


CURRENT_DEVICE = {
    "current device at the start": lambda: torch.cuda.current_device(),
    "set_device past the last": lambda: torch.cuda.set_device(99),
    "set_device with a negative index changes nothing": lambda: (
        torch.cuda.set_device(-1),
        torch.cuda.current_device(),
    ),
    "set_device with the CPU": lambda: torch.cuda.set_device("cpu"),
}
table(SEMANTICS, CURRENT_DEVICE)
CONTEXTS = {
    "device context past the last": lambda: torch.cuda.device(99),
    "device context with the CPU": lambda: torch.cuda.device("cpu"),
    "device context of a CPU tensor": lambda: torch.cuda.device_of(torch.ones(1)),
}
table(SEMANTICS, CONTEXTS, through=current_in)
UNDER_CUDA = {
    "torch.device as context": lambda: torch.ones(1).device,
    "torch.device as context and explicit device": lambda: torch.ones(1, device="cpu").device,
    "torch.device cpu inside torch.device cuda": lambda: within(
        torch.device("cpu"), lambda: torch.ones(1).device
    ),
    "module made under torch.device": lambda: nn.Linear(2, 2).weight.device,
}
table(SEMANTICS, UNDER_CUDA, through=under_cuda)
CONTEXTS_OF_TWO = {
    "current device in a context": lambda: torch.cuda.device(1),
    "context from a string": lambda: torch.cuda.device("cuda:1"),
    "context of a tensor": lambda: torch.cuda.device_of(on("cuda:1")),
    "accelerator context": lambda: torch.accelerator.device_index(1),
}
table(CURRENT, CONTEXTS_OF_TWO, gpus=2, through=current_in)
ON_THE_SECOND = {
    "factory in a context": lambda: torch.ones(1, device="cuda").device,
    "cuda in a context": lambda: torch.ones(1).cuda().device,
    "tensor on cuda:0 to cuda in a context": lambda: on("cuda:0").to("cuda").device,
    "tensor on cuda:0 cuda in a context": lambda: on("cuda:0").cuda().device,
    "results ignore the context": lambda: (on("cuda:0") + 1).device,
    "explicit index beats the context": lambda: on("cuda:0").device,
    "plain factory in a context": lambda: torch.ones(1).device,
    "module to cuda in a context": lambda: nn.Linear(1, 1).to("cuda").weight.device,
}
table(CURRENT, ON_THE_SECOND, gpus=2, through=on_the_second)


@situation(CURRENT, gpus=2)
def torch_device_of_the_second_as_context() -> Any:
    with torch.device("cuda:1"):
        return torch.zeros(1).device


@situation(CURRENT, gpus=2)
def contexts_nest_and_restore() -> Any:
    seen = []
    with torch.cuda.device(1):
        with torch.cuda.device(0):
            seen.append(torch.cuda.current_device())
        seen.append(torch.cuda.current_device())
    return *seen, torch.cuda.current_device()


@situation(CURRENT, gpus=2)
def an_exception_restores_the_device() -> Any:
    try:
        with torch.cuda.device(1):
            raise KeyError
    except KeyError:
        return torch.cuda.current_device()


@situation(DOCS + "generated/torch.cuda.set_device.html", gpus=2)
def set_device_is_where_cuda_points() -> Any:
    torch.cuda.set_device(1)
    return (
        torch.ones(1, device="cuda").device,
        torch.cuda.current_device(),
        torch.accelerator.current_device_index(),
    )


@situation(DOCS + "generated/torch.accelerator.set_device_index.html", gpus=2)
def accelerator_sets_the_device() -> Any:
    torch.accelerator.set_device_index(1)
    return torch.cuda.current_device(), torch.ones(1, device="cuda").device


BY_DEFAULT = {
    "default device of factories": lambda: devices(
        [torch.ones(1), torch.tensor([1.0]), torch.arange(2), torch.randn(2), torch.empty(1)]
    ),
    "default device and explicit device": lambda: torch.ones(1, device="cpu").device,
    "default device and numpy": lambda: [
        torch.from_numpy(numpy.ones(2)).device,
        torch.tensor(numpy.ones(2)).device,
    ],
    "default device of modules": lambda: [
        nn.Linear(2, 2).bias.device,
        nn.BatchNorm1d(2).running_mean.device,
    ],
}
table(DEFAULT, BY_DEFAULT, through=by_default)


ASKED = {"get default device has an index": lambda: torch.get_default_device()}
table(DOCS + "generated/torch.get_default_device.html", ASKED, through=by_default)
SHUFFLING = {
    "default device and a shuffling loader": lambda: list(DataLoader([1, 2, 3], shuffle=True))
}
table("https://github.com/pytorch/pytorch/issues/118084", SHUFFLING, through=by_default)
PRINTED = {"default device is still printed": lambda: str(torch.ones(1))}
table(CODE + "torch/_tensor_str.py", PRINTED, through=by_default)


@situation(DEFAULT)
def default_device_and_like() -> Any:
    x = torch.ones(2)
    torch.set_default_device("cuda")
    return torch.zeros_like(x).device, x.new_ones(1).device


@situation(DEFAULT)
def default_device_can_be_taken_back() -> Any:
    torch.set_default_device("cuda")
    torch.set_default_device(None)
    return torch.ones(1).device, torch.get_default_device()


@situation(DEFAULT, gpus=2)
def default_device_follows_the_current_device() -> Any:
    torch.set_default_device("cuda")
    torch.cuda.set_device(1)
    return torch.ones(1).device
