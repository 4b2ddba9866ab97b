"""The machine's picture and the pictures one steps through: drawn, alive without a kernel, and right in each step."""

import json

import pytest

from course.pictures import machine as machine_picture
from course.pictures import moving as step_pictures
from course.pictures import stepper as steps
from course.show import figures, vega
from helpers import plots

PICTURES = (
    "ring_all_reduce",
    "fsdp",
    "attention_tiles",
    "latency_hiding",
)


@pytest.fixture(params=PICTURES)
def picture(request):
    return getattr(step_pictures, request.param)()


def test_a_picture_is_vega_lite_5_with_a_slider_over_all_frames(picture):
    altair = pytest.importorskip("altair", "5")
    chart = vega.styled(steps.spec(picture), picture.alt)
    altair.VConcatChart.from_dict(chart, validate=True)
    assert chart["params"][0]["bind"]["max"] == len(picture.frames) - 1
    assert len(json.dumps(chart)) < 25_000


def test_every_frame_can_be_drawn_and_stays_on_its_paper(picture):
    for _, boxes in picture.frames:
        assert all(0 <= b.x and b.x + b.width <= picture.columns for b in boxes)
        assert all(0 <= b.y and b.y + b.height <= picture.rows for b in boxes)
    assert len(figures.png(steps.draw(picture, 0), 32)) > 3000


def test_a_ring_ends_with_the_whole_sum_everywhere():
    """A chunk with a gap at the end, or one counted as whole too early, teaches another algorithm."""
    for ranks in (2, 3, 4, 8):
        frames = step_pictures.ring_all_reduce(ranks).frames
        assert len(frames) == 1 + 2 * (ranks - 1)
        assert _whole_chunks(frames[-1], ranks) == ranks * ranks
        assert _whole_chunks(frames[ranks - 1], ranks) == ranks  # each has one finished chunk
        assert f"has sent {2 * (ranks - 1) / ranks:.3g} ×" in frames[-1][0]


def _whole_chunks(frame, ranks):
    filled = [(box.y, int(box.x)) for box in frame[1] if box.label.isdigit()]
    return sum(filled.count(place) == ranks for place in set(filled))


def test_a_ring_s_arrows_show_one_chunk_for_each_gpu():
    """What a GPU receives stands below an arrow; the arrow around the ring is drawn at both ends."""
    for words, boxes in step_pictures.ring_all_reduce(4).frames[1:]:
        arrows = sorted((box.y, int(box.x)) for box in boxes if box.label == "↓")
        assert len(arrows) == 5 and arrows[0][1] == arrows[-1][1], words
        new = {(box.y, int(box.x)) for box in boxes if box.color == plots.COMM and box.label != "↓"}
        assert len(new) == 4


def test_fsdp_has_one_whole_block_at_most():
    """And at most one more arrives; a gradient's shard appears once its block's backward pass is over."""
    shards = []
    for _, boxes in step_pictures.fsdp().frames:
        for label in ("whole", "all-gather"):
            assert len({box.x for box in boxes if box.label == label}) <= 1
        shards.append(sum(box.y % 1 > 0.75 for box in boxes))
    assert shards == [0, 0, 0, 0, 0, 0, 4, 8, 12, 16]


@pytest.mark.parametrize("part", [None, *machine_picture.PARTS, ("hbm", "l2")])
def test_the_machine_is_drawn_with_any_part_highlighted(part):
    figure = machine_picture.draw(part, "A title")
    assert len(figure.axes[0].patches) > 100
    if part:
        assert "Highlighted: " in machine_picture.words(part)
