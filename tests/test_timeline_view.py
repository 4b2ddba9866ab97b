"""course.timeline: what one view shows of real traces, of a trace of one's own, and of a forecast."""

import json

import pytest
import torch
from test_traces import recording

from course import timeline
from course.lesson07 import figures as figures07
from course.measurements import traces
from course.show import vega
from course.timeline import reading
from course.timeline.rows import lay_out
from course.timeline.spec import spec


@pytest.fixture(params=["1a", "7", "9", "10"])
def trace(request):
    return traces.case(request.param)


def busy_of(chart):
    """Return the busy ms that the sentence under a chart computes for the whole window."""
    data = chart["vconcat"][2]["layer"][0]["data"]["values"].splitlines()[1:]
    rows = [tuple(map(float, line.split(","))) for line in data]
    return sum(busy for _, _, busy in rows) / 1e4


def test_the_view_is_vega_lite_5_as_its_schema_says(trace):
    altair = pytest.importorskip("altair", "5")
    chart = vega.styled(spec(lay_out(trace), "A title", (1, 2)), "words")
    for signal in chart["params"]:  # events of a signal, which Vega-Lite hands to Vega
        signal.pop("on", None)
    chart["params"] = [each for each in chart["params"] if each["name"] != "grab"]
    altair.VConcatChart.from_dict(chart, validate=True)


def test_what_is_measured_in_the_view_is_what_the_trace_says(trace):
    chart = spec(lay_out(trace, detail=120), "A title")
    share = busy_of(chart) / (trace.length / 1000)
    if len(trace.ranks) == 1:
        assert share == pytest.approx(reading.busy_share(trace), abs=0.002)
    gaps = chart["vconcat"][2]["layer"][1]["data"]["values"].splitlines()[1:]
    begin, end = map(float, gaps[0].split(","))
    assert (end - begin) / 10 == pytest.approx(reading.gaps(trace)[0][1], abs=0.2)


def test_a_view_stays_small_and_loses_no_work(trace):
    few = lay_out(trace, detail=100)
    many = lay_out(trace, detail=10**6)
    assert len(few.blocks) <= 400 < len(many.blocks)
    assert sum(b.busy for b in few.blocks) == pytest.approx(sum(b.busy for b in many.blocks))
    assert len(json.dumps(spec(few, "A title"))) < 40_000


def test_rows_are_threads_launches_streams_and_memory():
    labels = lay_out(traces.case("9")).labels
    assert labels[:3] == ["Python", "autograd", "launches"]
    assert {"GPU, stream 7", "copies", "communication"} <= set(labels)
    assert lay_out(traces.case("10")).labels[-1] == "memory (to 4.49 GB)"
    assert lay_out(traces.case("7")).labels == [f"rank {rank}" for rank in range(8)]


def test_a_line_leads_from_a_launch_to_its_kernel():
    rows = lay_out(traces.load(recording()))
    launch, start, row = rows.arrows()[0]
    assert start - launch == 30 and rows.labels[row] == "GPU, stream 7"


def test_a_trace_of_ones_own_is_drawn_from_its_file(tmp_path, capsys):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(recording()))
    timeline.show(path, "My step")
    assert "of NVIDIA H100: busy 69% of the time, longest gap 0.2 ms." in capsys.readouterr().out


@pytest.fixture(scope="module")
def forecast():
    """Return a forecast of three small steps on an A100, each with a copy, a product and a wait."""
    import torch

    from practice_gpus import practice_gpus

    with practice_gpus(1, card="A100 40", values=False, stand_in=1.0) as gpus:
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
        batch = torch.empty(32, 64)
        return gpus.forecast(lambda: [model(batch.to("cuda")).sum().item() for _ in range(3)])


def test_a_forecast_says_that_it_is_one(forecast, monkeypatch):
    shown = []
    monkeypatch.setattr(vega, "show", lambda *given: shown.append(given))
    timeline.show(forecast, "Three steps")
    chart, figure, *_ = shown[0]
    assert chart["title"]["text"] == "Three steps (forecast)"
    assert "stroke" in json.dumps(chart["vconcat"][0]["layer"][1]["encoding"])


def test_a_forecast_is_a_trace_like_any_other(forecast):
    trace = timeline.trace_of(forecast)
    assert trace.length / 1000 == pytest.approx(forecast.ms, rel=0.05)
    assert {"matmul", "elementwise", "copy"} <= {event.kind for event in trace.gpu}
    assert 0 < reading.busy_share(trace) < 1
    assert lay_out(trace).labels == ["Python", "launches", "GPU, stream 0"]
    assert any("test_timeline_view.py" in event.line for event in trace.gpu)


def test_the_straggler_is_marked_where_it_joins_and_the_others_wait_until_then():
    """The riddle's answer on page 07b: a mark elsewhere would accuse the wrong rank."""
    figure, sentence = figures07.draw_straggler({0: 7552.0, 1: 2063.0, 7: 9687.0})
    told = [text.get_text() for text in figure.axes[0].texts]
    assert told == ["rank 7 joins at 9.7 ms", "waits 2.1 ms", "waits 7.6 ms"]
    assert figure.axes[0].lines[-1].get_xdata()[0] == pytest.approx(9.687)
    assert "until rank 7 joins, at 9.7 ms" in sentence


def test_page_07_shows_times_only_by_a_stopwatch_that_passes(monkeypatch):
    """A learner whose `time_ms` doesn't pass yet would take wrong times for honest ones, or the course's for their own."""
    shown = []
    monkeypatch.setattr(figures07.figures, "show", lambda figure, alt: shown.append(alt))
    for stopwatch in (..., lambda fn, clock=None, synchronize=None: 1.0):
        figures07.show_stopwatch(stopwatch, torch.rand(32, 64), torch.rand(64, 32))
    assert not shown
    figures07.show_stopwatch(figures07.exercises.time_ms, torch.rand(32, 64), torch.rand(64, 32))
    assert len(shown) == 1 and "By your stopwatch" in shown[0]
