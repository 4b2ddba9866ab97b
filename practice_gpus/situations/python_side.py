"""Leaving the device for Python and NumPy, printing, views and operations in place."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from practice_gpus.situations.mismatch import square
from practice_gpus.situations.placement import devices, kind, on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

NUMPY = CODE + "torch/csrc/utils/tensor_numpy.cpp"
VIEWS = DOCS + "tensor_view.html"

ARRAYS = {
    "numpy of a GPU tensor": lambda: on().numpy(),
    "numpy of a GPU scalar": lambda: on()[0].numpy(),
    "numpy.asarray of a GPU tensor": lambda: numpy.asarray(on()),
    "numpy.add of GPU tensor": lambda: numpy.add(on(), 1),
    "numpy with force": lambda: on().numpy(force=True).tolist(),
    "numpy after cpu": lambda: on().cpu().numpy().tolist(),
    "numpy of a GPU tensor that requires grad": lambda: on().requires_grad_().numpy(),
}
table(NUMPY, ARRAYS)
table(NUMPY, {"numpy of a tensor on cuda:1": lambda: on("cuda:1").numpy()}, gpus=2)
NUMBERS = {
    "item": lambda: on()[1].item(),
    "item of two elements": lambda: on().item(),
    "tolist": lambda: square("cuda").tolist(),
    "float": lambda: float(on()[1]),
    "int": lambda: int(on()[1]),
    "bool": lambda: bool(on()[1] > 1),
    "bool of two elements": lambda: bool(on()),
    "len and iteration": lambda: (len(on()), [row.device for row in on()]),
    "format of a scalar": lambda: f"{on()[1]:.2f}",
    "in operator": lambda: 2.0 in on(),
}
table(DOCS + "tensors.html", NUMBERS)
PRINTED = {
    "print": lambda: str(on()),
    "print a scalar": lambda: str(on()[0]),
    "print integers": lambda: str(torch.tensor([1, 2], device="cuda")),
    "print halves": lambda: str(on().half()),
    "print with requires_grad": lambda: str(on().requires_grad_()),
    "print a parameter": lambda: repr(torch.nn.Parameter(on())),
    "print no elements": lambda: str(torch.empty(0, device="cuda")),
    "print size": lambda: on().size(),
}
table(CODE + "torch/_tensor_str.py", PRINTED)
table(CODE + "torch/_tensor_str.py", {"print on cuda:1": lambda: str(on("cuda:1"))}, gpus=2)
RESULTS = {
    "matrix product": lambda: square("cuda") @ square("cuda"),
    "unique": lambda: on("cuda", 2, 1, 2).unique(),
    "one_hot": lambda: torch.nn.functional.one_hot(torch.tensor([1, 0], device="cuda")).device,
    "complex": lambda: torch.view_as_real(torch.complex(on(), on())).device,
}
table(VIEWS, RESULTS)
COMPARED = {
    "assert close looks at the device": lambda: torch.testing.assert_close(on(), on("cpu")),
    "assert close may ignore the device": lambda: torch.testing.assert_close(
        on(), on("cpu"), check_device=False
    ),
}
table(DOCS + "testing.html", COMPARED)
table(
    DOCS + "generated/torch.from_numpy.html",
    {"numpy array to the device": lambda: torch.from_numpy(numpy.arange(3)).to("cuda")},
)


@situation(VIEWS)
def views_stay_on_the_device() -> Any:
    x = square("cuda")
    views = [x[0], x.t(), x.view(4), x.reshape(-1), x.flatten(), x.unsqueeze(0), x.expand(2, 2, 2)]
    return devices([*views, x.diagonal(), x.detach(), *x.split(1), *x.unbind()])


@situation(VIEWS)
def reductions_stay_on_the_device() -> Any:
    x = square("cuda")
    reduced = [x.sum(), x.mean(0), x.max(), x.argmax(), x.norm()]
    return devices([*reduced, *x.max(1), *x.sort(), *x.topk(1)])


@situation(VIEWS)
def a_view_is_of_the_same_storage() -> Any:
    x = square("cuda")
    return x.t().data_ptr() == x.data_ptr()


@situation(VIEWS)
def writing_to_a_view_writes_the_base() -> Any:
    x = square("cuda")
    x[0].zero_()
    x.t()[1].add_(10)
    return x


@situation(DOCS + "tensors.html")
def in_place_operations_keep_the_object() -> Any:
    x = on()
    same = x.add_(1).mul_(2).clamp_(max=5)
    x += 1
    return same is x, x


@situation(DOCS + "generated/torch.Tensor.resize_.html")
def fill_and_resize_in_place() -> Any:
    x = torch.empty(2, device="cuda").fill_(3)
    return x.tolist(), kind(x), x.resize_(1).device
