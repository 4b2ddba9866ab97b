"""Wrong answers to the exercises of lesson 01."""

import torch

from exercises.lesson01 import CAUSES, POSSIBLE, pick_device
from helpers.checks.core import Wrong


def _unchecked():
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def _string():
    return "cuda" if torch.cuda.is_available() else "cpu"


def _no_mps():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _no_else():
    if torch.cuda.is_available():
        return torch.device("cuda")


def _second():
    return torch.device("cuda:1") if torch.cuda.is_available() else pick_device()


WRONG = {
    "pick": (
        Wrong(_unchecked, "the name alone does not tell"),
        Wrong(_string, "returned the string"),
        Wrong(_no_mps, "MPS is there"),
        Wrong(_no_else, "Does every path return"),
        Wrong(_second, "Which index exists"),
    ),
    "machines": (
        Wrong({**CAUSES, "A": "no driver"}, "cuda_build"),
        Wrong({**CAUSES, "B": "CPU-only build"}, "driver, beside cards"),
        Wrong({**CAUSES, "C": "no driver"}, "cuda_error"),
        Wrong({**CAUSES, "E": "hidden"}, "capability, beside"),
        Wrong({"A": "no driver"}, "no answer for"),
    ),
    "impossible": (
        Wrong({**POSSIBLE, "B": "possible"}, "didn't wait"),
        Wrong({**POSSIBLE, "C": "possible"}, "cache"),
        Wrong({**POSSIBLE, "D": "impossible"}, "came only with"),
        Wrong({**POSSIBLE, "A": "impossible"}, "75 % of it"),
    ),
}
