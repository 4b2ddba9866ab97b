"""Lesson 06: buckets travel while backward runs, and the figures say what their bars show."""

import json
import re
from unittest import mock

import pytest
import torch

from course.gpt import data_parallel
from course.lesson06 import exercises as rule06
from course.lesson06 import figures as lesson06
from course.show import vega
from course.tools import ROOT


def test_a_bucket_is_sent_when_it_is_full_and_all_gradients_travel():
    """A learner who compares the three ways must compare the same bytes."""
    model = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000) for _ in range(6)])
    size = 4e-6 * sum(p.numel() for p in model.parameters())
    link = "PCIe (direct)"
    sent = {w: data_parallel.all_reduces(model, 1.0, 9.0, w, 8, link) for w in (0, 7.9, 1e9)}
    assert [len(each) for each in sent.values()] == [12, 3, 1]
    for spans in sent.values():
        assert spans[0][0] >= 1 and spans[-1][0] >= 9
        assert all(
            start >= before for (_, before), (start, _) in zip(spans, spans[1:], strict=False)
        )
    [(start, end)] = sent[1e9]
    assert start == 9
    assert end - start == pytest.approx(0.042 + 2 * 7 / 8 * size / 25.8)
    busy = {w: sum(end - start for start, end in spans) for w, spans in sent.items()}
    assert busy[0] - busy[7.9] == pytest.approx(9 * 0.042)


@pytest.mark.parametrize(("link", "gpus"), [("NVLink", 8), ("network", 32)])
def test_an_all_reduce_takes_what_was_published_for_its_size(link, gpus):
    """At the rate of the largest ones, small buckets would look as if they cost nothing."""
    sizes, rates = data_parallel.rates(data_parallel.LINKS[link])
    for size, rate in zip(sizes, rates, strict=True):
        ms = 2 * (gpus - 1) / gpus * size * data_parallel.MIB / rate
        assert data_parallel.all_reduce_ms(size * data_parallel.MIB, gpus, link) == pytest.approx(
            ms
        )
    smallest = data_parallel.all_reduce_ms(sizes[0] * data_parallel.MIB, gpus, link)
    assert data_parallel.all_reduce_ms(0.001, gpus, link) == pytest.approx(smallest)


def test_only_with_equal_shares_the_mean_of_both_gpus_is_the_whole_batch_s():
    """The slider of page 06 is its one idea: were uneven shares to match, a reader would learn the opposite."""
    spec = lesson06.draw_mean().spec
    told = next(each["calculate"] for each in spec["transform"] if each.get("as") == "words")
    texts = json.loads(told.removesuffix("[datum.t]"))
    rows = [line.split(",") for line in spec["data"]["values"].splitlines()[1:]]
    whole = "mean −0.1099"
    for cut in "12345":
        said = [texts[int(row[4])] for row in rows if row[0] == cut and row[1] != "0"]
        assert whole in said
        assert (f"mean of both {whole.removeprefix('mean ')}" in said) == (cut == "3")


def test_the_rule_of_lesson_06_agrees_with_the_measured_runs_it_is_held_against():
    """The page says it tells the slow link from the fast ones, and how far it is off at most."""
    runs = lesson06.measured_runs()
    measured = {run: gain / offer[0] for run, (offer, gain) in runs.items()}
    by_rule = {run: rule06.speedup(*offer) / offer[0] for run, (offer, _) in runs.items()}
    assert min(measured, key=measured.get) == min(by_rule, key=by_rule.get) == "2 RTX 3090 Ti, PCIe"
    assert all(by_rule[run] == pytest.approx(measured[run], rel=0.11) for run in runs)
    _, sentence = lesson06.draw_rule(runs, rule06.speedup)
    assert "2 RTX 3090 Ti, PCIe: 56 by the rule, 63" in sentence


