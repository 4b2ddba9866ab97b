"""The figures of lessons 06 and 08 show what their texts say, and name who measured it."""

import matplotlib
import pytest
import torch

from helpers import plots
from helpers.figures import SMALL
from lessons.lesson06 import exercises as lesson06
from lessons.lesson08 import figures, roofline


@pytest.mark.parametrize(
    "changes, best, rate",
    [
        (["baseline", "mixed precision"], "our best", 20),
        (["baseline", "mixed precision", "torch.compile"], "our best eager loop", 20),
        (["baseline", "mixed precision", "CUDA graph"], "our best eager loop", 20),
        (["baseline", "torch.compile"], "our best eager loop", 10),
    ],
)
def test_a_roofline_has_no_loop_whose_bytes_nobody_counted(changes, best, rate, monkeypatch):
    monkeypatch.setattr(roofline, "copy_rate", lambda device: 44e9)
    monkeypatch.setattr(roofline, "product_rate", lambda device, dtype: 180e9)
    rows = [
        {"name": name, "kept": True, "images_per_s": 10 * n} for n, name in enumerate(changes, 1)
    ]
    figure, sentence = roofline.draw_roofline(
        1e9, (1e8, 5e7), rows, torch.device("cpu"), torch.bfloat16
    )
    assert f"baseline 10, {best} {rate};" in sentence
    title = figure.get_suptitle()
    assert title.startswith(f"{best.removesuffix(' loop').capitalize()} loop does ")
    figure.canvas.draw()
    first, second = (text.get_window_extent() for text in figure.axes[0].texts[-2:])
    assert not first.overlaps(second)


def test_a_roof_bends_where_bandwidth_times_intensity_is_the_peak(monkeypatch):
    """A line that cuts its corner sends a loop near the bend after the wrong limit."""
    monkeypatch.setattr(roofline, "copy_rate", lambda device: 40e9)
    monkeypatch.setattr(roofline, "product_rate", lambda device, dtype: 190e9)
    rows = [{"name": "baseline", "kept": True, "images_per_s": 10}]
    where = torch.device("cpu"), torch.bfloat16
    figure, _ = roofline.draw_roofline(1e9, (1e8, 5e7), rows, *where)
    roofs = {line.get_label(): line for line in figure.axes[0].get_lines()}
    for label, peak, bandwidth in (
        ("this CPU, float32 (measured here)", 190, 40),
        ("A100 80GB, float32 (published)", 19_180, 1759),
    ):
        points = list(zip(*roofs[label].get_data(), strict=True))
        corner = min(points, key=lambda point: abs(point[0] - peak / bandwidth))
        assert corner == pytest.approx((peak / bandwidth, peak), rel=1e-3)
        assert len({y for x, y in points if x >= corner[0]}) == 1


def test_a_ladder_labels_each_gain_and_greys_what_brought_none():
    """Gain, memory and accuracy of each rung must be readable from the last row of a room."""
    figure, _ = figures.draw_cutter()
    plots.png(figure)
    axes = figure.axes[0]
    texts = [text for text in axes.texts if text.get_text()]
    words = [text.get_text().strip() for text in texts]
    gains = ["× 3.28", "× 1.38", "× 1.34", "× 1.17", "× 1.08", "× 0.98", "× 0.88"]
    assert [word for word in words if "×" in word] == gains
    assert {"gain", "memory", "accuracy", "19.5 GiB", "47.8%"} <= set(words)
    assert all(text.get_fontsize() >= SMALL for text in texts)
    boxes = [text.get_window_extent() for text in texts]
    for i, box in enumerate(boxes):
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])
    names = [label.get_text() for label in axes.get_yticklabels()]
    grey = matplotlib.colors.to_rgba(figures.GREY)
    bars = zip(names, axes.patches, strict=True)
    assert [name for name, bar in bars if bar.get_facecolor() == grey] == ["int8", "2:4 sparse"]


def test_the_compiled_steps_say_their_milliseconds_at_the_markers():
    """637 and 674 ms can't be told apart on a logarithmic axis."""
    figure, _ = figures.draw_compile()
    plots.png(figure)
    axes = figure.axes[0]
    assert {text.get_text() for text in axes.texts} == {"18.7 ms", "58.8 ms", "637 ms", "674 ms"}
    boxes = [text.get_window_extent() for text in axes.texts]
    assert all(axes.bbox.x0 < box.x0 and box.x1 < axes.bbox.x1 for box in boxes)


def test_the_explorer_of_several_gpus_names_who_measured_each_link():
    """A learner must be able to look a rate up before buying GPUs because of it."""
    for link, (rate, source) in lesson06.links().items():
        figure, sentence = lesson06.draw_scaling(lambda n, *_: 100 / n, 400, link, 100)
        assert f"{link}, {rate:g} GB/s" in sentence
        assert figure.sources[0].startswith(f"published: {source}")
    assert len({source for _, source in lesson06.links().values()}) == 2
