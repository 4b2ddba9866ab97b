"""The figures of lesson 02: links and memories, copies by size, a formula beside them, and when the CPU wins."""

import measurements
from helpers import figures, plots
from helpers.checks.core import CORRECT
from helpers.memory import format_bytes
from helpers.palette import INK
from lessons.lesson02 import exercises


def first_picture():
    """(Figure, alt): published bandwidths of links from the CPU's memory to a GPU, and of the GPU's own memory."""
    links, inside, sources = _bandwidths()
    [memory] = inside.values()
    bus = links["to an A100, PCIe 4"]
    title = f"PCIe delivers {bus:g} GB/s to an A100, the card's own memory {figures.number(memory)}"
    figure, axes = plots.new_figure(title, "GB/s, published", size=(7.4, 2.2))
    for y, (label, rate) in enumerate({**links, **inside}.items()):
        color = figures.COPY if label in links else figures.GPU
        axes.barh(-y, rate, height=0.7, color=color, zorder=2)
        note = {"textcoords": "offset points", "va": "center", "fontsize": 9, "color": INK}
        axes.annotate(figures.number(rate), (rate, -y), (5, 0), **note)
    names = [*links, *inside]
    axes.set_yticks([-y for y in range(len(names))], names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_formatter("{x:,g}")
    told = ", ".join(f"{name} {rate:.3g}" for name, rate in {**links, **inside}.items())
    return figure, f"Bars of GB per second: {told}. Sources: {', '.join(sources)}."


def _bandwidths():
    """Links ({label: GB/s}), memories, and the sources' names."""
    rtx = measurements.published("copies_rtx6000")
    a100 = measurements.published("copies_a100")
    [pageable] = rtx.rows(bytes=2**20, direction="h2d", pinned=False)
    [pinned] = rtx.rows(bytes=2**20, direction="h2d", pinned=True)
    [bus] = a100.rows("copies", bytes=1_000_000_000, direction="h2d")
    [memory] = a100.rows("bandwidth", bytes=1_000_000_000)
    links = {
        "to a Quadro RTX 6000, PCIe 3, pageable": pageable["gb_per_s"],
        "the same, from pinned memory": pinned["gb_per_s"],
        "to an A100, PCIe 4": bus["gb_per_s"],
    }
    return links, {"inside the A100, its HBM": memory["gb_per_s"]}, (rtx.source, a100.source)


def show_small_copies(rates, device):
    """Show published rates of copies to two GPUs by size, and beside them `rates` ({bytes: GB/s}) here, to `device`.

    Returns how many times as long 1 KiB copies take as 1 MiB copies for the same bytes, on the pinned Quadro RTX 6000.
    """
    lines = []
    for name, pinned in (
        ("copies_rtx6000", True),
        ("copies_rtx6000", False),
        ("copies_a100", True),
    ):
        where = {"section": "copies", "direction": "h2d", "pinned": pinned}
        series = plots.published(name, "gb_per_s", x="bytes", **where)
        kind = "pinned" if pinned else "pageable"
        lines.append(series.renamed({label: f"{_short(label)}, {kind}" for label in series}))
    where = {"direction": "h2d", "pinned": True}
    lines.append(plots.yours("copies", "gb_per_s", x="bytes", **where))
    lines.append(plots.recorded("copies", "bytes", "gb_per_s", **where))
    label = "this CPU, memory to memory" if str(device) == "cpu" else f"to {device}"
    lines.append(plots.here({label: ([*rates], [*rates.values()])}))
    slow, fast = (exercises.pinned_copy(size) for size in (2**10, 2**20))
    times = (slow[1] / slow[0]) / (fast[1] / fast[0])
    low, high = (size / us / 1000 for size, us in (slow, fast))
    title = (
        f"Small copies waste bandwidth: {low:.2f} GB/s in 1 KiB copies, {high:.0f} in 1 MiB copies"
    )
    axes = ("bytes in one copy (log scale)", "GB/s (log scale)")
    figure = plots.lines(lines, title, *axes, logx=True, logy=True)
    sizes = [2**k for k in range(8, 31, 4)]
    figure.axes[0].set_xticks(sizes, [format_bytes(size) for size in sizes], fontsize=8)
    told = (
        f"Pinned copies to a Quadro RTX 6000: {times:.0f} times the bandwidth at 1 MiB as at 1 KiB."
    )
    plots.show(figure, f"{told} Here: {max(rates.values()):.2g} GB/s at best.")
    return times


def _short(label):
    return label.replace("A100-PCIE-40GB", "A100")


def show_fit(answer):
    """Show published pinned copies beside `answer`'s formula, fitted to two of them; ours until `answer` is right."""
    right = exercises.fit.outcome(answer).status == CORRECT
    sizes = [2**k for k in range(10, 21, 2)]
    measured = [exercises.pinned_copy(size)[1] for size in sizes]
    small, large = exercises.pinned_copy(sizes[0]), exercises.pinned_copy(sizes[-1])
    overhead, bandwidth = (answer if right else exercises.fit_copy)(small, large)
    formula = [overhead + size / bandwidth / 1000 for size in sizes]
    published = plots.Group("published", {"Quadro RTX 6000, pinned": (sizes, measured)})
    name = "your formula" if right else "our formula"
    forecast = plots.forecast({name: (sizes, formula)})
    off = max(abs(told / ms - 1) for told, ms in zip(formula, measured, strict=True))
    title = f"{overhead:.1f} µs + bytes ÷ {bandwidth:.1f} GB/s is at most {off:.0%} off at any size"
    axes = ("bytes in one copy (log scale)", "µs (log scale)")
    colors = {name: INK}
    figure = plots.lines([published, forecast], title, *axes, logx=True, logy=True, colors=colors)
    figure.axes[0].set_xticks(sizes, [format_bytes(size) for size in sizes], fontsize=8)
    plots.sources(figure, measurements.published("copies_rtx6000").source)
    pairs = zip(sizes, measured, formula, strict=True)
    told = ", ".join(f"{format_bytes(n)} {m:.3g} and {f:.3g}" for n, m, f in pairs)
    plots.show(figure, f"Measured µs and the formula's: {told}.")


def show_crossing():
    """Show published times of 2.1 billion weights in narrow and wide layers; return the GPU's ms for the narrowest.

    A third line is a forecast: the GPU's times, and the time in which the weights reach it at an A100's rate of PCIe 4.
    """
    layers = measurements.published("crossover_4090")
    copies = measurements.published("copies_a100")
    [bus] = copies.rows("copies", bytes=1_000_000_000, direction="h2d")
    widths = []
    totals = []
    for row in layers.rows("shape", device="RTX 4090"):
        weights = row["layers"] * row["width"] ** 2
        copy_ms = 4 * weights / (bus["gb_per_s"] * 1e6)
        widths.append(row["width"])
        totals.append(row["time_ms"] + copy_ms)
    times = plots.published("crossover_4090", "time_ms", x="width", section="shape")
    times = times.renamed({label: label.removesuffix(", 16 cores") for label in times})
    label = "RTX 4090, copying the weights"
    forecast = plots.forecast({label: (widths, totals)})
    title = "Wide layers suit the GPU, unless you have to copy the weights first"
    axes = ("width of a layer (log scale)", "ms for one row (log scale)")
    colors = {label: figures.COPY}
    figure = plots.lines([times, forecast], title, *axes, logx=True, logy=True, colors=colors)
    figure.axes[0].set_ylim(bottom=5)
    plots.sources(figure, copies.source)
    told = "Narrow layers of 128: CPU 2,052 ms, GPU 2,786. Wide ones of 4,096: CPU 288, GPU 10, with the copy 343."
    plots.show(
        figure,
        told,
        "Both devices were measured under WSL 2; the forecast adds the copy over PCIe 4.",
    )
    [narrowest] = layers.rows("shape", device="RTX 4090", width=min(widths))
    return narrowest["time_ms"]
