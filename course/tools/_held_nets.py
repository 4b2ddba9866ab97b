"""Networks of the held-back points, in the shapes of those who measured them: attention, encoders, decoders, a detector, an UNet."""

from importlib import import_module
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from course.lesson05 import lora
from course.tools._encoder import Encoder


class Shape(NamedTuple):
    """A decoder's sizes; ``gated``: Llama's blocks with RMSNorm and rotary positions, else MPT's with LayerNorm and GELU."""

    layers: int
    heads: int
    groups: int
    width: int
    inner: int
    words: int
    gated: bool = True


LORA = ("Llama 2 7B", "Llama 2 13B", "Llama 2 70B", "CodeLlama 34B")  # lesson 05 has their sizes
SHAPES = {name: Shape(*lora.SHAPES[name][:6]) for name in LORA}
SHAPES |= {
    "Llama 3 8B": Shape(32, 32, 8, 4096, 14_336, 128_256),
    "Llama 3 70B": Shape(80, 64, 8, 8192, 28_672, 128_256),
    "MPT 1B": Shape(24, 16, 16, 2048, 8192, 50_368, False),
    "MPT 3B": Shape(32, 20, 20, 2560, 10_240, 50_368, False),
    "MPT 7B": Shape(32, 32, 32, 4096, 16_384, 50_368, False),
    "MPT 13B": Shape(40, 40, 40, 5120, 20_480, 50_368, False),
    "MPT 30B": Shape(48, 56, 56, 7168, 28_672, 50_368, False),
    "MPT 70B": Shape(80, 64, 64, 8192, 32_768, 50_368, False),
}


