"""The figures of lesson 02: a GPU that loses to a CPU, copies by size and by way, and when the CPU wins."""

import measurements
from helpers import figures, gpu_code, plots
from helpers.checks.core import CORRECT
from helpers.palette import CARD, INK
from lessons.lesson02 import exercises

TICKS = {10**3: "1 kB", 10**4: "10 kB", 10**5: "100 kB", 10**6: "1 MB"}
WAYS = {  # to (tensors, way) in the words of the source
    "ordinary memory": ("1000 × 1,000,000 floats", "blocking"),
    "ordinary memory, non_blocking": ("1000 × 1,000,000 floats", "non_blocking"),
    "already pinned": ("same, already pinned", "blocking"),
    "already pinned, non_blocking": ("same, already pinned", "non_blocking"),
    "pinned just before": ("same, pinned just before", "blocking"),
    "pinned just before, non_blocking": ("same, pinned just before", "non_blocking"),
}
WEIGHTS = 128 * 4096**2  # of the network that meets one row of numbers


def first_picture():
    """(Figure, alt): a row through 2.1 billion weights, on a CPU and on a GPU, with copies at two rates and without."""
    cpu, gpu = (row["time_ms"] for row in _shapes(4096))
    title = f"A GPU {cpu / gpu:.0f} times as fast as the CPU loses if the weights have to be copied first"
    figure, axes = plots.new_figure(title, "ms (the copy of 8.6 GB: forecast)", size=(7.4, 2.3))
    axes.barh(0, cpu, color=figures.CPU)
    note = {"textcoords": "offset points", "va": "center", "fontsize": 9, "color": INK}
    ends = [cpu]
    for y, rate in enumerate((_fast_rate(), _rate(exercises.fit_copy)), 1):
        copy = _copy_ms(rate)
        axes.barh(-y, copy, color=CARD, edgecolor=figures.COPY, linewidth=1.8)
        axes.barh(-y, gpu, left=copy, color=figures.GPU)
        axes.annotate(f"at {rate:.1f} GB/s", (0, -y), (8, 0), **note)
        ends.append(copy + gpu)
    axes.barh(-3, gpu, color=figures.GPU)
    for y, x in enumerate((*ends, gpu)):
        axes.annotate(f"{x:.0f}", (x, -y), (5, 0), weight="bold", **note)
    names = ("16-core CPU", "RTX 4090, fast copy first", "RTX 4090, slow copy first")
    axes.set_yticks([0, -1, -2, -3], [*names, "RTX 4090, weights there"])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_xticks([])
    axes.grid(False)
    told = "CPU {:.0f}; RTX 4090 {:.0f} or {:.0f} after a copy, by forecast, else {:.0f}".format(
        *ends, gpu
    )
    return figure, f"Bars of ms for one row of numbers through 2.1 billion weights: {told}."


def _shapes(width):
    """The published rows of the CPU and of the RTX 4090 for layers of this width."""
    return measurements.published("crossover_4090").rows("shape", width=width)


def _rate(fit_copy):
    """GB/s of PyTorch's tutorial, from ordinary memory, by `fit_copy`."""
    return fit_copy(exercises.published_copy(1000), exercises.published_copy(10**6))[1]


def _fast_rate():
    """GB/s of a large copy over PCIe 4, from pinned memory, as published for an A100."""
    rows = measurements.published("copies_a100").rows("copies", direction="h2d", bytes=10**9)
    return rows[0]["gb_per_s"]


def _copy_ms(gb_per_s):
    """Milliseconds for the copy of all `WEIGHTS`."""
    return 4 * WEIGHTS / gb_per_s / 1e6


def times_as_long():
    """How many times as long 1,000 copies of 1,000 floats take as one copy of a million, by PyTorch's tutorial."""
    small, large = exercises.published_copy(1000), exercises.published_copy(10**6)
    return 1000 * small[1] / large[1]


def show_small_copies(answer, times, device):
    """Show µs by size: `answer`'s formula (ours until it is right), what was measured, and `times` on a GPU, {bytes: µs}."""
    right = exercises.fit.outcome(answer).status == CORRECT
    measured = [*exercises.measured_copies().items()]
    overhead, bandwidth = (answer if right else exercises.fit_copy)(measured[0], measured[-1])
    sizes = [10 ** (k / 8) for k in range(20, 54)]
    formula = [overhead + size / bandwidth / 1000 for size in sizes]
    name = "your formula" if right else "our formula"
    where = {"x": "bytes", "y": "gb_per_s", "direction": "h2d", "pinned": True}
    lines = [plots.forecast({name: (sizes, formula)}), _measured()]
    lines += [_microseconds(gpu_code.yours("copies", **where))]
    lines += [_microseconds(gpu_code.recorded("copies", **where))]
    if str(device) != "cpu":
        lines.append(plots.here({f"to {device}": ([*times], [*times.values()])}))
    figure = _by_size(lines, "A formula from two of the copies forecasts the other four", name)
    _mark(figure.axes[0], overhead * bandwidth * 1000)
    formula = f"{overhead:.1f} µs + bytes ÷ {bandwidth:.1f} GB/s"
    told = f"µs by bytes in one copy: the formula, {formula}, is flat, then rises through all six points."
    plots.show(figure, told)


