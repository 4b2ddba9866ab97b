"""The figures of lesson 01: matmul as areas, warps, rows through small layers, which card to rent."""

from course.pictures import machine

import textwrap

from course import measurements
from course.checks.core import CORRECT
from course.lesson01 import exercises, which_card
from course.lesson01.jobs import jobs
from course.measurements import gpu_code
from course.pictures import moving as step_pictures
from course.pictures import stepper as steps
from course.show import figures
from helpers import plots

# --- a second of matmul ---------------------------------------------------------------------------
CPUS = {"Core i9-13900K": "Core i9-13900K, desktop CPU"}
CARDS = {
    "T4": "T4, Colab's free GPU",
    "RTX 4090": "RTX 4090, gaming GPU",
    "H100 PCIe": "H100 PCIe, data-center GPU",
}
PALE = plots.GREENS[3]
LARGEST, FLOOR = 1.85, 0.72  # inches: a side of the largest square, and where squares stand


def first_picture():
    """Return (Figure, alt): a second of matmul on a CPU and three GPUs, each as an area."""
    return _draw_second(_published(CPUS), "a desktop CPU", [])


def draw_race(rates):
    """Return (Figure, alt): the same picture with `rates` ({label: TFLOP/s}) of this machine, and GPUs of yours."""
    groups = [
        gpu_code.yours("matmul", "tflop_per_s", x="size", dtype="float32"),
        gpu_code.recorded("matmul", "size", "tflop_per_s", kind="cuda", dtype="float32"),
    ]
    squares = {f"{name}, measured here": (rate, 0) for name, rate in rates.items()}
    for group in groups:
        for name, (_, values) in group.items():
            squares[f"{name}, {plots.KINDS[group.kind]}"] = (max(values), 0)
    if len(squares) < 3:  # there is room
        squares |= _published(CPUS)
    sources = [line for group in groups for line in group.sources]
    return _draw_second(squares, next(iter(rates)), sources)


def _published(names):
    """Return {label: (TFLOP/s in float32, in 16 bits or 0)} of published processors."""
    rows = measurements.published("cpus_and_gpus").rows("best")
    found = {}
    for name, label in names.items():
        of_device = {row["dtype"]: row["tflop_per_s"] for row in rows if row["device"] == name}
        half = max(of_device.get("float16", 0), of_device.get("bfloat16", 0))
        found[label] = of_device["float32"], half
    return found


def _draw_second(squares, first, sources):
    squares = {**squares, **_published(CARDS)}
    slowest = plots.number(next(iter(squares.values()))[0], 2)
    whole, half = (max(pair[place] for pair in squares.values()) for place in (0, 1))
    most = max(whole, half)
    figure = plots.blank_figure((7.4, 3.05))
    figure.set_layout_engine("none")
    title = (
        f"Matmul: {slowest} TFLOP/s on {first}, up to {whole:g} on a GPU, and {half:g} in 16 bits"
    )
    plots.set_title(figure, title)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 7.4), ylim=(0, 3.05))
    axes.set_axis_off()
    axes.text(0.15, 2.5, _READ, fontsize=9, color=plots.FAINT, va="top", linespacing=1.5)
    scale = LARGEST / most**0.5
    widths = [max(0.93, scale * max(pair) ** 0.5) for pair in squares.values()]
    gap = (7.3 - sum(widths)) / len(widths)
    left = 0.1
    for (label, pair), width in zip(squares.items(), widths, strict=True):
        _draw_square(axes, left + width / 2, label, pair, scale)
        left += width + gap
    plots.sources(figure, *sources, measurements.published("cpus_and_gpus").source)
    told = "; ".join(f"{label}: {_said(pair)}" for label, pair in squares.items())
    return figure, f"Squares, their areas in TFLOP per second. {told}."


_READ = "The area is the throughput, in TFLOP/s.\nInner square: float32. Outer: 16 bits."


def _said(pair):
    half = f", {pair[1]:g} in 16 bits" if pair[1] else ""
    return f"{plots.number(pair[0], 2)}{half}"


def _draw_square(axes, middle, label, pair, scale):
    """Draw float32 as a square inside the one of 16 bits, and below them the name and the numbers."""
    from matplotlib.patches import Rectangle

    dark = plots.CPU if "CPU" in label else plots.GPU
    for rate, color in ((pair[1], PALE), (pair[0], dark)):
        side = scale * rate**0.5
        axes.add_patch(Rectangle((middle - side / 2, FLOOR), side, side, color=color, linewidth=0))
    name, _, what = label.partition(", ")
    words = f"{name}\n{textwrap.shorten(what, 18, placeholder='…')}"
    if "measured here" in label:
        high = FLOOR + scale * max(pair) ** 0.5 + 0.04
        arrow = {"arrowstyle": "->", "color": plots.INK, "linewidth": 1.5}
        place = {"xytext": (middle, high + 0.45), "ha": "center", "color": plots.INK}
        axes.annotate("yours", (middle, high), arrowprops=arrow, fontsize=plots.SMALL, **place)
    style = {"ha": "center", "va": "top", "fontsize": plots.SMALL}
    axes.text(middle, FLOOR - 0.05, words, color=plots.FAINT, **style)
    axes.text(middle, FLOOR - 0.38, _said(pair), color=plots.INK, **style)


