"""The figures of lesson 01: processors side by side, the race, the flat line, which card to rent, how good forecasts are."""

import measurements
from helpers import figures, plots, which_card
from helpers.palette import INK
from lessons.lesson01.jobs import jobs
from measurements import forecasts

FIRST = (  # of the published processors: those that a learner may have or rent
    *("RTX 4090", "H100 PCIe", "RTX 3090", "A100 80GB", "RTX 3060", "T4"),
    *("Xeon Gold 6330", "Epyc 7763", "Core i9-13900K", "Core i7-8750H"),
)


def first_picture():
    """(Figure, alt): the best published rate of a float32 matmul on four CPUs and six GPUs."""
    data = measurements.published("cpus_and_gpus")
    best = {row["device"]: row["tflop_per_s"] for row in data.rows("best", dtype="float32")}
    rates = dict(sorted(((name, best[name]) for name in FIRST), key=lambda pair: -pair[1]))
    kinds = {name: _kind(data, name) for name in rates}
    labels = {f"{name} ({kinds[name]})": rate for name, rate in rates.items()}
    most = {kind: max(rates[name] for name in rates if kinds[name] == kind) for kind in _KINDS}
    title = "GPUs multiply matrices at up to {GPU:g} TFLOP/s, CPUs at up to {CPU:g}".format(**most)
    figure, axes = plots.new_figure(title, "TFLOP/s in float32, best published", size=(7.4, 2.6))
    for y, (label, rate) in enumerate(labels.items()):
        color = figures.CPU if "CPU" in label else figures.GPU
        axes.barh(-y, rate, height=0.72, color=color, zorder=2)
        axes.annotate(f"{rate:g}", (rate, -y), (5, 0), textcoords="offset points", **_VALUE)
    axes.set_yticks([-y for y in range(len(labels))], [*labels], fontsize=8)
    axes.tick_params(axis="y", labelcolor=INK, pad=4)
    axes.grid(False, axis="y")
    axes.margins(y=0.01)
    told = ", ".join(f"{label} {rate:g}" for label, rate in labels.items())
    return figure, f"Bars of TFLOP per second: {told}. Source: {data.source}."


_KINDS = ("GPU", "CPU")
_VALUE = {"va": "center", "fontsize": 8, "color": INK}


def _kind(data, name):
    return "CPU" if data.devices[name]["kind"] == "cpu" else "GPU"


def draw_race(rates):
    """A figure and its words: TFLOP/s of matmuls by size, `rates` ({label: (sizes, TFLOP/s)}) here and published ones."""
    cards = ["V100-SXM2-16GB", "A100-PCIE-40GB", "H100 80GB HBM3"]
    where = {"dtype": "float32", "device": cards}
    published = plots.published("matmul_sizes", "tflop_per_s", x="size", **where)
    published = published.renamed(dict(zip(cards, ("V100", "A100", "H100"), strict=True)))
    yours = plots.yours("matmul", "tflop_per_s", x="size", dtype="float32")
    recorded = plots.recorded("matmul", "size", "tflop_per_s", kind="cuda", dtype="float32")
    name, (_, values) = next(iter(rates.items()))
    h100 = max(published["H100"][1])
    title = f"An H100 has {h100 / max(values):,.0f}× the matmul throughput of {name}"
    groups = [plots.here(rates), yours, recorded, published]
    axes = ("matrix size n (log scale)", "TFLOP/s in float32 (log scale)")
    figure = plots.lines(groups, title, *axes, logx=True, logy=True)
    return figure, f"{name}: {max(values):.3g} TFLOP/s at best. H100: {h100:.3g}."


def show_lookups():
    """Show published times of looking up rows by their number; return who is faster with ten, in words."""
    data = measurements.published("operations_cpu_gpu")
    names = {"Xeon Gold 6254": "a Xeon Gold 6254 (CPU)", "A100 80 GB PCIe": "an A100"}
    counts = (10, 1_000, 1_000_000)
    times = {
        name: [
            data.rows(operation=f"gather {count:,} indices", device=device)[0]["time_ms"]
            for count in counts
        ]
        for device, name in names.items()
    }
    series = {
        name.removeprefix("a ").removeprefix("an "): (counts, ms) for name, ms in times.items()
    }
    cpu, gpu = (ms[-1] for ms in times.values())
    title = f"Ten rows: the CPU wins. A million rows: the A100, by a factor of {cpu / gpu:.0f}"
    labels = ("rows to look up (log scale)", "ms (log scale)")
    figure = plots.lines(series, title, *labels, logx=True, logy=True)
    figure.axes[0].set_xticks(counts, [f"{count:,}" for count in counts])
    plots.sources(figure, data.source)
    told = "; ".join(f"{name} {', '.join(map(str, ms))} ms" for name, ms in times.items())
    plots.show(figure, f"Times for 10, 1,000 and 1,000,000 rows: {told}.")
    return min(times, key=lambda name: times[name][0])


