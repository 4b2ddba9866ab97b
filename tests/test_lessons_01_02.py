"""Lessons 00 to 02: the slider of cards, the machines to diagnose, and figures that follow what the learner wrote."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course import doctor
from course.lesson00 import figures as figures00
from course.lesson01 import exercises as lesson01
from course.lesson01 import figures as figures01
from course.lesson01 import jobs
from course.lesson02 import exercises as lesson02
from course.lesson02 import figures as figures02
from course.pictures import moving as step_pictures
from course.show import figures, vega
from helpers import plots
from practice_gpus import practice_gpus

DRIVERS = {  # a driver of each CUDA
    None: None,
    "9.1": "390.157",
    "11.4": "470.256.02",
    "12.2": "535.104.05",
    "12.8": "570.86.10",
    "13.0": "580.95.05",
}


def test_each_machine_shows_the_fact_that_gives_it_away(capsys):
    """Without its fact in the table a machine could only be guessed."""
    lesson01.show_machines()
    facts = {
        "A": "built_for=None",
        "B": "driver_cuda=None",
        "C": "driver_cuda='11.4'",
        "D": "visible='-1'",
    }
    told = capsys.readouterr().out.splitlines()
    for machine, (name, fact) in zip(told, facts.items(), strict=True):
        assert machine.startswith(f"{name}: ") and fact in machine


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
            gpus=("a card",) if machine.driver_cuda else (),
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


def test_the_slider_of_cards_shows_what_the_lesson_says(monkeypatch):
    """A tie at 25 images per step; ten times as fast at 400, in a step that takes the B200 no longer."""
    shown = []
    monkeypatch.setattr(vega, "show", lambda *words: shown.append(words))
    assert figures00.show_cards(5.0)[0] == "about the same"
    rows = shown[0][0]["data"]["values"]
    took = {(row["size"], row["card"][:2]): row["seconds"] for row in rows}
    faster = {size: took[size, "T4"] / took[size, "B2"] for size in figures00.SIZES}
    assert faster[25] < 1.15 and faster[200] < 10 < faster[400]
    assert 400 * took[400, "B2"] == pytest.approx(25 * took[25, "B2"], rel=0.01)


def test_the_rows_answer_as_the_question_does(monkeypatch):
    """`reveal` compares the learner's choice with this text: another wording would make every guess wrong."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda *words: shown.append(words))
    assert figures01.show_rows({"this CPU": {1: 0.5, 2048: 30.0}})[0] == "about 2 ms"
    assert "2.1 to 2.5 ms" in shown[0][0].get_suptitle()
    assert "this CPU, measured here 0.5 ms for one row, 30 for 2,048" in shown[0][1]


def test_the_forecast_of_many_layers_follows_the_learners_formula_once_it_is_right(monkeypatch):
    """It starts where the measured times do, and bends near 15,000 rows, as the lesson says."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append((figure, words)))
    for answer in (lesson01.how_long, None, lambda flops, moved, card: (1.0, "compute")):
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


def test_the_map_shows_each_tensor_in_its_memory(monkeypatch):
    """The host is between two GPUs; what has no device, such as a shape, is Python's and on the host."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append((figure, words)))
    with practice_gpus(2):
        y = torch.ones(2, device="cuda:1")
        figures02.show_homes({"x": torch.ones(2), "y": y})
        figures02.show_homes({"y": y, "shape": y.shape, "zeros": torch.zeros(y.shape)})
    assert shown[0][0].get_suptitle() == "x on cpu, y on cuda:1"
    assert shown[1][0].get_suptitle() == "2 on cpu, 1 on cuda:1"
    assert "on cpu: shape, zeros; on cuda:1: y." in shown[1][1]


def test_the_figure_draws_the_learners_formula_once_it_is_right(monkeypatch):
    """A learner who has solved it sees their own line, and a wrong one is never drawn as if it were right."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append(figure))
    for answer in (lesson02.fit_copy, None, lambda small, large: (1.0, 1.0)):
        figures02.show_small_copies(answer, {256: 0.4, 2**20: 9.0}, "cpu")
    labels = [[line.get_label() for line in figure.axes[0].get_lines()] for figure in shown]
    assert "your formula (forecast)" in labels[0]
    assert all("our formula (forecast)" in each for each in labels[1:])


def test_copies_within_the_cpus_memory_are_not_drawn_among_copies_to_a_gpu(monkeypatch):
    """Without a GPU, the learner's own two copies never crossed a bus; on one, they stand beside the tutorial's."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append(figure))
    for device in ("cpu", "cuda:0"):
        figures02.show_small_copies(None, {4000: 16.0, 4_000_000: 370.0}, device)
    labels = [[line.get_label() for line in figure.axes[0].get_lines()] for figure in shown]
    assert not any("measured here" in label for label in labels[0])
    assert "to cuda:0 (measured here)" in labels[1]


def test_small_copies_take_as_many_times_as_long_as_the_lesson_says():
    """44 times by the tutorial's own milliseconds, for the same four megabytes: 16.2013 and 0.3669."""
    assert figures02.times_as_long() == pytest.approx(16.2013 / 0.3669)


def test_the_gpu_is_ahead_after_two_to_four_inputs():
    """The lesson says so of the fastest and the slowest copy: 0.33 s and 0.93 s, then 10 ms an input for the CPU's 288."""
    cpu, gpu = (row["time_ms"] for row in figures02._shapes(4096))
    for rate, first in ((figures02._fast_rate(), 2), (figures02._slow_rate(), 4)):
        copy = figures02._copy_ms(rate)
        ahead = [copy + gpu * inputs < cpu * inputs for inputs in range(1, 5)]
        assert ahead.index(True) + 1 == first


def test_the_explorers_resnet50_is_the_one_that_everybody_measures():
    """Its forecasts stand beside published times; torchvision documents 25,557,032 parameters and 4.09 GFLOPS."""
    net = jobs.resnet50()
    assert sum(weight.numel() for weight in net.parameters()) == 25_557_032
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        net.to("meta").eval()(torch.empty(1, 3, 224, 224))
    assert counter.get_total_flops() / 2 / 1e9 == pytest.approx(4.09, abs=0.01)
