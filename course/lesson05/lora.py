"""Fine-tuning and inference as LitGPT did them for its published tables of memory: adapters, 4-bit weights, the longest text.

Its code of October 2023 (8641822, with 6178c7c for its norms) and of January 2024 (0f021f3, other adapters).
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

RANK = 8
CHUNK = 128  # tokens whose logits are computed together
METHODS = ("LoRA", "Adapter", "Adapter v2", "inference")
PROMPT = 10  # tokens that an Adapter puts before each text, from the third layer on
SHORT = 60  # tokens of a prompt and its answer


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
    """RMSNorm in separate operators, in float32: autograd keeps twice the bytes of its input."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x):
        wide = x.float()
        mean = (wide * wide).mean(-1, keepdim=True)
        return (self.weight * (wide * torch.rsqrt(mean + 1e-5))).type_as(x)


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


def widened(x, shape):
    """Weights of a packed layer: Lightning packs float16, so bitsandbytes 0.41 unpacks that and turns it to the input's type."""
    return x.new_empty(shape, dtype=torch.half).to(x.dtype)


class Widened(torch.autograd.Function):
    """A product whose weights are widened for it, and again for its backward pass; bitsandbytes 0.41 keeps the input, too."""

    @staticmethod
    def forward(ctx, x, shape):
        ctx.shape = shape
        ctx.save_for_backward(x)
        return F.linear(x, widened(x, shape))

    @staticmethod
    def backward(ctx, grad):
        return grad @ widened(grad, ctx.shape), None


def frozen(inputs, outputs, bias, bits, method="LoRA"):
    """A layer that isn't trained: 16 bits a weight, "nf4" or "nf4-dq"; Adapter v2 gives it a bias and a scale that are."""
    if bits.startswith("nf4"):
        layer = Packed(inputs, outputs, bias, bits.endswith("dq"))
    else:
        layer = nn.Linear(inputs, outputs, bias).requires_grad_(False)
    return Scaled(layer, outputs) if method == "Adapter v2" else layer


class Scaled(nn.Module):
    """A frozen layer whose result is shifted and scaled, as Adapter v2 trains it."""

    def __init__(self, layer, outputs):
        super().__init__()
        self.layer = layer
        self.adapter_bias = nn.Parameter(torch.empty(outputs))
        self.adapter_scale = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return self.adapter_scale * (self.layer(x) + self.adapter_bias)


