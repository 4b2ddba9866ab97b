"""DataParallel, scatter, replicate, gather, and the collective functions below them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import comm, gather, parallel_apply, replicate, scatter
from torch.nn.parallel.scatter_gather import scatter_kwargs

from practice_gpus.situations.modules import net
from practice_gpus.situations.placement import devices, on, stays
from practice_gpus.situations.registry import CODE, DOCS, situation, table

PARALLEL = DOCS + "generated/torch.nn.DataParallel.html"
SPLIT = CODE + "torch/nn/parallel/scatter_gather.py and torch/csrc/cuda/comm.cpp"


class Spy(nn.Module):
    """A linear layer without bias that notes where each replica runs and what it gets."""

    seen: list = []

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1, bias=False)
        nn.init.constant_(self.linear.weight, 1.0)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any, factor: Any = 1) -> Any:
        """Return the sum of each row, times `factor`."""
        self.calls += 1
        devices = str(x.device), str(self.linear.weight.device)
        Spy.seen.append((*devices, tuple(x.shape), torch.cuda.current_device()))
        return self.linear(x) * factor


def spied(batch: int, **options: Any) -> tuple:
    """Return what replicas saw of a batch of `batch` rows, in order of device, and the output's device and shape."""
    Spy.seen = []
    out = nn.DataParallel(Spy().to("cuda:0"), **options)(torch.ones(batch, 2))
    return *sorted(Spy.seen), out.device, out.shape


class Mean(nn.Module):
    """The mean of the input."""

    def forward(self, x: Any) -> Any:
        """Return the mean as a scalar."""
        return x.mean()


class Named(nn.Module):
    """Two outputs with names."""

    def forward(self, x: Any) -> Any:
        """Return a dictionary of two tensors."""
        return {"same": x, "double": x * 2}


def wrapped(device: Any = "cuda:0", **options: Any) -> nn.DataParallel:
    """Return a `Spy` on `device`, wrapped."""
    return nn.DataParallel(Spy().to(device), **options)


def used() -> nn.DataParallel:
    """Return a DataParallel module after a forward and a backward pass of four rows."""
    model = wrapped()
    model(torch.ones(4, 2)).sum().backward()
    return model


ONE_GPU = {
    "prefix of the state_dict": lambda: list(wrapped().state_dict()),
    "wrapped module": lambda: stays(net().to("cuda"), lambda m: nn.DataParallel(m).module),
    "one device id": lambda: spied(3, device_ids=[0]),
    "one device id moves the module": lambda: devices(
        nn.DataParallel(net(), device_ids=[0]).parameters()
    ),
    "device ids are all": lambda: wrapped().device_ids == list(range(torch.cuda.device_count())),
}
table(PARALLEL, ONE_GPU)
TWO_GPUS = {
    "device ids of two": lambda: wrapped().device_ids,
    "even batch": lambda: spied(4),
    "odd batch": lambda: spied(3),
    "batch of one": lambda: spied(1),
    "output device": lambda: spied(2, output_device=1)[-2:],
    "device ids in another order": lambda: (
        wrapped("cuda:1", device_ids=[1, 0])(torch.ones(2, 2)).device
    ),
    "module on the CPU": lambda: nn.DataParallel(net())(torch.ones(4, 2)),
    "module on cuda:1": lambda: nn.DataParallel(net().to("cuda:1"))(torch.ones(4, 2)),
    "input on cuda:0": lambda: wrapped()(torch.ones(4, 2, device="cuda:0")).tolist(),
    "input on cuda:1": lambda: wrapped()(torch.ones(4, 2, device="cuda:1")).device,
    "keyword tensor is split": lambda: wrapped()(
        torch.ones(2, 2), factor=torch.tensor([[1.0], [2.0]])
    ).tolist(),
    "keyword number is shared": lambda: wrapped()(torch.ones(2, 2), factor=3).tolist(),
    "parameters stay on the first": lambda: devices(used().parameters()),
    "gradients are on the first": lambda: devices(p.grad for p in used().parameters()),
    "gradients are summed": lambda: used().module.linear.weight.grad.tolist(),
    "buffers change on the first only": lambda: used().module.calls.item(),
    "scalars become a vector": lambda: nn.DataParallel(Mean().to("cuda"))(torch.ones(4, 2)).shape,
    "error in a replica": lambda: nn.DataParallel(net().to("cuda:0"))(torch.ones(4, 3)),
}
table(PARALLEL, TWO_GPUS, gpus=2)


