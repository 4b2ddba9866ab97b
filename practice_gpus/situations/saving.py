"""Saving, loading with map_location, copying and pickling."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import nn

from practice_gpus.situations.gradients import leaf
from practice_gpus.situations.modules import net
from practice_gpus.situations.placement import devices, on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

LOAD = DOCS + "generated/torch.load.html"
SERIALIZATION = CODE + "torch/serialization.py"


def stored(thing: Any) -> io.BytesIO:
    """Return `thing` as saved by `torch.save`, ready to be read."""
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return file


def through(thing: Any, **options: Any) -> Any:
    """Return `thing` after it was saved and loaded with `options`."""
    return torch.load(stored(thing), weights_only=True, **options)


def elsewhere(device: str) -> io.BytesIO:
    """Return a file of a tensor that says it was saved from `device`."""
    name = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: device
    try:
        return stored(torch.ones(2))
    finally:
        torch.serialization.location_tag = name


LOADED = {
    "load gives the device back": lambda: through(on()),
    "load to the CPU": lambda: through(on(), map_location="cpu"),
    "load with a torch.device": lambda: through(on(), map_location=torch.device("cpu")).device,
    "load from the CPU to the device": lambda: through(torch.ones(2), map_location="cuda").device,
    "load with a dictionary": lambda: through(on(), map_location={"cuda:0": "cpu"}).device,
    "load with a function": lambda: (
        through(on(), map_location=lambda storage, place: storage).device
    ),
    "load a state_dict": lambda: devices(through(net().to("cuda").state_dict()).values()),
    "load a state_dict to the CPU": lambda: devices(
        through(net().to("cuda").state_dict(), map_location="cpu").values()
    ),
    "load a whole module": lambda: devices(
        torch.load(stored(net().to("cuda")), weights_only=False).state_dict().values()
    ),
}
table(LOAD, LOADED)
MISSING = {
    "load from a device that is not there": lambda: torch.load(elsewhere("cuda:99")),
    "load to a device that is not there": lambda: through(on(), map_location="cuda:99"),
    "load from a device that is not there to the CPU": lambda: torch.load(
        elsewhere("cuda:99"), map_location="cpu"
    ),
}
table(SERIALIZATION, MISSING)
LOADED_OF_TWO = {
    "load gives cuda:1 back": lambda: through(on("cuda:1")),
    "load to cuda:1": lambda: through(on("cuda:0"), map_location="cuda:1").device,
    "load with a dictionary to cuda:1": lambda: (
        through(on("cuda:0"), map_location={"cuda:0": "cuda:1"}).device
    ),
    "dictionary without the place": lambda: (
        through(on("cuda:1"), map_location={"cuda:0": "cpu"}).device
    ),
}
table(LOAD, LOADED_OF_TWO, gpus=2)


@situation(LOAD)
def function_is_told_the_place() -> Any:
    places = []
    through(on(), map_location=lambda storage, place: places.append(place))
    return places


@situation(LOAD)
def load_keeps_views_together() -> Any:
    x = on()
    whole, part = through([x, x[:1]])
    return whole.data_ptr() == part.data_ptr(), part.device


@situation(LOAD)
def load_a_parameter() -> Any:
    p = through(nn.Parameter(on()))
    return type(p), p.device, p.requires_grad


@situation(LOAD, gpus=2)
def load_to_cuda_in_a_context() -> Any:
    with torch.cuda.device(1):
        return through(torch.ones(1), map_location="cuda").device


def copied(copier: Any) -> tuple:
    """Return what `copier` makes of a tensor on the device, and whether it shares its memory."""
    x = on()
    twin = copier(x)
    return twin, twin.data_ptr() == x.data_ptr()


COPIES = {
    "deepcopy": lambda: copied(copy.deepcopy),
    "deepcopy of a result": lambda: copy.deepcopy(leaf() * 2),
    "copy": lambda: copied(copy.copy),
    "pickle": lambda: pickle.loads(pickle.dumps(on())),
    "pickle of a device": lambda: pickle.loads(pickle.dumps(torch.device("cuda:1"))),
    "clone": lambda: copied(torch.clone),
}
table(CODE + "torch/_tensor.py", COPIES)


@situation(CODE + "torch/_tensor.py")
def deepcopy_of_a_leaf() -> Any:
    x = copy.deepcopy(leaf())
    return x.device, x.requires_grad, x.is_leaf


@situation(DOCS + "notes/serialization.html")
def optimizer_and_model_through_a_file() -> Any:
    m = net().to("cuda")
    optimizer = torch.optim.Adam(m.parameters())
    m(torch.ones(4, 2, device="cuda")).sum().backward()
    optimizer.step()
    saved = through(
        {"model": m.state_dict(), "optimizer": optimizer.state_dict()}, map_location="cpu"
    )
    state = saved["optimizer"]["state"][0]
    return devices(saved["model"].values()), state["exp_avg"].device


@situation(DOCS + "generated/torch.nn.Module.html#torch.nn.Module.state_dict")
def state_dict_shares_memory() -> Any:
    m = nn.Linear(1, 1, bias=False).to("cuda")
    m.state_dict()["weight"].fill_(5)
    return m.weight
