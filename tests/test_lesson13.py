"""Lesson 13: each patient's evidence, its only diagnosis, and what a learner sees of it."""

import pytest

from lessons import reading
from lessons.lesson13 import clinic, running
from lessons.lesson13.patients import PATIENTS
from measurements import traces

of_each = pytest.mark.parametrize("patient", PATIENTS, ids=lambda patient: patient.name)


def collective_us(rank, trace):
    """Return what the function of that name in the lesson returns."""
    return sum(e.length for e in trace.rank(rank).gpu if e.kind == "communication")


@of_each
def test_the_solution_computes_the_evidence_as_it_stands_in_the_lesson(patient):
    trace = traces.case(patient.case)
    names = vars(reading) | {"trace": trace, "collective_us": lambda r: collective_us(r, trace)}
    number = eval(patient.source, dict(names))  # noqa: S307 - our own source
    assert number == pytest.approx(patient.evidence(trace), rel=0.01)
    assert number == pytest.approx(patient.number, rel=0.01)


@of_each
def test_each_other_diagnosis_has_a_reason_of_its_own(patient):
    assert set(patient.wrong) == set("abcd") - {patient.right}
    assert len(set(patient.wrong.values())) == 3


def test_the_right_letter_cannot_be_guessed_by_its_place():
    letters = [patient.right for patient in PATIENTS]
    assert {letters.count(letter) for letter in "abcd"} <= {2, 3, 4}


def test_one_is_healthy_one_undecidable_and_one_a_red_herring():
    praise = {patient.name: patient.praise for patient in PATIENTS}
    assert praise["ahead"].startswith("healthy")
    assert "all that one rank can say" in praise["undecided"]
    assert "red herring" in praise["suspect"]


def test_the_numbers_in_the_reasons_are_those_of_the_traces():
    dlrm = traces.case("9")
    idle = sum(gap for at, gap in reading.gaps(dlrm) if 21_900 < at < 34_000)
    assert 3_500 < idle < 4_000
    ranks = traces.case("7")
    busy = [
        reading.total(reading.merged(_work(ranks.rank(rank)), ranks.length)) for rank in range(8)
    ]
    assert busy[7] == pytest.approx(1080, abs=5)
    assert min(busy) == pytest.approx(1050, abs=5) and max(busy) == pytest.approx(1270, abs=5)
    small = [e for e in traces.case("8").gpu if e.kind == "communication" and e.length < 20]
    assert len(small) == 241
    waits = [gap for _, gap in reading.gaps(traces.case("8"))]
    assert sum(waits) == pytest.approx(73_000, rel=0.01)


def _work(trace):
    return [event for event in trace.gpu if event.kind != "communication"]


def test_the_linear_layers_of_the_video_transformer_reach_70_percent():
    events = [
        e
        for e in traces.case("10").gpu
        if e.kind == "matmul" and "25096, 768" in e.shapes and "2304" in e.shapes
    ]
    flops = reading.product_flops(25096, 768, 2304)
    share = reading.per_second(flops, min(e.length for e in events)) / 989e12
    assert share == pytest.approx(0.70, abs=0.03)


def test_admitting_shows_the_patient_and_returns_its_trace(capsys):
    trace = clinic.admit("4a")
    assert trace.length == 3900
    assert "H100" in capsys.readouterr().out


def test_the_scorecard_lists_all_sixteen(capsys, home):
    clinic.scorecard()
    text = capsys.readouterr().out
    assert text.startswith("0 of 16") and text.count("open") == 16


def test_counting_graphs_leaves_the_logs_as_they_were(capfd):
    graphs, guards = running.count_graphs(running.Warmup(), calls=3)
    assert graphs == 3 and guards == ["self.calls == 0", "self.calls == 1"]
    assert "recompiles" not in capfd.readouterr().err


def test_only_float16_overflows():
    import torch

    finite = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model, x = running.overflowing()
        finite[dtype] = bool(model.to(dtype)(x.to(dtype)).isfinite().all())
    assert finite == {torch.float32: True, torch.bfloat16: True, torch.float16: False}
