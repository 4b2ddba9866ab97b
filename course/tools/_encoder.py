"""Encoders in the shape of Hugging Face's BERT and RoBERTa of 2021, whose attention was written out, not fused."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

SHAPES = {  # layers, heads, width; the inner width is four times the width
    "MiniLM-L6-H384": (6, 12, 384),
    "RoBERTa base": (12, 12, 768),
    "RoBERTa large": (24, 16, 1024),
}
WORDS = 50_265


class Layer(nn.Module):
    """One layer: attention and a feed-forward part, each added to its input and normalized after."""

    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Identity()

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """The heads of ``x`` as a dimension of their own: (batch, heads, tokens, width of one)."""
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5) + mask
        seen = (self.drop(scores.softmax(-1)) @ v).permute(0, 2, 1, 3).contiguous()
        x = self.first(self.drop(self.out(seen.view(x.shape))) + x)
        return self.second(self.drop(self.down(F.gelu(self.up(x)))) + x)


class Encoder(nn.Module):
    """Embeddings, layers, and a classification of the first token."""

    def __init__(self, layers, heads, width):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(514, width)
        self.norm, self.answer = nn.LayerNorm(width), nn.Linear(width, 3)
        self.layers = nn.ModuleList(Layer(heads, width) for _ in range(layers))

    def forward(
        self, words: torch.Tensor, places: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        x = self.norm(self.words(words) + self.places(places))
        hidden = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return self.answer(x[:, 0])


def encoding(name: str, batch: int, tokens: int, precision: str) -> Callable:
    """A step of inference of the encoder called ``name``: float32, or float16 by autocast."""
    model = Encoder(*SHAPES[name]).cuda().eval()
    words = torch.zeros(batch, tokens, dtype=torch.long, device="cuda")
    places, mask = torch.zeros_like(words), torch.ones_like(words)

    def step():
        with torch.no_grad(), torch.autocast("cuda", torch.float16, precision == "FP16"):
            model(words, places, mask)

    return step
