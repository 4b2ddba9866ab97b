"""A GPU code carries what a borrowed GPU measured to the learner's own notebook; a damaged one says so."""

from dataclasses import replace

import pytest

from course.measurements import gpu_code
from course.show import figures

T4 = gpu_code.Measured(
    "Tesla T4",
    "2026-11-22",
    "2.11",
    15,
    tuple(10.0 ** (i % 7 - 3) * 1.234 for i in range(len(gpu_code.SLOTS) - 1)) + (None,),
)


def test_a_code_brings_back_what_was_measured():
    code = gpu_code.encode(T4)
    assert len(code) < 320
    found = gpu_code.decode(f"  {code[:50]}\n{code[50:].lower()} ")  # as a mail may break it
    assert (found.device, found.date, found.torch, found.memory_gib) == (
        "Tesla T4",
        "2026-11-22",
        "2.11",
        15,
    )
    assert found.numbers[-1] is None
    assert found.numbers[:-1] == pytest.approx(T4.numbers[:-1], rel=1e-3)


@pytest.mark.parametrize(
    "code, error, words",
    [
        ("", ValueError, "code is ''; this takes one that begins with G2-"),
        ("P2-ABCD", ValueError, "begins with G2-"),
        ("G1-ABCD", ValueError, "begins with G2-"),
        (None, TypeError, "code is None; it takes the text"),
        (42, TypeError, "code is 42"),
    ],
)
def test_something_else_than_a_code_is_named(code, error, words):
    with pytest.raises(error, match=words):
        gpu_code.decode(code)


def test_a_kept_code_joins_the_figures_of_the_lessons(home, monkeypatch):
    """The learner borrowed ten minutes of a GPU for this."""
    from course.lesson01 import figures as lesson01
    from course.lesson02 import figures as lesson02

    gpu_code.keep(gpu_code.encode(T4))
    _, race = lesson01.draw_race({"this CPU": 0.2})
    assert "Tesla T4, your GPU" in race
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, sentence: shown.append(figure))
    lesson02.show_small_copies(None, {256: 0.4, 2**20: 9.0}, "cpu")
    for figure in shown:
        labels = [line.get_label() for line in figure.axes[0].get_lines()]
        assert "Tesla T4 (your GPU)" in labels


@pytest.mark.parametrize(
    "name", ["Tesla T4", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "x" + "ä" * 30]
)
@pytest.mark.parametrize("is_cpu", [False, True])
def test_a_code_of_this_machine_is_not_drawn_beside_it(name, is_cpu, home, monkeypatch):
    from helpers import devices, host

    gpu_code.keep(gpu_code.encode(replace(T4, device=name)))
    assert len(gpu_code.yours("matmul", "tflop_per_s", x="size", dtype="float32")) == 1
    described = devices.describe("cpu") | ({} if is_cpu else {"name": name})
    monkeypatch.setattr(host, "cpu_name", lambda: name if is_cpu else "another")
    if not is_cpu:
        monkeypatch.setattr(devices, "describe", lambda device: described)
    assert gpu_code.yours("matmul", "tflop_per_s", x="size", dtype="float32") == {}


def test_a_bad_code_leaves_the_kept_one_alone_and_an_unreadable_one_costs_no_figure(home):
    gpu_code.keep(gpu_code.encode(T4))
    with pytest.raises(ValueError, match="damaged"):
        gpu_code.keep("G2-AAAA")
    gpu_code._memory.clear()  # another kernel, another day
    assert gpu_code.stored().device == "Tesla T4"
    (home / "gpu-code.txt").write_text("G9-FROM-LATER", encoding="utf-8")
    gpu_code._memory.clear()
    assert gpu_code.stored() is None
    assert gpu_code.yours("training", "images_per_s") == {}


def test_a_folder_that_cannot_be_written_keeps_the_code_for_this_kernel(home):
    home.touch()  # a file where the folder should be
    gpu_code.keep(gpu_code.encode(T4))
    assert gpu_code.stored().device == "Tesla T4"


def test_this_machine_makes_a_code(monkeypatch):
    from course.measurements import measure

    times = {"time_ms": 2.0, "time_iqr_ms": 0.0}
    monkeypatch.setattr(measure, "timed", lambda fn, device, quick: times)
    found = gpu_code.decode(measure.gpu_code("cpu"))
    (row,) = found.rows("matmul", size=512, dtype="float32")
    assert row["tflop_per_s"] == pytest.approx(2 * 512**3 / 2.0 / 1e9, rel=1e-3)
    (row,) = found.rows("bandwidth")
    assert row["gb_per_s"] == pytest.approx(2**28 / 2.0 / 1e6, rel=1e-3)
    assert found.rows("copies") == []
    assert found.rows("training", precision="float32")[0]["images_per_s"] == pytest.approx(128_000)
