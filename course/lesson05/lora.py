"""Fine-tuning as LitGPT did it for its published table of memory: adapters, 4-bit weights, one text at its longest."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

RANK = 8
CHUNK = 128  # tokens whose logits are computed together


class Shape(NamedTuple):
    """A model's sizes. ``gated``: Llama's blocks, with RMSNorm and SwiGLU; else NeoX's, whose two branches are parallel."""

    layers: int
    heads: int
    groups: int
    width: int
    inner: int
    words: int
    tokens: int  # the longest text of the data
    gated: bool
    rotary: float
    bias: bool
    shared: bool = False  # one norm for both branches


SHAPES = {
    "phi-1.5": Shape(24, 32, 32, 2048, 8192, 51_200, 1044, False, 0.5, True, True),
    "StableLM Alpha": Shape(16, 32, 32, 4096, 16_384, 50_688, 1034, False, 0.25, True),
    "Llama 2 7B": Shape(32, 32, 32, 4096, 11_008, 32_000, 1304, True, 1.0, False),
    "Llama 2 13B": Shape(40, 40, 40, 5120, 13_824, 32_000, 1304, True, 1.0, False),
    "CodeLlama 34B": Shape(48, 64, 8, 8192, 22_016, 32_000, 1304, True, 1.0, False),
    "Falcon 40B": Shape(60, 128, 8, 8192, 32_768, 65_024, 1079, False, 1.0, False),
    "Llama 2 70B": Shape(80, 64, 8, 8192, 28_672, 32_000, 1304, True, 1.0, False),
}


class Norm(nn.Module):
    """RMSNorm in separate operators."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x):
        mean = (x * x).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean + 1e-5))


class Packed(nn.Module):
    """A frozen layer in 4 bits a weight: nf4, or nf4 with its scales in 8 bits (bitsandbytes, double quantization)."""

    def __init__(self, inputs, outputs, bias, double):
        super().__init__()
        self.shape = outputs, inputs
        count = inputs * outputs
        self.register_buffer("packed", torch.empty(count // 2, dtype=torch.uint8))
        dtype = torch.uint8 if double else torch.float32
        self.register_buffer("scales", torch.empty(count // 64, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(outputs), False) if bias else None

    def forward(self, x):
        y = Widened.apply(x, self.shape)
        return y if self.bias is None else y + self.bias


class Widened(torch.autograd.Function):
    """A product whose weights are widened for it, and again for its backward pass; bitsandbytes keeps the input, too."""

    @staticmethod
    def forward(ctx, x, shape):
        ctx.shape = shape
        ctx.save_for_backward(x)
        return F.linear(x, x.new_empty(shape))

    @staticmethod
    def backward(ctx, grad):
        return grad @ grad.new_empty(ctx.shape), None


def frozen(inputs, outputs, bias, bits):
    """A layer that isn't trained: 16 bits a weight, "nf4" or "nf4-dq"."""
    if bits.startswith("nf4"):
        return Packed(inputs, outputs, bias, bits.endswith("dq"))
    return nn.Linear(inputs, outputs, bias).requires_grad_(False)


class Adapted(nn.Module):
    """Queries, keys and values in one layer, with adapters of queries and values, padded to all three."""

    def __init__(self, s, bits):
        super().__init__()
        whole = (s.heads + 2 * s.groups) * (s.width // s.heads)
        values = s.width * s.groups // s.heads
        self.layer = frozen(s.width, whole, s.bias, bits)
        self.down = nn.Parameter(torch.empty(2 * RANK, s.width))
        self.up = nn.Parameter(torch.empty(s.width + values, RANK))
        kept = [*range(s.width), *range(whole - values, whole)]
        self.whole, self.parts, self.kept = whole, (s.width, values), kept

    def forward(self, x):
        base = self.layer(x)
        low = F.linear(F.dropout(x, 0.05), self.down).transpose(-2, -1)
        weights = self.up.unsqueeze(-1)
        if self.parts[0] == self.parts[1]:
            wide = F.conv1d(low, weights, groups=2)
        else:
            pairs = zip(low.chunk(2, 1), weights.split(self.parts), strict=True)
            wide = torch.cat([F.conv1d(a, b) for a, b in pairs], 1)
        wide = wide.transpose(-2, -1)
        padded = x.new_zeros(*x.shape[:-1], self.whole).view(-1, self.whole)
        index = torch.empty(len(self.kept), dtype=torch.long, device=x.device)
        padded = padded.index_copy(1, index, wide.transpose(0, 1).reshape(-1, sum(self.parts)))
        return base + padded.view(*x.shape[:-1], self.whole) * 2.0


def turned(x, cos, sin):
    """Rotary positions, whose tables are float16: with bfloat16 they make float32."""
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).type_as(x)