class Narrow(nn.Module):
    """A layer whose weights are "int8", widened for the product, or "int4 GROUP", multiplied as they are (gpt-fast, torchao)."""

    def __init__(self, inputs, outputs, kind):
        super().__init__()
        self.group = int(kind.split()[1]) if " " in kind else 0
        if self.group:
            place = {"dtype": torch.bfloat16, "device": "cuda"}
            packed = outputs // 8, inputs // 128, 32, 4
            self.weight = torch.empty(packed, dtype=torch.int32, device="cuda")
            self.scale = torch.empty(inputs // self.group, outputs, 2, **place)
        else:
            self.weight = torch.empty(outputs, inputs, dtype=torch.int8, device="cuda")
            self.scale = torch.empty(outputs, dtype=torch.bfloat16, device="cuda")

    def forward(self, x):
        if not self.group:
            return F.linear(x, self.weight.to(x.dtype)) * self.scale
        rows = x.flatten(0, -2)
        y = torch.ops.aten._weight_int4pack_mm(rows, self.weight, self.group, self.scale)
        return y.view(*x.shape[:-1], -1)


class Block(nn.Module):
    """One layer of a decoder; with ``past`` tokens it reads those from a cache and has one new one."""

    def __init__(self, s, linear, past):
        super().__init__()
        self.s, self.size, self.past = s, s.width // s.heads, past
        self.first, self.second = (self.norm(s) for _ in range(2))
        self.qkv = linear(s.width, (s.heads + 2 * s.groups) * self.size)
        self.out = linear(s.width, s.width)
        self.up, self.down = linear(s.width, s.inner * (1 + s.gated)), linear(s.inner, s.width)
        if past:
            place = {"dtype": torch.bfloat16, "device": "cuda"}
            self.k, self.v = (torch.empty(1, s.groups, past, self.size, **place) for _ in "kv")
            self.where = torch.empty(1, dtype=torch.long, device="cuda")

    @staticmethod
    def norm(s):
        return nn.RMSNorm(s.width) if s.gated else nn.LayerNorm(s.width, bias=False)

    def turned(self, x):
        if not self.s.gated:  # ALiBi is in the kernel
            return x
        a, b = x.chunk(2, -1)
        angles = x.new_empty(x.shape[-2], self.size)
        return x * angles + torch.cat((-b, a), -1) * angles

    def attention(self, x):
        s, (batch, tokens, _) = self.s, x.shape
        sizes = [s.heads * self.size, s.groups * self.size, s.groups * self.size]
        parts = self.qkv(x).split(sizes, -1)
        q, k, v = (each.view(batch, tokens, -1, self.size).transpose(1, 2) for each in parts)
        q, k = self.turned(q), self.turned(k)
        if self.past:
            k, v = (old.index_copy_(2, self.where, x) for old, x in ((self.k, k), (self.v, v)))
        if s.groups < s.heads:
            k, v = (t.repeat_interleave(s.heads // s.groups, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=not self.past)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        y = self.up(self.second(x))
        if self.s.gated:
            gate, y = y.chunk(2, -1)
            return x + self.down(F.silu(gate) * y)
        return x + self.down(F.gelu(y))


class Decoder(nn.Module):
    """A language model of ``SHAPES``; MPT's embedding is its last layer, too."""

    def __init__(self, name, kind="bf16", past=0):
        super().__init__()
        s = SHAPES[name]

        def linear(inputs, outputs):
            if kind.startswith("int"):
                return Narrow(inputs, outputs, kind)
            return nn.Linear(inputs, outputs, bias=False)

        self.words = nn.Embedding(s.words, s.width)
        self.layers = nn.ModuleList(Block(s, linear, past) for _ in range(s.layers))
        self.norm = Block.norm(s)
        self.answer = linear(s.width, s.words)
        if not s.gated:
            self.answer.weight = self.words.weight

    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return self.answer(self.norm(x))


class Bert(Encoder):
    """BERT with its dropout: of questions and answers ("span"), or with a word for each token, as it is pretrained."""

    def __init__(self, layers, heads, width, span):
        super().__init__(layers, heads, width)
        self.answer = nn.Linear(width, 2 if span else 30_522)
        self.before = (
            None if span else nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        )
        self.drop = nn.Dropout(0.1)
        for layer in self.layers:
            layer.drop = self.drop

    def forward(self, words, places, mask):
        x = self.drop(self.norm(self.words(words) + self.places(places)))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return self.answer(x if self.before is None else self.before(x))


class Detector(nn.Module):
    """SSD300 on ResNet-50: its first three stages, the third without a stride, five pairs of layers, six heads."""

    def __init__(self):
        super().__init__()
        found = import_module("torchvision.models").resnet50()
        stages = [found.conv1, found.bn1, found.relu, found.maxpool]
        found.layer3[0].conv2.stride = found.layer3[0].downsample[0].stride = (1, 1)
        self.body = nn.Sequential(*stages, found.layer1, found.layer2, found.layer3)
        sizes = [1024, 512, 512, 256, 256, 256]
        extra = zip(sizes[:-1], sizes[1:], (256, 256, 128, 128, 128), (2, 2, 2, 1, 1), strict=True)
        self.extra = nn.ModuleList(self.pair(*each) for each in extra)
        boxes = list(zip(sizes, (4, 6, 6, 6, 4, 4), strict=True))
        self.place, self.kind = (
            nn.ModuleList(nn.Conv2d(size, n * each, 3, padding=1) for size, n in boxes)
            for each in (4, 81)
        )

    @staticmethod
    def pair(inputs, outputs, inner, stride):
        first = nn.Conv2d(inputs, inner, 1, bias=False)
        second = nn.Conv2d(inner, outputs, 3, stride, padding=int(stride > 1), bias=False)
        layers = first, nn.BatchNorm2d(inner), nn.ReLU(), second, nn.BatchNorm2d(outputs), nn.ReLU()
        return nn.Sequential(*layers)

    def forward(self, x):
        maps = [self.body(x)]
        for pair in self.extra:
            maps.append(pair(maps[-1]))
        heads = ((self.place, 4), (self.kind, 81))
        return [
            torch.cat([h(m).reshape(len(x), n, -1) for h, m in zip(part, maps, strict=True)], 2)
            for part, n in heads
        ]

    @staticmethod
    def loss(found):
        """Distances of boxes and classes, the hardest negatives of each image."""
        place, kind = (each.float() for each in found)
        zeros = torch.zeros(len(kind), kind.shape[2], dtype=torch.long, device=kind.device)
        each = F.cross_entropy(kind, zeros, reduction="none")
        ranks = each.sort(1, descending=True)[1].sort(1)[1]
        near = F.smooth_l1_loss(place, torch.zeros_like(place), reduction="none").sum(1)
        return near.mean() + (each * (ranks < 100)).mean()
