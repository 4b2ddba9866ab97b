"""Lesson 10: who holds what, pipelines, plans and what a forecast of them holds."""

import itertools

import pytest

from course.lesson10 import figures, plans
from course.lesson10.exercises import plan
from helpers.plots import GPU


def held(axes):
    """Return {(row, column)} of the cells that are green: what the GPU of this panel holds."""
    from matplotlib.colors import to_hex

    return {
        (round(cell.get_y()), round(cell.get_x()))
        for cell in axes.patches
        if to_hex(cell.get_facecolor()).upper() == GPU
    }


def drawn(monkeypatch, draw, *args):
    """Return the Figure that `draw(*args)` shows."""
    shown = []
    monkeypatch.setattr(figures.figures, "show", lambda figure, alt: shown.append(figure))
    draw(*args)
    return shown[0]


def test_a_gpu_needs_nothing_of_another_between_the_two_matmuls(monkeypatch):
    """What a split by columns leaves on a GPU, its rows of the next matrix take: the reason for the order."""
    figure = drawn(monkeypatch, figures.show_split)
    cells = held(figure.axes[0])
    for gpu, top in enumerate((0, figures.TALL)):
        own = {(row - top, column) for row, column in cells if top <= row < top + 6}
        hidden = {column - 14 for _, column in own if 14 <= column < 20}
        down = {row for row, column in own if 22 <= column < 26}
        assert hidden == down == set(range(3 * gpu, 3 * gpu + 3))
        total = [column for _, column in own if column >= 38]
        assert len(total) == 12  # the whole sum, on every GPU


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 4), (8, 16), (1, 3)])
def test_the_pipeline_never_runs_two_passes_on_a_gpu_at_once(stages, microbatches):
    """The drawn schedule is the argument for the formula: work and bubble fill the time exactly."""
    bars = figures.pipeline(stages, microbatches).figure.axes[0].patches
    end = 3 * (microbatches + stages - 1)
    for stage in range(stages):
        own = sorted(
            (round(bar.get_x()), round(bar.get_x() + bar.get_width()))
            for bar in bars
            if round(bar.get_y() + 0.45) == stage
        )
        assert len(own) == 2 * microbatches
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own)) and own[-1][1] <= end
        assert sum(b - a for a, b in own) / end == pytest.approx(
            1 - (stages - 1) / (microbatches + stages - 1)
        )


def test_the_limit_is_where_gathering_takes_as_long_as_computing(monkeypatch):
    """The page states 5,540 tokens at 50 GB/s, and that 1,024 then leave 18% of the speed."""
    shown = []
    monkeypatch.setattr(figures.vega, "show", lambda _, *rest: shown.append(rest))
    figures.show_hidden(277, 50)
    [(figure, alt, _)] = shown
    assert "100% from 5,540 on" in alt
    outline = figure.axes[0].collections[0].get_paths()[0].vertices.tolist()
    assert max(y for x, y in outline if x == 1024) == pytest.approx(18, abs=0.5)


def test_fsdp_over_all_gpus_suits_one_of_the_four_jobs(monkeypatch):
    """A hint asks why it fails the others: traffic, too few texts, activations."""
    found = {name: plans.forecast(job, job.gpus, 1, 1) for name, job in plans.JOBS.items()}
    good = [name for name, job in plans.JOBS.items() if plans.works(job, (job.gpus, 1, 1))]
    assert good == ["A"]
    assert found["B"].computing == pytest.approx(4096 / 11_542, abs=1e-4)
    assert found["C"].idle == 0.5 and not plans.fits(found["D"])
    alone = {name: (job.gpus, 1, 1) for name, job in plans.JOBS.items()}
    figure = drawn(monkeypatch, figures.show_plans, alone)
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"126", "doesn't fit", "35%", "50%"} <= set(words)
    assert "1 of 4 jobs has" in figure.get_suptitle()
    figure = drawn(monkeypatch, figures.show_plans, plan.reference)
    assert "4 of 4 jobs have" in figure.get_suptitle()


