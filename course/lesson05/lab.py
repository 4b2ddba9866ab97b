"""What lesson 05 counts memory with: blocks by line, the peak of a step, a transformer of 7 billion parameters."""

from collections import Counter
from collections.abc import Callable

import torch
from torch import nn

from course.lesson05.memory import source_line
from helpers.memory import format_bytes
from practice_gpus.traces import snapshots


def print_held(snapshot: dict) -> None:
    """Print the three lines that allocated most of what is in use in `snapshot`, a result of `_snapshot()`.

    A snapshot has segments, a segment blocks; a block in use has its size and its stack of calls, the frames. What was
    allocated before recording began has none, and counts as one line.
    """
    held: Counter[str] = Counter()
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                frames = snapshots.frames_of(block)
                line = source_line(frames) or snapshots.line(frames) or snapshots.NO_FRAMES
                held[line] += block["size"]
    for line, size in held.most_common(3):
        print(f"{format_bytes(size):>9}  {line}")


def peak_of_a_step(make_model: Callable[[], nn.Module], train_step: Callable) -> int:
    """Return the peak in bytes of the second step (Adam's state is there) of that model on 2,048 rows."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    model = make_model()
    adam = torch.optim.Adam(model.parameters())
    x = torch.zeros(2048, 1024, device="cuda")
    y = torch.zeros(2048, dtype=torch.long, device="cuda")
    for _ in range(2):
        train_step(model, x, y, adam)
    return torch.cuda.max_memory_allocated() - before


def transformer() -> nn.Module:
    """Return a transformer with the dimensions of OPT-6.7B, in bfloat16: tokens [1, n] to logits [n, 50272]."""
    block = nn.TransformerEncoderLayer(4096, 32, 16384, 0, batch_first=True)
    return nn.Sequential(
        nn.Embedding(50_272, 4096),
        nn.TransformerEncoder(block, num_layers=32, enable_nested_tensor=False),
        nn.Linear(4096, 50_272, bias=False),
        nn.Flatten(0, 1),  # a row for each token
    ).bfloat16()
