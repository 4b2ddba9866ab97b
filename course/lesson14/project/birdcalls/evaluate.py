"""Test a network on clips that it hasn't heard."""

import torch

from birdcalls.data import test_batches


def evaluate(model, config):
    """Return the share of the test clips that the model names right."""
    scores = []
    truth = []
    for waves, labels in test_batches(config):
        scores.append(model(waves))
        truth.append(labels)
    right = torch.cat(scores).argmax(dim=1) == torch.cat(truth)
    return right.float().mean().item()
