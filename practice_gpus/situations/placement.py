"""Where tensors are made, what devices are called, and what `.to` returns."""

from __future__ import annotations

from typing import Any

import torch

from practice_gpus.situations.registry import CODE, DOCS, situation, table

DEVICE = DOCS + "tensor_attributes.html#torch.device"
TO = DOCS + "generated/torch.Tensor.to.html"
CUDA = DOCS + "notes/cuda.html"


def on(device: str = "cuda", *values: Any) -> torch.Tensor:
    """Return a float tensor on `device` with `values`, or with 1 and 2."""
    return torch.tensor([float(v) for v in values or (1, 2)], device=device)


def devices(tensors: Any) -> set:
    """Return the devices of `tensors`."""
    return {x.device for x in tensors}


def kind(x: torch.Tensor) -> tuple:
    """Return the device and the dtype of `x`."""
    return x.device, x.dtype


def stays(x: Any, move: Any) -> bool:
    """Return whether `move(x)` is `x` itself."""
    return move(x) is x


DEVICES = {
    "device of ones on cuda": lambda: torch.ones(2, device="cuda").device,
    "cuda and cuda:0 as devices": lambda: torch.device("cuda") == torch.device("cuda:0"),
    "device of tensor equals cuda": lambda: on().device == torch.device("cuda"),
    "index of device cuda": lambda: torch.device("cuda").index,
    "index of device of a tensor": lambda: on().device.index,
    "repr of device": lambda: repr(torch.device("cuda", 1)),
    "str of device": lambda: str(torch.device("cuda:1")),
    "device from an integer": lambda: torch.device(1),
    "type of device": lambda: on().device.type,
    "device as dictionary key": lambda: {torch.device("cuda:0"): "found"}[on().device],
    "device string with unknown name": lambda: torch.device("gpu"),
    "device string with negative index": lambda: torch.device("cuda:-1"),
    "device string without index": lambda: torch.device("cuda:"),
    "device string with leading zero": lambda: torch.device("cuda:01"),
    "device with index twice": lambda: torch.device("cuda:0", 0),
}
table(DEVICE, DEVICES)
FACTORIES = {
    "values made on the device": lambda: torch.arange(4, device="cuda").tolist(),
    "device of factories": lambda: devices(
        [
            torch.zeros(1, device="cuda"),
            torch.full((1,), 2, device="cuda"),
            torch.empty(1, device="cuda"),
            torch.arange(3, device="cuda"),
            torch.linspace(0, 1, 3, device="cuda"),
            torch.eye(2, device="cuda"),
            torch.rand(2, device="cuda"),
            torch.randint(3, (2,), device="cuda"),
            torch.tensor(1, device="cuda"),
            torch.scalar_tensor(1, device="cuda"),
            torch.tril_indices(2, 2, device="cuda"),
            torch.hann_window(4, device="cuda"),
            torch.randperm(3, device="cuda"),
        ]
    ),
    "device given as an integer": lambda: torch.zeros(1, device=0).device,
    "device of zeros_like": lambda: torch.zeros_like(on()).device,
    "device of ones_like moved": lambda: torch.ones_like(torch.zeros(2), device="cuda").device,
    "device of new_zeros": lambda: on().new_zeros(3).device,
    "device of new_tensor": lambda: on().new_tensor([1, 2]).device,
    "device of new_full on the CPU": lambda: on().new_full((2,), 7, device="cpu").device,
    "tensor of a tensor keeps its device": lambda: torch.tensor(on()).device,
    "tensor of a list of device scalars": lambda: torch.tensor([on()[0], on()[1]]).device,
    "as_tensor keeps the object": lambda: stays(on(), torch.as_tensor),
    "as_tensor on the CPU": lambda: torch.as_tensor(on(), device="cpu").device,
    "asarray on the device": lambda: torch.asarray([1, 2], device="cuda").device,
    "invalid ordinal in a factory": lambda: torch.ones(1, device="cuda:99"),
    "invalid ordinal in to": lambda: torch.ones(1).to("cuda:99"),
    "invalid ordinal in cuda": lambda: torch.ones(1).cuda(99),
}
table(DOCS + "torch.html#creation-ops", FACTORIES)
FACTORIES_OF_TWO = {
    "device of ones on cuda:1": lambda: torch.ones(2, device="cuda:1").device,
    "device of rand_like on cuda:1": lambda: torch.rand_like(on("cuda:1")).device,
    "device of new_empty on cuda:1": lambda: on("cuda:1").new_empty(3).device,
    "device given as integer 1": lambda: torch.zeros(1, device=1).device,
}
table(DOCS + "torch.html#creation-ops", FACTORIES_OF_TWO, gpus=2)
PROPERTIES = {
    "is_cuda": lambda: (on().is_cuda, on().is_cpu, torch.ones(1).is_cuda),
    "get_device": lambda: (on().get_device(), torch.ones(1).get_device()),
    "type of a float tensor": lambda: on().type(),
    "type of an integer tensor": lambda: torch.ones(1, dtype=torch.long, device="cuda").type(),
    "type as a string moves": lambda: torch.ones(1).type("torch.cuda.FloatTensor").device,
    "type_as moves": lambda: torch.ones(1, dtype=torch.long).type_as(on()).type(),
    "device of the storage": lambda: on().untyped_storage().device,
    "bytes of the storage": lambda: on().untyped_storage().nbytes(),
}
table(DOCS + "tensors.html", PROPERTIES)
MOVES = {
    "to the same device is the same object": lambda: stays(on(), lambda x: x.to("cuda:0")),
    "to cuda without index is the same object": lambda: stays(on(), lambda x: x.to("cuda")),
    "cuda is the same object": lambda: stays(on(), lambda x: x.cuda()),
    "to the device from the CPU is new": lambda: stays(torch.ones(2), lambda x: x.to("cuda")),
    "cpu of a CPU tensor is the same object": lambda: stays(torch.ones(2), lambda x: x.cpu()),
    "to with copy is new": lambda: stays(on(), lambda x: x.to("cuda", copy=True)),
    "to with dtype keeps the device": lambda: kind(on().to(torch.float64)),
    "to with device and dtype": lambda: kind(torch.ones(2).to("cuda", torch.float16)),
    "to with other": lambda: kind(torch.ones(2).to(on().half())),
    "to with keyword device": lambda: torch.ones(2).to(device="cuda", non_blocking=True).device,
    "to with an integer": lambda: torch.ones(2).to(0).device,
    "to the CPU": lambda: on().to("cpu").device,
    "half keeps the device": lambda: kind(on().half()),
    "cuda with a CPU device": lambda: torch.ones(1).cuda("cpu"),
    "values survive the round trip": lambda: torch.arange(5).to("cuda").to("cpu").tolist(),
    "strides survive the move": lambda: torch.ones(2, 3).t().to("cuda").stride(),
    "to unknown device": lambda: torch.ones(1).to("gpu"),
}
table(TO, MOVES)
MOVES_OF_TWO = {
    "to another GPU": lambda: on("cuda:0").to("cuda:1").device,
    "to another GPU is new": lambda: stays(on("cuda:0"), lambda x: x.to("cuda:1")),
    "cuda with an index": lambda: torch.ones(1).cuda(1).device,
    "cuda with a device": lambda: torch.ones(1).cuda(torch.device("cuda:1")).device,
    "values survive three devices": lambda: (
        torch.arange(5).to("cuda:0").to("cuda:1").cpu().tolist()
    ),
}
table(TO, MOVES_OF_TWO, gpus=2)


