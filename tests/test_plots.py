"""Figures say what they show, in more than color, and stay small."""

import types

import matplotlib
import pytest
import torch
from matplotlib import pyplot

from helpers import plots
from tools import ROOT


def test_stacked_parts_add_up():
    figure = plots.stacked({"one": {"x": 1, "y": 2}, "two": {"y": 5}}, "t", "MiB")
    ends = {round(p.get_x() + p.get_width(), 6) for p in figure.axes[0].patches}
    assert {3.0, 5.0} <= ends
    assert {t.get_text().strip() for t in figure.axes[0].texts} == {"3", "5"}


@pytest.mark.parametrize(
    "draw",
    [
        lambda title: plots.bars({"a label that takes much of the room": 1.0}, title, "GB/s"),
        lambda title: plots.pictures(torch.rand(2, 3, 4, 4), title=title),
    ],
    ids=["bars", "pictures"],
)
def test_a_long_title_takes_another_line_and_is_not_cut(draw):
    figure = draw(
        "a finding that needs far more words than one line of the figure has room for, " * 2
    )
    plots.png(figure)
    texts = [figure._suptitle] if figure._suptitle else [axes._left_title for axes in figure.axes]
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert box.height > 2 * text.get_fontsize()


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ({"a": 48.7, "b": 4800}, ["50", "1,000", "5,000"]),
        ({"a": 0.004, "b": 0.2}, ["0.005", "0.1"]),
    ],
    ids=str,
)
def test_numbers_on_logarithmic_axes_are_plain(values, ticks):
    figure = plots.dots({"card": values}, "t", "GB/s", log=True)
    plots.png(figure)
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    labels = [t.get_text() for t in axes.get_xticklabels() if low <= t.get_position()[0] <= high]
    assert set(ticks) <= set(labels)
    assert not any("$" in label for label in labels)
    assert len(labels) < 9


@pytest.mark.parametrize(
    ("values", "written"),
    [({"a": 48.7, "b": 4800}, ["48.7", "4,800"]), ({"a": 0.004, "b": 0.2}, ["0.004", "0.2"])],
    ids=str,
)
def test_each_bar_says_its_number_in_plain_digits(values, written):
    figure = plots.bars(values, "t", "GB/s")
    assert [text.get_text().strip() for text in figure.axes[0].texts] == written


def test_pyplot_state_is_left_alone():
    before = dict(matplotlib.rcParams), pyplot.get_fignums()
    plots.png(plots.bars({"a": 1.0}, "t", "s"))
    assert (dict(matplotlib.rcParams), pyplot.get_fignums()) == before


def test_pictures_are_small_files():
    images = torch.rand(16, 3, 32, 32)
    assert len(plots.png(plots.pictures(images, [str(i) for i in range(16)], "t"))) < 60_000
    with pytest.raises(ValueError, match=r"shape \(3, 32, 32\)"):
        plots.pictures(images[0])


@pytest.fixture
def displayed(monkeypatch):
    """Be in a notebook; give what is displayed as a list of (kinds of data, alternative text)."""
    shown = []

    def display(data, metadata, raw):
        shown.append((set(data), metadata["image/png"]["alt"]))

    monkeypatch.setattr("IPython.get_ipython", lambda: types.SimpleNamespace(kernel="of Jupyter"))
    monkeypatch.setattr("IPython.display.display", display)
    return shown


def test_show_gives_the_picture_its_sentence_as_alternative_text(displayed, capsys):
    plots.show(plots.bars({"a": 1.0}, "t", "s"), "One bar, 1 s.")
    assert displayed == [({"image/png", "text/plain"}, "One bar, 1 s.")]
    assert capsys.readouterr().out == "One bar, 1 s.\n"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.01234, 3, "0.0123"),
        (999.6, 3, "1,000"),
        (24_200_000, 3, "24,200,000"),
        (float("inf"), 3, "inf"),
        (1234.5, 5, "1,234.5"),
        (1200.0, 6, "1,200"),
    ],
)
def test_large_numbers_are_written_out_with_as_many_digits_as_asked(value, digits, text):
    assert plots.number(value, digits) == text


def test_each_kind_of_number_has_words_and_a_line_of_its_own():
    """A learner must see at a glance what this machine did and what others say."""
    groups = [
        plots.Group(kind, {"a card": ([1, 2], [3, 4])}, [f"source of {kind}"])
        for kind in plots.KINDS
    ]
    figure = plots.lines(groups, "t", "x", "y")
    drawn = figure.axes[0].get_lines()
    labels = [line.get_label() for line in drawn]
    assert labels == [f"a card ({words})" for words in plots.KINDS.values()]
    assert len({str(line._dash_pattern) for line in drawn}) == len(plots.KINDS)
    below = figure._supxlabel.get_text()
    assert all(f"source of {kind}" in below for kind in plots.KINDS)


def test_a_figure_of_published_numbers_names_its_source_in_picture_and_words(displayed):
    group = plots.published("gan_epoch_colab", "epoch_s", device=["Tesla T4", "Colab's CPU"])
    assert group == {"Tesla T4": 33.796, "Colab's CPU": 1436.215}
    figure = plots.bars([plots.here({"this CPU": 900}), group], "t", "seconds")
    words = "published: pchaberski/GPU_tests, 2020-03-17 to 2020-04-03"
    assert figure._supxlabel.get_text() == words
    plots.show(figure, "Three bars.")
    assert displayed[0][1] == f"Three bars. ({words})"


