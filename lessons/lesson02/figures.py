"""The figures of lesson 02: a GPU that loses to a CPU, copies by size, and when the CPU wins."""

import measurements
from helpers import figures, plots
from helpers.checks.core import CORRECT
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
    words = f"copying 8.6 GB from pinned memory: {copy:.0f} ms (forecast)"
    axes.annotate(words, (0, -1), (8, 0), **note)
    names = ("16-core CPU", "RTX 4090, copying first", "RTX 4090, weights there")
    axes.set_yticks([0, -1, -2], names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(False, axis="y")
    copied = f"with a forecast copy of the weights from pinned memory {copy + gpu:.0f}"
    told = f"CPU {cpu:.0f}, RTX 4090 {gpu:.0f}, {copied}"
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


def show_small_copies(answer, times, device):
    """Show µs by size: `answer`'s formula (ours until it is right), what was measured, and `times` on a GPU, {bytes: µs}."""
    right = exercises.fit.outcome(answer).status == CORRECT
    ends = exercises.published_copy(1000), exercises.published_copy(10**6)
    overhead, bandwidth = (answer if right else exercises.fit_copy)(*ends)
    sizes = [10 ** (k / 8) for k in range(20, 60)]
    formula = [overhead + size / bandwidth / 1000 for size in sizes]
    name = "your formula" if right else "our formula"
    where = {"x": "bytes", "y": "gb_per_s", "direction": "h2d", "pinned": True}
    lines = [plots.forecast({name: (sizes, formula)})]
    lines += [_microseconds(plots.yours("copies", **where))]
    lines += [_microseconds(plots.recorded("copies", **where))]
    if str(device) != "cpu":
        lines.append(plots.here({f"to {device}": ([*times], [*times.values()])}))
    even = overhead * bandwidth * 1000
    title = f"Below {even / 1000:.0f} kB, a copy is mostly overhead"
    axes = ("bytes in one copy (log scale)", "µs for one copy (log scale)")
    figure = plots.lines(lines, title, *axes, logx=True, logy=True, colors={name: INK})
    formulas, *others = figure.axes[0].get_lines()
    formulas.set_marker("None")
    for line in others:
        if line.get_label().startswith("to "):
            line.set_linestyle("None")
    if not others:
        plots.label_ends(figure.axes[0])
    _mark(figure.axes[0], even, dict(ends))
    plots.sources(figure, f"published: {measurements.published('pinned_a10g').source}")
    measured = " and ".join(f"{us:.3g} µs for {size / 1000:,.0f} kB" for size, us in ends)
    formula = f"{overhead:.1f} µs + bytes ÷ {bandwidth:.1f} GB/s"
    told = f"µs by bytes in one copy: the formula, {formula}, is flat, then rises through the A10G's {measured}."
    plots.show(figure, told)


def _microseconds(group):
    """A group of GB/s by bytes in microseconds by bytes."""
    lines = {
        label: (sizes, [size / rate / 1000 for size, rate in zip(sizes, rates, strict=True)])
        for label, (sizes, rates) in group.items()
    }
    return type(group)(group.kind, lines, group.sources)


def _mark(axes, even, published):
    """Ticks in bytes, the `published` times, {bytes: µs}, and where overhead and transfer take equally long."""
    ticks = {10**3: "1 kB", 10**4: "10 kB", 10**5: "100 kB", 10**6: "1 MB", 10**7: "10 MB"}
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.set_ylim(bottom=5)
    for size, us in published.items():
        axes.plot(size, us, "o", color=figures.COPY, markersize=7, label=f"_{size}")
        look = {"textcoords": "offset points", "color": figures.COPY, "fontsize": 9, "ha": "right"}
        axes.annotate(f"A10G: {us:.0f} µs", (size, us), (-8, 7), **look)
    axes.axvline(even, color=figures.FAINT, linewidth=1, linestyle=(0, (2, 2)), label="_even")
    note = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 9}
    for side, words, ha in ((-6, "mostly overhead", "right"), (6, "mostly transfer", "left")):
        axes.annotate(words, (even, 0.03), (side, 0), color=figures.FAINT, ha=ha, **note)


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
    note = "Measured under WSL 2 (Linux inside Windows), where a launch takes longer than on Linux itself."
    plots.show(figure, told, note)
    return gpu
