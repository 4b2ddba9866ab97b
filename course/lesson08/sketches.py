"""What lesson 08 sketches: where the five limits sit, what a number's bits are for, three ways to launch."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import plots
from practice_gpus.cards import get_card

CARD = "H100 SXM"
SOURCE = "H100 SXM: NVIDIA's data sheet, links in one direction · launches: the course's clock"


def draw_limits() -> tuple[Figure, str, str]:
    """Return (Figure, sentence, caption): the five limits of a step, each where it sits, with its price."""
    card = get_card(CARD)
    prices = {
        "launches": "30 µs per operator",
        "memory": f"{card.bandwidth:,.0f} GB/s",
        "arithmetic": f"{card.peak('bf16') / 1e12:,.0f} TFLOP/s in bfloat16",
        "copies": f"{card.pcie:.0f} GB/s",
        "communication": f"{card.nvlink:.0f} GB/s",
    }
    title = "Five limits, each in its place"
    figure, axes = plots.drawing(title, (7.4, 3.3))
    axes.set(xlim=(0, 100), ylim=(0, 42))
    _box(axes, 0, 3, 17, 36, plots.CPU, "CPU\nand its\nmemory")
    _box(axes, 44, 27, 26, 12, plots.GPU, f"the GPU's cores\n3  arithmetic\n{prices['arithmetic']}")
    _box(axes, 44, 3, 26, 12, plots.GREENS[0], "the GPU's memory")
    _box(axes, 92, 3, 8, 36, plots.GREENS[2], "next\nGPU")
    _arrow(axes, (17, 33), (44, 33), plots.FAINT, f"1  launches\n{prices['launches']}")
    _arrow(axes, (17, 9), (44, 9), plots.COPY, f"4  copies\n{prices['copies']}")
    _arrow(axes, (70, 9), (92, 9), plots.COMM, f"5  communication\n{prices['communication']}", 2)
    _arrow(axes, (50, 15), (50, 27), plots.GPU, "", 2, 6)
    plots.note(axes, f"2  memory\n{prices['memory']}", (52, 21), (6, 0))
    plots.sources(figure, SOURCE)
    told = ", ".join(f"{name} {price}" for name, price in prices.items())
    caption = "The clock allows 30 µs of CPU time per operator; between CPUs, that's 10 to 80."
    return figure, f"{title}: {told}.", caption


def _box(axes: Axes, x: float, y: float, width: float, height: float, color: str, words: str):
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=color))
    look = {"ha": "center", "va": "center", "color": "white", "fontsize": 9, "linespacing": 1.4}
    axes.text(x + width / 2, y + height / 2, words, **look)


def _arrow(axes, begin, end, color, words, ways=1, wide=3.0):
    """An arrow from `begin` to `end`, or both ways, with its words above the middle."""
    head = "<|-|>" if ways == 2 else "-|>"
    look = {"arrowstyle": head, "color": color, "linewidth": wide, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=look)
    middle = ((begin[0] + end[0]) / 2, begin[1] + 1.5)
    axes.text(*middle, words, ha="center", va="bottom", fontsize=9, color=plots.INK)


FORMATS = {  # bits of exponent and mantissa, beside the sign's; bits stored
    "float32": (8, 23, 32),
    "TF32": (8, 10, 32),
    "bfloat16": (8, 7, 16),
    "float16": (5, 10, 16),
}


def formats() -> tuple[Figure, str]:
    """Return (Figure, alternative text): the bits of four number formats, each bit a square."""
    title = "The same number in four formats: half the bits are half the bytes"
    figure, axes = plots.drawing(title, (7.4, 2.5))
    axes.set(xlim=(-6, 39), ylim=(4.3, -0.9))
    for row, (name, (exponent, mantissa, stored)) in enumerate(FORMATS.items()):
        axes.text(-0.6, row, name, ha="right", va="center", color=plots.INK)
        parts = [plots.INK, *exponent * [plots.GREENS[0]], *mantissa * [plots.GREENS[2]]]
        parts += [plots.RULE] * (stored - len(parts))
        for place, color in enumerate(parts):
            axes.barh(row, 0.9, 0.66, place + 0.05, color=color)
        axes.text(stored + 0.6, row, f"{stored // 8} bytes", va="center", color=plots.INK)
    key = {"sign": (0, plots.INK), "exponent: how large": (3, plots.GREENS[0])}
    key |= {"mantissa: how many digits": (13, "#2F7A57"), "not used": (26, plots.FAINT)}
    for word, (x, color) in key.items():
        axes.text(x, 4, word, va="center", color=color, fontsize=9)
    told = "; ".join(
        f"{name} has 1 bit of sign, {exponent} of exponent, {mantissa} of mantissa, {stored // 8} bytes"
        for name, (exponent, mantissa, stored) in FORMATS.items()
    )
    return figure, f"{told}."


LAUNCH, KERNEL = 2.0, 0.7  # lengths in the sketch
WAYS = {  # kernels that each launch starts, one launch after another
    "eager": (1, 1, 1, 1, 1),
    "compiled: fused": (1.5, 1.5),
    "CUDA graph: replayed": (5,),
}


def launching() -> tuple[Figure, str]:
    """Return (Figure, alternative text): five operations launched one by one, fused into two, and replayed as a graph."""
    title = "Five operations: five launches, two, or one"
    figure, axes = plots.drawing(title, (7.4, 3.0))
    axes.set(xlim=(-3.2, 11.2), ylim=(8.2, -0.6))
    for place, (name, launches) in enumerate(WAYS.items()):
        y, free = 2.9 * place, 0.0
        axes.text(-3.2, y - 0.05, name, va="center", color=plots.INK, fontsize=9)
        axes.text(-0.2, y + 0.85, "CPU", va="center", ha="right", color=plots.CPU, fontsize=9)
        axes.text(-0.2, y + 1.65, "GPU", va="center", ha="right", color=plots.GPU, fontsize=9)
        for n, kernels in enumerate(launches):
            axes.barh(y + 0.85, LAUNCH - 0.06, 0.6, LAUNCH * n, color=plots.CPU)
            free = max(free, LAUNCH * (n + 1))
            for length in [1] * kernels if kernels == 5 else [kernels]:
                axes.barh(y + 1.65, KERNEL * length - 0.06, 0.6, free, color=plots.GPU)
                free += KERNEL * length
        axes.text(free + 0.15, y + 1.65, "done", va="center", color=plots.FAINT, fontsize=9)
    plots.sources(figure, "a sketch, not a measurement; time runs to the right")
    told = "one by one, the GPU waits between kernels; fused or replayed, it's done sooner"
    return figure, f"{title}: {told}."