class Block(nn.Module):
    """One layer of the model."""

    def __init__(self, s, bits):
        super().__init__()
        self.s = s
        norm = Norm if s.gated else nn.LayerNorm
        self.first = norm(s.width)
        self.second = None if s.shared else norm(s.width)
        self.attend, self.out = Adapted(s, bits), frozen(s.width, s.width, s.bias, bits)
        names = ("up", "gate", "down") if s.gated else ("up", "down")
        for name in names:
            sizes = (s.inner, s.width) if name == "down" else (s.width, s.inner)
            setattr(self, name, frozen(*sizes, s.bias, bits))

    def attention(self, x, cos, sin):
        s, (batch, tokens, _) = self.s, x.shape
        each, size = s.heads // s.groups, s.width // s.heads
        x = self.attend(x).view(batch, tokens, s.groups, each + 2, size).permute(0, 2, 3, 1, 4)
        q, k, v = x.split((each, 1, 1), 2)
        if s.groups > 1:
            k, v = (t.expand(batch, s.groups, each, tokens, size) for t in (k, v))
        q, k, v = (t.reshape(batch, -1, tokens, size) for t in (q, k, v))
        some = int(s.rotary * size)
        q, k = (torch.cat((turned(t[..., :some], cos, sin), t[..., some:]), -1) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))

    def forward(self, x, cos, sin):
        normal = self.first(x)
        h = self.attention(normal, cos, sin)
        if self.s.gated:
            x = x + h
            y = self.second(x)
            return x + self.down(F.silu(self.up(y)) * self.gate(y))
        y = normal if self.s.shared else self.second(x)
        return x + h + self.down(F.gelu(self.up(y)))


class Model(nn.Module):
    """The whole model; its logits come in pieces of `CHUNK` tokens."""

    def __init__(self, s, bits):
        super().__init__()
        self.words = nn.Embedding(s.words, s.width)
        self.blocks = nn.ModuleList(Block(s, bits) for _ in range(s.layers))
        self.norm = (Norm if s.gated else nn.LayerNorm)(s.width)
        self.head = frozen(s.width, s.words, s.shared, bits)
        self.size = int(s.rotary * (s.width // s.heads))

    def forward(self, tokens):
        cos, sin = torch.empty(
            2, tokens.shape[1], self.size, dtype=torch.half, device=tokens.device
        )
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return [self.head(part) for part in self.norm(x).split(CHUNK, 1)]


def peak_gb(name: str, bits: str, batch: int) -> float:
    """GB (10⁹ bytes) that a step of LoRA's training holds at most, on shapes alone."""
    from practice_gpus import practice_gpus

    with practice_gpus(1, "900 GiB", values=False, stand_in=1.0):
        step, update = adapting(name, bits, batch)()
        step()
        update()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated() / 1e9


def adapting(name: str, bits: str, batch: int) -> Callable:
    """A function that makes the step of LoRA's training of a model, in bfloat16 throughout, on practice GPUs."""

    def make():
        shape = SHAPES[name]
        with torch.device("meta"):
            model = Model(shape, bits)
        for key, parameter in model.named_parameters():
            parameter.requires_grad_(key.endswith(("attend.down", "attend.up")))
        model = model.to(torch.bfloat16).to_empty(device="cuda").cuda()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained)
        tokens = torch.zeros(batch, shape.tokens, dtype=torch.long, device="cuda")
        targets = torch.zeros_like(tokens)[:, 1:]

        def step():
            logits = [part.float() for part in model(tokens)]  # Lightning's Fabric does so
            logits[-1] = logits[-1][..., :-1, :]
            parts = zip(logits, targets.split(CHUNK, 1), strict=True)
            losses = [
                F.cross_entropy(a.reshape(-1, a.shape[-1]), b.reshape(-1), reduction="none")
                for a, b in parts
            ]
            torch.cat(losses).mean().backward()

        def update():
            optimizer.step()
            optimizer.zero_grad()

        return step, update

    return make
