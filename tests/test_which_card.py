"""The explorer *which card?*: forecasts of a step, its memory, and dated prices."""

import pytest
import torch

from course.lesson01 import which_card
from course.measurements import prices
from course.show import vega
from practice_gpus import practice_gpus
from practice_gpus.cards import GIB


@pytest.fixture
def job():
    """A product that needs 20 GiB, on 100 samples a step."""
    with practice_gpus(1, memory="80 GiB", card="T4", values=False) as gpus:
        kept = torch.empty(20 << 28, device="cuda")
        x = torch.empty(4096, 4096, device="cuda")
        return which_card.Job("a product", gpus.forecast(lambda: kept[:1] + (x @ x)[0, :1]), 100)


@pytest.fixture
def shown(monkeypatch):
    """What was given to `vega.show`."""
    calls = []
    monkeypatch.setattr(vega, "show", lambda *args: calls.append(args))
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
    assert not rows["T4, 16 GB"]["fits"] and rows["A10G, 24 GB"]["fits"]
    assert rows["T4, 16 GB"]["need"] == pytest.approx(job.forecast.peak_bytes / GIB, rel=1e-3)
    a100 = rows["A100 40 GB"]
    minutes = job.forecast.on("A100 40").ms * which_card.IMAGENET / 100 / 60e3
    assert a100["minutes"] == pytest.approx(minutes, rel=1e-3)
    assert a100["low"] < a100["minutes"] < a100["high"]


def test_every_card_has_dollars_and_the_cheapest_comes_first(job):
    """The learner came for the price of the job; a bar without one, or in another order, hides the answer."""
    rows = job.rows()
    for row in rows:
        assert row["usd"] == pytest.approx(row["minutes"] * row["per_hour"] / 60, rel=1e-3)
    fitting = [row["usd"] for row in rows if row["fits"]]
    assert fitting == sorted(fitting) and not rows[-1]["fits"]


def test_the_explorer_needs_no_kernel_and_says_that_it_is_a_forecast(job, shown):
    """Else a reopened page is dead, or a learner takes a forecast for a measurement."""
    other = which_card.Job("another", job.forecast, 1)
    which_card.explore([job, other])
    spec, figure, alt, caption = shown[0]
    assert spec["params"][0]["bind"]["options"] == ["a product", "another"]
    for panel in spec["hconcat"]:
        assert {"filter": "datum.job == job"} in panel["transform"]
        bar = panel["layer"][1]["mark"]
        assert bar["fill"] is None and "strokeDash" in bar  # hollow
    assert "Forecast" in alt and "T4, 16 GB does not fit" in alt and "2023" in caption
    fitting = sum(row["fits"] for row in job.rows())
    drawn = [sum(bar.get_width() > 0 for bar in axes.patches) for axes in figure.axes]
    assert drawn == [fitting, fitting]


def test_the_chart_is_one_of_vega_lite_5(job, shown):
    """Else JupyterLab would show an error in place of the chart."""
    altair = pytest.importorskip("altair")
    which_card.explore([job])
    altair.Chart.from_dict(vega.styled(shown[0][0], "alt"))