def test_a_job_without_a_plan_has_no_bars(monkeypatch):
    """Else the chart would say what is wrong with FSDP alone before anyone has tried it."""
    figure = drawn(monkeypatch, figures.show_plans, {"A": (1, 1, 1), "B": ..., "D": (1, 8, 4)})
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["A: no plan yet", "B: no plan yet", "C: no plan yet", "D: 1 × 8 × 4"]
    assert [bar.get_width() > 0 for bar in figure.axes[0].patches] == [False] * 3 + [True] * 2


def test_a_forecast_holds_what_the_page_states():
    """A pipeline alone loses its bubble, and nothing is counted twice."""
    job = plans.JOBS["D"]
    found = plans.forecast(job, 1, 1, 32)
    assert found.idle == pytest.approx(31 / (32 + 31)) and found.gathers == found.sums == 0
    assert found.state == 16 * 70e9 / 32 and found.activations == 34 * 4096 * 8192 * 80
    found = plans.forecast(job, 2, 8, 2)
    assert sum(found[2:]) == pytest.approx(1) and min(found[2:]) > 0
    # four all-reduces of 2 bytes over 8 neighbors, beside the compute of the same tokens
    inside = plans.forecast(job, 1, 8, 4)
    sent = 80 * 4 * 2 * 7 / 8 * 2 * 8192 / 370e9
    assert inside.sums / inside.computing == pytest.approx(sent / (6 * 70e9 / 8 / 277e12))


def test_job_a_is_worked_out_on_the_page():
    """The page states how long its GPUs compute and send, and what share of the time each split leaves them."""
    job = plans.JOBS["A"]
    compute, sent = 6 * 8e9 * 8192 / plans.RATE, 14 * 65536 * 4096 * 32
    assert f"{compute:.2f} {sent / 1e9:.0f}" == "1.42 120"
    assert f"{sent / job.inside:.2f} {sent / 50e9:.2f}" == "0.33 2.41"
    assert f"{compute / (compute + sent / 50e9):.0%}" == "37%"
    found = [plans.forecast(job, *split) for split in ((8, 1, 1), (1, 8, 1), (1, 1, 8))]
    assert [f"{each.computing:.0%}" for each in found] == ["100%", "81%", "53%"]
    assert {f"{each.state / 1e9:.0f} {each.activations / 1e9:.0f}" for each in found} == {"16 37"}


def test_most_jobs_have_more_than_one_good_plan():
    """A plan is a choice: a good one that isn't the model answer has to pass, too."""
    good = {}
    for name, job in plans.JOBS.items():
        pairs = itertools.product([2**n for n in range(8)], repeat=2)
        splits = [(f, t, job.gpus // f // t) for f, t in pairs if f * t <= job.gpus]
        good[name] = [split for split in splits if plans.works(job, split)]
        assert plan.reference[name] in good[name]
    assert [len(splits) for splits in good.values()] == [3, 1, 2, 3]


def test_the_first_picture_adds_up_what_a_rank_holds():
    """FSDP at rest is 12 bytes of its part; at the peak come two gathered blocks and a block's whole gradients."""
    held = figures.gpu_memory(8, 8, 32)
    sums = [sum(parts) for parts in zip(*held.values(), strict=True)]
    assert (sums[0], sums[-1]) == (12, 16)
    assert max(sums) == pytest.approx(12 + 4 * 30 / 32 + 1 + 2 * 7 / 8)
    assert "12 at rest, 18.5 at the peak" in figures.first_picture()[1]


def test_the_link_decides_whether_4096_tokens_hide_a_gather():
    """The page states 11,542 tokens over PCIe and 749 over NVLink; the bars must agree."""
    assert f"{plans.RATE / 24e9:,.0f} {plans.RATE / 370e9:.0f}" == "11,542 749"
    figure, told = figures.hides()
    compute, slow, fast = (bar.get_width() for bar in figure.axes[0].patches)
    assert fast < compute < slow and slow / compute == pytest.approx(11_542 / 4096, rel=1e-3)
