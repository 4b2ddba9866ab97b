"""The atlas: what is known about a card, each number with its source."""

import pytest

from helpers import measurements
from helpers.measurements import atlas


@pytest.mark.parametrize("name", atlas.names())
def test_every_number_about_a_card_has_a_source(name):
    facts = atlas.about(name)
    assert all(fact.source and fact.url.startswith("https://") for fact in facts)
    assert all(fact.value > 0 for fact in facts)
    assert all(fact.kind in ("data sheet", "measured", "listed") for fact in facts)


def test_a_card_is_known_by_its_data_sheet_and_by_what_others_measured():
    facts = [str(fact) for fact in atlas.about("T4")]
    assert "memory: 16 GB (data sheet: NVIDIA)" in facts
    words = "float16 products: 41.91 TFLOP/s (measured: zzc0721/torch-performance-test-data, up to"
    assert any(fact.startswith(words) for fact in facts)
    assert atlas.best("T4", "memory bandwidth").value == 240
    assert atlas.best("T4", "tf32 products") is None


def test_a_job_takes_the_longer_of_arithmetic_and_memory():
    by_arithmetic = {each.card: each for each in atlas.job(4193, 240, 8)}["T4"]
    assert by_arithmetic.seconds == pytest.approx(100)
    assert by_arithmetic.limit == "arithmetic"
    assert by_arithmetic.usd == pytest.approx(0.53 * 100 / 3600)
    by_memory = {each.card: each for each in atlas.job(1, 2400, 8)}["T4"]
    assert by_memory.seconds == pytest.approx(10)
    assert by_memory.limit == "memory"
    assert {each.card: each.fits for each in atlas.job(1, 1, 20)}["T4"] is False


def test_what_nobody_measured_stays_empty():
    """An invented time would be worse than none."""
    answers = {each.card: each for each in atlas.job(100, 100, 8, dtype="tf32")}
    assert answers["T4"].seconds is None
    assert answers["RTX 4090"].seconds is not None
    assert answers["K80"].fits is None


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: atlas.about("T5"), "name is 'T5'; it takes one of"),
        (lambda: atlas.job(0, 1, 1), "tflop is 0; it takes a number above 0"),
        (lambda: atlas.job(1, "2", 1), "gigabytes is '2'"),
        (lambda: atlas.job(1, 1, 1, dtype="int8"), "dtype is 'int8'; it takes float32"),
        (lambda: atlas.minutes(1, 1, 10_000), "memory_gb is 10000; no card"),
    ],
)
def test_a_wrong_question_is_answered_with_what_fits(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_explorer_draws_cards_where_the_job_fits():
    group = atlas.minutes(50_000, 20_000, 30)
    assert any(label.startswith("A100 40 GB, $") for label in group)
    assert not any(label.startswith("T4") for label in group)
    assert list(group.values()) == sorted(group.values())
    assert "te42kyfo/gpu-benches" in group.sources[0]


RESNET50 = 4.09 * 2 / 1000  # 10¹² operations of a forward pass: torchvision's page says 4.09 GMACs


@pytest.mark.parametrize(
    "section, device, precision, dtype, card, passes",
    [
        ("training", "V100 16GB, DGX-1", "FP32", "float32", "V100", 3),
        ("training", "V100 16GB, DGX-1", "AMP", "float16", "V100", 3),
        ("training", "A100 80GB, DGX", "AMP", "float16", "A100 80 GB", 3),
        ("inference", "T4", "FP32", "float32", "T4", 1),
        ("inference", "T4", "AMP", "float16", "T4", 1),
    ],
)
def test_the_least_time_is_a_bound_that_measured_trainings_stay_near(
    section, device, precision, dtype, card, passes
):
    """A forecast below a tenth of what people measure would send a learner to the wrong card."""
    source = measurements.published("resnet50_nvidia")
    rows = source.rows(section, device=device, precision=precision)
    measured = max(row["images_per_s"] for row in rows if row.get("gpus", 1) == 1)
    answer = {each.card: each for each in atlas.job(passes * RESNET50, 1e-9, 1, dtype)}[card]
    assert 1 <= 1 / answer.seconds / measured <= 5
