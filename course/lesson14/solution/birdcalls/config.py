"""Settings of a training: how many clips, how long, and how large the network is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """One training; a step learns from `batch` clips."""

    clips: int = 768
    test_clips: int = 4608
    samples: int = 8000  # a second
    batch: int = 256
    channels: int = 32
    blocks: int = 4
    learning_rate: float = 6e-3
    seed: int = 5


FULL = Config()
SMALL = Config(clips=256, test_clips=48, samples=2176, batch=16, channels=8, blocks=2)
