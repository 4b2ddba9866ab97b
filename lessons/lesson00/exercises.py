"""Lesson 00, Start here: its warm-up exercise."""

import torch

from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, call

# --- warm up: the fraction that is right ----------------------------------------------------------


def accuracy(guesses, labels):
    return (guesses == labels).float().mean().item()


def _check_accuracy(answer):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (40,), generator=generator)
    for right in (40, 30, 7, 0):
        guesses = labels.clone()
        guesses[right:] = (labels[right:] + 3) % 10
        share = expect.number(call(answer, guesses, labels), "your result")
        if share == right and right > 1:
            raise NotYet(
                f"{right} of 40 are right and you return {share:g}, the count. What fraction is that?"
            )
        if abs(share - (40 - right) / 40) < 1e-6 and right != 20:
            raise NotYet(
                f"{right} of 40 are right and you return {share:g}, the fraction that is wrong."
            )
        if not abs(share - right / 40) <= 1e-6:
            raise NotYet(
                f"{right} of 40 guesses are right, a fraction of {right / 40:g}; you return {share:g}."
            )
    return "you can now score any classifier."


warm_up = Exercise(
    key="00.warm_up",
    title="score the network",
    check_answer=_check_accuracy,
    hints=(
        "`guesses == labels` compares the two tensors element by element. What does it return?",
        "`.float()` turns True into 1 and False into 0. The mean of those is the fraction.",
        "`return (guesses == labels).float().mean()`, followed by `.item()`, which turns a one-element tensor into a number.",
    ),
    reference=accuracy,
    explanation="The comparison gives a tensor of True and False. As floats they are 1 and 0, so their mean is the "
    "fraction that is right, and `item()` takes the number out of the tensor.",
)
