"""Figures say what they show, in more than color, and stay small."""

import base64
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from matplotlib.colors import to_hex

from course import measurements
from course.measurements import gpu_code
from course.show import figures, vega
from course.tools import ROOT
from helpers import plots
from helpers.plots import CARD, COMM, COPY, CPU, GPU, WAIT
from practice_gpus.reports import page


def test_reports_and_pages_have_the_same_greens():
    """What is 'activations' on a page would be another green in a report."""
    assert page.GREENS == plots.GREENS


def test_a_long_title_takes_another_line_and_is_not_cut():
    title = "a finding that needs far more words than one line of the figure has room for, " * 2
    figure = plots.bars({"a label that takes much of the room": 1.0}, title, "GB/s")
    figures.png(figure)
    text = figure._suptitle
    box = text.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert box.height > 2 * text.get_fontsize() * figure.dpi / 72


@pytest.fixture
def displayed(monkeypatch):
    """Be in a notebook; give what is displayed as a list of bundles."""
    shown = []

    def display(data, metadata=None, raw=True, display_id=None):
        shown.append((data, metadata))

    monkeypatch.setattr("IPython.get_ipython", lambda: types.SimpleNamespace(kernel="of Jupyter"))
    monkeypatch.setattr("IPython.display.display", display)
    return shown


def image(bundle):
    """Return (alternative text, width as displayed, width as stored) of the picture in a bundle."""
    page = bundle["text/html"]
    data = base64.b64decode(re.search('base64,([^"]+)"', page)[1])
    alt, width = re.search('alt="([^"]*)" width="([0-9]+)"', page).groups()
    return alt, int(width), int.from_bytes(data[16:20], "big")


def test_a_figure_is_sharp_and_has_its_sentence_as_alternative_text_and_nowhere_else(
    displayed, capsys
):
    """A screen reader says it; a reader with eyes has the title, and does not read the same again."""
    figures.show(plots.bars({"a": 1.0}, "t", "s"), 'One bar, 1 s, called "a".')
    [(bundle, _)] = displayed
    alt, width, stored = image(bundle)
    assert alt == "One bar, 1 s, called &quot;a&quot;."
    assert 700 <= width <= 900 and stored == 2 * width
    assert bundle["text/html"].count("One bar") == 1 and capsys.readouterr().out == ""


def test_a_caption_and_the_source_stand_small_below_and_the_source_is_a_link(displayed):
    figure = plots.bars([measurements.published("gan_epoch_colab").group("epoch_s")], "t", "s")
    figures.show(figure, "Bars.", caption="What the title doesn't say.")
    page = displayed[0][0]["text/html"].partition("<img")[2]
    assert "What the title doesn&#x27;t say." in page
    assert re.search(
        '<a href="https://github.com/pchaberski[^"]+">pchaberski/GPU_tests, 2020', page
    )


VEGA = {"mark": "bar", "encoding": {"x": {"field": "t"}}, "config": {"axis": {"grid": False}}}


def test_a_chart_of_vega_lite_is_shown_alive_with_a_picture_beside_it(displayed):
    """JupyterLab draws the chart; pages that can't, such as GitHub's, show the picture."""
    vega.show(VEGA, plots.bars({"a": 1.0}, "t", "s"), "One bar of 1 s.")
    [(bundle, metadata)] = displayed
    assert set(bundle) == {vega.VEGALITE, "image/png", "text/plain"}
    chart = bundle[vega.VEGALITE]
    assert chart["description"] == "One bar of 1 s." and chart["width"] == "container"
    assert chart["config"]["background"] == CARD and chart["config"]["axis"]["grid"] is False
    assert chart["config"]["axis"]["labelFontSize"] >= 11 and "background" not in VEGA["config"]
    assert metadata["image/png"]["alt"] == "One bar of 1 s."


def test_a_chart_without_its_picture_is_refused():
    with pytest.raises(TypeError, match="a dict and a matplotlib Figure, got dict and NoneType"):
        vega.show(VEGA, None, "x")


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


def test_each_kind_of_number_has_its_words_and_a_forecast_is_hollow():
    """A learner must see at a glance what was measured and what was only calculated."""
    groups = [
        plots.Group(kind, {"a card": ([1, 2], [3, 4])}, [f"source of {kind}"])
        for kind in plots.KINDS
    ]
    figure = plots.lines(groups, "t", "x", "y")
    drawn = figure.axes[0].get_lines()
    assert [line.get_label() for line in drawn] == [
        f"a card ({words})" for words in plots.KINDS.values()
    ]
    hollow = [line.get_markerfacecolor() == CARD for line in drawn]
    assert hollow == [kind == "forecast" for kind in plots.KINDS]
    assert figure.sources == [f"source of {kind}" for kind in plots.KINDS]


def test_the_bar_of_a_forecast_is_hollow_shows_its_range_and_says_forecast():
    groups = [plots.here({"this GPU": 2}), plots.forecast({"H100": (1, 1.5, 3)}, "the clock")]
    axes = plots.bars(groups, "t", "ms").axes[0]
    solid, hollow = [bar.get_facecolor()[3] for bar in axes.patches]
    assert solid == 1 and hollow < 0.2
    assert [*axes.get_lines()[0].get_xdata()] == [1, 3]
    assert [text.get_text() for text in axes.texts] == ["2  measured here", "1.5  forecast"]
    alone = plots.bars([plots.forecast({"H100": 1.0})], "t", "ms").axes[0]
    assert "forecast" in alone.get_xlabel()