# --- which card for which job ---------------------------------------------------------------------
def show_cards():
    """Show the explorer of cards: forecasts of four jobs, their memory, and what an epoch of them costs."""
    which_card.explore(jobs())


LOOKS = {  # kind of step: marker and color
    "inference": ("o", figures.GPU),
    "training": ("^", INK),
    "operator": ("s", plots.NEUTRAL),
}


def show_forecasts():
    """Show every stored forecast against what others measured, the farthest misses by name."""
    found = forecasts.stored()
    title = _how_close(found)
    figure, axes = plots.new_figure(
        title, "measured ms (log scale)", "forecast ms (log scale)", (7.2, 4.4)
    )
    ends = min(p.measured_ms for p in found), max(p.measured_ms for p in found)
    near = ([end / 1.5 for end in ends], [1.5 * end for end in ends])
    axes.fill_between(ends, *near, color=figures.WAIT, alpha=0.25, linewidth=0)
    axes.plot(ends, ends, color=INK, linewidth=1)
    for kind, (marker, color) in LOOKS.items():
        of_kind = [p for p in found if p.kind == kind]
        where = [p.measured_ms for p in of_kind], [p.forecast_ms for p in of_kind]
        look = {"markersize": 4, "markerfacecolor": "none", "markeredgewidth": 0.9}
        label = f"{kind} ({len(of_kind)}, forecast)"
        axes.plot(*where, marker, color=color, label=label, linestyle="none", **look)
    axes.set(xscale="log", yscale="log")
    plots.plain_ticks(axes.xaxis)
    plots.plain_ticks(axes.yaxis)
    plots.legend(figure, axes, 3)
    far = farthest(found)
    _name(axes, far)
    misses = ", ".join(f"{p.network} on {p.card} {figures.number(p.ratio, 2)}" for p in far)
    told = f"Forecast against measured: {title}. Farthest off, forecast ÷ measured: {misses}."
    plots.show(figure, told, _MEASURED)


_MEASURED = (
    "The line: forecast and measurement agree; gray: within 1.5 times. Measured by timm, NVIDIA, PyTorch, zzc0721, Triton, "
    "pchng and ELS-RD; python3 -m tools scoreboard --stored lists everything."
)


def _how_close(found):
    by_gpu = [p for p in found if p.bound != "overhead"]
    near = sum(1 / 1.5 <= p.ratio <= 1.5 for p in by_gpu) / len(by_gpu)
    return f"Where the GPU decides, {near:.0%} of {len(by_gpu)} forecasts are within 1.5 times"


def farthest(found, count=6):
    """Return the points that are farthest off, one for each network."""
    by_distance = sorted(found, key=lambda p: max(p.ratio, 1 / p.ratio), reverse=True)
    one_each = {p.network: p for p in reversed(by_distance)}
    return sorted(one_each.values(), key=by_distance.index)[:count]


def _name(axes, points):
    """Write the names of `points` beside them, from the top down and 12 points apart at least."""
    axes.figure.draw_without_rendering()
    above = float("inf")
    for point in sorted(points, key=lambda p: -p.forecast_ms):
        place = point.measured_ms, point.forecast_ms
        height = axes.transData.transform(place)[1] * 72 / axes.figure.dpi
        above = min(height, above - 12)
        words = f"{point.network}, {point.card.split(' (')[0]}"
        look = {"textcoords": "offset points", "fontsize": 8, "va": "center"}
        line = {"arrowstyle": "-", "color": figures.TROUBLE, "linewidth": 0.6}
        words_at = (16, above - height)
        axes.annotate(words, place, words_at, color=figures.TROUBLE, arrowprops=line, **look)
