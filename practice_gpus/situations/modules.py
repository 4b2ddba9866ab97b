"""Modules: what moves with `.to`, what stays, and what keeps its identity."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from practice_gpus.situations.placement import devices, kind, stays
from practice_gpus.situations.registry import CODE, DOCS, situation, table

MODULE = DOCS + "generated/torch.nn.Module.html#torch.nn.Module.to"


def net() -> nn.Sequential:
    """Return a small network with parameters and buffers."""
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


MODULES = {
    "to returns the module": lambda: stays(net(), lambda m: m.to("cuda")),
    "cuda returns the module": lambda: stays(net(), lambda m: m.cuda()),
    "to moves parameters": lambda: devices(net().to("cuda").parameters()),
    "to moves buffers": lambda: devices(net().to("cuda").buffers()),
    "cpu moves back": lambda: devices(net().to("cuda").cpu().state_dict().values()),
    "to with dtype": lambda: kind(nn.Linear(1, 1).to("cuda", torch.float64).weight),
    "half of a moved module": lambda: kind(nn.Linear(1, 1).to("cuda").half().weight),
    "dtype leaves integer buffers": lambda: (
        nn.BatchNorm1d(2).to("cuda").half().num_batches_tracked.dtype
    ),
    "module made on the device": lambda: devices(nn.LSTM(2, 2, device="cuda").parameters()),
    "parameters stay leaves": lambda: {p.is_leaf for p in net().to("cuda").parameters()},
    "parameters stay parameters": lambda: {type(p).__name__ for p in net().to("cuda").parameters()},
    "output of a moved module": lambda: net().to("cuda")(torch.ones(4, 2, device="cuda")).device,
    "state_dict of a moved module": lambda: devices(net().to("cuda").state_dict().values()),
    "to an unknown dtype": lambda: net().to("cuda", torch.int32),
    "to_empty": lambda: nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight.device,
    "loss module with weights moves": lambda: (
        nn.CrossEntropyLoss(weight=torch.ones(2)).to("cuda").weight.device
    ),
    "init on the device": lambda: nn.init.constant_(torch.empty(2, device="cuda"), 3),
}
table(MODULE, MODULES)
TWO_GPUS = {
    "cuda with index": lambda: devices(net().cuda(1).state_dict().values()),
    "move from GPU to GPU": lambda: devices(net().to("cuda:0").to("cuda:1").state_dict().values()),
}
table(MODULE, TWO_GPUS, gpus=2)


@situation(CODE + "torch/nn/modules/module.py")
def parameters_keep_their_identity() -> Any:
    m = net()
    before = [id(p) for p in m.parameters()]
    m.to("cuda")
    return [id(p) for p in m.parameters()] == before


@situation(CODE + "torch/nn/modules/module.py")
def buffers_are_new_objects() -> Any:
    m = net()
    before = m[1].running_mean
    m.to("cuda")
    return m[1].running_mean is before, before.device


@situation(CODE + "torch/nn/modules/module.py")
def gradients_move_with_parameters() -> Any:
    m = nn.Linear(2, 1)
    m(torch.ones(1, 2)).sum().backward()
    before = m.weight.grad
    m.to("cuda")
    return m.weight.grad.device, m.weight.grad is before


@situation(MODULE)
def a_plain_attribute_stays_behind() -> Any:
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = torch.ones(2)
            self.register_buffer("offset", torch.ones(2), persistent=False)

    m = Scale().to("cuda")
    return m.factor.device, m.offset.device, list(m.state_dict())


@situation(DOCS + "generated/torch.nn.Module.html#torch.nn.Module.load_state_dict")
def load_state_dict_keeps_the_device() -> Any:
    m = net().to("cuda")
    m.load_state_dict(net().state_dict())
    return devices(m.state_dict().values())


@situation(DOCS + "generated/torch.nn.Module.html#torch.nn.Module.load_state_dict")
def load_state_dict_with_assign_takes_the_device() -> Any:
    m = net().to("cuda")
    m.load_state_dict(net().state_dict(), assign=True)
    return devices(m.state_dict().values())


@situation(MODULE)
def deepcopy_of_a_module() -> Any:
    m = net().to("cuda")
    twin = copy.deepcopy(m)
    return devices(twin.state_dict().values()), twin[0].weight is m[0].weight
