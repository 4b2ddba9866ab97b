"""Forecasts of practice GPUs' clock beside what others measured: `python3 -m tools scoreboard --write` stores them.

A figure of them says *forecast*, draws it hollow, and names the misses.
"""

import json
from pathlib import Path

FILE = Path(__file__).parent / "scoreboard.json"


def points() -> list[dict]:
    """One dict a measured step: table (of `measurements.published`), network, card, kind ("inference", "training" or
    "operator"), bound, measured_ms, forecast_ms, low_ms, high_ms, and the baselines flops_ms and bytes_ms.
    """
    return json.loads(FILE.read_text(encoding="utf-8"))
