"""``python -m practice_gpus calibrate``: what this machine's CPU takes to issue an operator, measured and kept for forecasts."""

from __future__ import annotations

import datetime
import json
import statistics
import time
from dataclasses import asdict

import torch
from torch import nn

from practice_gpus.clock import ISSUE, Cpu, cpu_file
from practice_gpus.session import practice_gpus

# Seconds of the driver for a launch, on an A100 or H200 (te42kyfo/gpu-benches, repeated-stream): no part of a CPU's operators.
LAUNCHED = 2.5e-6


def network(device: str) -> tuple[nn.Module, torch.Tensor]:
    """Two kinds of layers, so small that only the CPU's part takes time, and their input."""
    encoder = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
    blocks = [each for _ in range(8) for each in (nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())]
    layers = nn.Sequential(encoder, nn.Unflatten(1, (8, 1)), *blocks)
    return layers.to(device), torch.ones(1, 8, 32, device=device)


def issued(device: str) -> list[float]:
    """Seconds that the CPU took for an operator of a training-mode forward pass, ten seconds long, one number a pass."""
    with practice_gpus(1, card="T4", values=False) as gpus:
        model, x = network("cuda")
        count = len(gpus.forecast(lambda: model(x)).kernels)
    model, x = network(device)
    found, end = [], time.perf_counter() + 10
    while time.perf_counter() < end:
        begin = time.perf_counter()
        model(x)
        found.append((time.perf_counter() - begin) / count)
        if device != "cpu":
            torch.cuda.synchronize()
    return found


def calibrate() -> Cpu:
    """Measure this machine's CPU for ten seconds and keep what it takes: by the GPU that is there, else by the CPU's operators."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    seconds = statistics.median(issued(device)) + LAUNCHED * (device == "cpu")
    date = datetime.date.today().isoformat()
    words = f"this machine's CPU, {1e6 * seconds:.0f} µs an operator, measured {date}"
    found = Cpu(seconds, seconds / 1.5, 4 * seconds, words)
    cpu_file().parent.mkdir(parents=True, exist_ok=True)
    cpu_file().write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def main() -> int:
    """``python -m practice_gpus calibrate``: measure, keep, say so. Returns 0."""
    found = calibrate()
    print(f"{found.words}. Typical are {1e6 * ISSUE:.0f}.")
    print(
        f"Forecasts use it from now on, and say so. It is kept in {cpu_file()}: delete it to undo."
    )
    return 0