def test_bars_and_dots_show_every_value_of_every_group():
    pair = plots.published("sort_v100", "time_ms", x="operation", by="synchronized")
    figure = plots.dots(pair.renamed({"True": "waited", "False": "not"}), "t", "ms", log=True)
    axes = figure.axes[0]
    points = {line.get_label(): line for line in axes.get_lines() if line.get_marker() != "None"}
    assert list(points["waited"].get_xdata())[:2] == [2.48, 2.68]
    assert [label.get_text() for label in axes.get_yticklabels()][0] == "Sort"
    bars = plots.bars([plots.here({"a": 1}), plots.Group("published", {"a": 2})], "t", "s")
    assert [t.get_text().strip() for t in bars.axes[0].texts] == ["1", "2"]
    assert len({bar.get_hatch() for bar in bars.axes[0].patches}) == 2


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: plots.published("gan_epoch_colab", "seconds"), "no rows with 'seconds'"),
        (
            lambda: plots.published("gan_epoch_colab", "epoch_s", device="T5"),
            "device is 'T5'; gan_",
        ),
        (
            lambda: plots.published("matmul_sizes", "tflop_per_s"),
            "several 'tflop_per_s' for device",
        ),
        (lambda: plots.Group("elsewhere", {}), "kind is 'elsewhere'"),
        (lambda: plots.here({"a": 1}).renamed({"b": "c"}), "labels has 'b'"),
        (lambda: plots.bars([plots.here({"a": 1}), plots.here({"a": 2})], "t", "s"), "'a' twice"),
        (lambda: plots.bars([plots.here({})], "t", "s"), "values is empty"),
    ],
)
def test_numbers_that_do_not_fit_a_figure_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_recording_of_this_machine_is_not_drawn_beside_it(monkeypatch):
    import measurements
    from helpers import host

    known = measurements.all()[0]
    label = known.label_of("cpu")
    where = {"dtype": "float32", "kind": "cpu"}
    monkeypatch.setattr(host, "cpu_name", lambda: "another CPU")
    assert label in plots.recorded("matmul", "size", "tflop_per_s", **where)
    monkeypatch.setattr(host, "cpu_name", lambda: known.devices["cpu"]["name"])
    monkeypatch.setattr(host, "cpu_cores", lambda: known.provenance["cores"])
    assert label not in plots.recorded("matmul", "size", "tflop_per_s", **where)
    monkeypatch.setattr(host, "cpu_cores", lambda: 64)
    assert label in plots.recorded("matmul", "size", "tflop_per_s", **where)


RUNG = {
    "rung": 0,
    "name": "baseline",
    "kept": True,
    "images_per_s": 10.0,
    "accuracy": 0.9,
    "peak_bytes": None,
}


def test_lessons_draw_a_recorded_gpu_but_never_this_machine_twice(monkeypatch):
    """README asks people for recordings of their GPUs: the figures must show them, except to their owners."""
    import measurements
    from lessons.lesson08 import lesson01, lesson02, roofline08

    time = {"device": "cuda:0", "time_ms": 2.0, "time_iqr_ms": 0.1}
    product = {**time, "size": 1000, "dtype": "float32", "tflop_per_s": 1.0}
    copy = {**time, "bytes": 10**6, "direction": "h2d", "pinned": True, "gb_per_s": 0.5}
    moved = {**time, "bytes": 10**6, "operation": "copy", "gb_per_s": 0.5}
    step = {**time, "network": "SmallCNN", "precision": "float32", "batch": 64}
    training = {**step, "images_per_s": 32000.0, "peak_bytes": None}
    provenance = {"date": "2026-01-02T03:04:05Z", "cores": 4, "load_average": 0.1}
    card = {"name": "Made-up GPU", "kind": "cuda"}
    sections = {
        "matmul": [product],
        "copies": [copy],
        "bandwidth": [moved],
        "training": [training],
    }
    recording = measurements.Recording(None, provenance, {"cuda:0": card}, sections)
    monkeypatch.setattr(measurements, "all", lambda: [recording])

    def drawn():
        figures = [lesson01.draw_race({"this CPU": ([512, 2048], [0.1, 0.2])})[0]]
        monkeypatch.setattr(plots, "show", lambda figure, sentence: figures.append(figure))
        lesson02.show_small_copies({256: 0.4, 2**20: 9.0}, "cpu")
        labels = [line.get_label() for figure in figures for line in figure.axes[0].get_lines()]
        labels += [label for group in roofline08._gpu_roofs() for label in group]
        return labels + [figures.draw_climb([RUNG])[1]]

    recorded = [label for label in drawn() if "Made-up GPU, 2026-01-02" in label]
    assert len(recorded) == 4
    assert recorded[-1].endswith("Made-up GPU, 2026-01-02, float32: 32,000.")
    monkeypatch.setattr(measurements, "gpus_here", lambda: ["Made-up GPU"])
    assert not any("Made-up GPU" in label for label in drawn())


def test_lessons_reach_recordings_only_where_this_machine_is_left_out():
    """`plots.recorded` leaves out a recording of the machine that runs; reading the files would draw it twice."""
    lessons = [*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("exercises/*.py")]
    others = ("measurements.all(", "measurements.load(", "by_device(")
    for path in lessons:
        text = path.read_text(encoding="utf-8")
        assert not [call for call in others if call in text], path.name
