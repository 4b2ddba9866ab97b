"""The current device, device contexts and the default device."""

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader

from .placement import on
from .registry import CODE, DOCS, situation, table

CURRENT = DOCS + "generated/torch.cuda.device.html"
DEFAULT = DOCS + "generated/torch.set_default_device.html"
SEMANTICS = DOCS + "notes/cuda.html"


def within(context, action):
    """Return what `action()` gives inside `context`."""
    with context:
        return action()


table(
    SEMANTICS,
    {
        "current device at the start": lambda: torch.cuda.current_device(),
        "set_device past the last": lambda: torch.cuda.set_device(99),
        "set_device with a negative index changes nothing": lambda: (
            torch.cuda.set_device(-1),
            torch.cuda.current_device(),
        ),
        "set_device with the CPU": lambda: torch.cuda.set_device("cpu"),
        "device context past the last": lambda: within(
            torch.cuda.device(99), torch.cuda.current_device
        ),
        "device context with the CPU": lambda: within(
            torch.cuda.device("cpu"), torch.cuda.current_device
        ),
        "device context of a CPU tensor": lambda: within(
            torch.cuda.device_of(torch.ones(1)), torch.cuda.current_device
        ),
        "torch.device as context": lambda: within(
            torch.device("cuda"), lambda: torch.ones(1).device
        ),
        "torch.device as context and explicit device": lambda: within(
            torch.device("cuda"), lambda: torch.ones(1, device="cpu").device
        ),
        "torch.device cpu inside torch.device cuda": lambda: within(
            torch.device("cuda"), lambda: within(torch.device("cpu"), lambda: torch.ones(1).device)
        ),
        "module made under torch.device": lambda: within(
            torch.device("cuda"), lambda: nn.Linear(2, 2).weight.device
        ),
    },
)
table(
    CURRENT,
    {
        "current device in a context": lambda: within(
            torch.cuda.device(1), torch.cuda.current_device
        ),
        "context from a string": lambda: within(
            torch.cuda.device("cuda:1"), torch.cuda.current_device
        ),
        "context of a tensor": lambda: within(
            torch.cuda.device_of(on("cuda:1")), torch.cuda.current_device
        ),
        "factory in a context": lambda: within(
            torch.cuda.device(1), lambda: torch.ones(1, device="cuda").device
        ),
        "cuda in a context": lambda: within(
            torch.cuda.device(1), lambda: torch.ones(1).cuda().device
        ),
        "tensor on cuda:0 to cuda in a context": lambda: within(
            torch.cuda.device(1), lambda: on("cuda:0").to("cuda").device
        ),
        "tensor on cuda:0 cuda in a context": lambda: within(
            torch.cuda.device(1), lambda: on("cuda:0").cuda().device
        ),
        "results ignore the context": lambda: within(
            torch.cuda.device(1), lambda: (on("cuda:0") + 1).device
        ),
        "explicit index beats the context": lambda: within(
            torch.cuda.device(1), lambda: on("cuda:0").device
        ),
        "plain factory in a context": lambda: within(
            torch.cuda.device(1), lambda: torch.ones(1).device
        ),
        "module to cuda in a context": lambda: within(
            torch.cuda.device(1), lambda: nn.Linear(1, 1).to("cuda").weight.device
        ),
        "torch.device cuda:1 as context": lambda: within(
            torch.device("cuda:1"), lambda: torch.zeros(1).device
        ),
        "accelerator context": lambda: within(
            torch.accelerator.device_index(1), torch.cuda.current_device
        ),
    },
    gpus=2,
)


@situation(CURRENT, gpus=2)
def contexts_nest_and_restore():
    seen = []
    with torch.cuda.device(1):
        with torch.cuda.device(0):
            seen.append(torch.cuda.current_device())
        seen.append(torch.cuda.current_device())
    return *seen, torch.cuda.current_device()


@situation(CURRENT, gpus=2)
def an_exception_restores_the_device():
    try:
        with torch.cuda.device(1):
            raise KeyError
    except KeyError:
        return torch.cuda.current_device()


@situation(DOCS + "generated/torch.cuda.set_device.html", gpus=2)
def set_device_is_where_cuda_points():
    torch.cuda.set_device(1)
    return (
        torch.ones(1, device="cuda").device,
        torch.cuda.current_device(),
        torch.accelerator.current_device_index(),
    )


@situation(DOCS + "generated/torch.accelerator.set_device_index.html", gpus=2)
def accelerator_sets_the_device():
    torch.accelerator.set_device_index(1)
    return torch.cuda.current_device(), torch.ones(1, device="cuda").device


@situation(DEFAULT)
def default_device_of_factories():
    torch.set_default_device("cuda")
    made = torch.ones(1), torch.tensor([1.0]), torch.arange(2), torch.randn(2), torch.empty(1)
    return {str(x.device) for x in made}


@situation(DEFAULT)
def default_device_and_explicit_device():
    torch.set_default_device("cuda")
    return torch.ones(1, device="cpu").device


@situation(DEFAULT)
def default_device_and_numpy():
    torch.set_default_device("cuda")
    return torch.from_numpy(numpy.ones(2)).device, torch.tensor(numpy.ones(2)).device


@situation(DEFAULT)
def default_device_and_like():
    x = torch.ones(2)
    torch.set_default_device("cuda")
    return torch.zeros_like(x).device, x.new_ones(1).device


@situation(DEFAULT)
def default_device_of_modules():
    torch.set_default_device("cuda")
    return nn.Linear(2, 2).bias.device, nn.BatchNorm1d(2).running_mean.device


@situation(DEFAULT)
def default_device_can_be_taken_back():
    torch.set_default_device("cuda")
    torch.set_default_device(None)
    return torch.ones(1).device, torch.get_default_device()


@situation(DOCS + "generated/torch.get_default_device.html")
def get_default_device_has_an_index():
    torch.set_default_device("cuda")
    return torch.get_default_device()


@situation("https://github.com/pytorch/pytorch/issues/118084")
def default_device_and_a_shuffling_loader():
    torch.set_default_device("cuda")
    return list(DataLoader([1, 2, 3], shuffle=True))


@situation(DEFAULT, gpus=2)
def default_device_follows_the_current_device():
    torch.set_default_device("cuda")
    torch.cuda.set_device(1)
    return torch.ones(1).device


@situation(CODE + "torch/_tensor_str.py")
def default_device_is_still_printed():
    torch.set_default_device("cuda")
    return torch.ones(1)
