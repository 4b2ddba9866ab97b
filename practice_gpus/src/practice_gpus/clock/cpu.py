"""What the CPU takes to issue one operator: as public tables have it, or as measured here by ``python -m practice_gpus calibrate``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

# Seconds for one operator, from public tables of steps that the CPU decides, the GPU's time included: 17 µs in a bare loop of
# linear layers (crossover_4090), 23 to 45 in encoders (transformers_t4_3090), 25 to 62 in nine networks of Hugging Face (its
# perf_torch_compile.md, batch 1), 55 to 60 in NVIDIA's ResNet-50 (resnet50_nvidia). Their middle, and a range that holds them.
ISSUE, LEAST, MOST = 30e-6, 10e-6, 80e-6
NAME = "PRACTICE_GPUS_CPU"  # the environment variable with the path of the file, or "typical" to leave it alone


@dataclass(frozen=True)
class Cpu:
    """Seconds for one operator: a middle, the least, the most; ``words`` say whose CPU it is, "" for anyone's."""

    issue: float = ISSUE
    least: float = LEAST
    most: float = MOST
    words: str = ""


def cpu_file() -> Path:
    """Where this machine's CPU is kept: ``practice_gpus/cpu.json`` in the person's folder of settings, or as `NAME` says."""
    named = os.environ.get(NAME) or "typical"
    if named != "typical":
        return Path(named)
    roots = {"nt": os.environ.get("APPDATA"), "posix": os.environ.get("XDG_CONFIG_HOME")}
    return Path(roots.get(os.name) or Path.home() / ".config", "practice_gpus", "cpu.json")


def own() -> Cpu:
    """This machine's CPU if it was measured, else the typical one. A file that can't be read is as none."""
    if os.environ.get(NAME) == "typical":
        return Cpu()
    try:
        return Cpu(**json.loads(cpu_file().read_text(encoding="utf-8")))
    except (OSError, RuntimeError, TypeError, ValueError):
        return Cpu()
