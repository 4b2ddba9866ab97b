"""Counts training steps: one for each round of the optimizers, whichever class they are of and however many there are."""

from __future__ import annotations

from collections.abc import Hashable


class Rounds:
    """A step begins when an optimizer steps that has stepped since the last one began.

    A GAN's two optimizers make one step together. One that comes after another training has ended joins its last step
    first; when it steps again, and no other did meanwhile, that was a step of its own.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.since: set[Hashable] = set()  # the optimizers of this step
        self.joined: Hashable = None  # the latest of them, if it is not the first
        self.known: set[Hashable] = set()  # the optimizers that have begun a step
        self.began = 0  # the first step that is only of the latest training

    def stepped(self, optimizer: Hashable) -> bool:
        """Count a step of an optimizer; whether a training step begins with it."""
        if self.since and optimizer not in self.since:
            self.since.add(optimizer)
            self.joined = optimizer
            return False
        again = optimizer == self.joined
        if again and optimizer not in self.known:
            self.began = self.steps + 1
        self.known.add(optimizer)
        self.steps += 2 if again else 1
        self.since = {optimizer}
        self.joined = None
        return True
