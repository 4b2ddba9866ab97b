"""What lessons forecast by the clock of practice GPUs: a step's recording, TinyGPT's step, bars of forecasts side by side."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from course.gpt import TinyGPT, course_words
from helpers import plots
from practice_gpus import practice_gpus


@contextmanager
def tf32(precision: str) -> Iterator[None]:
    """Run matmuls and convolutions in "tf32" or full float32 ("ieee")."""
    places = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [place.fp32_precision for place in places]
    for place in places:
        place.fp32_precision = precision
    try:
        yield
    finally:
        for place, old in zip(places, before, strict=True):
            place.fp32_precision = old


def recorded(make_step: Callable, card: str = "A100 80") -> Any:
    """Return the clock's whole forecast of the second step that `make_step()` makes; `.on(card)` replays it elsewhere."""
    with practice_gpus(1, card=card, values=False, stand_in=1.0) as gpus:
        step = make_step()
        step()  # makes the optimizer's state
        return gpus.forecast(step)


def tiny_gpt(
    batch: int, train: Callable, dtype: torch.dtype | None = None, **sizes: int
) -> Callable:
    """Return make_step of TinyGPT for `recorded`: `train(model, optimizer, x, y)` on `batch` texts, by autocast in `dtype`."""

    def make_step():
        model = TinyGPT(course_words(), **sizes).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.zeros(batch, model.context, dtype=torch.long, device="cuda")

        def step():
            with torch.autocast("cuda", dtype, dtype is not None):
                train(model, optimizer, x, x)

        return step

    return make_step


def draw_bars(title: str, panels: dict, log: bool = False, digits: int = 3) -> tuple[Any, str]:
    """(Figure, sentence) of forecasts side by side: `panels` is {axis: {name: value, or (low, middle, high)}}.

    `log`: points on logarithmic axes, where a bar's length would mean nothing.
    """
    figure, places = plots.panels(title, 1, len(panels), (7.4, 2.9), sharey=True, squeeze=False)
    told = []
    for axes, (label, rungs) in zip(places[0], panels.items(), strict=True):
        if log:
            plots.draw_dots(axes, rungs, digits, plots.GPU)
            axes.set_xscale("log")
            plots.plain_ticks(axes.xaxis)
        else:
            plots.draw_bars(axes, [plots.forecast(rungs)], digits, plots.GPU)
        axes.set_xlabel(f"{label} (forecast{', log scale' if log else ''})")
        axes.margins(x=0.22 if log else 0.25)
        told.append(f"{label}: " + ", ".join(f"{n} {v}" for n, v in rungs.items()))
    return figure, "By forecast, " + "; ".join(told) + "."
