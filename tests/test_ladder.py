"""TinyGPT's ladder: a learner's rungs are kept and drawn, and the course's stand where there are none."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course import gpt
from course.checks import progress
from course.gpt import ladder


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """What `ladder.show` drew: (Figure, sentence, caption) of each call; a learner without progress, and a quick clock."""
    calls = []
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path))
    monkeypatch.setattr(ladder.figures, "show", lambda *args: calls.append(args))
    step = SimpleNamespace(ms=2.0)
    step.fused, step.on = step, lambda card, gpus, gradients: step
    monkeypatch.setattr(ladder, "recorded", lambda make: step)
    return calls


def test_what_a_learner_measured_in_06_stands_in_the_chart_of_10_beside_the_courses(shown):
    ladder.show("06", one=1234.0, ddp=2345.0)
    ladder.show("10", fsdp=345.0)
    (_, first, measured), (_, sentence, caption) = shown
    assert (
        measured == "Measured on this machine, tokens per second: 16 texts 1,234, DDP on two 2,345."
    )
    assert "06 16 texts: 0.256 million" in first and "06 16 texts: 0.256 million" in sentence
    assert "09 fused attention: 9.53 million" in sentence and caption.endswith(ladder.PALE)
    assert caption.startswith("Measured on this machine, tokens per second: FSDP on eight 345.")
    assert "11 " not in sentence and "345 per second here" in sentence
    assert "1,234 per second here" in first and "1,234" not in sentence  # one run, on one page


def test_the_rungs_of_08_are_all_on_one_gpu_as_its_title_says(shown, monkeypatch):
    monkeypatch.setattr(ladder, "measured", lambda rung, train: rung["local"] and 99.0)
    ladder.show("08")
    [(_, sentence, caption)] = shown
    assert sentence.startswith("TinyGPT on one A100: ") and "DDP" not in sentence
    assert "08 2,048 texts: " in sentence and "08 2,048 texts, 16 bits: " in sentence
    assert caption.startswith(
        "Measured on this machine, tokens per second: 2,048 texts 99 (with 64)."
    )


def test_a_lesson_run_again_leaves_the_other_lessons_rungs_alone(shown):
    ladder.show("10", fsdp=345.0)
    before = ladder.rungs()["fsdp"]
    ladder.show("06", one=1.0, ddp=2.0)
    assert ladder.rungs()["fsdp"] == before and before["own"]


@pytest.mark.parametrize("row", [{}, {"A100": "fast", "H100": 1.0}, {"A100": -1.0, "H100": 1.0}])
def test_a_row_that_someone_spoiled_is_the_courses_again(shown, row):
    progress.record("ladder.one", **row)
    assert ladder.rungs()["one"]["A100"] == 218110 and not ladder.rungs()["one"]["own"]


def test_several_gpus_stand_where_all_of_them_get_together(shown):
    """At the rate of each, two GPUs would stand left of one, under a title that says they are faster."""
    ladder.show("06", one=1.0, ddp=2.0)
    lengths = [bar.get_width() for bar in shown[0][0].axes[0].patches]
    assert lengths == [256_000, 512_000] and "DDP on two: 0.512 million" in shown[0][1]


def test_attention_by_hand_is_the_attention_of_the_model():
    """Else its rung would be slower because it computes something else."""
    import torch

    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind()
    torch.testing.assert_close(ladder.by_hand(0, q, k, v), ladder.causal(0, q, k, v))


def test_the_stored_forecasts_are_those_of_the_clock():
    """A learner's own rungs would otherwise jump for no reason of theirs."""
    stored = ladder.rungs()
    for key in ("one", "ddp", "large", "both"):
        now = ladder.forecast(stored[key], lambda *batch: ladder.step(*batch, ladder.causal))
        assert now == pytest.approx({card: stored[key][card] for card in ladder.CARDS}, rel=1e-3)


@pytest.mark.parametrize("words", [32, 1024])
def test_mfu_counts_what_the_model_multiplies_attention_included(words):
    """With long texts half of the work is attention's: without it, the MFU would be half of what a paper would say."""
    model = gpt.TinyGPT(gpt.course_words(), context=words)
    x = torch.zeros(1, words, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(x, ladder.by_hand).sum().backward()
    assert ladder.needed(words) == pytest.approx(counter.get_total_flops() / words, rel=0.01)
