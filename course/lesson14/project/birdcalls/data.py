"""Calls of eight birds, synthesized: each glides and trills in its own way, in wind, near or far."""

import math

import torch

RATE = 8000  # samples per second
PITCHES = (900.0, 1200.0, 1500.0, 1900.0, 2200.0, 2500.0, 2800.0, 3100.0)  # Hz
GLIDES = (600.0, -300.0, 0.0, 500.0, -700.0, 300.0, -500.0, 0.0)  # Hz per second
TRILLS = (4.0, 9.0, 14.0, 6.0, 11.0, 3.0, 8.0, 16.0)  # per second
BIRDS = len(PITCHES)


def calls(count, samples, seed):
    """Return (waves [count, samples], labels [count]): the same ones for the same seed."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(BIRDS, (count,), generator=source)
    time = torch.arange(samples) / RATE
    pitch = torch.tensor(PITCHES)[labels, None]
    glide = torch.tensor(GLIDES)[labels, None]
    trill = torch.tensor(TRILLS)[labels, None]
    tone = torch.sin(2 * math.pi * (pitch * time + glide * time**2 / 2))
    tone *= 0.5 + 0.5 * torch.sin(2 * math.pi * trill * time)
    distance = 0.2 + 1.4 * torch.rand(count, 1, generator=source)
    wind = 0.3 * torch.randn(count, samples, generator=source)
    return distance * tone + wind, labels


def training_batches(config):
    """Yield (waves, labels) of one epoch, a step's clips at a time."""
    waves, labels = calls(config.clips, config.samples, config.seed)
    source = torch.Generator().manual_seed(config.seed)
    order = torch.randperm(config.clips, generator=source)
    for clips in order.split(config.batch):
        yield waves[clips], labels[clips]


def test_batches(config):
    """Yield (waves, labels) of clips that the training doesn't have."""
    for number in range(1, config.test_clips // config.batch + 1):
        yield calls(config.batch, config.samples, config.seed + number)
