"""Lesson 01: machines to diagnose, warps, and figures that follow what the learner wrote."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course import doctor
from course.lesson01 import exercises as lesson01
from course.lesson01 import figures as figures01
from course.lesson01 import jobs
from course.pictures import moving as step_pictures
from course.show import figures
from helpers import plots

DRIVERS = {  # a driver of each CUDA
    None: None,
    "9.1": "390.157",
    "12.0": "525.60.13",
    "12.2": "535.104.05",
    "12.4": "551.86",
    "12.8": "570.86.10",
    "13.0": "580.95.05",
}


def test_each_of_the_four_reports_has_an_answer_among_its_choices_and_a_cause_of_its_own():
    """Else every guess would be wrong, or the doctor would be asked for a cause that nobody met."""
    causes = [lesson01.diagnose(machine) for machine in lesson01.SEEN.values()]
    assert causes == list(lesson01.ANSWERS[:4])
    for name in lesson01.SEEN:
        assert figures01.TOLD[name][0] in figures01.ASKED[name][1]


def test_the_lessons_doctor_agrees_with_the_courses():
    """A learner who solves the exercise would otherwise learn rules that the real doctor contradicts."""
    codes = {
        "CPU-only build": "cpu_build",
        "no driver": "no_driver",
        "driver too old": "driver_too_old",
        "hidden": "hidden",
    }
    for machine in (lesson01.SEEN | lesson01.UNSEEN).values():
        cause = lesson01.diagnose(machine)
        facts = doctor.Facts(
            driver=DRIVERS[machine.driver_cuda],
            gpus=("a card",) * machine.gpus,
            cards=1,
            visible=machine.visible,
            cuda_build=machine.built_for,
        )
        if cause in codes:
            assert doctor.diagnose(facts).code == codes[cause], machine
        else:
            assert doctor.diagnose(facts).code not in codes.values(), machine


def test_eleven_warps_fill_the_scheduler():
    """The lesson asks for this number and says why; the picture must show the same."""
    frames = step_pictures.latency_hiding().frames
    busy = [words.rpartition(" has work ")[2] for words, _ in frames]
    assert busy.index("100% of the time.") == 11
    for warps in (10, 11):
        top = [box for box in frames[warps][1] if box.y == 0 and box.color == plots.GPU]
        assert sum(box.width for box in top) == (880 if warps == 11 else 800)


def test_the_rows_answer_as_the_question_does():
    """`reveal` compares the learner's choice with this text: another wording would make every guess wrong."""
    answer = figures01.compare_rows({"this CPU": {1: 0.5, 2048: 30.0}})
    figure, words = answer["figure"]
    assert answer["actual"] == "about 2 ms" and "2.1 to 2.5 ms" in figure.get_suptitle()
    assert "this CPU, measured here 0.5 ms for one row, 30 for 2,048" in words


def test_the_forecast_of_many_layers_follows_the_learners_formula_once_it_is_right(monkeypatch):
    """It starts where the measured times do, and bends near 15,000 rows, as the lesson says."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append((figure, words)))
    for answer in (lesson01.how_long, None, lambda flops, moved, card: (1.0, "arithmetic")):
        figures01.show_formula(answer)
    lines = [
        {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
        for figure, _ in shown
    ]
    assert "128 × your formula (forecast)" in lines[0]
    ours = [each["128 × our formula (forecast)"] for each in lines[1:]]
    assert all(line[0] == pytest.approx(2.2, abs=0.05) for line in ours)
    assert all(line[11] == pytest.approx(2.5, abs=0.05) for line in ours)  # 2,048 rows
    assert all("From 15,000 rows on" in words for _, words in shown)


def test_the_explorers_resnet50_is_the_one_that_everybody_measures():
    """Its forecasts stand beside published times; torchvision documents 25,557,032 parameters and 4.09 GFLOPS."""
    net = jobs.resnet50()
    assert sum(weight.numel() for weight in net.parameters()) == 25_557_032
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        net.to("meta").eval()(torch.empty(1, 3, 224, 224))
    assert counter.get_total_flops() / 2 / 1e9 == pytest.approx(4.09, abs=0.01)
