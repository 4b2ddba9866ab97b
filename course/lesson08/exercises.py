"""Exercises and quiz of lessons 08, 08b and 08c."""

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
from course.lesson08.steps import CHANGES, LABELS, STEPS, examine, gain, photo_step, tests_of
from course.lesson08.tree import forecast_step, three_tests
from practice_gpus import practice_gpus

# The lesson calls them, too, or they stand in for the learner's.
__all__ = [
    "chosen",
    "examine",
    "forecast_step",
    "photo_step",
]


def forecast_card(make_step, card):
    with practice_gpus(1, card=card, values=False, stand_in=1.0) as gpus:
        step = make_step()
        step()  # makes the optimizer's state
        forecast = gpus.forecast(step)
    return {"ms": forecast.ms, "range": forecast.range, "bound": forecast.bound}


LIMITS = ("launches", "arithmetic", "memory", "copies")
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
        "B": ("launches", "CUDA graph"),
        "C": ("arithmetic", "16 bits"),
        "D": ("arithmetic", "TF32"),
    },
    seconds=60,
    tool="forecast_card",
    keeps=forecast_card,
)


# --- 08b: a change of your own ------------------------------------------------------------------
def whole_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def lighter_step(model, optimizer, x, y):
    optimizer.zero_grad()
    x = x.contiguous(memory_format=torch.channels_last)
    with torch.autocast(x.device.type, torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


LIGHTER = 2.0  # times the throughput that both changes together must bring


def _depthwise(width=32):
    layers = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(3):
        layers += [nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width)]
        layers += [nn.SiLU(), nn.Conv2d(width, width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def _photo_forecast(train):
    def make_step():
        model = _depthwise().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.zeros(64, 3, 224, 224, device="cuda")
        y = torch.zeros(64, dtype=torch.long, device="cuda")
        return lambda: train(model, optimizer, x, y)

    return recorded(make_step)


def _check_change(answer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours, x, y = _depthwise(8), torch.randn(4, 3, 16, 16), torch.randint(10, (4,))
    theirs, start = copy.deepcopy(ours), [p.detach().clone() for p in ours.parameters()]
    right = whole_step(ours, torch.optim.SGD(ours.parameters(), lr=0.1), x, y).item()
    loss = call(answer, theirs, torch.optim.SGD(theirs.parameters(), lr=0.1), x, y)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        loss = loss.item()
    loss = expect.number(loss, "the loss")
    if {p.dtype for p in theirs.parameters()} != {torch.float32}:
        raise NotYet("the weights are no longer float32: small updates get lost in 16 bits.")
    if not math.isclose(loss, right, rel_tol=0.05):
        raise NotYet(f"the loss was {loss:.3g}, with whole_step {right:.3g}.")
    trained = zip(theirs.parameters(), ours.parameters(), start, strict=True)
    if any((a - b).norm() > 0.3 * (b - c).norm() + 1e-3 for a, b, c in trained):
        raise NotYet("the weights after a step aren't those of whole_step.")
    times = _photo_forecast(whole_step).ms / _photo_forecast(lambda *given: call(answer, *given)).ms
    if times < LIGHTER:
        raise NotYet(
            f"{times:.2f} times as fast on an A100 by forecast. {change.word(times, times=times)}"
        )
    return f"{times:.1f} times as fast on an A100 by forecast, and the weights are still float32."


change = exercise("08.change", _check_change, lighter_step, seconds=60, letter="b")


# --- 08c: a rung of your own --------------------------------------------------------------------
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


rung = exercise("08.rung", _check_rung, my_step, seconds=60, letter="c")


QUIZ = quiz("08")  # the last one belongs to page 08c
