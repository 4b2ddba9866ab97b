"""Exercises and quiz of lesson 08, Make it fast."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from course.checks import expect
from course.checks.core import NotYet, call, chosen
from course.checks.words import exercise, quiz
from course.gpt import TinyGPT
from course.gpt.forecasts import recorded, tiny_gpt
from course.lesson08.steps import CHANGES, LABELS, STEPS, examine, gain, tests_of
from course.lesson08.tree import forecast_step, three_tests
from practice_gpus import practice_gpus

# The lesson calls them, too, or they stand in for the learner's.
__all__ = [
    "chosen",
    "examine",
    "forecast_step",
]


def clipped_step(loss, model, optimizer, scaler, most):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), most)
    scaler.step(optimizer)
    scaler.update()


SCALE = 1024.0


def _one_step(answer, gradient, most):
    """How far the weight moves, as a tensor, and the scaler after one step on a loss with this `gradient`."""
    model = nn.Linear(len(gradient), 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    before = model.weight.detach().clone()
    call(answer, model(torch.tensor([gradient])).sum(), model, optimizer, scaler, most)
    return (before - model.weight.detach()).flatten(), scaler


def _check_clip(answer):
    for gradient, most in (([3.0, 4.0], 1.0), ([30.0, 40.0], 2.0), ([0.3, 0.4], 1.0)):
        true = math.hypot(*gradient)
        size = _one_step(answer, gradient, most)[0].norm().item()
        if not math.isclose(size, min(true, most), rel_tol=1e-2):
            told = f"the gradient has length {true:.3g}, the limit is {most:g}, and the step had length {size:.3g}."
            raise NotYet(f"{told} {clip.word(size, size=size, true=true, most=most)}")
    moved, scaler = _one_step(answer, [math.inf, 1.0], 1.0)
    if not torch.equal(moved, torch.zeros(2)):
        raise NotYet("the gradient overflowed, and the weights became nan: scaler.step skips it.")
    if scaler.get_scale() == SCALE:
        raise NotYet("a gradient overflowed, and the scale stayed: who calls scaler.update()?")
    return "clipped to the length asked for, whatever the scale; an overflow is skipped and halves the scale."


clip = exercise("08.clip", _check_clip, clipped_step)


def forecast_card(make_step, card):
    with practice_gpus(1, card=card, values=False, stand_in=1.0) as gpus:
        step = make_step()
        step()  # makes the optimizer's state
        forecast = gpus.forecast(step)
    return {"ms": forecast.ms, "range": forecast.range, "bound": forecast.bound}


LIMITS = ("overhead", "compute", "memory", "CPU or copies")
HELPS = 1.3  # times the throughput that a change must bring to count


def _check_diagnosis(answer):
    if not isinstance(answer, dict) or set(answer) != set(STEPS):
        raise NotYet(f"expected a dict with the keys {[*STEPS]}.")
    told = []
    for name, (right, what) in LABELS.items():
        pair = answer[name]
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise NotYet(
                f'{name} is {pair!r}: name a limit and a change, ("memory", "larger batch").'
            )
        for found, known in zip(pair, (LIMITS, CHANGES), strict=True):
            if not isinstance(found, str) or found not in known:
                raise NotYet(f"{name}: {found!r} is none of {', '.join(known)}.")
        limit, change = pair
        if limit != right:
            raise NotYet(f"{name} isn't limited by {limit}: {_ruled_out(limit, tests_of(name))}")
        times = gain(name, change)
        if times < HELPS:
            raise NotYet(
                f"{name} is limited by {limit}, but the change {change!r} brings × {times:.2f} by forecast. "
                "Which box of the tree is it from?"
            )
        told.append(f"{name}: × {times:.1f} with {change}. That was {what}.")
    return "\n".join(["four limits, four changes that fit, by forecast:", *told])


def _ruled_out(limit, tests):
    """Which test contradicts `limit`."""
    twice, off, half = (f"× {ratio:.2f} the time" for ratio in tests)
    return diagnosis.word(limit, tests=tests, twice=twice, off=off, half=half)


diagnosis = exercise(
    "08.diagnosis",
    _check_diagnosis,
    {
        "A": ("memory", "16 bits"),
        "B": ("overhead", "CUDA graph"),
        "C": ("compute", "16 bits"),
        "D": ("compute", "TF32"),
    },
    seconds=60,
    tool="forecast_card",
    keeps=forecast_card,
)


def plain_step(model, optimizer, x, y):
    optimizer.zero_grad()
    total = 0.0
    for words, following in zip(x, y, strict=True):
        loss = F.cross_entropy(model(words[None])[0], following) / len(x)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


WORDS = 32  # of a text


def tiny_step(batch, half=False, train=plain_step):
    """Return a step that trains TinyGPT on `batch` texts by `train`, in bfloat16 if `half`."""
    return tiny_gpt(batch, train, torch.bfloat16 if half else None)()


def tokens_per_s(texts, train, half=False, graph=False):
    """Return TinyGPT's tokens per second on an A100, by forecast, with TF32 on; `graph`: as a CUDA graph."""
    found = forecast_step(tiny_step, texts, half=half, train=train)
    return 1000 * texts * WORDS / (found.graphed if graph else found).ms


def my_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


def _check_rung(answer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours = TinyGPT("a b c d e f".split(), width=16, context=8)
        x, y = torch.randint(6, (2, 5, 8))
    theirs = copy.deepcopy(ours)
    right = plain_step(ours, torch.optim.SGD(ours.parameters(), lr=1.0), x, y)
    loss = call(answer, theirs, torch.optim.SGD(theirs.parameters(), lr=1.0), x, y)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        loss = loss.item()
    loss = expect.number(loss, "the loss")
    if not math.isclose(loss, right, rel_tol=0.02):
        raise NotYet(f"the loss was {loss:.3g}, with plain_step {right:.3g}.")
    pairs = zip(theirs.parameters(), ours.parameters(), strict=True)
    if any((a - b).abs().max() > 0.02 for a, b in pairs):
        raise NotYet("the weights after a step aren't those of plain_step.")

    def train(*given):
        return call(answer, *given)

    fast = recorded(tiny_gpt(16, train))
    times = recorded(tiny_gpt(16, plain_step)).ms / fast.ms
    if times < 15:
        told = f"{times:.2g} times as fast on an A100 by forecast, 15 are there."
        raise NotYet(f"{told} It is {fast.bound}-bound, with {len(fast.kernels):,} kernels a step.")
    twice = three_tests(tiny_step, 16, train=train)[0]
    told = f"the same step, {times:.0f} times as fast on an A100 by forecast"
    return f"{told}. Twice the texts now take × {twice:.2f} the time."


rung = exercise("08.rung", _check_rung, my_step, seconds=60)


QUIZ = quiz("08")
