"""Collect situations: small named actions whose one-line result tells how PyTorch behaves with CUDA devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

DOCS = "https://docs.pytorch.org/docs/stable/"
CODE = "https://github.com/pytorch/pytorch/blob/main/"


class Situation(NamedTuple):
    """One situation: its name, what to do, where its expected result is documented, how many GPUs it needs."""

    name: str
    action: Callable
    source: str
    gpus: int


SITUATIONS: list[Situation] = []


def situation(source: str, gpus: int = 1) -> Callable:
    """Register the decorated function; its name, with spaces, becomes the name of the situation."""

    def register(action):
        table(source, {action.__name__.replace("_", " "): action}, gpus)
        return action

    return register


def table(source: str, actions: dict, gpus: int = 1, through: Callable | None = None) -> None:
    """Register actions that share a source, {name: action}; with `through`, the result is `through(action)`."""
    for name, action in actions.items():
        if through is not None:
            action = functools.partial(through, action)
        SITUATIONS.append(Situation(name, action, source, gpus))