def show_warps(load, work):
    """Show the picture whose slider adds warps, each of which computes `work` cycles and then waits `load` for its data."""
    caption = (
        "Green: computing. Gray: waiting for memory or its turn, and idle in the top row. "
        f"From left to right: {2 * (load + work)} clock cycles."
    )
    steps.show(step_pictures.latency_hiding(load, work), still=2, caption=caption, start=2)


WARPS = ("11", "Each warp works for 40 of its 440 cycles: 440 ÷ 40.")  # for `reveal`


# --- many rows through small layers --------------------------------------------------------------
def show_rows(times):
    """Show published times of rows through 128 small layers, and `times` ({label: {rows: ms}}) of this machine.

    Returns what `reveal` takes: how long 2,048 rows take the RTX 4090, and why.
    """
    data = measurements.published("crossover_4090")
    mine = {f"{name}, measured here": (list(ms), list(ms.values())) for name, ms in times.items()}
    others = {}
    for device in ("Ryzen 9 7950X3D, 16 cores", "RTX 4090"):
        found = data.rows("batch", device=device)
        others[device] = [row["batch"] for row in found], [row["time_ms"] for row in found]
    gpu = others["RTX 4090"][1]
    title = f"One row or 2,048: the RTX 4090 takes {min(gpu):.1f} to {max(gpu):.1f} ms"
    labels = ("rows (log scale)", "ms (log scale)")
    figure = plots.lines(others | mine, title, *labels, logx=True, logy=True)
    figure.axes[0].set_xticks((1, 8, 64, 512, 2048))
    plots.sources(figure, data.source)
    told = (
        f"{name} {ms[0]:.3g} ms for one row, {ms[-1]:.3g} for 2,048"
        for name, (_, ms) in (others | mine).items()
    )
    figures.show(figure, f"Times by the number of rows: {'; '.join(told)}.")
    return "about 2 ms", f"{gpu[-1]:.2g} ms: launching 128 layers takes that long."


def show_formula(answer):
    """Show 128 times what `answer` forecasts for one layer (ours until it is right), and what was measured."""
    right = exercises.limit.outcome(answer).status == CORRECT
    formula = answer if right else exercises.how_long
    card = exercises.RTX_4090
    sizes = [2**k for k in range(18)]
    forecast = [128 * formula(*exercises.layer(rows), card)[0] for rows in sizes]
    even = _work_equals_launch(card)
    data = measurements.published("crossover_4090")
    found = data.rows("batch", device="RTX 4090")
    measured = [row["batch"] for row in found], [row["time_ms"] for row in found]
    name = f"128 × {'your' if right else 'our'} formula"
    lines = [
        plots.forecast({name: (sizes, forecast)}),
        plots.Group("published", {"RTX 4090": measured}, [f"published: {data.source}"]),
    ]
    title = f"By our formula, launching takes longer than the work up to {even:,.0f} rows"
    labels = ("rows (log scale)", "ms for 128 layers (log scale)")
    colors = {name: plots.INK}
    figure = plots.lines(lines, title, *labels, logx=True, logy=True, colors=colors)
    axes = figure.axes[0]
    for line in axes.get_lines():
        if line.get_label().startswith(name):
            line.set_marker("None")
    axes.set_xticks((1, 8, 64, 512, 2048, 16384, 131072))
    axes.set_ylim(1, 40)
    plots.split(axes, even, "mostly overhead", "mostly work")
    first, last = (128 * formula(*exercises.layer(rows), card)[0] for rows in (1, 2048))
    told = f"by formula {first:.2g} ms for one row, {last:.2g} for 2,048; measured {measured[1][0]:.2g} and {measured[1][-1]:.2g}"
    figures.show(
        figure,
        f"128 layers on an RTX 4090: {told}. From {even:,.0f} rows on, the work takes longer than the launches.",
    )


def _work_equals_launch(card):
    """How many rows make the work of a layer as long as its launch, to the nearest thousand."""
    for rows in range(1000, 10**6, 1000):
        if exercises.how_long(*exercises.layer(rows + 500), card)[0] >= 2 * card["overhead_ms"]:
            return rows
    raise ValueError(f"{card}: a million rows are still overhead")


# --- which card to rent --------------------------------------------------------------------------
def show_cards():
    """Show the explorer of cards: forecast minutes and dollars of an epoch, for each of two jobs."""
    which_card.explore(jobs())


def first_picture_b():
    """Return (Figure, alternative text) of the picture at the top of page 01b."""
    return machine.draw(title="What a GPU is"), machine.words()
