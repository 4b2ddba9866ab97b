"""TinyGPT's ladder: one model, one number. Lessons 06 to 11 add a rung or two each, and draw all that came before.

ladder.json names the rungs and holds the course's own rows. A learner's are kept with their progress: what their machine
measures, and what the clock forecasts for the same step.
"""

import functools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from helpers import figures, palette
from helpers.checks import progress
from helpers.devices import pick_device, synchronize
from lessons.forecasts import recorded, tiny_gpt
from lessons.gpt import TinyGPT, causal, course_words

CARDS = {"A100": "A100 80", "H100": "H100 SXM"}
PARAMETERS, MULTIPLY = 706_473, 550_000  # of TinyGPT, and those that multiply for each token
PEAK = 312e12  # FLOP/s of an A100 in bfloat16, by its data sheet
SEVERAL = {1: "one A100", 2: "two A100s", 8: "eight A100s"}
PALE = "Pale: the course's own numbers, until you have run that lesson."


def show(lesson: str, train: Callable | None = None, **here: float) -> None:
    """Keep the rungs of `lesson` as the learner's own, and show the ladder up to them.

    `train(model, optimizer, x, y)` is the learner's own step, if there is one; `here` holds what was measured already, as
    tokens per second of this machine, by rung. ValueError for a lesson without rungs, or a rung that isn't its own.
    """
    own = {key: rung for key, rung in rungs().items() if rung["lesson"] == lesson}
    if not own or set(here) - set(own):
        raise ValueError(f"lesson {lesson!r} has the rungs {[*own]}; got {[*here]}")
    for key, rung in own.items():
        attend = by_hand if key == "hand" else causal
        work = train or functools.partial(step, attend=attend)
        speed = here[key] if key in here else measured(rung, work)
        progress.record(f"ladder.{key}", here=speed, **forecast(rung, work))
    reached = {key: rung for key, rung in rungs().items() if rung["lesson"] <= lesson}
    figures.show(*draw(reached), "" if all(r["own"] for r in reached.values()) else PALE)


def speeds(text: str) -> list[float]:
    """Return the tokens per second that a script's output names, in order."""
    return [float(n.replace(",", "")) for n in re.findall(r"([\d,]+) tokens per second", text)]


def rungs() -> dict[str, dict]:
    """Return {key: rung}, each a dict; "own" tells whether its numbers are the learner's or the course's."""
    course = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    kept = progress.load()
    for key, rung in course.items():
        row = kept.get(f"ladder.{key}", {})
        rung["own"] = all(type(row.get(card)) is float and row[card] > 0 for card in CARDS)
        rung.update(row if rung["own"] else {})
    return course


def step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
    attend: Callable,
) -> None:
    """Train one step, all texts at once."""
    optimizer.zero_grad()
    F.cross_entropy(model(x, attend).flatten(0, 1), y.flatten()).backward()
    optimizer.step()


