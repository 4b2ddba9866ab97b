"""The figures of lessons 06 and 08 show what their texts say, and name who measured it."""

import matplotlib
import pytest
import torch

from helpers import plots
from helpers.figures import SMALL
from lessons.lesson06 import figures as lesson06
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


def test_a_bucket_is_sent_when_it_is_full_and_all_gradients_travel():
    """A learner who compares the three ways must compare the same bytes."""
    model = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000) for _ in range(6)])
    size = 4e-6 * sum(p.numel() for p in model.parameters())
    sent = {w: lesson06.all_reduces(model, 1.0, 9.0, w, "PCIe, 8 GPUs") for w in (0, 7.9, 1e9)}
    assert [len(each) for each in sent.values()] == [12, 3, 1]
    for spans in sent.values():
        assert spans[0][0] >= 1 and spans[-1][0] >= 9
        assert all(
            start >= before for (_, before), (start, _) in zip(spans, spans[1:], strict=False)
        )
    [(start, end)] = sent[1e9]
    assert start == 9 and end - start == pytest.approx(2 * 7 / 8 * size / lesson06.PCIE)
    busy = {w: sum(end - start for start, end in spans) for w, spans in sent.items()}
    assert busy[0] > busy[7.9] == pytest.approx(busy[1e9])


def test_the_explorer_of_buckets_says_what_its_bars_show(monkeypatch):
    """The sentence of a way is what a learner quotes; it must belong to the chosen way."""
    shown = []
    monkeypatch.setattr(lesson06.figures, "show_vega", lambda *args: shown.append(args))
    lesson06.show_overlap()
    [(spec, figure, alt)] = shown
    assert "network, 32 GPUs, for each parameter: 126 all-reduces" in alt
    assert {p["name"]: len(p["bind"]["options"]) for p in spec["params"]} == {"when": 3, "way": 3}
    rows = [line.split(",") for line in spec["data"]["values"].splitlines()[1:]]
    last = max(float(row[4]) for row in rows if row[:3] == ["1", "1", "2"])
    backward = next(float(row[4]) for row in rows if row[:3] == ["1", "1", "1"])
    assert f"network, 32 GPUs, for each parameter: 126 all-reduces, {last - backward:.1f} ms" in alt
    assert "forecast" in figure.get_suptitle()


def test_efficiency_is_of_one_gpu_of_the_same_benchmark():
    """A line over 100% or against another card would sell GPUs that don't help."""
    figure, sentence = lesson06.draw_efficiency()
    assert sentence == (
        "DDP, V100, batch 32 each: 93% with 16; DDP, A100, 16 bits: 90% with 8; "
        "DataParallel, RTX 2080 Ti: 35% with 4"
    )
    for line in figure.axes[0].get_lines():
        assert line.get_ydata()[0] == 100 and max(line.get_ydata()) <= 100
    assert len(figure.sources) == 3


def test_a_shared_batch_scales_worse_than_one_of_each_gpu():
    """Strong and weak scaling must not be swapped: it is what the explorer teaches."""
    told = [lesson06.draw_more_gpus("RTX 4090", 8, s)[1] for s in ("of each GPU", "shared by all")]
    weak, strong = (float(words.split(" bring ")[1].split()[0]) for words in told)
    assert weak > 4 > strong
