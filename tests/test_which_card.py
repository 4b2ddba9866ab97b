"""The explorer *which card?*: forecasts of a step, its memory, and dated prices; and the figure of forecast against measured."""

import pytest
import torch

from helpers import figures, which_card
from lessons.lesson01 import figures as lesson
from measurements import forecasts, prices
from practice_gpus import practice_gpus
from practice_gpus.cards import GIB


@pytest.fixture
def job():
    """A product that needs 20 GiB, on 100 samples a step."""
    with practice_gpus(1, memory="80 GiB", card="T4", values=False) as gpus:
        kept = torch.empty(20 << 28, device="cuda")
        x = torch.empty(4096, 4096, device="cuda")
        return which_card.Job(
            "a product", gpus.forecast(lambda: kept[:1] + (x @ x)[0, :1]), 100, "images"
        )


@pytest.fixture
def shown(monkeypatch):
    """What was given to `show_vega`."""
    calls = []
    monkeypatch.setattr(figures, "show_vega", lambda *args: calls.append(args))
    return calls


def test_a_price_has_the_month_of_its_own_row():
    """A price without its day misleads, and one that nobody listed would be made up."""
    listed = prices.lowest()
    assert str(listed["A100 (40 GB)"]) == "Lambda, Aug 2022"
    assert listed["A100 (40 GB)"].usd_per_h == 1.10
    assert listed["H100 PCIe (80 GB)"].usd_per_h == 1.99
    assert "H100 SXM (80 GB)" not in listed and "H200 (141 GB)" not in listed


def test_each_card_has_the_clocks_forecast_and_says_whether_the_job_fits(job):
    """A learner who needs 20 GiB must not be sent to a T4."""
    rows = {row["card"]: row for row in job.rows()}
    assert not rows["T4, 16 GB"]["fits"] and rows["RTX 4090, 24 GB"]["fits"]
    assert rows["T4, 16 GB"]["need"] == pytest.approx(job.forecast.peak_bytes / GIB, rel=1e-3)
    there = job.forecast.on("A100 40")
    assert rows["A100 40 GB"]["ms"] == pytest.approx(there.ms, rel=1e-3)
    assert rows["A100 40 GB"]["low"] < rows["A100 40 GB"]["ms"] < rows["A100 40 GB"]["high"]
    assert (rows["A100 40 GB"]["usd"], rows["B200, 180 GB"]["usd"]) == (1.10, None)


def test_the_explorer_needs_no_kernel_and_says_that_it_is_a_forecast(job, shown):
    """Else a reopened page is dead, or a learner takes a forecast for a measurement."""
    other = which_card.Job("another", job.forecast, 1, "words")
    which_card.explore([job, other], thousands=10)
    spec, figure, alt, caption = shown[0]
    choice, epoch = spec["params"]
    assert choice["bind"]["options"] == ["a product", "another"]
    assert epoch["value"] == 10
    assert {"filter": "datum.job == job"} in spec["transform"]
    bars = spec["layer"][1]["mark"]
    assert bars["fill"] is None and "strokeDash" in bars  # hollow
    assert "Forecast" in alt and "T4" not in alt and "month" in caption
    minutes = job.forecast.on("A100 40").ms * 10_000 / 100 / 60e3
    assert f"A100 40 GB {figures.number(minutes)}" in alt
    assert len(figure.axes[0].patches) == sum(row["fits"] for row in job.rows())


def test_the_chart_is_one_of_vega_lite_5(job, shown):
    """Else JupyterLab would show an error in place of the chart."""
    altair = pytest.importorskip("altair")
    which_card.explore([job])
    altair.Chart.from_dict(figures.vega_spec(shown[0][0], "alt"))


def test_an_explorer_without_a_job_says_what_it_takes():
    with pytest.raises(ValueError, match="list of Job"):
        which_card.explore([])


def test_the_figure_holds_every_point_and_names_the_farthest_misses(monkeypatch):
    """Else the course would show only the forecasts that came true."""
    calls = []
    monkeypatch.setattr(lesson.plots, "show", lambda *args: calls.append(args))
    lesson.show_forecasts()
    figure, alt, _ = calls[0]
    points = forecasts.stored()
    drawn = [line for line in figure.axes[0].lines if line.get_marker() in ("o", "^", "s")]
    assert sum(len(line.get_xdata()) for line in drawn) == len(points) > 600
    worst = max(points, key=lambda p: max(p.ratio, 1 / p.ratio))
    assert worst.network in alt
    assert any(worst.network in text.get_text() for text in figure.axes[0].texts)
    assert all(line.get_markerfacecolor() == "none" for line in drawn)  # hollow
