"""The figures of lesson 02: a GPU that loses to a CPU, copies by size, and when the CPU wins."""

import measurements
from helpers import figures, plots
from helpers.checks.core import CORRECT
from helpers.memory import format_bytes
from helpers.palette import CARD, INK
from lessons.lesson02 import exercises


def first_picture():
    """(Figure, alt): one row of numbers through 2.1 billion weights, on a CPU and on a GPU, with the copy and without."""
    cpu, gpu = (row["time_ms"] for row in _shapes(4096))
    copy = _copy_ms(128 * 4096**2)
    title = f"A GPU {cpu / gpu:.0f} times as fast as the CPU loses, if the weights are copied first"
    figure, axes = plots.new_figure(title, "ms", size=(7.4, 2.3))
    axes.barh(0, cpu, color=figures.CPU)
    axes.barh(-1, copy, color=CARD, edgecolor=figures.COPY, linewidth=1.8)
    axes.barh(-1, gpu, left=copy, color=figures.GPU)
    axes.barh(-2, gpu, color=figures.GPU)
    note = {"textcoords": "offset points", "va": "center", "fontsize": 9, "color": INK}
    ends = ((cpu, 0, f"{cpu:.0f}"), (copy + gpu, -1, f"{copy + gpu:.0f}"), (gpu, -2, f"{gpu:.0f}"))
    for x, y, text in ends:
        axes.annotate(text, (x, y), (5, 0), weight="bold", **note)
    words = f"copying 8.6 GB to the GPU: {copy:.0f} ms (forecast)"
    axes.annotate(words, (0, -1), (8, 0), **note)
    names = ("16-core CPU", "RTX 4090, copying first", "RTX 4090, weights there")
    axes.set_yticks([0, -1, -2], names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(False, axis="y")
    told = (
        f"CPU {cpu:.0f}, RTX 4090 {gpu:.0f}, with a forecast copy of the weights {copy + gpu:.0f}"
    )
    return figure, f"Bars of ms for one row of numbers through 2.1 billion weights: {told}."


def _shapes(width):
    """The published rows of the CPU and of the RTX 4090 for layers of this width."""
    return measurements.published("crossover_4090").rows("shape", width=width)


def _copy_ms(weights):
    """Milliseconds in which float32 `weights` reach a GPU at the rate that an A100 reaches over PCIe 4: a forecast."""
    copies = measurements.published("copies_a100")
    [bus] = copies.rows("copies", bytes=1_000_000_000, direction="h2d")
    return 4 * weights / (bus["gb_per_s"] * 1e6)


def times_as_long():
    """How many times as long 1,000 copies of 1,000 floats take as one copy of a million, by PyTorch's tutorial."""
    small, large = exercises.published_copy(1000), exercises.published_copy(10**6)
    return 1000 * small[1] / large[1]


def show_small_copies(answer, rates, device):
    """Show GB/s by size: `answer`'s formula (ours until it is right), what was measured, and `rates` here, {bytes: GB/s}."""
    right = exercises.fit.outcome(answer).status == CORRECT
    ends = exercises.published_copy(1000), exercises.published_copy(10**6)
    overhead, bandwidth = (answer if right else exercises.fit_copy)(*ends)
    formula = {
        size: size / (overhead + size / bandwidth / 1000) / 1000
        for size in [2**k for k in range(8, 25)]
    }
    name = "your formula" if right else "our formula"
    where = {"direction": "h2d", "pinned": True}
    label = "this CPU" if str(device) == "cpu" else f"to {device}"
    lines = [
        plots.forecast({name: ([*formula], [*formula.values()])}),
        plots.yours("copies", "gb_per_s", x="bytes", **where),
        plots.recorded("copies", "bytes", "gb_per_s", **where),
        plots.here({label: ([*rates], [*rates.values()])}),
    ]
    even = overhead * bandwidth * 1000
    title = f"Below {even / 1000:.0f} kB, overhead takes most of the time of a copy"
    axes = ("bytes in one copy (log scale)", "GB/s (log scale)")
    figure = plots.lines(lines, title, *axes, logx=True, logy=True, colors={name: INK})
    formulas, *_, own = figure.axes[0].get_lines()
    formulas.set_marker("None")
    own.set_linestyle("None")
    _mark(figure.axes[0], even, {size: size / us / 1000 for size, us in ends})
    plots.sources(figure, f"published: {measurements.published('pinned_a10g').source}")
    plots.show(
        figure,
        f"GB/s by bytes in one copy: the formula, {overhead:.1f} µs + bytes ÷ {bandwidth:.1f} GB/s, through 0.247 and "
        f"10.9 of an A10G at 4 kB and 4 MB; here {max(rates.values()):.2g} GB/s at best.",
    )


def _mark(axes, even, published):
    """Ticks in bytes, the `published` rates, {bytes: GB/s}, and where overhead and transfer take equally long."""
    sizes = [2**k for k in range(8, 25, 4)]
    axes.set_xticks(sizes, [format_bytes(size) for size in sizes])
    for size, rate in published.items():
        axes.plot(size, rate, "o", color=figures.COPY, markersize=7, label=f"_{size}")
        look = {"textcoords": "offset points", "color": figures.COPY, "fontsize": 9, "ha": "center"}
        axes.annotate(f"A10G: {rate:.2g}", (size, rate), (18, -18), **look)
    axes.axvline(even, color=figures.FAINT, linewidth=1, linestyle=(0, (2, 2)), label="_even")
    for side, words in ((-6, "mostly overhead"), (6, "mostly transfer")):
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ha = "right" if side < 0 else "left"
        axes.annotate(
            words, (even, 0.03), (side, 0), color=figures.FAINT, ha=ha, fontsize=9, **place
        )


def show_crossing():
    """Show published times of 2.1 billion weights in narrow and wide layers; return the GPU's ms for the narrowest."""
    times = plots.published("crossover_4090", "time_ms", x="width", section="shape")
    times = times.renamed({label: label.removesuffix(", 16 cores") for label in times})
    (wide_cpu, wide_gpu), (cpu, gpu) = (
        [row["time_ms"] for row in _shapes(width)] for width in (4096, 128)
    )
    title = (
        f"The GPU wins {wide_cpu / wide_gpu:.0f} to 1 with wide layers, and loses with narrow ones"
    )
    axes = ("width of a layer (log scale)", "ms for one row (log scale)")
    figure = plots.lines(times, title, *axes, logx=True, logy=True)
    figure.axes[0].set_ylim(bottom=5)
    told = f"Layers of 128: CPU {cpu:,.0f} ms, GPU {gpu:,.0f}; of 4,096: CPU {wide_cpu:.0f}, GPU {wide_gpu:.0f}."
    plots.show(figure, told, "Both devices were measured under WSL 2, Linux inside Windows.")
    return gpu
