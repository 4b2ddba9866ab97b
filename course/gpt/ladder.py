"""TinyGPT's ladder: one model, one number. Lessons 06 to 11 add a rung or two each, and draw all that came before.

ladder.json names the rungs and holds the course's own rows. A learner's are kept with their progress: what their machine
measures, and what the clock forecasts for the same step.
"""

import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from course.checks import progress
from course.gpt import TinyGPT, causal, course_words
from course.gpt.forecasts import recorded, tf32, tiny_gpt
from course.show import figures
from helpers import plots
from helpers.devices import pick_device, synchronize
from practice_gpus.cards import get_card

CARDS = {"A100": "A100 80", "H100": "H100 SXM"}
PARAMETERS, MULTIPLY = 706_473, 550_000  # of TinyGPT, and those that multiply for each token
LAYERS, WIDTH = 2, 128  # of TinyGPT
UNITS = {16: "bf16", 32: "tf32"}  # what a rung multiplies in, by its bits
SEVERAL = {1: "on one A100", 2: "from one A100 to two", 8: "from one A100 to eight"}
PALE = "Gray words: the course's own run, where you haven't run that lesson yet."


def show(lesson: str, train: Callable | None = None, **here: float) -> None:
    """Keep the rungs of `lesson` as the learner's own, and show the ladder up to them.

    `train(model, optimizer, x, y)` is the learner's own step, if there is one; `here` holds what was measured already, as
    tokens per second of this machine, by rung. ValueError for a lesson without rungs, or a rung that isn't its own.
    """
    own = {key: rung for key, rung in rungs().items() if rung["lesson"] == lesson}
    if not own:
        takes = ", ".join(sorted({rung["lesson"] for rung in rungs().values()}))
        raise ValueError(f"lesson is {lesson!r}; it takes one of {takes}")
    if set(here) - set(own):
        raise ValueError(f"lesson {lesson!r} has the rungs {[*own]}; got {[*here]}")
    for key, rung in own.items():
        attend = by_hand if key == "hand" else causal
        work = train or functools.partial(step, attend=attend)
        speed = here[key] if key in here else measured(rung, work)
        progress.record(f"ladder.{key}", here=speed, **forecast(rung, work))
    reached = {key: rung for key, rung in rungs().items() if rung["lesson"] <= lesson}
    figures.show(*draw(reached), _caption(lesson, reached))


def _caption(lesson, reached):
    """What this machine measured for the lesson's rungs, and whose numbers are gray."""
    here = [
        f"{rung['what']} {rung['here']:,.0f}" + f" (with {rung['local']})" * bool(rung["local"])
        for rung in reached.values()
        if rung["lesson"] == lesson and rung["here"]
    ]
    measured = f"Measured on this machine, tokens per second: {', '.join(here)}." if here else ""
    pale = "" if all(rung["own"] for rung in reached.values()) else PALE
    return f"{measured} {pale}".strip()


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
    """Return {card: tokens per second of each GPU} by the clock, with TF32 on."""
    dtype = torch.bfloat16 if rung["bits"] == 16 else None
    with tf32("tf32"):
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
    """Return (Figure, sentence) of {key: rung}: the first, the last lesson's, and what was reached before that lesson.

    A rung on more GPUs than the last lesson's is left out.
    """
    rungs = [*ladder.values()]
    lesson = rungs[-1]["lesson"]
    rungs = [rung for rung in rungs if rung["gpus"] <= rungs[-1]["gpus"]]
    before = sum(rung["lesson"] < lesson for rung in rungs)
    rows = [rungs[place] for place in sorted({0, max(before - 1, 0), *range(before, len(rungs))})]
    best, first = max(rungs[before:], key=together), together(rungs[0])
    title = (
        f"TinyGPT {SEVERAL[best['gpus']]}: {plots.number(together(best) / first, 2)} times "
        "the first rung (forecast)"
    )
    figure, axes = plots.new_figure(title, size=(7.4, 0.7 + 0.52 * len(rows)))
    told = [_draw_rung(axes, y, rung, rung["lesson"] == lesson) for y, rung in enumerate(rows)]
    axes.set_yticks(range(len(rows)), [f"{rung['lesson']}  {rung['what']}" for rung in rows])
    axes.tick_params(axis="y", labelcolor=plots.INK, labelsize=9.5)
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 2.1 * max(map(together, rows))), xticks=[])
    axes.spines["bottom"].set_visible(False)
    axes.grid(False)
    return figure, f"{title}. {'; '.join(told)}."


def together(rung: dict) -> float:
    """Return the tokens per second of all the A100s of `rung`, by forecast."""
    return rung["gpus"] * rung["A100"]


def needed(words: int) -> int:
    """Return the operations that training TinyGPT needs for each token of a text of so many `words`.

    As the PaLM paper counts them for MFU (arXiv:2204.02311, appendix B): 6 for each parameter that multiplies, and
    attention's two matmuls over the whole text, masked or not.
    """
    return 6 * MULTIPLY + 12 * LAYERS * WIDTH * words


def _draw_rung(axes, y, rung, new):
    """Draw one rung, strong where it is `new`, and return it in words; what this machine does only then: one run of each."""
    value, ink = together(rung), plots.INK if rung["own"] else plots.FAINT
    strength = "55" if new else "18"
    axes.barh(y, value, 0.6, facecolor=plots.GPU + strength, edgecolor=plots.GPU, linewidth=1.4)
    peak = get_card(CARDS["A100"]).peak(UNITS[rung["bits"]])
    mfu = needed(rung["words"]) * rung["A100"] / peak
    told = f"{plots.number(value / 1e6)} million tokens per second, MFU {mfu:.1%}"
    plots.note(axes, told, (value, y), (6, 7), fontsize=9.5, color=ink)
    plots.note(axes, rung["why"], (value, y), (6, -6), fontsize=8.5, color=ink)
    here = f", {rung['here']:,.0f} per second here" if new and rung["here"] else ""
    return f"{rung['lesson']} {rung['what']}: {told}{here}"
