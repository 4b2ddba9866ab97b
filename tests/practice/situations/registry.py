"""Collect situations: small named actions whose one-line result tells how PyTorch behaves with CUDA devices."""

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


def situation(source: str, gpus: int = 1):
    """Register the decorated function; its name, with spaces, becomes the name of the situation."""

    def register(action: Callable) -> Callable:
        SITUATIONS.append(Situation(action.__name__.replace("_", " "), action, source, gpus))
        return action

    return register


def table(source: str, actions: dict[str, Callable], gpus: int = 1) -> None:
    """Register several one-line actions that share a source; the keys are their names."""
    SITUATIONS.extend(Situation(name, action, source, gpus) for name, action in actions.items())