def test_the_explorer_of_buckets_says_what_its_bars_show():
    """The sentence of a way is what a learner quotes; it must belong to the chosen way."""
    altair = pytest.importorskip("altair", "5")
    chart = lesson06.draw_overlap()
    spec, figure, alt = chart.spec, chart.figure, chart.alt
    altair.LayerChart.from_dict(vega.styled(spec, alt), validate=True)
    assert {p["name"]: len(p["bind"]["options"]) for p in spec["params"]} == {
        "link": 3,
        "bucket": 7,
    }
    rows = [line.split(",") for line in spec["data"]["values"].splitlines()[1:]]
    alone = [row for row in rows if row[:2] == ["0", "0"]]  # over NVLink, each gradient alone
    last = max(float(row[5]) for row in alone if row[3] == "2")
    backward = next(float(row[5]) for row in alone if row[3] == "1")
    told = re.match(r"Over NVLink, each gradient alone: 126 all-reduces, (\S+) ms exposed", alt)
    assert float(told[1]) == pytest.approx(last - backward, abs=0.06)
    assert "in buckets of 25 MiB: 13 all-reduces, 0.1 ms exposed" in alt
    assert "forecast" in figure.get_suptitle()


def test_over_the_network_the_best_buckets_are_neither_the_smallest_nor_all_in_one():
    """The lesson says 25 or 50 MiB: with other rates its sentence would be false."""
    forecast, model = data_parallel.gpt_step(1)
    begin, end = data_parallel.backward_ms(forecast.on("H100 SXM"))
    late = {}
    for size in (*lesson06.BUCKETS, 1000):
        sent = data_parallel.all_reduces(model, begin, end, size * data_parallel.MIB, 32, "network")
        late[size] = sent[-1][1] - end
    assert sorted(sorted(late, key=late.get)[:2]) == [25, 50]
    assert all(f"{late[size]:.0f}" == "1" for size in (25, 50))
    assert late[5] > 10 * late[50] and late[1000] > 2 * late[50]


def test_the_folded_line_makes_all_numbers_of_both_gradients_agree(capsys):
    """The page says to change a line until it prints True: the one that it has folded must do so, the first one not."""
    page = ROOT / "notebooks" / "06_use_several_gpus.ipynb"
    cells = {c["id"]: "".join(c["source"]) for c in json.loads(page.read_text("utf-8"))["cells"]}
    code = "\n".join(cells[key] for key in ("6cf1ec0d", "0ac24f94", "fee4c6f2", "06mean000002"))
    first = "both = first + second"
    [line] = re.findall(r"`(both = .*)`", cells["06mean000001"])
    for each, agree in ((first, False), (line, True)):
        exec(code.replace(first, each), {})  # noqa: S102 - a page's own cells
        assert f"agree: {agree}" in capsys.readouterr().out


def test_the_hang_of_page_06_is_the_one_that_its_verdict_names():
    """A learner looks in its lines for the rank that doesn't wait: it must be the one that has finished."""
    held = [torch.full((9,), 10**rank) for rank in range(8)]
    assert all(got.tolist() == [11111111] * 9 for got in rule06.all_reduce(held))
    stuck = rule06.stuck(held)
    waits = [f"rank {rank} waits" for rank in range(8) if rank != 2]
    assert stuck["lines"] == [*waits, "rank 2 has finished"]
    assert stuck["actual"] == "all but rank 2"


@pytest.mark.parametrize(("gpus", "backend"), [(0, "gloo"), (1, "gloo"), (2, "nccl")])
@pytest.mark.parametrize("script", [rule06.ordinary, rule06.to_ddp])
def test_two_processes_use_gpus_only_if_each_has_its_own(script, gpus, backend, monkeypatch):
    """On a machine with one GPU, rank 1 would ask for a second one and end with an error."""
    met = mock.Mock(side_effect=InterruptedError)
    monkeypatch.setattr(torch.distributed, "init_process_group", met)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "set_device", range(gpus).index)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(InterruptedError):
        script(torch.nn.Linear(1, 1), None, 2)
    met.assert_called_once_with(backend)


def test_the_axis_shows_the_end_of_the_last_all_reduce_with_room_for_its_words():
    """What is exposed lies at the right end; cut off there, the figure hides its subject."""
    spec = lesson06.draw_overlap().spec
    rows = [line.split(",") for line in spec["data"]["values"].splitlines()[1:]]
    shown = spec["encoding"]["x"]["scale"]["domainMax"]["expr"]
    for way, axis in enumerate(json.loads(shown.split("[indexof")[0])):
        last = max([0, *(float(row[5]) for row in rows if row[0] == str(way))])
        assert last * 1.15 <= axis
