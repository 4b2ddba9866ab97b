"""Kernels of every common kind, each with inputs and with what PyTorch makes of them."""

from dataclasses import dataclass

CASES = {}


@dataclass
class Case:
    """A kernel, how it is launched, and the tensor that it writes with the values expected there."""

    kernel: object  # a Triton function, or CUDA C whose kernel is called k
    arguments: list
    out: object
    expected: object
    grid: tuple
    block: tuple = None
    constants: dict = None
    options: dict = None
    tolerance: float = 1e-4


def case(build):
    """Register a function that builds a `Case`."""
    CASES[build.__name__] = build
    return build
