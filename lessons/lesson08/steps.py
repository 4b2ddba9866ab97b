"""Three training steps without labels, which lesson 08 has diagnosed, and what a change brings each of them."""

import functools

import torch
from torch import nn

from lessons.forecasts import recorded
from lessons.lesson08.tree import tf32

CHANGES = ("larger batch", "CUDA graph", "16 bits", "torch.compile")


class Gate(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Cell(nn.Module):
    """A small LSTM, written out: 32 words of 64 features."""

    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(2 * 64, 4 * 64)

    def forward(self, x):
        h = c = torch.zeros_like(x[0])
        for word in x:
            i, f, o, new = self.gates(torch.cat([word, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * new.tanh()
            h = o.sigmoid() * c.tanh()
        return h


def _filters():
    def block():
        return Gate(), nn.Conv2d(32, 32, 3, padding=1, groups=32)

    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *[m for _ in range(6) for m in block()])


def _wide():
    return nn.Sequential(nn.Linear(4096, 16_384), Gate(), nn.Linear(16_384, 4096))


def _step(build, shape, batch, half=False):
    """Make a step that trains the model of `build()` on `batch` samples; `shape` has -1 in its place."""
    with torch.device("cuda"):
        model = build()
        x = torch.zeros([batch if size == -1 else size for size in shape])
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, half):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()

    return step


# name: (make_step(batch, half=False), batch, what limits it, what it is)
STEPS = {
    "A": (
        functools.partial(_step, _filters, (-1, 3, 224, 224)),
        64,
        "memory",
        "a photo network of depthwise convolutions",
    ),
    "B": (
        functools.partial(_step, Cell, (32, -1, 64)),
        16,
        "overhead",
        "a small LSTM, word by word",
    ),
    "C": (
        functools.partial(_step, _wide, (-1, 4096)),
        8192,
        "compute",
        "the wide layers of a large language model",
    ),
}


@functools.cache
def gain(name: str, change: str) -> float:
    """How many times the throughput one of `CHANGES` brings step `name` on an A100, by forecast, with TF32 on."""
    make, batch, *_ = STEPS[name]
    with tf32("tf32"):
        before = recorded(functools.partial(make, batch))
        if change == "larger batch":
            return 4 * before.ms / recorded(functools.partial(make, 4 * batch)).ms
        if change == "16 bits":
            return before.ms / recorded(functools.partial(make, batch, half=True)).ms
    return before.ms / (before.graphed if change == "CUDA graph" else before.fused).ms
