"""The trace of a forecast: a file that Perfetto and chrome://tracing open, and that adds up."""

import json
from collections import defaultdict

import pytest
import torch

from practice_gpus import practice_gpus


@pytest.fixture
def forecast():
    """A step that copies in a stream of its own, computes and waits, twice."""
    with practice_gpus(1, card="A100 40", values=False, stand_in=1.0) as gpus:
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]).cuda()
        side = torch.cuda.Stream()

        def step():
            with torch.cuda.stream(side):
                torch.empty(512, 512).to("cuda")
            model(torch.empty(64, 512, device="cuda")).sum().item()

        return gpus.forecast(step, repeat=2)


@pytest.fixture
def trace(forecast, tmp_path):
    """What the forecast writes, read again."""
    return json.loads(forecast.trace(tmp_path / "step.json").read_text())


def boxes(trace):
    """{(pid, tid): [(start, end)]} in microseconds, by start."""
    rows = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return {row: sorted(found) for row, found in rows.items()}


def test_each_row_has_a_name_that_says_forecast(trace):
    """Else a picture of it could be taken for a measurement."""
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M"
    }
    assert all("forecast" in name for name in names.values())
    for pid, tid in boxes(trace):
        assert ("thread_name", pid, tid) in names
        assert ("process_name", pid, 0) in names


def test_boxes_of_a_row_do_not_overlap_and_end_with_the_forecast(trace, forecast):
    """Else Perfetto nests them wrongly, and the picture is not the time it explains."""
    rows = boxes(trace)
    for found in rows.values():
        assert all(
            end <= start + 1e-6 for (_, end), (start, _) in zip(found, found[1:], strict=False)
        )
    last = max(end for found in rows.values() for _, end in found)
    assert last == pytest.approx(1e3 * forecast.ms * forecast.repeat)
    kernels = [e for e in trace["traceEvents"] if e["ph"] == "X" and "FLOPs" in e["args"]]
    assert sum(e["dur"] for e in kernels) == pytest.approx(
        1e3 * sum(k.ms for k in forecast.kernels)
    )


def test_arrows_lead_from_a_launch_on_the_cpu_to_the_start_of_its_kernel(trace):
    """Else Perfetto drops them: an arrow binds to the box that it begins in, and to the one that it ends at."""
    rows = boxes(trace)
    ends = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "f"}
    starts = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "s"}
    assert set(starts) == set(ends)
    for number, start in starts.items():
        end = ends[number]
        assert end["bp"] == "e" and (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert any(a <= start["ts"] <= b for a, b in rows[start["pid"], start["tid"]])
        assert any(a == pytest.approx(end["ts"]) for a, _ in rows[end["pid"], end["tid"]])
        assert start["ts"] <= end["ts"] + 1e-6