@situation(PARALLEL, gpus=2)
def dictionary_output() -> Any:
    out = nn.DataParallel(Named())(torch.ones(4, 2))
    return {name: (str(x.device), len(x)) for name, x in out.items()}


@situation(PARALLEL, gpus=2)
def no_grad() -> Any:
    with torch.no_grad():
        return nn.DataParallel(net().to("cuda").eval())(torch.ones(4, 2)).requires_grad


PARTS = {
    "scatter": lambda: [(x.device, x.tolist()) for x in scatter(torch.arange(5), [0, 1])],
    "scatter along dimension 1": lambda: [
        tuple(x.shape) for x in scatter(torch.ones(2, 4), [0, 1], dim=1)
    ],
    "scatter a dictionary": lambda: [
        list(part) for part in scatter({"x": torch.ones(2), "n": 1}, [0, 1])
    ],
    "scatter a number": lambda: scatter(7, [0, 1]),
    "scatter_kwargs": lambda: [
        len(part) for part in scatter_kwargs((torch.ones(2),), {"n": 1}, [0, 1])
    ],
    "gather": lambda: gather([on("cuda:0"), on("cuda:1", 3, 4)], 0),
    "gather on the second": lambda: gather([on("cuda:0"), on("cuda:1")], 1).device,
    "gather on the CPU": lambda: gather([on("cuda:0"), on("cuda:1")], "cpu").device,
    "gather CPU tensors": lambda: gather([torch.ones(1), torch.ones(1)], 0),
    "replicate": lambda: [
        devices(m.state_dict().values()) for m in replicate(net().to("cuda:0"), [0, 1])
    ],
    "parallel_apply": lambda: [
        x.device for x in parallel_apply([nn.ReLU(), nn.ReLU()], [on("cuda:0"), on("cuda:1")])
    ],
    "comm.broadcast": lambda: [
        (x.device, x.tolist()) for x in comm.broadcast(on("cuda:0"), [0, 1])
    ],
    "comm.scatter": lambda: [
        x.tolist() for x in comm.scatter(on("cuda:0", 1, 2, 3), [0, 1], [1, 2])
    ],
    "comm.gather": lambda: comm.gather([on("cuda:0"), on("cuda:1", 3)], destination=1),
    "comm.reduce_add": lambda: comm.reduce_add([on("cuda:0"), on("cuda:1")], 1),
    "comm.reduce_add of CPU tensors": lambda: comm.reduce_add([torch.ones(1), torch.ones(1)]),
    "data_parallel": lambda: nn.parallel.data_parallel(
        Spy().to("cuda:0"), torch.ones(2, 2), [0, 1]
    ),
}
table(SPLIT, PARTS, gpus=2)


@situation(SPLIT, gpus=2)
def scatter_a_list() -> Any:
    left, right = scatter([torch.ones(2), torch.ones(2)], [0, 1])
    return [x.device for x in (*left, *right)]


@situation(SPLIT, gpus=2)
def replicas_of_parameters() -> Any:
    left, right = replicate(nn.Linear(1, 1).to("cuda:0"), [0, 1])
    return [(type(m.weight), m.weight.is_leaf) for m in (left, right)]


@situation(SPLIT, gpus=2)
def gradient_through_scatter_and_gather() -> Any:
    x = torch.ones(4, requires_grad=True)
    left, right = scatter(x, [0, 1])
    gather([left * 2, right * 3], 0).sum().backward()
    return x.grad


@situation(PARALLEL, gpus=2)
def state_dict_goes_back_to_the_plain_module() -> Any:
    saved = nn.DataParallel(net().to("cuda:0")).state_dict()
    plain = net()
    plain.load_state_dict({name.removeprefix("module."): value for name, value in saved.items()})
    return devices(plain.parameters())


@situation(PARALLEL, gpus=2)
def same_output_as_the_plain_module() -> Any:
    m = net().to("cuda:0").eval()
    x = torch.randn(5, 2)
    out = nn.DataParallel(m)(x)
    return torch.allclose(out, m(x.to("cuda:0")), atol=1e-6), out.device