class Adapted(nn.Module):
    """Queries, keys and values in one layer, with adapters of queries and values, padded to all three."""

    def __init__(self, s, bits):
        super().__init__()
        whole = (s.heads + 2 * s.groups) * (s.width // s.heads)
        values = s.width * s.groups // s.heads
        self.layer = frozen(s.width, whole, s.bias, bits)
        self.adapter_down = nn.Parameter(torch.empty(2 * RANK, s.width))
        self.adapter_up = nn.Parameter(torch.empty(s.width + values, RANK))
        kept = [*range(s.width), *range(whole - values, whole)]
        self.whole, self.parts, self.kept = whole, (s.width, values), kept

    def forward(self, x):
        base = self.layer(x)
        low = F.linear(F.dropout(x, 0.05), self.adapter_down).transpose(-2, -1)
        weights = self.adapter_up.unsqueeze(-1)
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
    """One layer of the model; an Adapter's ``prefix`` stands before the text of all but the first two."""

    def __init__(self, s, bits, method, prefix):
        super().__init__()
        self.s = s
        norm = Norm if s.gated else nn.LayerNorm
        self.first_norm = norm(s.width)
        self.second_norm = None if s.shared else norm(s.width)
        whole = (s.heads + 2 * s.groups) * (s.width // s.heads)
        plain = method != "LoRA"
        self.attend = frozen(s.width, whole, s.bias, bits, method) if plain else Adapted(s, bits)
        self.out = frozen(s.width, s.width, s.bias, bits, method)
        for name in ("up", "gate", "down") if s.gated else ("up", "down"):
            sizes = (s.inner, s.width) if name == "down" else (s.width, s.inner)
            setattr(self, name, frozen(*sizes, s.bias, bits, method))
        self.adapter_prefix = nn.Parameter(torch.empty(1, PROMPT, s.width)) if prefix else None
        self.adapter_gate = nn.Parameter(torch.empty(1, 1, s.heads, 1)) if prefix else None

    def heads(self, x):
        """Queries, keys and values of each head."""
        s, (batch, tokens, _) = self.s, x.shape
        each, size = s.heads // s.groups, s.width // s.heads
        x = self.attend(x).view(batch, tokens, s.groups, each + 2, size).permute(0, 2, 3, 1, 4)
        q, k, v = x.split((each, 1, 1), 2)
        if s.groups > 1:
            k, v = (t.expand(batch, s.groups, each, tokens, size) for t in (k, v))
        return [t.reshape(batch, -1, tokens, size) for t in (q, k, v)]

    def attention(self, x, cos, sin):
        q, k, v = self.heads(x)
        some = int(self.s.rotary * q.shape[-1])
        q, k = (torch.cat((turned(t[..., :some], cos, sin), t[..., some:]), -1) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        if self.adapter_prefix is not None:
            _, k, v = self.heads(self.adapter_prefix)
            mask = torch.ones(x.shape[1], PROMPT, dtype=torch.bool, device=x.device)
            before = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            y = y + self.adapter_gate * before.transpose(1, 2)
        return self.out(y.reshape(x.shape))

    def forward(self, x, cos, sin):
        normal = self.first_norm(x)
        h = self.attention(normal, cos, sin)
        if self.s.gated:
            x = x + h
            y = self.second_norm(x)
            return x + self.down(F.silu(self.up(y)) * self.gate(y))
        y = normal if self.s.shared else self.second_norm(x)
        return x + h + self.down(F.gelu(self.up(y)))


class Model(nn.Module):
    """The whole model; its logits come in pieces of `CHUNK` tokens."""

    def __init__(self, s, bits, method="LoRA"):
        super().__init__()
        self.words = nn.Embedding(s.words, s.width)
        prefixed = 2 if method.startswith("Adapter") else s.layers
        self.blocks = nn.ModuleList(
            Block(s, bits, method, layer >= prefixed) for layer in range(s.layers)
        )
        self.last_norm = (Norm if s.gated else nn.LayerNorm)(s.width)
        self.head = frozen(s.width, s.words, s.shared, bits, method)
        self.size = int(s.rotary * (s.width // s.heads))

    def forward(self, tokens):
        cos, sin = torch.empty(
            2, tokens.shape[1], self.size, dtype=torch.half, device=tokens.device
        )
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return [self.head(part) for part in self.last_norm(x).split(CHUNK, 1)]


def made(name: str, bits: str, method: str) -> Model:
    """The model on a practice GPU, in bfloat16 but for its scales; what isn't the method's is frozen."""
    trained = ("adapter", "norm") if method == "Adapter v2" else ("adapter",)
    with torch.device("meta"):
        model = Model(SHAPES[name], bits, method)
    for key, parameter in model.named_parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
        parameter.requires_grad_(any(word in key for word in trained))
    return model.to_empty(device="cuda").cuda()


def peak_gb(name: str, bits: str, batch: int, method: str = "LoRA") -> float:
    """GB (10⁹ bytes) that a first step of training, or a short answer, holds at most, on shapes alone."""
    from practice_gpus import practice_gpus

    if method not in METHODS:
        raise ValueError(f"method={method!r}: give one of {', '.join(METHODS)}")
    with practice_gpus(1, "900 GiB", values=False, stand_in=1.0):
        model = made(name, bits, method)
        torch.cuda.reset_peak_memory_stats()
        length = SHORT if method == "inference" else SHAPES[name].tokens
        tokens = torch.zeros(batch, length, dtype=torch.long, device="cuda")
        if method == "inference":
            torch.inference_mode()(model)(tokens)
        else:
            train(model, tokens)
        return torch.cuda.max_memory_allocated() / 1e9


def train(model: Model, tokens: torch.Tensor) -> None:
    """The first forward and backward pass: the longest text comes first, before there is any state of the optimizer."""
    logits = [part.float() for part in model(tokens)]  # Lightning's Fabric does so
    logits[-1] = logits[-1][..., :-1, :]
    parts = zip(logits, torch.zeros_like(tokens)[:, 1:].split(CHUNK, 1), strict=True)
    losses = [
        F.cross_entropy(a.reshape(-1, a.shape[-1]), b.reshape(-1), reduction="none")
        for a, b in parts
    ]
    torch.cat(losses).mean().backward()
