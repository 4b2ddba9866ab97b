"""Autocast and the gradient scaler."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from practice_gpus.situations.mismatch import images, picks, square
from practice_gpus.situations.placement import on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

AMP = DOCS + "amp.html#autocast-op-reference"
G = "cuda"
SCALER = CODE + "torch/amp/grad_scaler.py"


def cast(action: Any, device: Any = "cuda", **options: Any) -> Any:
    """Return what `action()` gives under autocast."""
    with torch.autocast(device, **options):
        return action()


def dtype(action: Any, device: Any = "cuda", **options: Any) -> torch.dtype:
    """Return the dtype of what `action()` gives under autocast."""
    return cast(action, device, **options).dtype


def product() -> torch.Tensor:
    """Return a matrix product on the device."""
    return square("cuda") @ square("cuda")


def halves() -> torch.Tensor:
    """Return a square matrix in half precision on the device."""
    return square("cuda").half()


DTYPES = {
    "autocast matmul": product,
    "autocast linear": lambda: nn.Linear(2, 2).to(G)(square(G)),
    "autocast conv2d": lambda: nn.Conv2d(1, 2, 3).to(G)(images(G)),
    "autocast bmm": lambda: torch.bmm(square(G)[None], square(G)[None]),
    "autocast einsum": lambda: torch.einsum("ij,jk->ik", square(G), square(G)),
    "autocast relu after linear": lambda: torch.relu(nn.Linear(2, 2).to(G)(square(G))),
    "autocast softmax of halves": lambda: halves().softmax(1),
    "autocast exp of halves": lambda: halves().exp(),
    "autocast sum of halves": lambda: halves().sum(),
    "autocast pow of halves": lambda: halves() ** 2,
    "autocast layer_norm of halves": lambda: F.layer_norm(halves(), (2,)),
    "autocast add of float and half": lambda: square(G) + halves(),
    "autocast mul of halves": lambda: halves() * halves(),
    "autocast cat of float and half": lambda: torch.cat([square(G), halves()]),
    "autocast mse_loss of halves": lambda: F.mse_loss(halves(), halves()),
    "autocast cross_entropy of halves": lambda: F.cross_entropy(halves(), picks(G)),
    "autocast matmul of doubles": lambda: square(G).double() @ square(G).double(),
    "autocast matmul on the CPU": lambda: square() @ square(),
    "autocast binary_cross_entropy": lambda: F.binary_cross_entropy(square(G), square(G)),
    "autocast mm with out": lambda: torch.mm(square(G), square(G), out=square(G)),
    "autocast dropout of halves": lambda: F.dropout(halves()),
}
table(AMP, DTYPES, through=dtype)
OPTIONS = {
    "autocast matmul in bfloat16": lambda: dtype(product, dtype=torch.bfloat16),
    "autocast to float32": lambda: dtype(product, dtype=torch.float32),
    "autocast turned off": lambda: dtype(product, enabled=False),
    "autocast turned off inside": lambda: cast(lambda: dtype(product, enabled=False)),
    "autocast for the CPU leaves the device": lambda: dtype(product, "cpu", dtype=torch.bfloat16),
    "autocast as decorator": lambda: torch.autocast("cuda")(product)().dtype,
    "is_autocast_enabled": lambda: (
        torch.is_autocast_enabled("cuda"),
        cast(lambda: torch.is_autocast_enabled("cuda")),
        cast(lambda: torch.is_autocast_enabled("cpu")),
    ),
    "get_autocast_dtype": lambda: (
        torch.get_autocast_dtype("cuda"),
        cast(lambda: torch.get_autocast_dtype("cuda"), dtype=torch.bfloat16),
    ),
    "halves without autocast": lambda: (halves() @ halves()).dtype,
    "half and float without autocast": lambda: halves() @ square(G),
}
table(AMP, OPTIONS)


@situation(AMP)
def gradients_under_autocast_keep_the_dtype() -> Any:
    m = nn.Linear(2, 2).to(G)
    with torch.autocast("cuda"):
        loss = m(square(G)).sum()
    loss.backward()
    return loss.dtype, m.weight.grad.dtype, m.weight.grad.device


def scaler(scale: Any = 4.0, **options: Any) -> torch.amp.GradScaler:
    """Return a gradient scaler that starts with `scale`."""
    return torch.amp.GradScaler("cuda", init_scale=scale, **options)


def scaled_step(gradient: list, **options: Any) -> tuple:
    """Return the weights and the scale after one scaled step with `gradient` divided by the scale."""
    x = on().requires_grad_()
    optimizer = torch.optim.SGD([x], lr=1.0)
    scaling = scaler(**options)
    scaling.scale((x * torch.tensor(gradient, device=G)).sum()).backward()
    scaling.step(optimizer)
    scaling.update()
    return x.tolist(), scaling.get_scale()


@situation(DOCS + "amp.html#gradient-scaling and " + SCALER)
def scaled_loss() -> Any:
    y = scaler(8.0).scale(on()[1])
    return y.item(), y.device


SCALERS = {
    "scale at the start": lambda: torch.amp.GradScaler("cuda").get_scale(),
    "scale a list": lambda: [y.item() for y in scaler(2.0).scale([on()[0], on()[1]])],
    "scaled step": lambda: scaled_step([1.0, 2.0]),
    "scaled step with inf": lambda: scaled_step([float("inf"), 1.0]),
    "scaled step with nan": lambda: scaled_step([1.0, float("nan")]),
    "scale grows": lambda: scaled_step([1.0, 1.0], growth_interval=1),
    "scaler turned off": lambda: scaled_step([1.0, 2.0], enabled=False),
    "state_dict of a scaler": lambda: torch.amp.GradScaler("cuda").state_dict(),
    "scaler of torch.cuda.amp": lambda: torch.cuda.amp.GradScaler().is_enabled(),
}
table(DOCS + "amp.html#gradient-scaling and " + SCALER, SCALERS)


def prepared() -> Any:
    """Return a scaler, an optimizer, and a weight after a scaled backward pass."""
    x = on().requires_grad_()
    scaling = scaler()
    scaling.scale((x * 3).sum()).backward()
    return scaling, torch.optim.SGD([x], lr=1.0), x


@situation(SCALER)
def unscale_divides() -> Any:
    scaling, optimizer, x = prepared()
    scaling.unscale_(optimizer)
    return x.grad.tolist()


@situation(SCALER)
def unscale_twice() -> None:
    scaling, optimizer, _ = prepared()
    scaling.unscale_(optimizer)
    scaling.unscale_(optimizer)


@situation(SCALER)
def step_twice() -> None:
    scaling, optimizer, _ = prepared()
    scaling.step(optimizer)
    scaling.step(optimizer)


@situation(SCALER)
def update_without_step() -> None:
    scaling = torch.amp.GradScaler("cuda")
    scaling.scale(on()[0])
    scaling.update()


@situation(SCALER)
def unscale_half_gradients() -> None:
    x = on().half().requires_grad_()
    scaling = scaler()
    scaling.scale(x.sum()).backward()
    scaling.unscale_(torch.optim.SGD([x], lr=1.0))
