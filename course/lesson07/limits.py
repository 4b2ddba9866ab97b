"""Page 07b: four steps whose code the reader doesn't see, and the exercise that asks until when a limit holds."""

from functools import cache

import torch

from course import show
from course.checks import expect, words
from course.checks.core import NotYet
from practice_gpus import practice_gpus
from practice_gpus.cards import get_card

BATCHES = (8, 16)
STEPS = ("A", "B", "C", "D")
REFERENCE = {"A": 16_384, "B": 64}
IDLE = 0.1  # launches limit A while no kernel runs for more of the time
CARD = "H100 SXM"
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
    with practice_gpus(1, card=CARD, values=False) as h100:
        return h100.forecast(_step(name, batch))


def examine(name: str | None = None, *batches: int) -> None:
    """Show what the clock forecasts for one of the steps A to D, or for all, at these batch sizes."""
    if name not in (None, *STEPS):
        raise ValueError(f"step {name!r}: there are A, B, C and D")
    head = "H100, forecast", "time", "no kernel", "moved", "computed"
    rows = []
    for each in STEPS if name is None else [name]:
        for size in batches or BATCHES:
            f = forecast(each, size)
            numbers = f"{f.ms:.2f} ms", f"{f.idle:.0%}", f"{f.bytes / 1e9:.3f} GB"
            rows.append((f"{each}, batch of {size}", *numbers, f"{f.flops / 1e9:.0f} GFLOP"))
    table = [head, ("---", *4 * ("---:",)), *rows]
    words = "\n".join(f"| {' | '.join(row)} |" for row in table)
    text = "\n".join(
        f"{first:18}" + "".join(f"{each:>12}" for each in row) for first, *row in (head, *rows)
    )
    show.markdown(words, text)


def _check(answer):
    if not isinstance(answer, dict):
        raise NotYet(f"expected a dict of two batch sizes, got {type(answer).__name__}.")
    for name, judge in {"A": _launches, "B": _memory}.items():
        if answer.get(name, ...) is ...:
            raise NotYet(f"step {name} has no batch yet.")
        batch = expect.number(answer[name], name)
        if not 8 < batch <= 65_536:
            raise NotYet(f"{name} is {batch:.0f}; double it from 8 on until the limit changes.")
        held, told = judge(int(batch))
        if held:
            raise NotYet(f"at a batch of {batch:,.0f}, {told}.")
        held, told = judge(int(batch) // 2)
        if not held:
            raise NotYet(f"it has changed before: at a batch of {batch // 2:,.0f}, {told}.")
    return exercise.explanation


def _launches(batch):
    """Return (whether launches limit step A at this batch, the number that says so)."""
    idle = forecast("A", batch).idle
    return idle > IDLE, f"no kernel of A runs for {idle:.0%} of the time"


def _memory(batch):
    """Return (whether memory limits step B at this batch, the numbers that say so)."""
    f = forecast("B", batch)
    bandwidth, rate = f.bytes / f.ms / 1e6, f.flops / f.ms / 1e9  # GB/s and TFLOP/s
    card = get_card(CARD)
    told = f"B reaches {bandwidth:,.0f} of {card.bandwidth:,} GB/s and {rate:.0f} of {card.fp32} TFLOP/s"
    return bandwidth / card.bandwidth > rate / card.fp32, told


exercise = words.exercise("07.limit", _check, REFERENCE, letter="b")
