"""The warm-up exercise of lesson 00, Start here, and the figure of its explorer."""

import torch

from helpers.checks.core import Exercise, NotYet, Wrong, call


def matrix_work(n):
    """The numbers and the operations of a product of two n×n matrices: a figure, and a sentence that says the same."""
    from helpers import plots

    counts = {"numbers to move": 3 * n**2, "operations": 2 * n**3}
    title = f"{n}×{n}: {2 * n / 3:,.1f} operations for each number moved"
    return plots.bars(counts, title, "count", digits=15), f"{title}."


def double(x):
    return 2 * x


def _check_double(answer):
    for x in (
        torch.randn(3, 2),
        torch.randn(2, 3).t(),
        torch.randn(1),
        torch.randn(()),
        torch.zeros(0),
        torch.randn(4).half(),
        torch.randint(3, 99, (2, 5)),
    ):
        before, found = x.clone(), call(answer, x)
        case = f"for x of shape {tuple(x.shape)}"
        if not isinstance(found, torch.Tensor):
            raise NotYet(
                f"{case}, double(x) returned {_name(found)}; expected a tensor. Is there a return?"
            )
        if not torch.equal(x, before):
            raise NotYet(
                f"{case}, x itself changed. An operation with = or an underscore, such as *= or mul_, writes into x."
            )
        if found.shape != x.shape:
            raise NotYet(
                f"{case}, the result has shape {tuple(found.shape)}. Work on every element, not on the sum or a part."
            )
        if found.dtype != x.dtype:
            raise NotYet(
                f"{case} and dtype {x.dtype}, the result has dtype {found.dtype}; keep the type of x."
            )
        if not torch.equal(found, before + before):
            raise NotYet(
                f"{case}, some elements are not twice those of x. Squares equal doubles only for 0 and 2."
            )
    return "seven tensors doubled, none of them changed."


def _name(value):
    return "None" if value is None else type(value).__name__


def _in_place(x):
    x *= 2
    return x


def _no_return(x):
    2 * x


def _square(x):
    return x**2


def _summed(x):
    return 2 * x.sum()


def _always_float32(x):
    return 2 * x.float()


warm_up = Exercise(
    key="00.warm_up",
    title="warm up",
    minutes=2,
    lines=1,
    difficulty=1,
    check_answer=_check_double,
    hints=(
        "Arithmetic on a tensor works element by element.",
        "Replace the three dots by `return` and a product.",
    ),
    reference=double,
    explanation="2 * x makes a new tensor, so x stays as it was; shape and type follow x.",
    wrong=(
        Wrong(_in_place, "x itself changed"),
        Wrong(_no_return, "Is there a return"),
        Wrong(_square, "not twice"),
        Wrong(_summed, "has shape"),
        Wrong(_always_float32, "keep the type"),
    ),
)
