"""Three training steps without labels, which lesson 08 has diagnosed, and what a change brings each of them."""

import functools

import torch
from torch import nn

from lessons.forecasts import recorded, tf32

CHANGES = ("larger batch", "CUDA graph", "16 bits", "torch.compile")


class Gate(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


def _filters():
    return [nn.Conv2d(3, 32, 3), *6 * [Gate(), nn.Conv2d(32, 32, 3, groups=32)]]


def _narrow():
    return 40 * [nn.Linear(64, 64), Gate()]


def _wide():
    return [nn.Linear(4096, 16_384), Gate(), nn.Linear(16_384, 4096)]


def _step(layers, shape, batch, half=False):
    """Make a step that trains `layers()` on a batch of inputs of `shape`."""
    with torch.device("cuda"):
        model, x = nn.Sequential(*layers()), torch.zeros(batch, *shape)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, half):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()

    return step


STEPS = {  # name: (make_step(batch, half=False), batch)
    "A": (functools.partial(_step, _filters, (3, 224, 224)), 64),
    "B": (functools.partial(_step, _narrow, (64,)), 32),
    "C": (functools.partial(_step, _wide, (4096,)), 8192),
}
LABELS = {  # name: (what limits it, what it is)
    "A": ("memory", "depthwise convolutions on photos"),
    "B": ("overhead", "a small recurrent network of 40 steps"),
    "C": ("compute", "two wide layers, as in a large language model"),
}


@functools.cache
def gain(name: str, change: str) -> float:
    """How many times the throughput one of `CHANGES` brings step `name` on an A100, by forecast, with TF32 on."""
    make, batch = STEPS[name]
    with tf32("tf32"):
        before = recorded(functools.partial(make, batch))
        if change == "larger batch":
            return 4 * before.ms / recorded(functools.partial(make, 4 * batch)).ms
        if change == "16 bits":
            return before.ms / recorded(functools.partial(make, batch, half=True)).ms
    return before.ms / (before.graphed if change == "CUDA graph" else before.fused).ms
