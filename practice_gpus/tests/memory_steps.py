"""Thirty steps on one CUDA device; after each, what the memory counters say: `python practice_gpus/tests/memory_steps.py`.

Elementwise operations only, since matrix products reserve a workspace whose size depends on the GPU's model.
"""

import contextlib
import gc
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

MIB = 2**20


class Scale(nn.Module):
    """Scale and shift each column, then squash."""

    def __init__(self, size: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        """Return a tensor shaped as x."""
        return torch.tanh(x * self.scale + self.shift)


def floats(count: int) -> torch.Tensor:
    """Return `count` floats on the device."""
    return torch.zeros(count, device="cuda")


def steps():
    """Do one step after another; yield its name, and hold what a program would hold."""
    a = floats(1)
    yield "one float"
    b = [floats(200) for _ in range(5)]
    yield "five times 200 floats"
    c = floats(MIB // 4)
    yield "1 MiB"
    d = floats(MIB // 4 + 1)
    yield "1 MiB and a float"
    e = floats(5 * MIB)
    yield "20 MiB"
    f = floats(3 * MIB - 100)
    yield "12 MiB less 400 bytes"
    del d
    yield "the second drops"
    g = floats(MIB)
    yield "4 MiB"
    h = g.view(1024, 1024).t()[5:]
    yield "a view of it"
    del g
    yield "all but the view dropped"
    i = h.contiguous()
    yield "a copy of the view"
    del h
    yield "the view dropped"
    torch.cuda.empty_cache()
    yield "cache emptied"
    del e
    yield "20 MiB dropped"
    j = floats(4 * MIB)
    yield "16 MiB in its place"
    del b, c
    yield "small ones dropped"
    k = torch.cat([i.flatten(), f[:1000], j[: 2 * MIB]])
    yield "pieces joined"
    k = k * 2 + 1
    yield "a formula"
    del f, i, j, k
    torch.cuda.empty_cache()
    yield "all but one float dropped, cache emptied"
    model = Scale(MIB).to("cuda")
    yield "a model"
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.zeros(4, MIB).to("cuda")
    yield "a batch"
    y = model(x)
    yield "forward"
    loss = y.square().mean()
    yield "loss"
    loss.backward()
    yield "backward"
    del y, loss
    yield "results dropped"
    optimizer.step()
    yield "first step of Adam"
    optimizer.zero_grad()
    yield "gradients dropped"
    with torch.no_grad():
        y = model(model(x))
    yield "two layers without gradients"
    y = checkpoint(nn.Sequential(model, model), x, use_reentrant=False)
    yield "two layers with checkpoint"
    del a, x, y, model, optimizer
    torch.cuda.empty_cache()
    yield "everything dropped, cache emptied"


def lines():
    """Yield a line for each step: its name, then the bytes allocated, reserved, and allocated at most during it."""
    gc.collect()
    torch.cuda.empty_cache()
    allocated = torch.cuda.memory_allocated()
    reserved = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    for name in steps():
        used = torch.cuda.memory_allocated() - allocated
        held = torch.cuda.memory_reserved() - reserved
        peak = torch.cuda.max_memory_allocated() - allocated
        yield f"{name}: {used}, {held}, {peak}"
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    """Print the lines, on a GPU where there is one, else on a practice GPU."""
    device = contextlib.nullcontext()
    if not torch.cuda.is_available():
        from practice_gpus import practice_gpus

        device = practice_gpus()
    with device:
        for line in lines():
            print(line, flush=True)


if __name__ == "__main__":
    main()
