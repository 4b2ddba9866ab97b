"""Exercises and quiz of lesson 08, Make it fast."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from course.checks import expect
from course.checks.core import Exercise, NotYet, Question, call, chosen
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
            raise NotYet(f"{name} isn't limited by {limit}: {_why_not(limit, tests_of(name))}")
        times = gain(name, change)
        if times < HELPS:
            raise NotYet(
                f"{name} is limited by {limit}, but the change {change!r} brings × {times:.2f} by forecast. "
                "Which box of the tree is it from?"
            )
        told.append(f"{name}: × {times:.1f} with {change}. That was {what}.")
    return "\n".join(["four limits, four changes that fit, by forecast:", *told])


def _why_not(limit, tests):
    """Which test contradicts `limit`."""
    twice, off, half = (f"× {ratio:.2f} the time" for ratio in tests)
    if limit == "overhead":
        return f"the launches stay the same with twice the batch, and it takes {twice}."
    if tests[0] < 1.5:
        return f"then twice the batch would take about twice as long, and it takes {twice}."
    if limit == "compute":
        return f"without TF32 the arithmetic is far slower, and it takes {off}."
    if limit == "memory" and tests[2] < 0.4:
        return f"half the bytes can at best halve the time, and 16 bits take {half}. Was TF32 on for these tests?"
    if tests[1] > 3.5:
        return f"only the arithmetic changes without TF32, and it takes {off}."
    return f"16 bits leave the CPU and the copies as they are, and it takes {half}."


diagnosis = Exercise(
    key="08.diagnosis",
    title="four steps without labels",
    check_answer=_check_diagnosis,
    seconds=60,
    hints=(
        "Start each step at test 1. Only one of the four takes as long with twice the batch.",
        "Of A and C, which one is slower without TF32? D was never tested with it: can half the bytes explain its × 0.09?",
        "The change is from the limit's box in the tree: a CUDA graph saves launches, 16 bits save bytes and arithmetic.",
    ),
    reference={
        "A": ("memory", "16 bits"),
        "B": ("overhead", "CUDA graph"),
        "C": ("compute", "16 bits"),
        "D": ("compute", "TF32"),
    },
    source='diagnosis = {\n    "A": ("memory", "16 bits"),\n    "B": ("overhead", "CUDA graph"),\n'
    '    "C": ("compute", "16 bits"),\n    "D": ("compute", "TF32"),\n}',
    explanation="A takes twice as long with twice the batch, no longer without TF32, and half as long in 16 bits: bytes. B takes as "
    "long with twice the batch: launches. C takes far longer without TF32: arithmetic. D is C with step 0 left out: half the bytes "
    "could at best halve its time.",
    unlocked="You can now find what limits a step, without a profiler. Your reward is `forecast_card`, which plays any step on "
    "any card; you'll need it below, and in lessons 09 and 13.",
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


rung = Exercise(
    key="08.rung",
    title="a rung of your own",
    check_answer=_check_rung,
    seconds=60,
    hints=(
        "What does the loop repeat for each text, and which line waits? The box *CPU or copies* names both.",
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
        "With TF32 on or off, a step on an A100 takes the same time; in bfloat16, it takes half. What limits it?",
        {
            "Memory bandwidth": "Yes: half the bytes, half the time, and faster arithmetic doesn't matter.",
            "Compute": "Then it would take far longer without TF32.",
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
