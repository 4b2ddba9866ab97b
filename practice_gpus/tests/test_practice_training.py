"""Training on a practice GPU gives the CPU's numbers, with little work around each operator."""

import pytest
import torch
from torch import nn

from practice_gpus import practice_gpus

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")


def cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )


def steps(model, optimizer, device, count, batch):
    images = torch.randn(batch, 3, 32, 32)
    labels = torch.randint(10, (batch,))
    losses = []
    for _ in range(count):
        x, y = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist(), [p.detach().cpu() for p in model.parameters()]


def run(device, make_optimizer, count):
    model = cnn().to(device)
    torch.manual_seed(1)
    return steps(model, make_optimizer(model.parameters()), device, count, batch=8)


@pytest.mark.parametrize(
    "make_optimizer, count",
    [
        (torch.optim.Adam, 50),
        (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), 5),
        (lambda p: torch.optim.AdamW(p, fused=True), 5),
        (lambda p: torch.optim.Adam(p, foreach=False), 5),
    ],
)
def test_the_same_numbers_to_the_last_bit(make_optimizer, count):
    losses, weights = run("cpu", make_optimizer, count)
    with practice_gpus():
        got, moved = run("cuda", make_optimizer, count)
    assert got == losses and losses[-1] < losses[0]
    assert all(torch.equal(a, b) for a, b in zip(weights, moved, strict=True))
