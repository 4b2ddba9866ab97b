"""The decision tree of lesson 08: three tests, four limits, and what helps against each."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure

from course.gpt.forecasts import recorded, tf32
from helpers import plots

TESTS = (  # what is changed, what that does to the step, and the answers that lead down and on
    ("1 Double the batch", "twice the work,\nas many launches", "below × 1.5", "more"),
    ("2 Switch TF32 off", "slower arithmetic,\nas many bytes", "above × 3.5", "less"),
    ("3 Use 16 bits", "about half the bytes", "below × 0.9", "more"),
)
LIMITS = {  # of the list of five, those of one GPU: color, and what helps
    "launches": (plots.FAINT, "larger batch\ntorch.compile\nCUDA graph\nfused optimizer"),
    "arithmetic": (plots.GREENS[0], "16 bits\nsizes in multiples of 8\nfewer operations"),
    "memory": (plots.GPU, "16 bits\nchannels_last\ntorch.compile\nFlashAttention"),
    "copies": (plots.COPY, "no waits\nno loop over samples\npinned memory\nloader workers"),
}
HEADS = {"copies": "copies, or the CPU"}  # a box that says more than its limit's name
WIDE, STEP = 1.45, 1.87  # a card, and from one to the next, in inches
LOW, TOP = 1.1, 2.1  # how high the cards below and above reach
PALE = 0.3  # how opaque what isn't on the path is


def forecast_step(
    make_step: Callable, batch: int, precision: str = "tf32", half: bool = False, **switches
) -> Any:
    """Return the clock's forecast for an A100 of the step `make_step(batch, half=half, **switches)`.

    `precision`: "tf32", or "ieee" for full float32. A forecast is made once and used again.
    """
    return _forecast(make_step, batch, precision, half, tuple(sorted(switches.items())))


@functools.lru_cache(64)
def _forecast(make_step, batch, precision, half, switches):
    with tf32(precision):
        return recorded(lambda: make_step(batch, half=half, **dict(switches)))


def three_tests(
    make_step: Callable, batch: int, precision: str = "tf32", **switches
) -> tuple[float, float, float]:
    """Return the time of a step with each change over its time without, by forecast for an A100.

    `make_step(batch, half=False, **switches)` returns the step. `precision`: "tf32", or "ieee" for a step whose author
    never switched TF32 on.
    """
    as_it_is = forecast_step(make_step, batch, precision, **switches).ms
    twice = forecast_step(make_step, 2 * batch, precision, **switches).ms
    off = forecast_step(make_step, batch, "ieee", **switches).ms
    half = forecast_step(make_step, batch, precision, half=True, **switches).ms
    return twice / as_it_is, off / as_it_is, half / as_it_is


def limit(twice: float, tf32_off: float, half: float) -> str:
    """Return the limit of a step by its three tests.

    1.5 lies halfway between the same time and twice the time; 3.5 means that half of the time goes into matmuls, which
    take six times as long without TF32; 0.9 allows for what stays in float32.
    """
    if twice < 1.5:
        return "launches"
    if tf32_off > 3.5:
        return "arithmetic"
    return "memory" if half < 0.9 else "copies"


def name_of(limit: str) -> str:
    """Return what the box of a limit says at its head, such as "copies, or the CPU"."""
    return HEADS.get(limit, limit)


def draw_tree(
    title: str, tests: Sequence[float] = (), found: str | None = None
) -> tuple[Figure, str]:
    """Return (Figure, sentence): the tree; with `tests` and the limit they `found`, the path to it in full color."""
    figure = plots.blank_figure((7.4, 2.6))
    axes = figure.add_subplot()
    axes.set(xlim=(-0.02, 3 * STEP + WIDE + 0.02), ylim=(-0.02, TOP + 0.02))
    axes.set_axis_off()
    plots.set_title(figure, title)
    end = [*LIMITS].index(found) if found else len(TESTS)
    told = []
    for place, (name, words, down, on) in enumerate(TESTS):
        x, on_path = STEP * place, place <= end
        if tests and on_path:
            words = f"× {tests[place]:.2f}"
            told.append(f"{name[2:]}: {words}")
        _card(axes, x, TOP - 0.7, TOP, plots.INK, on_path, name, words)
        _arrow(axes, x, x, down, found is None or place == end)
        _arrow(axes, x, x + STEP, on, place < end)
    for place, (name, (color, helps)) in enumerate(LIMITS.items()):
        head = name_of(name)
        _card(axes, STEP * place, 0, LOW, color, found in (None, name), head, helps)
        told += [] if tests else [f"{head}: {helps}".replace("\n", ", ")]
    return figure, f"{title}. {'; '.join(told)}."


def _card(axes, x, low, high, color, lit, head, words):
    from matplotlib.patches import Rectangle

    look = {"edgecolor": color, "alpha": 1 if lit else PALE}
    axes.add_patch(Rectangle((x, low), WIDE, high - low, facecolor="none", **look))
    axes.add_patch(Rectangle((x, high - 0.3), WIDE, 0.3, facecolor=color, **look))
    text = {"x": x + WIDE / 2, "ha": "center", "va": "center", "linespacing": 1.5}
    axes.text(y=high - 0.15, s=head, color="white" if lit else plots.FAINT, fontsize=9, **text)
    size, ink = 12 if "×" in words else 8, plots.INK if lit else plots.WAIT
    axes.text(y=(low + high) / 2 - 0.16, s=words, color=ink, fontsize=size, **text)


def _arrow(axes, x, to, answer, lit):
    """From the test at `x` down to its limit, or on to the card at `to`, with the `answer` that leads there."""
    ink = plots.INK if lit else plots.RULE
    look = {"arrowstyle": "-|>", "color": ink, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    middle = TOP - 0.35
    note = {"fontsize": 8, "color": plots.INK if lit else plots.WAIT}
    if to == x:
        begin, end, bend = (x + WIDE / 2, TOP - 0.7), (x + WIDE / 2, LOW), "arc3"
        axes.text(x + WIDE / 2 + 0.06, (LOW + TOP - 0.7) / 2, answer, va="center", **note)
    else:
        begin, end, bend = (x + WIDE, middle), (to, middle), "arc3"
        if to > 2.5 * STEP:
            end, bend = (to + WIDE / 2, LOW), "angle,angleA=0,angleB=90"
        start, side = (x + (WIDE + STEP) / 2, "center")
        if to > 2.5 * STEP:
            start, side = (x + WIDE + 0.08, "left")
        axes.text(start, middle + 0.06, answer, ha=side, **note)
    axes.annotate("", end, begin, arrowprops=look | {"connectionstyle": bend})