@situation(TO)
def to_does_not_move_in_place() -> Any:
    x = torch.ones(2)
    x.to("cuda")
    return x.device


@situation(TO)
def a_copy_shares_nothing() -> Any:
    x = torch.ones(2)
    y = x.to("cuda")
    x.zero_()
    return y.tolist()


@situation(CODE + "torch/csrc/autograd/variable.cpp")
def assigning_data_moves_the_object() -> Any:
    x = torch.ones(2)
    name = id(x)
    x.data = x.data.to("cuda")
    return x.device, id(x) == name


@situation(DOCS + "generated/torch.Tensor.copy_.html")
def copy_from_the_cpu_keeps_the_device() -> Any:
    x = torch.zeros(2, device="cuda")
    return x.copy_(torch.tensor([3, 4])).tolist(), x.device, x.dtype


@situation(DOCS + "generated/torch.Tensor.copy_.html")
def copy_to_the_cpu_keeps_the_device() -> Any:
    x = torch.zeros(2)
    return x.copy_(on()).tolist(), x.device


@situation(DOCS + "generated/torch.Tensor.copy_.html", gpus=2)
def copy_between_gpus() -> Any:
    x = torch.zeros(2, device="cuda:1")
    return x.copy_(on("cuda:0")).tolist(), x.device
