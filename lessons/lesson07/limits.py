"""Lesson 07: four steps whose code the reader doesn't see, and the exercise that asks what limits each, and until when."""

from functools import cache

import torch

from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet
from practice_gpus import practice_gpus

BATCHES = (8, 16)
NAMES = ("overhead", "copies", "memory", "compute")
LIMITS = {"A": "overhead", "B": "memory", "C": "copies", "D": "compute"}
REFERENCE = {**LIMITS, "batch": 64}
PEAKS = 3350, 67  # GB/s and TFLOP/s of an H100 by its data sheet
WIDTH = 8192


def _step(name, batch):
    """Return a function that runs step `name` of a batch of that size."""
    if name == "A":
        x = torch.empty(batch, 1024, device="cuda")
        return lambda: [(x + 1).relu() for _ in range(100)]
    if name == "C":
        images = torch.empty(1024 * batch, 512)
        return lambda: (images.to("cuda") + 1).relu()
    weight = torch.empty(WIDTH, WIDTH, device="cuda")
    if name == "B":
        x = torch.empty(batch, WIDTH, device="cuda")
        return lambda: [x @ weight for _ in range(8)]
    tokens = torch.empty(512 * batch, WIDTH, device="cuda")
    return lambda: tokens @ weight


@cache
def forecast(name: str, batch: int):
    """Return the forecast of step `name` for an H100."""
    with practice_gpus(1, card="H100 SXM", values=False) as h100:
        return h100.forecast(_step(name, batch))


def examine(name: str | None = None, batch: int | None = None) -> None:
    """Print what the clock forecasts for one of the steps A to D, or for all, at one batch size or at two."""
    if name not in (None, *LIMITS):
        raise ValueError(f"step {name!r}: there are A, B, C and D")
    print("forecast, H100          time   no kernel      moved      computed")
    for each in LIMITS if name is None else [name]:
        for size in BATCHES if batch is None else [batch]:
            f = forecast(each, size)
            told = (
                f"{f.ms:9.2f} ms {f.idle:10.0%}  {f.bytes / 1e9:8.3f} GB {f.flops / 1e9:7.0f} GFLOP"
            )
            print(f"{each}, batch of {size:<5}{told}")


def _check(answer):
    if not isinstance(answer, dict):
        raise NotYet(f"expected a dict of four limits, got {type(answer).__name__}.")
    for name, right in LIMITS.items():
        said = answer.get(name, ...)
        if said is ...:
            raise NotYet(f"step {name} has no limit yet.")
        if not isinstance(said, str):
            raise NotYet(f"step {name} is of type {type(said).__name__}; it takes a limit's name.")
        if said not in NAMES:
            raise NotYet(f"step {name} is {said!r}; the four limits are {', '.join(NAMES)}.")
        if said != right:
            raise NotYet(f"step {name}: {_why_not(said, *(forecast(name, n) for n in BATCHES))}")
    _judge_batch(answer.get("batch", ...))
    return exercise.explanation


def _judge_batch(batch):
    """Raise NotYet unless compute limits step B at `batch`, and memory at half of it."""
    if batch is ...:
        raise NotYet("the four limits are right. From which batch on does compute limit B?")
    batch = expect.number(batch, "batch")
    if not 8 < batch <= 4096:
        raise NotYet(f"batch is {batch:.0f}; double it from 8 on until the limit changes.")
    for size, limit in ((int(batch), "compute"), (int(batch) // 2, "memory")):
        bandwidth, rate = _rates(forecast("B", size))
        found = "memory" if bandwidth / PEAKS[0] > rate / PEAKS[1] else "compute"
        if found != limit:
            when = "already" if found == "compute" else "still"
            raise NotYet(
                f"at a batch of {size}, B reaches {bandwidth:,.0f} of 3,350 GB/s and {rate:.0f} of 67 TFLOP/s, "
                f"so {found} {when} limits it."
            )


def _rates(f):
    """Return (GB/s, TFLOP/s) of a forecast."""
    return f.bytes / f.ms / 1e6, f.flops / f.ms / 1e9


def _why_not(said, once, twice):
    """Return the number that speaks against a limit of a step with one batch and with two."""
    if said == "memory":
        return f"{_rates(once)[0]:,.0f} GB/s are far from 3,350."
    if said == "compute":
        return f"{_rates(once)[1]:,.1f} TFLOP/s are far from 67."
    if once.idle < 0.1:
        return f"a kernel runs {1 - once.idle:.0%} of the time, so the GPU hardly waits."
    grows = f"twice the batch takes {twice.ms / once.ms:.1f} times as long"
    if said == "copies":
        return f"{grows}, and to copy it would take 2 times as long."
    return f"{grows}, and needs no more launches."


exercise = Exercise(
    key="07.limit",
    title="name the limit",
    check_answer=_check,
    hints=(
        "First the column *no kernel*: in which two steps does the GPU wait a lot? Doubling the batch tells those two apart.",
        "The other two are busy. Divide: GB moved by seconds, and FLOPs by seconds. Which of the two rates is near the H100's?",
        "B moves 2.15 GB in 0.86 ms: 2,490 GB/s, three quarters of the bandwidth, at 10 TFLOP/s. D does 550 GFLOP in 10.3 ms: "
        "54 of 67 TFLOP/s. Double B's batch until it reaches that, too.",
    ),
    reference=REFERENCE,
    source=f"limits = {REFERENCE}",
    explanation="A launches 200 tiny kernels. B multiplies 8 rows by large matrices, so it waits for their weights; 64 rows "
    "keep the GPU calculating. C copies unpinned images. D multiplies 4,096 rows and uses each weight 4,096 times.",
    unlocked="You can now name what limits a step without seeing its code, and say when that changes.",
)