def by_hand(layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return causal attention in separate operations, with the whole score matrix."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def forecast(rung: dict, train: Callable) -> dict[str, float]:
    """Return {card: tokens per second of each GPU} by the clock."""
    dtype = torch.bfloat16 if rung["bits"] == 16 else None
    found = recorded(tiny_gpt(rung["texts"], train, dtype, context=rung["words"]))
    found = found.fused if rung["fused"] else found
    several = {"gpus": rung["gpus"], "gradients": rung["traffic"] * PARAMETERS}
    tokens = rung["texts"] * rung["words"]
    return {name: 1000 * tokens / found.on(card, **several).ms for name, card in CARDS.items()}


def measured(rung: dict, train: Callable) -> float | None:
    """Return this machine's tokens per second with a small batch in float32; None where a rung has none."""
    if not rung["local"]:
        return None
    device = pick_device("auto")
    model = TinyGPT(course_words(), context=rung["words"]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.zeros(rung["local"], rung["words"], dtype=torch.long, device=device)
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        train(model, optimizer, x, x)
        synchronize(device)
        seconds.append(time.perf_counter() - begin)
    return x.numel() / median(seconds[1:])


def draw(ladder: dict[str, dict]) -> tuple[Any, str]:
    """Return (Figure, sentence) of {key: rung}: bars of this machine, and beside them the forecasts for two cards."""
    *_, last = ladder.values()
    first, now = ladder["one"]["A100"], last["A100"] * last["gpus"]
    told = f"{first / 1e6:.3g} million tokens per second, now {now / 1e6:.3g} on {SEVERAL[last['gpus']]}"
    title = f"TinyGPT, forecast: {told}"
    size = (7.4, 1.5 + 0.46 * len(ladder))
    figure, (left, right) = figures.panels(title, 1, 2, size, sharey=True, width_ratios=(1, 2.2))
    for axes in (left, right):
        figures.tidy(axes)
        axes.grid(False, axis="y")
    early = last["lesson"] < "08"  # two rungs, close together: one card, and a scale from 0
    rows = [_draw_rung(left, right, y, rung, early) for y, rung in enumerate(ladder.values())]
    names = [f"{rung['lesson']}  {rung['what']}" for rung in ladder.values()]
    left.set_yticks(range(len(ladder)), names)
    left.set(xlabel="this machine, tokens per second", ylim=(len(ladder) - 0.4, -0.6))
    left.set_xlim(0, 1.35 * max(rung["here"] or 1 for rung in ladder.values()))
    left.xaxis.set_major_formatter("{x:,.0f}")
    left.locator_params(axis="x", nbins=3)
    if early:
        right.set(
            xlim=(0, 2.5 * now), xlabel="A100s, all together: million tokens per second (forecast)"
        )
        right.xaxis.set_major_formatter(lambda speed, _: f"{speed / 1e6:g}")
        right.locator_params(axis="x", nbins=5)
    else:
        label = "all together: ○ A100s, ◇ H100s (forecast, log scale)"
        right.set(xscale="log", xlim=(3e5, 5e8), xlabel=label)
        right.minorticks_off()
    return figure, f"{title}. {'; '.join(rows)}."


def _draw_rung(left, right, y, rung, early):
    """Draw one rung, and return it in words."""
    ink, alpha = (figures.INK, 1) if rung["own"] else (palette.FAINT, 0.4)
    note = {"va": "center", "fontsize": 8.5, "color": ink, "textcoords": "offset points"}
    if rung["here"]:
        left.barh(y, rung["here"], 0.5, color=figures.CPU, alpha=alpha)
        left.annotate(f"{rung['here']:,.0f}", (rung["here"], y), (4, 0), **note)
    gpus, below = rung["gpus"], y + 0.15
    a100, h100 = (gpus * rung[card] for card in CARDS)
    look = {"markerfacecolor": figures.CARD, "markersize": 7, "markeredgewidth": 1.6}
    if early:
        h100 = a100
    else:
        right.plot([a100, h100], [below, below], color=figures.GREENS[3])
        right.plot(h100, below, "D", color=figures.GREENS[0], **look)
    right.plot(a100, below, "o", color=figures.GREENS[1], **look)
    each = figures.number(rung["A100"])
    several = f"{gpus} × {each} = {figures.number(a100)}" if gpus > 1 else each
    told = f"{several}, MFU {6 * MULTIPLY * rung['A100'] / PEAK:.1%}"
    if a100 > 3e7:  # no room on the right
        right.annotate(told, (min(a100, h100), below), (-10, 0), ha="right", **note)
    else:
        right.annotate(told, (max(a100, h100), below), (10, 0), **note)
    where = {"transform": right.get_yaxis_transform(), "va": "center", "fontsize": 8.5}
    right.text(0.01, y - 0.27, rung["why"], color=ink, **where)
    return f"{rung['lesson']} {rung['what']}: {told}"
