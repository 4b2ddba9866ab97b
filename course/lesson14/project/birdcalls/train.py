"""Train the network, then test it: python -m birdcalls.train, with --small in seconds."""

import sys

import torch
from torch.nn import functional as F

from birdcalls.config import FULL, SMALL
from birdcalls.data import training_batches
from birdcalls.evaluate import evaluate
from birdcalls.model import Net


def train_step(model, waves, labels, optimizer):
    """Learn from one batch; return the loss."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(waves), labels)
    loss.backward(retain_graph=True)
    optimizer.step()
    return loss


def train(model, config):
    """Train for one epoch; return the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    losses = []
    for step, (waves, labels) in enumerate(training_batches(config), 1):
        loss = train_step(model, waves, labels, optimizer)
        print(f"step {step}: loss {loss.item():.3f}")
        losses.append(loss)
    return [loss.item() for loss in losses]


def main(config):
    """Train and test a network; return the losses."""
    torch.manual_seed(config.seed)
    model = Net(config)
    losses = train(model, config)
    print(f"named right: {evaluate(model, config):.0%}")
    return losses


if __name__ == "__main__":
    losses = main(SMALL if "--small" in sys.argv else FULL)
