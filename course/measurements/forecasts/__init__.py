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
        "within_1_5": sum(1 / 1.5 <= p.ratio <= 1.5 for p in chosen) / len(chosen),
        "rank": rank,
        "in_range": sum(not p.missed for p in chosen) / len(chosen),
        "flops_error": _error(chosen, "flops_ms"),
        "bytes_error": _error(chosen, "bytes_ms"),
    }


def _error(chosen: list[Point], field: str) -> float:
    return statistics.median(abs(getattr(p, field) / p.measured_ms - 1) for p in chosen)


def _ranks(values: list[float]) -> list[int]:
    """The place of each value among all, from the least."""
    place = {value: index for index, value in enumerate(sorted(set(values)))}
    return [place[value] for value in values]
