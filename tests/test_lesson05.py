"""Lesson 05: a step's memory by part against sums worked out by hand and the allocator's own peak."""

import pytest
import torch
from torch import nn

from course.lesson05 import figures, history
from course.lesson05.memory import by_part, in_total
from helpers.memory import MIB
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu


def small_step():
    """(model, optimizer, batch, step) on the GPU, after a first step, which makes Adam's state."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    batch = (torch.rand(1024, 256, device="cuda"), torch.zeros(1024, dtype=torch.int64).cuda())

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    step()
    return model, optimizer, batch, step


@pytest.mark.parametrize("values", [True, False])
def test_a_step_by_part_is_what_can_be_counted_by_hand_and_its_peak_is_the_allocators(values):
    with practice_gpus(1, values=values):
        model, optimizer, batch, step = small_step()
        torch.cuda.reset_peak_memory_stats()
        step()
        peak = torch.cuda.max_memory_allocated() / MIB
        places, sizes = by_part(model, optimizer, batch, step)
    parameters = 4 * (256 * 512 + 512 + 512 * 10 + 10) / MIB
    assert sizes["parameters"] == [pytest.approx(parameters)] * len(places)
    assert sizes["gradients"][-1] == pytest.approx(parameters)
    assert sizes["optimizer"][0] == pytest.approx(2 * parameters, rel=0.01)
    assert sizes["batch"][0] == pytest.approx((4 * 1024 * 256 + 8 * 1024) / MIB)
    assert max(map(sum, zip(*sizes.values(), strict=True))) == pytest.approx(peak, rel=0.02)
    assert set(places) == {"start", "forward", "backward", "step", "end"}
    outputs = 4 * 1024 * (512 + 10) / MIB  # of ReLU and of log_softmax
    assert max(sizes["activations"]) == pytest.approx(outputs, rel=0.02)
    assert sizes["activations"][-1] == 0
    workspace = sizes["temporary"][places.index("step")]
    assert workspace == pytest.approx(parameters, rel=0.02)  # as large as the gradients


def test_a_step_in_total_begins_with_what_is_held_and_rises_to_the_peak():
    with practice_gpus(1):
        *_, step = small_step()
        held = torch.cuda.memory_allocated() / MIB
        torch.cuda.reset_peak_memory_stats()
        sizes = in_total(step)
        peak = torch.cuda.max_memory_allocated() / MIB
        after = torch.cuda.memory_allocated() / MIB
    assert sizes[0] == held and sizes[-1] == pytest.approx(after, abs=0.05)
    assert max(sizes) == pytest.approx(peak, rel=0.01)


def test_the_picture_of_a_snapshot_keeps_what_the_program_keeps():
    """Else a learner would look for a leak among bands that have long been freed, or not see it."""
    with practice_gpus(1):
        torch.cuda.memory._record_memory_history(stacks="python")
        kept = [torch.ones(2**18, device="cuda")[:1] for _ in range(3)]
        passing = torch.ones(2**19, device="cuda")
        del passing
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        found = history.blocks(snapshot)
        [(line, size)] = history.held(snapshot)
    assert line.startswith("kept = ") and size == 3 * MIB == len(kept) * MIB
    stays = [block for block in found if not block.freed]
    assert [block.line for block in stays] == [line] * 3 and len(found) == 4
    assert [block.bottoms[0][1] for block in found] == [0, 1, 2, 3]  # each on the older ones


def test_an_epoch_without_a_leak_ends_at_zero():
    """A learner who has fixed both lines would otherwise be told that 1 MiB is left, and go on looking for it."""
    with practice_gpus(1):
        torch.cuda.memory._record_memory_history(stacks="python")
        passing = torch.ones(2**18, device="cuda")
        del passing
        chart = history.chart(torch.cuda.memory._snapshot())
        torch.cuda.memory._record_memory_history(enabled=None)
    assert chart.alt.startswith("1 MiB on top of the model at the peak, 0 MiB at the end")


def test_the_exercise_shows_no_second_picture_of_the_same_leak(monkeypatch):
    """The same staircase twice tells a learner nothing; the first change does."""

    def leaky(model, batches):
        return [model(rows.to("cuda")) for rows, _ in batches]

    def unchanged(model, batches):
        return [model(rows.to("cuda")) for rows, _ in batches]

    @torch.inference_mode()
    def tidy(model, batches):
        return [model(rows.to("cuda")) for rows, _ in batches]

    def make_model():
        return nn.Linear(1024, 10).to("cuda")

    shown = []
    monkeypatch.setattr(history.vega.Chart, "show", lambda chart: shown.append(chart.alt))
    with practice_gpus(1):
        history.watch(unchanged, make_model, before=leaky)
        assert not shown
        history.watch(tidy, make_model, before=leaky)
        assert len(shown) == 1


def test_the_answers_on_64_and_128_photos_are_those_of_the_network():
    """A learner would otherwise carry away a wrong reason for the peak, or for the error of the full card."""
    found = []
    with figures._photo_step() as (network, _, batch, _):
        layer = network._blocks[1]._expand_conv
        layer.register_forward_hook(lambda _, inputs, output: found.append(output.nbytes / MIB))
        network(batch[0])
        rest = 3 * sum(parameter.nbytes for parameter in network.parameters()) / MIB
    weights = sum(parameter.nbytes for parameter in layer.parameters()) / 1024
    _, reason = figures.PEAK
    assert f"{weights:.0f} KiB of weights, and it computes {found[0]:.0f} MiB" in reason
    assert f"averages take {rest:.0f} MiB" in reason
    peak = figures.train_photos(128, memory="16 GiB")
    assert f"{round(peak, -2):,.0f} MiB" in figures.NEEDED[1] and 1900 < peak - 8192 < 2100
