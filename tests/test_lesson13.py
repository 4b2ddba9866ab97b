"""Lesson 13: each patient's evidence, its only diagnosis, and what a learner sees of it."""

import pytest
import torch

from helpers.checks import progress
from helpers.scripts import script_path
from lessons import reading
from lessons.lesson13 import clinic, exercises, figures, processes, running
from lessons.lesson13.patients import PATIENTS
from measurements import traces

of_each = pytest.mark.parametrize("patient", PATIENTS, ids=lambda patient: patient.name)


def collective_us(rank, trace):
    """Return what the function of that name in the lesson returns."""
    return sum(e.length for e in trace.rank(rank).gpu if e.kind == "communication")


def computed(patient, expression):
    """Return what an expression gives in the lesson, where `trace` is the patient's."""
    trace = traces.case(patient.case)
    names = vars(reading) | {"trace": trace, "collective_us": lambda r: collective_us(r, trace)}
    return eval(expression, dict(names))  # noqa: S307 - our own source


@of_each
def test_the_solution_computes_the_evidence_as_it_stands_in_the_lesson(patient):
    assert computed(patient, patient.source) == pytest.approx(patient.number, rel=0.005)


SLIPS = {
    ("starved", 0): "gaps(trace)[0][1]",
    ("starved", 1): "1 - busy_share(trace)",
    ("waiting", 0): "1 - busy_share(trace)",
    ("waiting", 1): "max(on_cpu(trace, 0, trace.length).values())",
    ("freed", 0): 'on_cpu(trace, 0, trace.length)["hipFree"]',
    ("freed", 1): 'sum(span.name == "hipFree" for span in trace.cpu)',
    ("straggler", 0): "max(trace.ranks, key=collective_us)",
    ("pieces", 0): "len(trace.gpu)",
    ("suspect", 0): "overlap(trace)",
    ("unfused", 1): 'share_by_kind(trace)["matmul"]',
    ("undecided", 0): "overlap(trace)",
}


@of_each
def test_a_slip_is_told_from_any_other_wrong_number(patient):
    for place, number in enumerate(patient.slips):
        expression = SLIPS.get((patient.name, place))
        assert not expression or computed(patient, expression) == pytest.approx(number, rel=0.01)
        assert not patient.close(number, patient.number)


@of_each
def test_each_other_diagnosis_has_a_reason_of_its_own(patient):
    assert set(patient.wrong) == set("abcd") - {patient.right}
    assert len(set(patient.wrong.values())) == 3


def test_the_right_letter_cannot_be_guessed_by_its_place():
    letters = [patient.right for patient in PATIENTS]
    assert {letters.count(letter) for letter in "abcd"} <= {2, 3, 4}


def test_one_is_healthy_one_undecidable_and_one_a_red_herring():
    cure = {patient.name: patient.cure for patient in PATIENTS}
    assert cure["ahead"].startswith("healthy")
    assert cure["undecided"].startswith("nobody can tell")
    assert "red herring" in cure["suspect"]


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


def test_the_captions_tell_that_stacks_were_recorded(capsys):
    cases = [patient.case for patient in PATIENTS]
    told = [case for case in cases if "stacks" in traces.case(case).about.get("note", "")]
    assert told == ["4a", "6", "10", "11", "13"]
    clinic.admit("6")
    assert "Recorded with Python stacks" in capsys.readouterr().out


def test_the_case_notes_name_the_causes_found_and_no_other(capsys, home):
    progress.record("13.starved", status="correct")
    progress.record("13.hang", status="not yet")
    exercises.case_notes()
    text = capsys.readouterr().out
    assert text.startswith("1 of 16") and text.count("open") == 15
    assert "a V100 with nothing to do: the loader" in text


def test_the_first_picture_has_a_strip_for_each_patient():
    figure, words = figures.first_picture()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[1] == "2  RTX 2080 Ti" and len(labels) == 12
    shares = [reading.busy_share(_first(patient)) for patient in PATIENTS]
    assert sum(share < 0.5 for share in shares) == 6 and "six are busy for less" in words


def _first(patient):
    trace = traces.case(patient.case)
    return trace if len(trace.ranks) == 1 else trace.rank(0)


def test_the_line_that_lets_a_rank_skip_is_where_the_exercise_says():
    lines = script_path("hang.py").read_text(encoding="utf-8").splitlines()
    assert lines[processes.CONDITION - 1].strip() == "if samples > 0:"
    assert "all_reduce" in lines[processes.CONDITION]


def test_four_processes_agree_with_one_only_where_every_column_does(monkeypatch):
    """The check compares what really ran: where the losses differ, no settings are correct."""
    table = processes.losses(processes.CURE).splitlines()
    columns = list(zip(*[row.split()[1:] for row in table[1:]], strict=True))
    assert all(len(set(column)) == 1 for column in columns[:-1])
    monkeypatch.setattr(processes, "losses", lambda _: "ranks\n1 0.5\n2 0.5\n4 0.6")
    assert "still differ" in exercises.agree.outcome(processes.CURE).message


class Counts(torch.nn.Module):
    """Counts its calls in an int, as the model of the lesson does."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        """Return `x`, times the number of calls."""
        self.calls += 1
        return x * self.calls


def test_counting_graphs_names_the_guards_that_failed():
    graphs, guards = running.count_graphs(Counts(), calls=3)
    assert graphs == 3 and guards == ["self.calls == 0", "self.calls == 1"]


def test_only_float16_overflows():
    finite = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model, x = running.overflowing()
        finite[dtype] = bool(model.to(dtype)(x.to(dtype)).isfinite().all())
    assert finite == {torch.float32: True, torch.bfloat16: True, torch.float16: False}
