"""What page 05b forecasts: the peak of a step of a transformer of 7 billion parameters."""

from collections.abc import Callable

import torch
from torch import nn

from practice_gpus import practice_gpus


def peak_of_transformer(train_step: Callable) -> tuple[int, int]:
    """Return (parameters, bytes at the peak) of one step of `transformer` with AdamW on 2,048 tokens; a forecast."""
    with practice_gpus(1, memory="80 GiB", values=False), torch.device("cuda"):
        model = transformer()
        tokens = torch.zeros(1, 2048, dtype=torch.long)
        adam = torch.optim.AdamW(model.parameters())
        train_step(model, tokens, tokens.flatten(), adam)
        return sum(p.numel() for p in model.parameters()), torch.cuda.max_memory_allocated()


def peak_in_words(count: int, peak: int) -> tuple[float, str]:
    """Return the `peak` of a step in GiB, and what each of `count` parameters takes."""
    parts = "2 itself, 2 gradient, 4 Adam's averages, 2 Adam's workspace"
    return peak / 2**30, f"That's {peak / count:.1f} bytes per parameter: {parts}."


def transformer() -> nn.Module:
    """Return a transformer with the dimensions of OPT-6.7B, in bfloat16: tokens [1, n] to logits [n, 50272]."""
    block = nn.TransformerEncoderLayer(4096, 32, 16384, 0, batch_first=True)
    return nn.Sequential(
        nn.Embedding(50_272, 4096),
        nn.TransformerEncoder(block, num_layers=32, enable_nested_tensor=False),
        nn.Linear(4096, 50_272, bias=False),
        nn.Flatten(0, 1),  # a row for each token
    ).bfloat16()
