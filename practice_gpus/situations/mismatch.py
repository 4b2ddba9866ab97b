"""Operations on tensors of several devices: which fail with which words, and which are allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from practice_gpus.situations.placement import on
from practice_gpus.situations.registry import CODE, DOCS, table

ITERATOR = CODE + "aten/src/ATen/TensorIterator.cpp"
CHECK = (
    CODE
    + "aten/src/ATen/core/op_registration/adaption.cpp and torchgen/dest/register_dispatch_key.py"
)
CONVOLUTION = CODE + "aten/src/ATen/native/Convolution.cpp"
INDEXING = CODE + "aten/src/ATen/native/TensorAdvancedIndexing.cpp"


def square(device: Any = "cpu") -> torch.Tensor:
    """Return the float matrix [[1, 2], [3, 4]] on `device`."""
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)


def picks(device: Any = "cpu") -> torch.Tensor:
    """Return the integer tensor [0, 1] on `device`."""
    return torch.tensor([0, 1], device=device)


def images(device: Any = "cpu") -> torch.Tensor:
    """Return a batch of four one-channel images of 5 by 5 on `device`."""
    return torch.zeros(4, 1, 5, 5, device=device)


G = "cuda"

ELEMENTWISE = {
    "add GPU and CPU": lambda: square(G) + square(),
    "add CPU and GPU": lambda: square() + square(G),
    "multiply GPU and CPU": lambda: square(G) * square(),
    "compare GPU and CPU": lambda: square(G) == square(),
    "less than, CPU and GPU": lambda: square() < square(G),
    "power of CPU by GPU": lambda: square() ** square(G),
    "maximum of GPU and CPU": lambda: torch.maximum(square(G), square()),
    "in place, CPU into GPU": lambda: square(G).add_(square()),
    "in place, GPU into CPU": lambda: square().add_(square(G)),
    "in place, GPU scalar into CPU": lambda: square().mul_(on()[0]),
    "GPU scalar and CPU tensor": lambda: square() + on()[0],
    "out on the CPU": lambda: torch.add(square(G), square(G), out=square()),
    "out on the GPU": lambda: torch.add(square(), square(), out=square(G)),
    "where with a CPU tensor": lambda: torch.where(square(G) > 2, square(G), square()),
    "where with a CPU condition": lambda: torch.where(square() > 2, square(G), square(G)),
    "lerp GPU and CPU": lambda: torch.lerp(square(G), square(), 0.5),
    "mse_loss GPU and CPU": lambda: F.mse_loss(square(G), square()),
    "binary_cross_entropy_with_logits GPU and CPU": lambda: F.binary_cross_entropy_with_logits(
        square(G), square()
    ),
    "allclose GPU and CPU": lambda: torch.allclose(square(G), square()),
    "outer of GPU and CPU": lambda: torch.outer(on(), torch.ones(2)),
}
table(ITERATOR, ELEMENTWISE)
CHECKED = {
    "mm GPU and CPU": lambda: torch.mm(square(G), square()),
    "matmul CPU and GPU": lambda: square() @ square(G),
    "mm with out on the CPU": lambda: torch.mm(square(G), square(G), out=square()),
    "bmm GPU and CPU": lambda: torch.bmm(square(G)[None], square()[None]),
    "dot GPU and CPU": lambda: torch.dot(on(), torch.ones(2)),
    "matrix on GPU, vector on CPU": lambda: square(G) @ torch.ones(2),
    "einsum GPU and CPU": lambda: torch.einsum("ij,jk->ik", square(G), square()),
    "linear layer on GPU, input on CPU": lambda: nn.Linear(2, 2).to(G)(square()),
    "linear layer on CPU, input on GPU": lambda: nn.Linear(2, 2)(square(G)),
    "linear layer without bias on GPU, input on CPU": lambda: nn.Linear(2, 2, bias=False).to(G)(
        square()
    ),
    "cat GPU and CPU": lambda: torch.cat([square(G), square()]),
    "cat CPU and GPU": lambda: torch.cat([square(), square(G)]),
    "stack GPU and CPU": lambda: torch.stack([square(G), square()]),
    "embedding on GPU, indices on CPU": lambda: nn.Embedding(2, 2).to(G)(picks()),
    "embedding on CPU, indices on GPU": lambda: nn.Embedding(2, 2)(picks(G)),
    "cross_entropy, target on CPU": lambda: F.cross_entropy(square(G), picks()),
    "cross_entropy, logits on CPU": lambda: F.cross_entropy(square(), picks(G)),
    "cross_entropy, weight on CPU": lambda: nn.CrossEntropyLoss(weight=torch.ones(2))(
        square(G), picks(G)
    ),
    "layer_norm on GPU, input on CPU": lambda: nn.LayerNorm(2).to(G)(square()),
    "layer_norm on CPU, input on GPU": lambda: nn.LayerNorm(2)(square(G)),
    "batch_norm on GPU, input on CPU": lambda: nn.BatchNorm1d(2).to(G)(square()),
    "gather with CPU index": lambda: square(G).gather(1, torch.zeros(2, 2, dtype=torch.long)),
    "scatter with CPU source": lambda: square(G).scatter(
        1, torch.zeros(2, 2, dtype=torch.long, device=G), square()
    ),
    "index_select with CPU index": lambda: square(G).index_select(0, picks()),
    "index_add_ with CPU index": lambda: square(G).index_add_(0, picks(), square(G)),
    "masked_select with CPU mask": lambda: square(G).masked_select(square() > 2),
    "clamp with CPU tensor": lambda: square(G).clamp(min=square()),
    "equal GPU and CPU": lambda: torch.equal(square(G), square()),
    "cdist GPU and CPU": lambda: torch.cdist(square(G), square()),
    "prelu on GPU, input on CPU": lambda: nn.PReLU().to(G)(square()),
}
table(CHECK, CHECKED)
MASKED = {
    "masked_fill_ CPU tensor, GPU mask": lambda: square().masked_fill_(square(G) > 2, 0.0),
    "masked_fill_ GPU tensor, CPU mask": lambda: square(G).masked_fill_(square() > 2, 0.0),
}
table(
    CODE + "aten/src/ATen/native/cuda/IndexKernel.cpp and native/TensorAdvancedIndexing.cpp", MASKED
)
CONVOLUTIONS = {
    "conv2d on GPU, input on CPU": lambda: nn.Conv2d(1, 2, 3).to(G)(images()),
    "conv2d on CPU, input on GPU": lambda: nn.Conv2d(1, 2, 3)(images(G)),
    "conv2d, bias on CPU": lambda: F.conv2d(
        images(G), torch.zeros(2, 1, 3, 3, device=G), torch.zeros(2)
    ),
    "conv2d, half weights": lambda: nn.Conv2d(1, 2, 3).to(G).half()(images(G)),
    "conv1d on GPU, input on CPU": lambda: nn.Conv1d(1, 2, 3).to(G)(torch.zeros(4, 1, 5)),
}
table(CONVOLUTION, CONVOLUTIONS)
ATTENTION = {
    "attention, key and value on CPU": lambda: F.scaled_dot_product_attention(
        square(G)[None, None], square()[None, None], square()[None, None]
    )
}
table(CODE + "aten/src/ATen/native/transformers/attention.cpp", ATTENTION)
TWO_GPUS = {
    "add of two GPUs": lambda: square("cuda:0") + square("cuda:1"),
    "add of two GPUs, other order": lambda: square("cuda:1") + square("cuda:0"),
    "add with a scalar of another GPU": lambda: square("cuda:0") + on("cuda:1")[0],
    "compare two GPUs": lambda: square("cuda:0") == square("cuda:1"),
    "mm of two GPUs": lambda: square("cuda:0") @ square("cuda:1"),
    "cat of two GPUs": lambda: torch.cat([square("cuda:1"), square("cuda:0")]),
    "linear layer and input on two GPUs": lambda: nn.Linear(2, 2).to("cuda:1")(square("cuda:0")),
    "cross_entropy of two GPUs": lambda: F.cross_entropy(square("cuda:1"), picks("cuda:0")),
    "embedding of two GPUs": lambda: nn.Embedding(2, 2).to("cuda:1")(picks("cuda:0")),
    "conv2d of two GPUs, without cuDNN": lambda: without_cudnn(
        lambda: nn.Conv2d(1, 2, 3).to("cuda:1")(images("cuda:0"))
    ),
}
table(ITERATOR + " and " + CHECK, TWO_GPUS, gpus=2)


def without_cudnn(action: Callable) -> Any:
    """Return what `action()` gives while cuDNN is off."""
    with torch.backends.cudnn.flags(enabled=False):
        return action()


SCALARS = {
    "GPU tensor and CPU scalar tensor": lambda: on() + torch.tensor(3.0),
    "CPU scalar tensor and GPU tensor": lambda: torch.tensor(3.0) * on(),
    "GPU tensor and double CPU scalar tensor": lambda: (
        on() * torch.tensor(0.5, dtype=torch.float64)
    ),
    "GPU integers and float CPU scalar tensor": lambda: picks(G) + torch.tensor(0.5),
    "GPU scalar and CPU scalar": lambda: on()[0] + torch.tensor(2.0),
    "in place with a CPU scalar": lambda: on().mul_(torch.tensor(2.0)),
    "compare with a CPU scalar": lambda: on() > torch.tensor(1.5),
    "where with a CPU scalar": lambda: torch.where(on() > 1, on(), torch.tensor(0.0)),
    "maximum with a CPU scalar": lambda: torch.maximum(on(), torch.tensor(1.5)),
    "addcmul with a CPU scalar": lambda: torch.addcmul(on(), on(), torch.tensor(2.0)),
    "masked_fill with a CPU scalar": lambda: on().masked_fill(on() > 1, torch.tensor(9.0)),
    "Python number": lambda: 2 * on() + 1,
    "CPU tensor of one element and GPU tensor": lambda: on() + torch.ones(1),
    "clamp with a CPU scalar": lambda: on().clamp(min=torch.tensor(1.5)),
    "result_type of GPU and CPU": lambda: torch.result_type(on(), torch.ones(2)),
}
table(DOCS + "notes/cuda.html and " + ITERATOR, SCALARS)
INDICES = {
    "GPU tensor by CPU indices": lambda: on("cuda", 5, 6, 7)[torch.tensor([2, 0])],
    "GPU tensor by CPU mask": lambda: on()[torch.tensor([False, True])],
    "GPU tensor by GPU indices": lambda: on("cuda", 5, 6, 7)[picks(G)],
    "GPU tensor by a list": lambda: on("cuda", 5, 6, 7)[[0, 2]],
    "GPU tensor by a GPU scalar": lambda: on()[picks(G)[1]],
    "GPU tensor by a slice": lambda: on("cuda", 5, 6, 7)[1:],
    "CPU tensor by GPU indices": lambda: torch.ones(3)[picks(G)],
    "CPU tensor by GPU mask": lambda: torch.ones(2)[on() > 1],
    "list by a GPU scalar": lambda: ["a", "b"][picks(G)[1]],
    "assign number at CPU indices": lambda: assigned(on(), picks(), 7),
    "assign CPU tensor to a slice": lambda: assigned(on(), slice(0, 1), torch.tensor([8.0])),
    "assign CPU scalar at GPU indices": lambda: assigned(on(), picks(G), torch.tensor(4.0)),
    "assign CPU tensor at GPU indices": lambda: assigned(on(), picks(G), torch.ones(2)),
    "assign GPU tensor at CPU indices of a CPU tensor": lambda: assigned(
        torch.zeros(2), picks(), on()
    ),
    "assign GPU scalar into a CPU tensor": lambda: assigned(torch.zeros(2), 0, on()[1]),
    "nonzero": lambda: on("cuda", 0, 3).nonzero(),
}
table(INDEXING + " and " + DOCS + "tensor_view.html", INDICES)
table(INDEXING, {"tensor by indices on another GPU": lambda: on("cuda:0")[picks("cuda:1")]}, gpus=2)


def assigned(x: torch.Tensor, where: Any, value: Any) -> torch.Tensor:
    """Return `x` after `x[where] = value`."""
    x[where] = value
    return x
