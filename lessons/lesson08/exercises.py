"""Exercises and quiz of lesson 08, Make it fast."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call, chosen
from lessons.forecasts import recorded, tiny_gpt
from lessons.gpt import TinyGPT
from lessons.lesson04.exercises import evaluate
from lessons.lesson05.exercises import largest_batch
from lessons.lesson07.exercises import find_waits, time_ms
from practice_gpus import practice_gpus

# The lesson calls them, too, or they stand in for the learner's.
__all__ = ["chosen", "evaluate", "find_waits", "largest_batch", "recorded", "time_ms", "tiny_gpt"]


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
            raise NotYet(f"{told} {_why_clip(size, true, most)}")
    moved, scaler = _one_step(answer, [math.inf, 1.0], 1.0)
    if not torch.equal(moved, torch.zeros(2)):
        raise NotYet("the gradient overflowed, and the weights became nan: scaler.step skips it.")
    if scaler.get_scale() == SCALE:
        raise NotYet("a gradient overflowed, and the scale stayed: who calls scaler.update()?")
    return "clipped to the length asked for, whatever the scale; an overflow is skipped and halves the scale."


def _why_clip(size, true, most):
    if size == 0:
        return "Did anything call backward and step?"
    if size < 0.1 * min(true, most):
        return "That's divided by the scale: you clipped gradients that were still scaled."
    if size > 2 * true:
        return "The scale is still in it: scaler.step divides, optimizer.step doesn't."
    if math.isclose(size, true, rel_tol=1e-2):
        return "Nothing was clipped, or only after the step."
    return "Clip to a norm, all parameters together; a gradient below the limit stays as it is."


clip = Exercise(
    key="08.clip",
    title="clip, with a scaler",
    check_answer=_check_clip,
    hints=(
        "Which length do the gradients have after `scaler.scale(loss).backward()`, and which should the limit see?",
        "Backward, take the scale out, clip, step, update: five calls, three of them are the scaler's.",
        "`scaler.unscale_(optimizer)`, then `torch.nn.utils.clip_grad_norm_(model.parameters(), most)`.",
    ),
    reference=clipped_step,
    explanation="backward leaves scaled gradients. unscale_ divides them, so that the limit means what it says; "
    "scaler.step knows that and doesn't divide again.",
    unlocked="You can now clip in float16 without slowing your training down by 65,536.",
)


def forecast_card(make_step, card):
    with practice_gpus(1, card=card, values=False, stand_in=1.0) as gpus:
        step = make_step()
        step()
        forecast = gpus.forecast(step)
    return {"ms": forecast.ms, "range": forecast.range, "bound": forecast.bound}


def _adam(read):
    """make_step of a layer with Adam; the step reads its loss, and notes what it read in `read`."""

    def make_step():
        model = nn.Linear(2048, 2048, device="cuda")
        adam = torch.optim.Adam(model.parameters())
        x = torch.zeros(512, 2048, device="cuda")

        def step():
            loss = model(x).square().sum() * 0
            loss.backward()
            adam.step()
            read.append(loss.item())

        return step

    return make_step


def _check_card(answer):
    for card in ("T4", "H100 SXM"):
        read = []
        found, right = call(answer, _adam(read), card), forecast_card(_adam([]), card)
        if not isinstance(found, dict):
            raise NotYet(f"expected a dict, got {type(found).__name__}: is there a `return`?")
        if set(found) != set(right):
            raise NotYet(f"the keys are {sorted(map(str, found))}; expected {sorted(right)}.")
        if read and read[-1] == 0:
            raise NotYet("the step was computed; with `values=False` shapes are enough.")
        if len(read) < 2:
            raise NotYet("only the first step makes Adam's state: call step() once before.")
        ms = expect.number(found["ms"], "ms")
        if not math.isclose(ms, right["ms"], rel_tol=0.01):
            told = f"on {card} a step takes {right['ms']:.3g} ms, you said {ms:.3g}."
            raise NotYet(f"{told} Is `card` passed on, and a single step forecast?")
        for key in ("bound", "range"):
            if found[key] != right[key]:
                raise NotYet(f"{key} is {found[key]!r} on {card}: take the forecast's own.")
    return "milliseconds, range and limit of a step on two cards, without owning either."


card = Exercise(
    key="08.card",
    title="ask before you rent",
    check_answer=_check_card,
    seconds=30,
    hints=(
        "Lesson 07's `on_h100` did this for one card. What has to become an argument?",
        "Inside `with practice_gpus(1, card=card, values=False, stand_in=1.0) as gpus:` make the step, call it once, "
        "and hand it to `gpus.forecast`.",
        '`f = gpus.forecast(step)`, then `return {"ms": f.ms, "range": f.range, "bound": f.bound}`',
    ),
    reference=forecast_card,
    explanation="The first call makes the optimizer's state. Then the clock counts bytes, operations and launches of one "
    "step, and plays them on the card; no value is computed.",
    unlocked="You can now ask of any step how long it takes on a card, before you rent it.",
    tool="forecast_card",
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
    fast = recorded(tiny_gpt(16, lambda *given: call(answer, *given)))
    times = recorded(tiny_gpt(16, plain_step)).ms / fast.ms
    if times < 15:
        told = f"{times:.2g} times as fast on an A100 by forecast, 15 are there."
        raise NotYet(f"{told} It is {fast.bound}-bound, with {len(fast.kernels):,} kernels a step.")
    return f"the same step, {times:.0f} times as fast on an A100 by forecast."


rung = Exercise(
    key="08.rung",
    title="a rung of your own",
    check_answer=_check_rung,
    seconds=60,
    hints=(
        "What does the loop repeat for each text, and which line waits? The branch *CPU or copies* names both.",
        "The model takes [texts, words] as it is. How many texts can share a launch? And who reads the loss?",
        "`loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())`, once, and `return loss.detach()`",
    ),
    reference=my_step,
    explanation="All texts share each launch, and nobody waits for a loss. The mean over all tokens is the mean of the texts' "
    "means, because all texts have the same length.",
    unlocked="You can now find the rung that a step needs, and show that it was the right one.",
)


QUIZ = (
    Question(
        "08.double",
        "You double the batch, and a step of many tiny kernels takes as long as before. What limits it?",
        {
            "Memory bandwidth": "Twice the batch would move nearly twice the bytes.",
            "Compute": "Twice the batch is twice the arithmetic.",
            "Overhead": "Yes: the launches are the same, however much each one computes.",
        },
        right=2,
    ),
    Question(
        "08.sixteen",
        "On an A100, a step in full float32, without TF32, takes half the time in bfloat16. What limits it?",
        {
            "Memory bandwidth": "Yes: half the bytes, half the time.",
            "Compute": "From full float32, an A100's tensor cores would gain far more than a factor of two.",
            "Overhead": "16 bits don't save any launches, and autocast often adds some.",
        },
        right=0,
    ),
    Question(
        "08.twenty",
        "The first call of a compiled function takes 20 s. What do you report?",
        {
            "20 s": "Few programs call it only once.",
            "The median of later calls, and the 20 s next to it": "Yes: which one matters depends on how often you call.",
            "The mean of all calls": "The mean depends on how many calls you made.",
        },
        right=1,
    ),
)
