"""Leaving the device for Python and NumPy, printing, views and operations in place."""

import numpy
import torch

from .mismatch import placed, square
from .placement import on
from .registry import CODE, DOCS, situation, table

NUMPY = CODE + "torch/csrc/utils/tensor_numpy.cpp"
VIEWS = DOCS + "tensor_view.html"

table(
    NUMPY,
    {
        "numpy of a GPU tensor": lambda: on().numpy(),
        "numpy of a GPU scalar": lambda: on()[0].numpy(),
        "numpy.asarray of a GPU tensor": lambda: numpy.asarray(on()),
        "numpy.add of GPU tensor": lambda: numpy.add(on(), 1),
        "numpy with force": lambda: on().numpy(force=True).tolist(),
        "numpy after cpu": lambda: on().cpu().numpy().tolist(),
        "numpy of a GPU tensor that requires grad": lambda: on().requires_grad_().numpy(),
    },
)
table(NUMPY, {"numpy of a tensor on cuda:1": lambda: on("cuda:1").numpy()}, gpus=2)
table(
    DOCS + "tensors.html",
    {
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
    },
)
table(
    CODE + "torch/_tensor_str.py",
    {
        "print": lambda: on(),
        "print a scalar": lambda: on()[0],
        "print integers": lambda: torch.tensor([1, 2], device="cuda"),
        "print halves": lambda: on().half(),
        "print with requires_grad": lambda: on().requires_grad_(),
        "print a parameter": lambda: repr(torch.nn.Parameter(on())),
        "print no elements": lambda: torch.empty(0, device="cuda"),
        "print size": lambda: on().size(),
    },
)
table(CODE + "torch/_tensor_str.py", {"print on cuda:1": lambda: on("cuda:1")}, gpus=2)
table(
    VIEWS,
    {
        "views stay on the device": lambda: {
            str(x.device)
            for x in (
                square("cuda")[0],
                square("cuda").t(),
                square("cuda").view(4),
                square("cuda").reshape(-1),
                square("cuda").flatten(),
                square("cuda").unsqueeze(0),
                square("cuda").expand(2, 2, 2),
                square("cuda").diagonal(),
                *square("cuda").split(1),
                *square("cuda").unbind(),
                square("cuda").detach(),
            )
        },
        "reductions stay on the device": lambda: {
            str(x.device)
            for x in (
                square("cuda").sum(),
                square("cuda").mean(0),
                square("cuda").max(),
                square("cuda").argmax(),
                *square("cuda").max(1),
                *square("cuda").sort(),
                *square("cuda").topk(1),
                square("cuda").norm(),
            )
        },
        "a view is of the same storage": lambda: (lambda x: x.t().data_ptr() == x.data_ptr())(
            square("cuda")
        ),
        "matrix product": lambda: placed(square("cuda") @ square("cuda")),
        "unique": lambda: placed(on("cuda", 2, 1, 2).unique()),
        "one_hot": lambda: torch.nn.functional.one_hot(torch.tensor([1, 0], device="cuda")).device,
        "complex": lambda: torch.view_as_real(torch.complex(on(), on())).device,
    },
)


@situation(VIEWS)
def writing_to_a_view_writes_the_base():
    x = square("cuda")
    x[0].zero_()
    x.t()[1].add_(10)
    return placed(x)


@situation(DOCS + "tensors.html")
def in_place_operations_keep_the_object():
    x = on()
    same = x.add_(1).mul_(2).clamp_(max=5)
    x += 1
    return same is x, *placed(x)


@situation(DOCS + "generated/torch.Tensor.resize_.html")
def fill_and_resize_in_place():
    x = torch.empty(2, device="cuda").fill_(3)
    return placed(x), x.resize_(1).device


@situation(DOCS + "testing.html")
def assert_close_looks_at_the_device():
    torch.testing.assert_close(on(), torch.tensor([1.0, 2.0]))


@situation(DOCS + "testing.html")
def assert_close_may_ignore_the_device():
    return torch.testing.assert_close(on(), torch.tensor([1.0, 2.0]), check_device=False)


@situation(DOCS + "generated/torch.from_numpy.html")
def numpy_array_to_the_device():
    return placed(torch.from_numpy(numpy.arange(3)).to("cuda"))
