"""Lesson 03: what a network sees, and what its move leaves behind."""

import torch
from torch import nn

from course import photos
from course.lesson03 import exercises, figures, filters
from practice_gpus import practice_gpus


def test_the_verdict_names_what_stayed_and_nothing_once_it_is_registered():
    """A learner who repairs Normalize and runs the verdict again must not be told that it stayed."""
    values = torch.ones(3, 1, 1), torch.ones(3, 1, 1)
    plain = nn.Identity()
    plain.mean, plain.std = values
    for first, stayed in ((plain, "mean and std"), (exercises.Normalize(*values), "nothing")):
        with practice_gpus(1):
            model = nn.Sequential(first, nn.Linear(2, 2)).to("cuda")
            assert figures.what_stayed(model, torch.ones(1, device="cuda"))["actual"] == stayed


def test_pictures_of_a_network_are_the_same_after_its_move():
    """A learner who goes back to an earlier cell after the move would meet a device error."""
    network, photo = photos.pretrained(), photos.sample("coffee")
    before = filters.feature_maps(network, photo)[1]["edges"]
    [(name, *_), _] = figures.evidence(network, photo)
    with practice_gpus(1):
        network.to("cuda")
        after = filters.feature_maps(network, photo)[1]["edges"]
        [(moved, *_), _] = figures.evidence(network, photo)
    assert torch.equal(before, after) and name == moved == "espresso"


def test_the_cat_takes_over_at_the_column_that_the_page_names():
    """A learner who searched well would be told that another column is right."""
    network, coffee, cat = photos.pretrained(), photos.sample("coffee"), photos.sample("chelsea")
    for seam, first in ((137, "espresso"), (136, "Egyptian cat")):
        both = torch.cat([coffee[..., :seam], cat[..., seam:]], dim=-1)
        assert figures.evidence(network, both)[0][0] == first


def test_a_pixel_of_the_map_can_be_checked_with_the_numbers_on_the_page():
    """Weights and values that don't add up to the map would teach that a filter does something else."""
    small, maps, weights = filters.feature_maps(photos.pretrained(), photos.sample("coffee"))
    u, v = filters.AT
    values = (small[:, 2 * v : 2 * v + 3, 2 * u : 2 * u + 3].float() - 127) / 128
    products = values * weights["edges"]
    assert torch.isclose(products.sum(), maps["edges"][v, u], atol=1e-4)
    assert round(products[1, 0, 1:].sum().item()) == -4
