"""The network: a spectrogram of each clip, and convolutions that look at it as at a picture."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from birdcalls.data import BIRDS

WIDTH = 256  # samples in a frame
HOP = 128  # from one frame to the next
BANDS = 64  # of pitch, from 0 to 4,000 Hz
FRAMES = 64  # at most


class Spectrogram(nn.Module):
    """How loud each pitch is at each time: [clips, samples] to [clips, frames, BANDS]."""

    def __init__(self):
        super().__init__()
        angle = torch.arange(WIDTH)[:, None] * torch.arange(BANDS) * math.pi / BANDS
        self.register_buffer("cosines", angle.cos())
        self.register_buffer("sines", angle.sin())
        self.register_buffer("window", torch.hann_window(WIDTH), persistent=False)

    def forward(self, waves):
        """Return the loudness on a log scale. A clip that exceeds 1 is made quieter first."""
        peak = waves.abs().amax(dim=1, keepdim=True)
        waves = waves / peak.clamp(min=1)
        frames = waves.unfold(1, WIDTH, HOP) * self.window
        loudness = (frames @ self.cosines) ** 2 + (frames @ self.sines) ** 2
        return torch.log1p(loudness) / 2


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        """Return a picture of the same shape."""
        return F.relu(x + self.second(F.relu(self.first(x))))


class Net(nn.Module):
    """Names the bird: waves [clips, samples] to one score for each bird."""

    def __init__(self, config):
        super().__init__()
        self.spectrogram = Spectrogram()
        self.position = nn.Embedding(FRAMES, BANDS)
        nn.init.normal_(self.position.weight, std=0.02)
        self.start = nn.Conv2d(1, config.channels, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(config.channels) for _ in range(config.blocks)])
        self.head = nn.Linear(config.channels * BANDS, BIRDS)

    def forward(self, waves):
        """Return scores [clips, BIRDS]."""
        x = self.spectrogram(waves)
        x = x + self.position(torch.arange(x.shape[1], device=x.device))
        x = F.relu(self.start(x[:, None]))
        x = self.blocks(x)
        return self.head(x.mean(dim=2).flatten(1))
