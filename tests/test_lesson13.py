"""Lesson 13: each patient's evidence, its only diagnosis, and what a learner sees of it."""

import types

import pytest
import torch

from course.lesson08.exercises import forecast_card
from course.lesson13 import clinic, exercises, figures, processes, running
from course.lesson13.patients import ASKED, PATIENTS
from course.lesson13.triage import REMEDIES, communication_and_work, longest_call, saved_ms, triage
from course.measurements import traces
from course.scripts import script_path
from course.timeline import reading

of_each = pytest.mark.parametrize("patient", ASKED, ids=lambda patient: patient.name)


KNOWN = {
    "forecast_card": forecast_card,
    "ex": exercises,
    "F": torch.nn.functional,
    "triage": triage,
}


def computed(patient, expression):
    """Return what an expression gives in the lesson, where `trace` is the patient's."""
    names = vars(reading) | KNOWN | {"trace": traces.case(patient.case)}
    return eval(expression, dict(names))  # noqa: S307 - our own source


@of_each
def test_the_solution_computes_the_evidence_as_it_stands_in_the_lesson(patient):
    found = computed(patient, patient.source)
    assert patient.evidence == pytest.approx(found, rel=0.005)


BY_HAND = "sum(e.length for e in trace.gpu if e.operator in ('aten::_softmax', 'aten::bmm')) / 1000"
SLIPS = {
    ("suspect", 0): "exposed(trace) * trace.length / 1000",
    ("suspect", 1): "busy_share(trace) * trace.length / 1000",
    ("stranger", 0): "on_cpu(trace, 0, trace.length)['<built-in function zoom_shift>'] / 1000",
    ("stranger", 1): "triage(trace)['cpu'] / 1000",
    ("stranger", 2): BY_HAND,
}


@of_each
def test_a_slip_is_told_from_any_other_wrong_number(patient):
    for place, number in enumerate(patient.near):
        expression = SLIPS.get((patient.name, place))
        assert not expression or computed(patient, expression) == pytest.approx(number, rel=0.01)
        assert not patient.close(number, patient.evidence)


@of_each
def test_what_rules_a_remedy_out_is_its_own_reason_or_how_little_it_saves(patient):
    """A remedy that takes away a tenth of the window is plausible, and needs more than a number."""
    trace = traces.case(patient.case)
    assert set(patient.wrong) <= {*REMEDIES, "item", "sdpa", "record", "none"} - {patient.right}
    for remedy in {*REMEDIES} - {*patient.wrong, patient.right}:
        assert saved_ms(remedy, trace) < 0.1 * trace.length / 1000, remedy


def test_no_remedy_is_right_so_often_that_it_can_be_guessed():
    right = [patient.right for patient in ASKED]
    assert len(set(right)) == len(right) >= 3


def test_the_losses_that_the_lesson_tells_are_those_of_the_traces():
    trace = traces.case("1a")
    assert (trace.length - triage(trace)["loader"]) / 1000 == pytest.approx(116, abs=0.5)


def test_the_loader_that_patient_2_waits_for_covers_its_longest_gap():
    """on_cpu counts innermost calls, so it gives the loader less than the gap that triage charges to it."""
    trace = traces.case("1a")
    start, length = reading.gaps(trace)[0]
    (loader,) = [span for span in trace.cpu if "DataLoader" in span.name]
    assert min(loader.end, start + length) - start > 0.99 * length


def test_the_fused_attention_of_the_praise_replaces_four_kernels_of_11_ms():
    layer = traces.case("10").between(6700, 19600)
    spent = [e.length / 1000 for e in layer.gpu if e.length > 1000]
    assert len(spent) == 4 and sum(spent) == pytest.approx(10.7, abs=0.05)
    names = ("aten::_softmax", "aten::bmm", "aten::mul")
    whole = traces.case("10")
    large = [e.length for e in whole.gpu if e.operator in names and e.length > 1000]
    assert len(large) == 12 * 4
    left = (whole.length - sum(large)) / 1000
    assert left + 12 * 0.31 < 40 < left + 12 * 0.7


def test_the_answers_to_the_predictions_are_what_the_traces_and_the_forecast_say():
    """hipFree nearly all the time, work enough to hide communication or not: the page tells all."""
    freed = traces.case("6")
    assert longest_call(freed, 0, freed.length) == "hipFree"
    parts = [communication_and_work(traces.case(name)) for name in ("9", "13")]
    assert [list(part.values()) for part in parts] == [[31.5, 51.5], [30.5, 14.3]]


