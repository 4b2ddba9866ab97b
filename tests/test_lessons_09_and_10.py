"""What lessons 09 and 10 show beside their stored words: who holds what, and what a model refuses."""

import pytest
import torch

from lessons.lesson09 import gpt
from lessons.lesson09.exercises import kv_cache
from lessons.lesson10 import figures

FREE = "#f2f2f2"


def held(axes):
    """Return {(rank, first place of the cell)} of the cells that are filled."""
    from matplotlib.colors import to_hex

    return {
        (round(cell.get_y() + 0.4), round(cell.get_x(), 2))
        for cell in axes.patches
        if to_hex(cell.get_facecolor()) != FREE
    }


def test_a_rank_holds_a_quarter_then_all_then_a_quarter_of_the_sum():
    """The picture is the explanation of fully_shard; its pixels are compared with nothing."""
    figure, _ = figures.draw_moves()
    own = {(rank, rank) for rank in range(4)}
    whole = {(rank, quarter) for rank in range(4) for quarter in range(4)}
    held_by = [held(axes) for axes in figure.axes]
    weights = [{(rank, x) for rank, x in cells if x < 4} for cells in held_by]
    gradients = [{(rank, x - 4) for rank, x in cells if x >= 4} for cells in held_by]
    assert weights == [own, whole, whole, own]
    assert gradients == [set(), set(), whole, own]


def test_a_gpu_needs_nothing_of_another_between_the_two_products():
    """What a split by columns leaves on a GPU, its rows of the next matrix take: the reason for the order."""
    figure, _ = figures.draw_splits()
    for gpu, axes in enumerate(figure.axes):
        cells = held(axes)
        hidden = {column - 12 - 2 for row, column in cells if 14 <= column < 20}
        down = {row for row, column in cells if 22 <= column < 26}
        assert hidden == down == set(range(3 * gpu, 3 * gpu + 3))


def test_each_stage_splits_one_part_more():
    figure, _ = figures.draw_stages(1000)
    assert [len(held(axes)) for axes in figure.axes] == [48, 36, 24, 12]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return gpt.TinyGPT(["a", "b", "c"], width=16, heads=2, context=8).eval()


def test_a_model_names_the_place_it_does_not_know(model):
    model(torch.zeros(1, 2, dtype=torch.int64), start=6)
    for count, start in ((9, 0), (1, 8)):
        with pytest.raises(ValueError, match="no place 8: this model knows places 0 to 7"):
            model(torch.zeros(1, count, dtype=torch.int64), start=start)
    with pytest.raises(
        ValueError, match="heads is 3; a width of 16 can be cut into 1, 2, 4, 8, 16$"
    ):
        gpt.TinyGPT(["a"], width=16, heads=3)


@torch.inference_mode()
def test_one_word_at_a_time_with_a_cache_gives_the_logits_of_all_at_once(model):
    ids = torch.tensor([[0, 2, 1, 1, 0]])
    cache = {}

    def attend(layer, q, k, v):
        return kv_cache.reference(cache, layer, q, k, v)

    parts = [model(ids[:, :2], attend)]
    parts += [model(ids[:, place : place + 1], attend, start=place) for place in (2, 3, 4)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=1e-5, atol=1e-5)
