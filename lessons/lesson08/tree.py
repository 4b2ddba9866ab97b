"""The decision tree of lesson 08: three tests, four limits, and what helps against each."""

from collections.abc import Callable, Sequence

from helpers import figures
from lessons.forecasts import recorded, tf32

TESTS = (  # what is changed, what that does to the step, and the answers that lead down and on
    ("1 Double the batch", "twice the work,\nas many launches", "about the same", "longer"),
    ("2 Switch TF32 off", "slower arithmetic,\nas many bytes", "longer", "same"),
    ("3 Use 16 bits", "about half the bytes", "shorter", "same"),
)
LIMITS = {  # color, and what helps
    "overhead": (figures.FAINT, "larger batch\ntorch.compile\nCUDA graph\nfused optimizer"),
    "compute": (figures.GREENS[0], "TF32, 16 bits\nsizes in multiples of 8\nfewer operations"),
    "memory": (figures.GPU, "16 bits\nchannels_last\ntorch.compile\nFlashAttention"),
    "CPU or copies": (figures.CPU, "no waits\nno loop over samples\npinned memory\nloader workers"),
}
WIDE, STEP = 1.45, 1.87  # a card, and from one to the next, in inches
LOW, TOP = 1.15, 2.2  # how high the cards below and above reach
LONGER = "longer: launches"  # the third answer to the last test
PALE = 0.3  # how opaque what isn't on the path is


def three_tests(make_step: Callable, batch: int, **switches) -> tuple[float, float, float]:
    """Return the time of a step with each change over its time without, by forecast for an A100, with TF32 on.

    `make_step(batch, half=False, **switches)` returns the step.
    """

    def ms(times=1, half=False):
        return recorded(lambda: make_step(times * batch, half=half, **switches)).ms

    with tf32("ieee"):
        off = ms()
    with tf32("tf32"):
        on, twice, half = ms(), ms(times=2), ms(half=True)
    return twice / on, off / on, half / on


def show_tree(title: str, tests: Sequence[float] = (), limit: str | None = None) -> None:
    """Show the tree. With the ratios of `tests` and the `limit` they found, only the path to it is in full color."""
    figure = figures.blank_figure((7.4, 2.85))
    axes = figure.add_subplot()
    axes.set(xlim=(-0.02, 3 * STEP + WIDE + 0.02), ylim=(-0.02, TOP + 0.02))
    axes.set_axis_off()
    figures.set_title(figure, title)
    end = [*LIMITS].index(limit) if limit else len(TESTS)
    told = []
    for place, (name, words, down, on) in enumerate(TESTS):
        x, on_path = STEP * place, place <= end
        if tests and on_path:
            words = f"× {tests[place]:.2f}"
            told.append(f"{name[2:]}: {words}")
        _card(axes, x, TOP - 0.7, TOP, figures.INK, on_path, name, words)
        _arrow(axes, x, x, down, limit is None or place == end)
        _arrow(axes, x, x + STEP, on, place < end)
    for place, (name, (color, helps)) in enumerate(LIMITS.items()):
        bound = name if " " in name else f"{name}-bound"
        _card(axes, STEP * place, 0, LOW, color, limit in (None, name), bound, helps)
        told += [] if tests else [f"{bound}: {helps}".replace("\n", ", ")]
    figures.show(figure, f"{title}. {'; '.join(told)}.")


def _card(axes, x, low, high, color, lit, head, words):
    from matplotlib.patches import Rectangle

    look = {"edgecolor": color, "alpha": 1 if lit else PALE}
    axes.add_patch(Rectangle((x, low), WIDE, high - low, facecolor="none", **look))
    axes.add_patch(Rectangle((x, high - 0.3), WIDE, 0.3, facecolor=color, **look))
    text = {"x": x + WIDE / 2, "ha": "center", "va": "center", "linespacing": 1.5}
    axes.text(y=high - 0.15, s=head, color="white" if lit else figures.FAINT, fontsize=9, **text)
    size, ink = 12 if "×" in words else 8, figures.INK if lit else figures.WAIT
    axes.text(y=(low + high) / 2 - 0.16, s=words, color=ink, fontsize=size, **text)


def _arrow(axes, x, to, answer, lit):
    """From the test at `x` down to its limit, or on to the card at `to`, with the `answer` that leads there."""
    ink = figures.INK if lit else figures.RULE
    look = {"arrowstyle": "-|>", "color": ink, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    middle = TOP - 0.35
    note = {"fontsize": 8, "color": figures.INK if lit else figures.WAIT}
    if to == x:
        begin, end, bend = (x + WIDE / 2, TOP - 0.7), (x + WIDE / 2, LOW), "arc3"
        axes.text(x + WIDE / 2 + 0.06, (LOW + TOP - 0.7) / 2, answer, va="center", **note)
    else:
        begin, end, bend = (x + WIDE, middle), (to, middle), "arc3"
        if to > 2.5 * STEP:
            end, bend = (to + WIDE / 2, LOW), "angle,angleA=0,angleB=90"
        axes.text(x + (WIDE + STEP) / 2, middle + 0.06, answer, ha="center", **note)
        if to > 2.5 * STEP:
            axes.text(x + WIDE + 0.08, middle - 0.16, LONGER, va="center", **note)
    axes.annotate("", end, begin, arrowprops=look | {"connectionstyle": bend})
