"""Lesson 02: where tensors are, and what copies cost."""

import pytest
import torch

from course import photos
from course.checks import NOT_ATTEMPTED
from course.lesson02 import exercises as lesson02
from course.lesson02 import figures as figures02
from course.show import figures
from practice_gpus import practice_gpus


def test_the_map_shows_each_tensor_in_its_memory():
    """What has no device, such as a shape, is Python's and on the host. A GPU without a place on the map is refused."""
    with practice_gpus(2):
        y = torch.ones(2, device="cuda")
        values = {"y": y, "shape": y.shape, "zeros": torch.zeros(2)}
        _, words = figures02.draw_homes(values, "Only y is on the GPU")
        with pytest.raises(ValueError, match="z is on cuda:1"):
            figures02.draw_homes({"z": y.to("cuda:1")}, "")
    assert "on cpu: shape, zeros; on cuda:0: y." in words


def test_the_old_k_means_paints_until_the_learners_own_is_right(monkeypatch):
    """A poster that someone else's code painted would spoil the moment, unless its title says whose it is."""
    shown = []
    monkeypatch.setattr(figures, "show", lambda figure, words: shown.append((figure, words)))
    photo = photos.sample("coffee")[:, ::4, ::4]
    with practice_gpus(1):
        for answer in (lambda points, k: None, lesson02.kmeans):
            figures02.show_poster(answer, photo, 3)
    (_, before), (figure, after) = shown
    assert "by the old k-means on cpu" in before and "by your k-means on cuda:0" in after
    poster = figure.axes[1].images[0].get_array().reshape(-1, 3)
    assert len({tuple(pixel) for pixel in poster.tolist()}) == 3


def test_the_cell_as_it_came_is_not_called_a_mistake():
    """The cell holds the code to port; running it untouched must not count as a wrong answer."""
    told = lesson02.repair.outcome(lesson02.starter)
    assert told.status == NOT_ATTEMPTED
    assert told.title == "Here's the first error" and "X1: cuda X2: cpu" in told.message


def test_the_copies_of_both_ways_are_those_that_were_counted():
    """The page asks how many copies the second way makes; its answer is counted, not told."""
    with practice_gpus(1) as gpus:
        batches = torch.rand(20, 8, device="cuda")
        with lesson02.counted(gpus) as first:
            [batch.mean().item() for batch in batches]
        with lesson02.counted(gpus) as second:
            torch.stack([batch.mean() for batch in batches]).tolist()
    answer = figures02.compare_copies(first, second)
    assert answer["actual"] == "1" and answer["lines"].endswith("one by one: 20, together: 1")


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
    assert figures02.times_as_long()[0] == pytest.approx(16.2013 / 0.3669)


def test_the_gpu_is_ahead_after_two_to_four_inputs():
    """The lesson says so of the fastest and the slowest copy: 0.33 s and 0.93 s, then 10 ms an input for the CPU's 288."""
    cpu, gpu = (row["time_ms"] for row in figures02._shapes(4096))
    for rate, first in ((figures02._fast_rate(), 2), (figures02._slow_rate(), 4)):
        copy = figures02._copy_ms(rate)
        ahead = [copy + gpu * inputs < cpu * inputs for inputs in range(1, 5)]
        assert ahead.index(True) + 1 == first
