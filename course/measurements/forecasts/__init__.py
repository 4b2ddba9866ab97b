"""Forecasts of practice GPUs' clock beside what others measured: `python3 -m course scoreboard --write` stores them.

A figure of them says *forecast*, draws it hollow, and names the misses.
"""

import json
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "scoreboard.json"
HELD = Path(__file__).parent / "held_back.json"
SETS = ("first set", "second set", "third set")  # of the held-back rows


@dataclass(frozen=True)
class Point:
    """A measured step and its forecast; ``flops_ms`` and ``bytes_ms`` are the baselines FLOPs ÷ peak, bytes ÷ bandwidth.

    `table` is a name of `measurements.published`; `kind` "inference", "training" or "operator"; `bound` as forecast.
    """

    table: str
    network: str
    card: str
    kind: str
    bound: str
    measured_ms: float
    forecast_ms: float
    low_ms: float
    high_ms: float
    flops_ms: float
    bytes_ms: float

    @property
    def ratio(self) -> float:
        """Forecast ÷ measured."""
        return self.forecast_ms / self.measured_ms

    @property
    def missed(self) -> bool:
        """Whether the measured time is outside the forecast's range."""
        return not self.low_ms <= self.measured_ms <= self.high_ms

    @property
    def family(self) -> str:
        """The kind of network: the first word of its name."""
        name = re.match(r"[a-z0-9]*?[a-z]+", self.network.removeprefix("tf_"))
        return name[0] if name else self.network


def held_rows() -> list[dict[str, Any]]:
    """Measured steps of people's kinds of use, one dict each, with their forecasts if those are stored.

    ``second``: 1 of tables that no earlier rule was chosen by, 2 of tables that were stored after the last rule. ``how``: compiled, as one graph, or by a plan. Not blind: what
    the CPU takes (`clock.cpu`) is from transformers' table too, and the rules of compiled steps and of small sums were mended
    after decode, `torchao` and `timm-compiled` had been looked at. After all three sets came two rules of convolutions
    (`work.convolution`, depthwise on an A100), and three more, each from a table or a source that names it: Winograd's algorithm,
    heads that are filled up, and the L2 cache (`kernel_times`).
    """
    table = json.loads(HELD.read_text(encoding="utf-8"))
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def held_kind(row: dict[str, Any]) -> str:
    """The kind of use that a held-back row is of, as the promises are made."""
    if row["make"] == "decode":
        return "decode"
    if row["gpus"] > 1:
        return "several GPUs"
    if row["how"]:
        return "compiled"
    if row["training"]:
        return "training"
    if row["batch"] >= 16:
        return "batch 16 and more"
    return "batch 1" if row["batch"] == 1 else "batch 2 to 8"


def held_summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Points, shares within 1.5 times and in range, and how many are outside the range because the forecast is too fast or slow."""
    ratios = [row["forecast_ms"] / row["ms"] for row in rows]
    return {
        "points": len(rows),
        "median": statistics.median(ratios),
        "within_1_5": _near(ratios),
        "in_range": sum(r["low_ms"] <= r["ms"] <= r["high_ms"] for r in rows) / len(rows),
        "fast": sum(r["ms"] > r["high_ms"] for r in rows),
        "slow": sum(r["ms"] < r["low_ms"] for r in rows),
        "width": statistics.median(r["high_ms"] / r["low_ms"] for r in rows),
    }


def points() -> list[dict[str, Any]]:
    """The stored points, one dict each, with the fields of `Point`."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def stored() -> list[Point]:
    """The stored points."""
    return [Point(**row) for row in points()]


def summary(chosen: list[Point]) -> dict[str, Any]:
    """Median error, share within 1.5 times, rank correlation, share in range; median errors of the baselines."""
    measured = [p.measured_ms for p in chosen]
    forecasts = [p.forecast_ms for p in chosen]
    several = len(set(measured)) > 2 and len(set(forecasts)) > 2
    rank = statistics.correlation(_ranks(measured), _ranks(forecasts)) if several else None
    return {
        "points": len(chosen),
        "median_error": _error(chosen, "forecast_ms"),
        "within_1_5": _near([p.ratio for p in chosen]),
        "rank": rank,
        "in_range": sum(not p.missed for p in chosen) / len(chosen),
        "flops_error": _error(chosen, "flops_ms"),
        "bytes_error": _error(chosen, "bytes_ms"),
    }


def _near(ratios: list[float]) -> float:
    """The share of forecasts within 1.5 times what was measured."""
    return sum(1 / 1.5 <= ratio <= 1.5 for ratio in ratios) / len(ratios)


def _error(chosen: list[Point], field: str) -> float:
    return statistics.median(abs(getattr(p, field) / p.measured_ms - 1) for p in chosen)


def _ranks(values: list[float]) -> list[int]:
    """The place of each value among all, from the least."""
    place = {value: index for index, value in enumerate(sorted(set(values)))}
    return [place[value] for value in values]
