"""Autocast and the gradient scaler."""

import torch
import torch.nn.functional as F
from torch import nn

from .mismatch import images, square
from .placement import on
from .registry import CODE, DOCS, situation, table

AMP = DOCS + "amp.html#autocast-op-reference"
SCALER = CODE + "torch/amp/grad_scaler.py"


def cast(action, **options):
    """Return what `action()` gives under autocast for cuda."""
    with torch.autocast("cuda", **options):
        return action()


def dtype(action, **options) -> torch.dtype:
    """Return the dtype of what `action()` gives under autocast for cuda."""
    return cast(action, **options).dtype


G = "cuda"
table(
    AMP,
    {
        "autocast matmul": lambda: dtype(lambda: square(G) @ square(G)),
        "autocast matmul in bfloat16": lambda: dtype(
            lambda: square(G) @ square(G), dtype=torch.bfloat16
        ),
        "autocast linear": lambda: dtype(lambda: nn.Linear(2, 2).to(G)(square(G))),
        "autocast conv2d": lambda: dtype(lambda: nn.Conv2d(1, 2, 3).to(G)(images(G))),
        "autocast bmm": lambda: dtype(lambda: torch.bmm(square(G)[None], square(G)[None])),
        "autocast einsum": lambda: dtype(lambda: torch.einsum("ij,jk->ik", square(G), square(G))),
        "autocast relu after linear": lambda: dtype(
            lambda: torch.relu(nn.Linear(2, 2).to(G)(square(G)))
        ),
        "autocast softmax of halves": lambda: dtype(lambda: square(G).half().softmax(1)),
        "autocast exp of halves": lambda: dtype(lambda: square(G).half().exp()),
        "autocast sum of halves": lambda: dtype(lambda: square(G).half().sum()),
        "autocast pow of halves": lambda: dtype(lambda: square(G).half() ** 2),
        "autocast layer_norm of halves": lambda: dtype(
            lambda: F.layer_norm(square(G).half(), (2,))
        ),
        "autocast add of float and half": lambda: dtype(lambda: square(G) + square(G).half()),
        "autocast mul of halves": lambda: dtype(lambda: square(G).half() * square(G).half()),
        "autocast cat of float and half": lambda: dtype(
            lambda: torch.cat([square(G), square(G).half()])
        ),
        "autocast mse_loss of halves": lambda: dtype(
            lambda: F.mse_loss(square(G).half(), square(G).half())
        ),
        "autocast cross_entropy of halves": lambda: dtype(
            lambda: F.cross_entropy(square(G).half(), torch.tensor([0, 1], device=G))
        ),
        "autocast matmul of doubles": lambda: dtype(
            lambda: square(G).double() @ square(G).double()
        ),
        "autocast matmul on the CPU": lambda: dtype(lambda: square() @ square()),
        "autocast turned off": lambda: dtype(lambda: square(G) @ square(G), enabled=False),
        "autocast turned off inside": lambda: cast(
            lambda: dtype(lambda: square(G) @ square(G), enabled=False)
        ),
        "autocast binary_cross_entropy": lambda: cast(
            lambda: F.binary_cross_entropy(square(G), square(G))
        ),
        "autocast mm with out": lambda: (
            cast(lambda: torch.mm(square(G), square(G), out=square(G))).dtype
        ),
        "autocast for the CPU leaves the device": lambda: cpu_cast(
            lambda: (square(G) @ square(G)).dtype
        ),
        "autocast dropout of halves": lambda: dtype(lambda: F.dropout(square(G).half())),
        "autocast as decorator": lambda: torch.autocast("cuda")(
            lambda: (square(G) @ square(G)).dtype
        )(),
        "is_autocast_enabled": lambda: (
            torch.is_autocast_enabled("cuda"),
            cast(lambda: torch.is_autocast_enabled("cuda")),
            cast(lambda: torch.is_autocast_enabled("cpu")),
        ),
        "get_autocast_dtype": lambda: (
            torch.get_autocast_dtype("cuda"),
            cast(lambda: torch.get_autocast_dtype("cuda"), dtype=torch.bfloat16),
        ),
        "autocast to float32": lambda: dtype(lambda: square(G) @ square(G), dtype=torch.float32),
        "halves without autocast": lambda: (square(G).half() @ square(G).half()).dtype,
        "half and float without autocast": lambda: square(G).half() @ square(G),
    },
)


def cpu_cast(action):
    """Return what `action()` gives under autocast for the CPU."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return action()


@situation(AMP)
def gradients_under_autocast_keep_the_dtype():
    m = nn.Linear(2, 2).to(G)
    with torch.autocast("cuda"):
        loss = m(square(G)).sum()
    loss.backward()
    return loss.dtype, m.weight.grad.dtype, m.weight.grad.device


def scaled_step(gradient: list, **options) -> tuple:
    """Return the weights and the scale after one scaled step with `gradient` divided by the scale."""
    x = on().requires_grad_()
    optimizer = torch.optim.SGD([x], lr=1.0)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0, **options)
    scaler.scale((x * torch.tensor(gradient, device=G)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return x.detach().tolist(), scaler.get_scale()


table(
    DOCS + "amp.html#gradient-scaling and " + SCALER,
    {
        "scale at the start": lambda: torch.amp.GradScaler("cuda").get_scale(),
        "scaled loss": lambda: (lambda y: (y.item(), y.device))(
            torch.amp.GradScaler("cuda", init_scale=8.0).scale(on()[1])
        ),
        "scale a list": lambda: [
            y.item() for y in torch.amp.GradScaler("cuda", init_scale=2.0).scale([on()[0], on()[1]])
        ],
        "scaled step": lambda: scaled_step([1.0, 2.0]),
        "scaled step with inf": lambda: scaled_step([float("inf"), 1.0]),
        "scaled step with nan": lambda: scaled_step([1.0, float("nan")]),
        "scale grows": lambda: scaled_step([1.0, 1.0], growth_interval=1),
        "scaler turned off": lambda: scaled_step([1.0, 2.0], enabled=False),
        "state_dict of a scaler": lambda: torch.amp.GradScaler("cuda").state_dict(),
        "scaler of torch.cuda.amp": lambda: torch.cuda.amp.GradScaler().is_enabled(),
    },
)


def prepared():
    """Return a scaler and an optimizer after a scaled backward pass."""
    x = on().requires_grad_()
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale((x * 3).sum()).backward()
    return scaler, torch.optim.SGD([x], lr=1.0), x


@situation(SCALER)
def unscale_divides():
    scaler, optimizer, x = prepared()
    scaler.unscale_(optimizer)
    return x.grad.tolist()


@situation(SCALER)
def unscale_twice():
    scaler, optimizer, _ = prepared()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


@situation(SCALER)
def step_twice():
    scaler, optimizer, _ = prepared()
    scaler.step(optimizer)
    scaler.step(optimizer)


@situation(SCALER)
def update_without_step():
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(on()[0])
    scaler.update()


@situation(SCALER)
def unscale_half_gradients():
    x = on().half().requires_grad_()
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale(x.sum()).backward()
    scaler.unscale_(torch.optim.SGD([x], lr=1.0))
