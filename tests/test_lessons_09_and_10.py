"""What lessons 09 and 10 show beside their stored words: who holds what, and what a model refuses."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lessons.lesson09 import exercises as ex09
from lessons.lesson09 import figures as figures09
from lessons.lesson09 import gpt
from lessons.lesson09.exercises import kv_cache
from lessons.lesson10 import figures
from tools import _notebooks

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


@pytest.fixture(scope="module")
def shown():
    """Return what lesson 09 shows as the code of its GPT: the class TinyGPT of its cells."""
    cells = _notebooks.read(*_notebooks.find(["09"])).cells
    names = {"ex": ex09, "nn": nn, "F": F}
    for cell in cells:
        if cell.source.startswith("class Block") or "class TinyGPT" in cell.source:
            exec(cell.source, names)  # noqa: S102 - the lesson's own cells
    return names["TinyGPT"]


@torch.inference_mode()
def test_the_code_that_the_lesson_shows_is_the_gpt_of_all_lessons(shown):
    """Its reader would learn one network, and meet another in lessons 06, 10 and 11."""
    words = gpt.course_words()
    model, theirs = shown(words), gpt.trained()
    model.load_state_dict(gpt.parameters())
    ids = torch.randint(len(model.vocabulary), (2, 9))
    assert torch.equal(model(ids), theirs(ids))
    assert torch.equal(model(ids, start=4), theirs(ids, start=4))


@torch.inference_mode()
def test_the_stored_gpt_has_read_the_course():
    """With other parameters the first screen, and every text in lesson 09, would be word salad."""
    words, model = gpt.course_words(), gpt.trained()
    torch.manual_seed(0)
    [(x, y)] = gpt.batches(model, words, 1, size=64)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    assert loss < 1.5 < F.cross_entropy(gpt.TinyGPT(words)(x).flatten(0, 1), y.flatten())
    assert model.decode(model.encode("the GPU waits .")) == "The GPU waits."
    with pytest.raises(ValueError, match="the course has no word 'zebra'"):
        model.encode("the zebra")


def test_the_last_row_of_the_picture_is_what_the_four_steps_compute():
    model = gpt.trained()
    text = "the GPU waits for the CPU"
    q, k, _ = figures09.inside(model, text)[1][:, 2]  # layer 2, head 3
    shares = (q[-1] @ k.T / 32**0.5).softmax(-1)
    draw = figures09.look(model, text, lambda scores: scores)
    figure, words = draw(2, 3)
    drawn = torch.tensor(figure.axes[0].images[0].get_array().tolist())
    torch.testing.assert_close(drawn[-1], shares)
    assert f"{shares.max():.0%} to “{text.split()[int(shares.argmax())]}”" in words


def test_the_limit_is_the_bandwidth_over_the_bytes_of_a_token():
    """gpt-fast's 104.9 tokens at 1,397 GB/s are 13.3 GB each: 153 would use all of 2,039 GB/s."""
    figure, words = figures09.rates()
    assert "'int4': 196.8" in words and "330 W" in figure.axes[0].get_xlabel()
    assert 2039 / (1397.31 / 104.9) == pytest.approx(
        float(words.split("at most {'bfloat16': ")[1][:8])
    )
