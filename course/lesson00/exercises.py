"""Lesson 00, Start here: its exercise on two practice GPUs."""

import torch

from course import photos
from course.checks import expect
from course.checks.core import LearnerError, NotAttempted, NotYet, call, same_code
from course.checks.words import exercise
from practice_gpus import practice_gpus


def halves() -> tuple[torch.Tensor, ...]:
    """Return the left and the right half of a photo of a cat, uint8 [3, 224, 112] each, on the CPU."""
    return photos.sample("chelsea").split(112, dim=2)


def starter(left, right):
    return torch.cat([left, right], dim=2)


def join(left, right):
    right = right.to("cuda:0")
    return torch.cat([left, right], dim=2)


def _check_join(answer):
    left, right = halves()
    whole = torch.cat([left, right], dim=2)
    with practice_gpus(2):
        try:
            found = call(answer, left.to("cuda:0"), right.to("cuda:1"))
        except LearnerError as error:
            if same_code(answer, starter):
                raise NotAttempted(f"PyTorch says: {error}", "Here's the error to fix") from None
            raise
        expect.tensor(found, what="join(left, right)")
        if tuple(found.shape) == (3, 448, 112):
            raise NotYet(
                "one half is on top of the other. Which of `dim=0`, `1` and `2` is the width?"
            )
        expect.tensor(found, whole.shape, whole.dtype, what="join(left, right)")
        if found.device.type != "cuda":
            raise NotYet(
                "the cat is whole, but on the CPU. Can the halves meet on one of the GPUs?"
            )
        if not torch.equal(found.cpu(), whole):
            raise NotYet("that isn't a cat yet. Which half comes first?")
        where = str(found.device)
    return f"the cat is whole again, on {where}."


warm_up = exercise("00.warm_up", _check_join, join)
