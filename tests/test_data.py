"""helpers.data: shapes that are the same everywhere, and something to learn."""

import pytest
import torch
from torch.nn import functional as F

from helpers import data
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu


def test_shapes_are_images_with_labels():
    images, labels = data.shapes(1007)  # more than a chunk, and not a round number
    assert images.shape == (1007, 3, 32, 32) and images.dtype == torch.float32
    assert labels.shape == (1007,) and labels.dtype == torch.int64
    assert 0 <= images.min() < 0.01 and 0.99 < images.max() <= 1
    counts = torch.bincount(labels, minlength=10)
    assert len(data.CLASSES) == 10 == len(counts)
    assert counts.min() >= 100 and counts.max() <= 101
    assert labels[:50].unique().numel() > 5  # not sorted


def test_the_seed_decides_and_the_global_random_numbers_do_not():
    torch.manual_seed(1)
    first, labels = data.shapes(30, seed=5)
    state = torch.get_rng_state()
    torch.rand(3)
    again, same = data.shapes(30, seed=5)
    other, _ = data.shapes(30, seed=6)
    assert torch.equal(first, again) and torch.equal(labels, same)
    assert not torch.allclose(first, other, atol=0.1)
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())


def test_a_linear_model_stays_under_60_percent():
    x, y = data.shapes(3000)
    held_out, labels = data.shapes(1000, seed=1)
    model = torch.nn.Linear(3 * 32 * 32, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for part in torch.arange(3000).repeat(3).split(100):
        optimizer.zero_grad()
        F.cross_entropy(model(x[part].flatten(1)), y[part]).backward()
        optimizer.step()
    accuracy = (model(held_out.flatten(1)).argmax(1) == labels).float().mean()
    assert 0.1 < accuracy < 0.6


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n": 0}, ValueError, "n: .*at least 1; got 0"),
        ({"n": 2.5}, TypeError, "n: .*whole number; got 2.5"),
        ({"n": 5, "seed": -1}, ValueError, "seed: .*at least 0; got -1"),
        ({"n": 5, "device": "cuda:99"}, ValueError, "device: 'cuda:99'"),
    ],
)
def test_shapes_refuses_what_does_not_fit(arguments, error, words):
    with pytest.raises(error, match=words):
        data.shapes(**arguments)


def test_practice_gpus_and_gpus_draw_the_same_images():
    expected, expected_labels = data.shapes(25, seed=3)
    with practice_gpus():
        images, labels = data.shapes(25, seed=3, device="cuda:0")
        assert images.device == labels.device == torch.device("cuda:0")
        images, labels = images.cpu(), labels.cpu()
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-4)
    assert torch.equal(labels, expected_labels)
