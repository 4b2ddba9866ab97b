"""Situations from code of others: hidden waits, torch.func, lazy and typed tensors, jagged tensors, snapshots."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from practice_gpus.situations.mismatch import assigned
from practice_gpus.situations.registry import CODE, DOCS, situation, table

WAITS = CODE + "test/test_torch.py"
FUNC = DOCS + "func.html"


def hidden(action: Any) -> Any:
    """Return what the debug mode says of an action on a GPU tensor, an index and a mask on the GPU."""
    x = torch.rand(4, device="cuda")
    index = torch.arange(3, device="cuda")
    mask = x > 0.5
    torch.cuda.set_sync_debug_mode("error")
    try:
        action(x, index, mask)
    except RuntimeError:
        return "waits"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "goes on"


WAITING = {
    "numbers of Python made into a tensor": lambda x, i, m: x.new_tensor([1.0]),
    "an index from a list": lambda x, i, m: x[[0, 1]],
    "an index on the CPU": lambda x, i, m: x[torch.arange(3)],
    "an index on the GPU": lambda x, i, m: x[i],
    "reading through a mask": lambda x, i, m: x[m],
    "a number written through a mask": lambda x, i, m: assigned(x, m, 0.0),
    "a GPU value written through a mask": lambda x, i, m: assigned(x, m, x[0]),
    "a number written into a slice": lambda x, i, m: assigned(x, slice(2), 1.0),
    "one hot with classes": lambda x, i, m: F.one_hot(i, 4),
    "one hot without classes": lambda x, i, m: F.one_hot(i),
    "allclose": lambda x, i, m: torch.allclose(x, x),
    "an inverse": lambda x, i, m: torch.linalg.inv(torch.eye(3, device="cuda")),
    "an inverse without a check": lambda x, i, m: torch.linalg.inv_ex(torch.eye(3, device="cuda")),
}
table(WAITS, WAITING, through=hidden)


@situation(FUNC)
def gradients_of_torch_func() -> Any:
    x = torch.ones(2, device="cuda")
    gradient = torch.func.grad(lambda v: (v**2).sum())(x)
    return gradient.device, torch.func.vmap(torch.sum)(torch.ones(3, 2, device="cuda")).device


@situation(DOCS + "generated/torch.nn.LazyLinear.html")
def lazy_linear_on_the_gpu() -> Any:
    layer = nn.LazyLinear(2).to("cuda")
    layer(torch.ones(1, 3, device="cuda"))
    return layer.weight.shape, layer.weight.device


@situation(DOCS + "tensors.html")
def typed_tensors() -> Any:
    x = torch.cuda.FloatTensor(2)
    return x.device, isinstance(x, torch.cuda.FloatTensor), isinstance(x, torch.cuda.LongTensor)


@situation(DOCS + "nested.html")
def jagged_tensor() -> Any:
    rows = [torch.ones(2, 3), torch.ones(1, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, device="cuda")
    return x.device, (x * 2).device, x.is_cuda


@situation(DOCS + "torch_cuda_memory.html")
def memory_snapshot_of_a_tensor() -> Any:
    torch.cuda.memory._record_memory_history(clear_history=True)
    x = torch.ones(1000, device="cuda")
    del x
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    ours = [event for event in events if not event["action"].startswith("segment")]
    return [event["action"] for event in ours], ours[0]["size"]
