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