@pytest.mark.parametrize(
    ("label", "color"),
    [
        *[("this CPU", CPU), ("Xeon Gold 6254", CPU), ("Tesla T4", GPU), ("A100", GPU)],
        *[("copy to the GPU", COPY), ("waits", WAIT), ("all-reduce", COMM), ("by hand", None)],
        *[("parameters", plots.MEMORY["parameters"]), ("matmul", plots.KERNELS["matmul"])],
    ],
)
def test_a_color_has_one_meaning_in_every_chart(label, color):
    assert plots.meaning(label) == color
    if color:
        drawn = plots.bars({label: 1}, "t", "s"), plots.lines({label: ([1], [1])}, "t", "x", "y")
        assert to_hex(drawn[0].axes[0].patches[0].get_facecolor()) == color.lower()
        assert to_hex(drawn[1].axes[0].get_lines()[0].get_color()) == color.lower()


def test_lines_carry_their_names_at_their_ends_apart_from_each_other():
    series = {f"line {i}": ([1, 2], [0, 100 + i]) for i in range(4)}
    figure = plots.lines(series, "t", "x", "y")
    figures.png(figure)
    texts = figure.axes[0].texts
    assert [text.get_text() for text in texts] == list(series) and not figure.axes[0].get_legend()
    heights = [text.get_window_extent() for text in texts]
    assert all(a.y1 <= b.y0 + 2 for a, b in zip(heights, heights[1:], strict=False))


def test_bars_and_dots_show_every_value_of_every_group():
    pair = measurements.published("sort_v100").group("time_ms", x="operation", by="synchronized")
    figure = plots.dots(pair.renamed({"True": "waited", "False": "not"}), "t", "ms", log=True)
    axes = figure.axes[0]
    points = {line.get_label(): line for line in axes.get_lines() if line.get_marker() != "None"}
    assert list(points["waited"].get_xdata())[:2] == [2.48, 2.68]
    assert [label.get_text() for label in axes.get_yticklabels()][0] == "Sort"
    bars = plots.bars([plots.here({"a": 1}), plots.Group("published", {"a": 2})], "t", "s")
    assert [t.get_text() for t in bars.axes[0].texts] == ["1  measured here", "2  published"]


def test_parts_stand_one_after_the_other_and_their_total_behind():
    figure = plots.bars({"one": {"x": 1, "y": 2}, "two": {"y": 5}}, "t", "MiB")
    [axes] = figure.axes
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert ends == [(0, 1), (1, 3), (0, 5)]
    assert [text.get_text() for text in axes.texts] == ["3", "5"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first row stands at the top


def test_a_forecast_as_a_dot_is_hollow_and_shows_its_range():
    figure, axes = plots.new_figure("t")
    plots.draw_dots(axes, {"measured": 2, "forecast": (1, 3, 9)}, colors=plots.GPU)
    marks = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert [mark.get_markerfacecolor() for mark in marks] == [plots.GPU, CARD]
    assert [1, 9] in [[*line.get_xdata()] for line in axes.get_lines()]
    assert [text.get_text() for text in axes.texts] == ["2", "3"]


def test_what_is_written_beside_a_chart_is_drawn_too():
    """A limit's name above the axes was cut off without a word."""
    figure, axes = plots.new_figure("t")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    plots.note(axes, "80 GB", (0.5, 1.1))
    plots.limit(axes, 0.5, "no more")
    plots.split(axes, 0.5, "before", "after")
    figures.png(figure)
    seen = [text.get_text() for text in axes.texts if text.get_window_extent().width > 1]
    assert seen == ["80 GB", "no more", "before", "after"]


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: measurements.published("gan_epoch_colab").group("seconds"),
            "no rows with 'seconds'",
        ),
        (
            lambda: measurements.published("gan_epoch_colab").group("epoch_s", device="T5"),
            "device is 'T5'; gan_",
        ),
        (
            lambda: measurements.published("matmul_sizes").group("tflop_per_s"),
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
    from course import measurements
    from helpers import host

    known = measurements.recordings()[0]
    label = known.label_of("cpu")
    where = {"dtype": "float32", "kind": "cpu"}
    monkeypatch.setattr(host, "cpu_name", lambda: "another CPU")
    assert label in gpu_code.recorded("matmul", "size", "tflop_per_s", **where)
    monkeypatch.setattr(host, "cpu_name", lambda: known.devices["cpu"]["name"])
    monkeypatch.setattr(host, "cpu_cores", lambda: known.provenance["cores"])
    assert label not in gpu_code.recorded("matmul", "size", "tflop_per_s", **where)
    monkeypatch.setattr(host, "cpu_cores", lambda: 64)
    assert label in gpu_code.recorded("matmul", "size", "tflop_per_s", **where)


def test_a_dark_theme_inverts_charts_and_leaves_photos_as_they_are():
    """`custom.css` turns what has no class `course-photos` dark; a photo would become its negative."""
    photos = plots.blank_figure((2, 1))
    photos.add_subplot().imshow(torch.zeros(8, 8, 3))
    assert 'class="course-figure course-photos"' in figures.page(photos, "Two photos.")
    assert 'class="course-figure"' in figures.page(plots.bars({"CPU": 1.0}, "One", "s"), "A bar.")
    css = (Path(__file__).parents[1] / "course/tools/labconfig/custom.css").read_text(
        encoding="utf-8"
    )
    assert ".course-figure:not(.course-photos) img" in css


STOPPED = """
import signal, sys
from helpers import plots

class Stop:  # the stop button, in the middle of matplotlib's first import
    def find_spec(self, name, *_):
        if name == "matplotlib.artist" and self in sys.meta_path:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Stop())
try:
    plots.new_figure("stopped")
except KeyboardInterrupt:
    plots.new_figure("again")[0].canvas.draw()
    print("drawn")
"""


def test_a_figure_that_was_stopped_while_it_imported_is_drawn_the_next_time():
    done = subprocess.run(
        [sys.executable, "-c", STOPPED], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "drawn\n", done.stderr