def _measured():
    """The group of the six published copies, µs by bytes."""
    where = {"x": "bytes", "direction": "h2d", "pinned": False}
    return _microseconds(plots.published("copies_rtx6000", "gb_per_s", **where))


def _by_size(lines, title, formula=""):
    """A figure of µs by bytes: the line called `formula` without markers, what was measured as points alone."""
    axes = ("bytes in one copy (log scale)", "µs for one copy (log scale)")
    colors = {formula: INK, "Quadro RTX 6000": figures.COPY}
    figure = plots.lines(lines, title, *axes, logx=True, logy=True, colors=colors)
    for line in figure.axes[0].get_lines():
        if line.get_label().startswith(formula or " "):
            line.set_marker("None")
        elif line.get_label().startswith(("to ", "Quadro")):
            line.set_linestyle("None")
            line.set_markersize(7)
    figure.axes[0].set_xticks([*TICKS], [*TICKS.values()])
    figure.axes[0].set_ylim(bottom=2)
    return figure


def _microseconds(group):
    """A group of GB/s by bytes in microseconds by bytes."""
    lines = {
        label: (sizes, [size / rate / 1000 for size, rate in zip(sizes, rates, strict=True)])
        for label, (sizes, rates) in group.items()
    }
    return type(group)(group.kind, lines, group.sources)


def _mark(axes, even):
    """Mark where overhead and transfer take equally long."""
    axes.axvline(even, color=figures.FAINT, linewidth=1, linestyle=(0, (2, 2)), label="_even")
    note = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 9}
    for side, words, ha in ((-6, "mostly overhead", "right"), (6, "mostly transfer", "left")):
        axes.annotate(words, (even, 0.03), (side, 0), color=figures.FAINT, ha=ha, **note)


def show_pinned():
    """Show ms of 1,000 copies of 4 MB by way; return those of tensors pinned just before."""
    table = measurements.published("pinned_a10g")
    first, second = (
        {(row["tensors"], row["way"]): row["time_ms"] for row in table.rows("many", build=build)}
        for build in "12"
    )
    times = {name: first[way] for name, way in WAYS.items()}
    title = "Pinning a tensor just to send it once costs more time than it saves"
    figure, axes = plots.new_figure(title, "ms for 1,000 copies of 4 MB each", size=(7.4, 2.9))
    note = {"textcoords": "offset points", "va": "center", "fontsize": 9, "color": INK}
    for place, ms in enumerate(times.values()):
        axes.barh(-place, ms, height=0.62, color=figures.COPY)
        axes.annotate(f"{ms:.0f}", (ms, -place), (5, 0), **note)
    axes.grid(False, axis="y")
    axes.set_yticks([-place for place in range(len(times))], [*times])
    axes.tick_params(axis="y", labelcolor=INK)
    plots.sources(figure, f"published: {table.source}")
    told = ", ".join(f"{name} {ms:.0f}" for name, ms in times.items())
    other = ", ".join(f"{second[way]:.0f}" for way in WAYS.values())
    note = f"When the tutorial was built a second time, the six took {other} ms."
    plots.show(figure, f"Bars of ms for 1,000 copies of 4 MB: {told}.", note)
    return f"{times['pinned just before']:.0f} ms"


def rows_to_win(answer):
    """Show, by forecast, from which row on an RTX 4090 beats the CPU, its weights copied first; return that row.

    Row after row goes through 2.1 billion weights, which are copied once: from pageable memory, whose row is returned, or
    from pinned. `answer` is the learner's `fit_copy`; ours stands in until it is right.
    """
    right = exercises.fit.outcome(answer).status == CORRECT
    slow, fast = map(_copy_ms, (_rate(answer if right else exercises.fit_copy), _fast_rate()))
    cpu, gpu = (row["time_ms"] for row in _shapes(4096))
    rows = [1, 2, 3, 4]
    times = {"CPU": [cpu * n for n in rows], "GPU, slow copy": [slow + gpu * n for n in rows]}
    times["GPU, fast copy"] = [fast + gpu * n for n in rows]
    last, first = (next(n for n in rows if copy + gpu * n < cpu * n) for copy in (slow, fast))
    title = f"From row {first} or {last} on, the GPU is ahead, the copy included"
    series = plots.forecast({name: (rows, ms) for name, ms in times.items()})
    green = {name: figures.GPU for name in times if name != "CPU"}
    axes = ("rows, one after another", "ms since the start")
    figure = plots.lines(series, title, *axes, colors=green)
    figure.set_figheight(2.9)
    figure.axes[0].set_xticks(rows)
    figure.axes[0].set_yticks([0, 500, 1000])
    figure.axes[0].yaxis.set_major_formatter("{x:,g}")
    told = f"CPU {cpu:.0f} for each row; GPU {fast:.0f} or {slow:.0f} for the copy, then {gpu:.0f} for each"
    ahead = f"The GPU is ahead from row {first} or {last} on."
    plots.show(figure, f"ms by rows, by forecast: {told}. {ahead}")
    return last


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