def test_the_limit_of_patient_2_lies_between_its_two_recordings():
    figure, _ = figures.recovery()
    assert figure.get_suptitle() == "Four workers cut 174 ms to 127; the limit is 116"


def test_the_gpu_of_patient_3_idles_under_hip_free_for_973_ms():
    """So 157 of 1,130 ms are left at best where the allocator keeps memory."""
    trace = traces.case("6")
    freed = [span for span in trace.cpu if span.name == "hipFree"]
    parts = [
        min(start + length, span.end) - max(start, span.start)
        for start, length in reading.gaps(trace)
        for span in freed
    ]
    idle = sum(part for part in parts if part > 0) / 1000
    assert len(freed) == 330
    assert idle == pytest.approx(973, abs=0.5)
    assert trace.length / 1000 - idle == pytest.approx(157, abs=0.5)


def test_the_healthy_one_hardly_waits_and_its_launches_run_far_ahead():
    trace = traces.case("5b")
    assert max(saved_ms(remedy, trace) for remedy in REMEDIES) == pytest.approx(14.7, abs=0.3)
    assert reading.busy_share(trace) == pytest.approx(0.988, abs=0.002)
    delays = [e.start - e.launch for e in trace.gpu if e.kind not in reading.COPIES]
    assert min(delays) / 1000 == pytest.approx(64, abs=0.5)


def test_a_learner_can_admit_the_file_of_a_trace_and_reads_what_costs_most_in_it(monkeypatch):
    shown = []
    monkeypatch.setattr(clinic.timeline, "show", lambda *given, **named: shown.append(named))
    trace = clinic.admit(traces.FOLDER / "2.json.gz")
    assert trace.length == pytest.approx(237_000) and trace.source.startswith("AMD-AGI")
    assert shown[0]["caption"].startswith("52% of the time, the GPU waits for the DataLoader.")


def test_the_numbers_in_the_reasons_are_those_of_the_traces():
    dlrm = traces.case("9")
    idle = sum(gap for at, gap in reading.gaps(dlrm) if 21_900 < at < 34_000)
    assert 3_500 < idle < 4_000


def test_admitting_shows_the_patient_and_returns_its_trace(capsys):
    trace = clinic.admit(4)
    assert trace.device.startswith("NVIDIA H100")
    assert "H100" in capsys.readouterr().out
    assert clinic.admit(7).length == pytest.approx(237_000)


def test_a_patient_that_was_not_recorded_is_refused():
    with pytest.raises(ValueError, match="patients 1 to 7 were recorded, got 8"):
        clinic.admit(8)


def test_the_first_picture_has_a_strip_for_each_patient():
    figure, words = figures.first_picture()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["1  V100", "2  V100", "3  MI300X", "4  H100", "5  A100", "6  MI300X"]
    shares = [reading.busy_share(traces.case(patient.case)) for patient in PATIENTS]
    assert round(min(shares), 2) == 0.13 and "busy for 13%" in words


def test_the_ward_is_drawn_from_the_learners_own_numbers():
    _, words = figures.ward(lambda trace: dict.fromkeys(("loader", "cpu", "communication"), 0))
    assert "4  H100: 100% works" in words
    _, words = figures.ward(triage)
    assert "2  V100: 33% waits for the loader" in words


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


def test_the_numbers_of_patient_10_leave_float16_in_the_fifth_layer():
    _, words = figures.first_picture_b()
    largest = [float(n.replace(",", "")) for n in words.split(": ")[1].split("; ")[0].split(", ")]
    assert len(largest) == 5 and largest[3] < torch.finfo(torch.float16).max < largest[4]


WHOLE = "\n".join(f"rank {rank}  #{number} all_reduce" for rank in range(3) for number in (1, 2, 3))


@pytest.mark.parametrize("first", [TimeoutError("too long"), WHOLE.replace("rank 2  #3", "")])
def test_a_run_of_processes_that_is_not_whole_is_repeated_once_with_more_time(
    monkeypatch, capsys, first
):
    """Beside other programs a rank came late, or a process never started: the page failed after 108 s."""
    calls = []

    def run(script, *arguments, timeout, **options):
        calls.append((arguments, timeout))
        print("$ the command")
        if len(calls) == 1 and isinstance(first, Exception):
            raise first
        return types.SimpleNamespace(text=first if len(calls) == 1 else WHOLE)

    monkeypatch.setattr(processes, "run", run)
    assert processes.flight_records() == WHOLE.splitlines()
    assert capsys.readouterr().out == "$ the command\n", "the page is the same"
    assert calls[0][0] == () and calls[1][0] == ("10",) and calls[1][1] > calls[0][1]
