"""The photo network's step, and four without labels, which lesson 08 has diagnosed, with what a change brings each."""

import copy
import functools

import torch
from torch import nn
from torch.nn import functional as F

from course import photos
from course.lesson08.tree import forecast_step, three_tests

CHANGES = ("larger batch", "CUDA graph", "16 bits", "torch.compile", "TF32")


@functools.cache
def _pretrained():
    return photos.pretrained(3)


def photo_step(batch, half=False, lean=False, layout=torch.contiguous_format):
    """Return the step that page 08 writes out, which trains all layers on `batch` photos, with page 08b's `layout` too."""
    model = copy.deepcopy(_pretrained()).train().to("cuda", memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.empty(batch, 3, 448, 448, dtype=torch.uint8, pin_memory=True)
    y = torch.zeros(batch, dtype=torch.long, device="cuda")

    def step():
        if lean:
            x = photos.prepare(images.to("cuda", non_blocking=True))[..., ::2, ::2]
        else:
            x = photos.prepare(images)[..., ::2, ::2].to("cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = F.cross_entropy(model(x.contiguous(memory_format=layout)), y)
        loss.backward()
        optimizer.step()

    return step


class Gate(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


def _filters():
    return [nn.Conv2d(3, 32, 3), *3 * [Gate(), nn.Conv2d(32, 32, 3, groups=32)]]


def _narrow():
    return 20 * [nn.Linear(64, 64), Gate()]


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
STEPS["D"] = STEPS["C"]
PRECISION = {"A": "tf32", "B": "tf32", "C": "tf32", "D": "ieee"}  # how each was tested
LABELS = {  # name: (what limits it, what it is)
    "A": ("memory", "depthwise convolutions on photos"),
    "B": ("launches", "a small recurrent network of 20 steps"),
    "C": ("arithmetic", "two wide layers, as in a large language model"),
    "D": ("arithmetic", "C once more, before its author switched TF32 on"),
}


def tests_of(name: str) -> tuple[float, float, float]:
    """Return the three tests of a step, as its author ran them."""
    return three_tests(*STEPS[name], precision=PRECISION[name])


def examine() -> None:
    """Print the three tests of each step."""
    print("   TF32    twice    TF32 off   16 bits")
    for name in STEPS:
        twice, off, half = tests_of(name)
        on = "on " if PRECISION[name] == "tf32" else "off"
        print(f"{name}  {on}    × {twice:.2f}   × {off:.2f}     × {half:.2f}")


def gain(name: str, change: str) -> float:
    """How many times the throughput one of `CHANGES` brings step `name` on an A100, by forecast."""
    make, batch = STEPS[name]
    precision = PRECISION[name]
    before = forecast_step(make, batch, precision)
    if change == "larger batch":
        return 4 * before.ms / forecast_step(make, 4 * batch, precision).ms
    if change == "16 bits":
        return before.ms / forecast_step(make, batch, precision, half=True).ms
    if change == "TF32":
        return before.ms / forecast_step(make, batch).ms
    return before.ms / (before.graphed if change == "CUDA graph" else before.fused).ms
