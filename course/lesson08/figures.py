"""The figures of lesson 08, as `course.show.figures.show` takes them: a ladder, programs, rates, roofs, a climb."""

from course import measurements
from course.lesson08 import sketches
from course.lesson08.tree import forecast_step, name_of
from course.measurements import traces
from course.timeline.reading import kernels_by_shape
from helpers import plots

PEAK = 989  # TFLOP/s of an H100 SXM in bfloat16, by its data sheet
BANDWIDTH = 3.35  # TB/s
HOLLOW = (plots.GPU + "22", plots.GPU + "66")  # a forecast: so far, and what is new


def first_picture():
    """Return (Figure, alternative text): ten changes to the training of a GPT-2-sized model."""
    rows = measurements.published("ladder_gpt_a100").rows("ladder")
    rungs = [(row["name"], row["tokens_per_s"], "") for row in rows]
    title = "Ten changes, 11 times the throughput, on one A100"
    figure = _ladder(rungs, title, "tokens per second in training", (7.4, 3.0))
    figure.axes[0].tick_params(axis="y", labelsize=8)
    told = ", ".join(f"{name} {value:,}" for name, value, _ in rungs)
    return figure, f"Training a GPT-2-sized model on an A100, tokens per second: {told}."


def _ladder(rungs, title, unit, size):
    """Bars (name, value, word) from top to bottom: what each adds to the best so far is dark; the words stand behind.

    A value (low, middle, high) is a forecast: its bar is hollow, with its range.
    """
    figure, axes = plots.new_figure(title, unit, size=size)
    best, most = 0, max(max(value) if isinstance(value, tuple) else value for _, value, _ in rungs)
    for y, (_, value, word) in enumerate(rungs):
        forecast = isinstance(value, tuple)
        low, value, high = value if forecast else (value,) * 3
        look = {"height": 0.66, "edgecolor": plots.GPU, "linewidth": 1.4 * forecast}
        pale, dark = HOLLOW if forecast else (plots.GREENS[3], plots.GPU)
        axes.barh(y, min(value, best), facecolor=pale, **look)
        if value > best:
            axes.barh(y, value - best, left=best, facecolor=dark, **look)
        if forecast:
            axes.plot([low, high], [y, y], color=plots.INK, marker="|", linewidth=0.9)
        gain = f"× {value / best:.2f}" if best else ""
        told = [plots.number(value, 3) if forecast else f"{value:,}", gain, word]
        # beside its range, a forecast's words would read as its length
        told = "   ".join(filter(None, told))
        plots.note(axes, told, (most if forecast else high, y), (8, 0), fontsize=8.5)
        best = max(best, value)
    axes.set_yticks(range(len(rungs)), [name for name, *_ in rungs])
    axes.set(xlim=(0, (1.33 if forecast else 1.2) * most), ylim=(len(rungs) - 0.5, -0.6))
    axes.grid(False)
    axes.tick_params(axis="y", labelcolor=plots.INK)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= most])
    return figure


STRIPS = (  # case, what runs, where 1.5 ms of it begin (µs)
    ("4a", "BERT small, 1 text", 1400),
    ("11", "Qwen 0.5B, 16 texts", 5300),
    ("10", "TimeSformer's MLP", 18_250),
)
LOOK = 1500  # µs


def busy_share(trace):
    """Return the share of a strip in which a kernel runs."""
    return min(sum(event.length for event in trace.gpu) / LOOK, 1)


def bert_busy():
    """Return for how many percent of its 1.5 ms BERT keeps the H100 busy."""
    name, _, start = STRIPS[0]
    return round(100 * busy_share(traces.case(name).between(start, start + LOOK)))


def draw_three():
    """Return (Figure, sentence): 1.5 ms of three programs on an H100, as the profiler recorded them, each kernel in its kind's color."""
    title = "Three programs on an H100: one leaves it idle, two keep it busy"
    figure, rows = plots.panels(title, 3, 1, (7.4, 3.3), sharex=True)
    for axes, (name, what, start) in zip(rows, STRIPS, strict=True):
        trace = traces.case(name).between(start, start + LOOK)
        plots.tidy(axes)
        for event in trace.gpu:
            color = plots.KERNELS.get(event.kind, plots.KERNELS["other"])
            axes.barh(0, event.length, left=event.start, height=0.9, color=color)
        axes.set_title(f"{what}: {busy_share(trace):.0%} busy", fontsize=9, loc="left")
        axes.set(yticks=[], xlim=(0, LOOK), ylim=(-0.6, 0.6))
        axes.grid(False)
    rows[-1].set_xlabel("time (µs)")
    for kind, color in plots.KERNELS.items():
        rows[-1].barh(0, 0, color=color, label=kind)
    figure.legend(loc="outside lower center", frameon=False, fontsize=9, ncols=5)
    plots.sources(figure, traces.case("10").source)
    told = ", ".join(axes.get_title("left") for axes in rows)
    return figure, f"Kernels of 1.5 ms on an H100: {told}."


CARDS = {
    "P100": "P100-PCIE-16GB",
    "V100": "V100-SXM2-16GB",
    "T4": "T4, Colab",
    "A100": "A100-PCIE-40GB",
    "L4": "L4",
    "H100": "H100 80GB HBM3",
}


def draw_formats(card):
    """Return (Figure, sentence): the best published rates of one of `CARDS` by number format."""
    name, section = ("matmul_best", "best") if card == "T4" else ("matmul_sizes", "matmul")
    data = measurements.published(name)
    rates = {}
    for row in data.rows(section, device=CARDS[card]):
        name = row["dtype"].replace("tf32", "TF32")
        rates[name] = max(rates.get(name, 0), row["tflop_per_s"])
    gain = rates["float16"] / rates["float32"]
    title = f"{card}: float16 has {plots.number(gain, 2)} times the throughput of float32"
    figure = plots.bars(rates, title, "TFLOP/s, best of five sizes of matmul", colors=plots.GPU)
    plots.sources(figure, f"published: {data.source}")
    loses = rates["bfloat16"] < rates["float32"]
    return figure, title + (", and bfloat16 is slower than both." if loses else ".")


def multiplications():
    """Return {multiply-adds for each pair of numbers: time, 1 for none}, as RRZE measured an A100."""
    rows = measurements.published("roofline_a100").rows("roofline")
    return {row["multiply_adds"]: rows[0]["gb_per_s"] / row["gb_per_s"] for row in rows}


FORTY = "The A100 multiplies while it waits for the next numbers."
FASTER = "Memory decides, and most of the extra arithmetic sits idle."
GRAPHS = "The first two lengths are compiled, and the third needs nothing new."
REPLAY = "Fusing still leaves nearly half of the launches."


def draw_multiplications():
    """Return (Figure, sentence): how long an A100 takes for more and more multiply-adds on the same bytes."""
    data = measurements.published("roofline_a100")
    rows = data.rows("roofline")
    counts, times = zip(*multiplications().items(), strict=True)
    more = times[counts.index(40)] - 1
    title = f"40 multiply-adds for each pair of numbers: {more:.0%} more time than none"
    label = "multiply-adds for each pair of numbers that is read"
    figure, axes = plots.new_figure(title, label, "time (1: none)", (7.2, 3.0))
    axes.plot(counts, times, "o-", color=plots.GPU, linewidth=1.8, markersize=5)
    ridge = 19.5e12 / (rows[0]["gb_per_s"] * 1e9)  # the data sheet's FLOP/s over the bytes it read
    corner = 4 * ridge - 1  # k multiply-adds are 2 k + 2 operations for 8 bytes
    plots.split(axes, corner, "memory-bound", "compute-bound")
    told = f"ridge point: {ridge:.0f} operations per byte,\nin float32 without tensor cores"
    plots.note(axes, told, (corner, 4.0))
    axes.set(ylim=(0, 4.7), xlim=(-6, 250))
    plots.sources(figure, f"published: {data.source}, an A100 with 40 GB, float32")
    return figure, f"{title}; 240 take {plots.number(times[-1])} times as long."


NAMES = {  # where what is written
    (0.23, 0.36): "additions, multiplications: up to 92% of the slope",
    (5, 3.4): "small matmuls",
    (140, 24): "BERT's kernels",
    (620, 220): "large matmuls:\nup to 76% of the peak",
}


def draw_roofline():
    """Return (Figure, sentence): the roofs of an H100 and, below them, real kernels of three programs, as the profiler timed them."""
    title = "Real kernels on an H100: near the slope, near the roof, and far below both"
    label = "arithmetic intensity (operations per byte, log scale)"
    figure, axes = plots.new_figure(title, label, "TFLOP/s (log scale)", (7.4, 3.4))
    axes.set(xscale="log", yscale="log", xlim=(0.08, 8000), ylim=(0.03, 2200))
    ridge = PEAK / BANDWIDTH
    axes.plot([0.08, ridge, 8000], [0.08 * BANDWIDTH, PEAK, PEAK], color=plots.INK, zorder=1)
    plots.note(axes, f"bfloat16, ridge at {ridge:.0f}", (8000, PEAK), (-1, 7))
    plots.note(axes, f"HBM: {BANDWIDTH} TB/s", (1.2, 7), (1, 0), rotation=26, va="baseline")
    for place, name in NAMES.items():
        plots.note(axes, name, place, (1, 0))
    colors = (plots.WAIT, plots.GREENS[2], plots.GREENS[0])
    for (case, program, _), look, color in zip(STRIPS, "oDs", colors, strict=True):
        for x, rate in kernels_by_shape(traces.case(case)):
            axes.plot(x, rate / 1e12, look, color=color, markersize=7)
        axes.plot([], [], look, color=color, markersize=7, label=program.split("'")[0])
    plots.plain_ticks(axes.xaxis)
    plots.plain_ticks(axes.yaxis)
    axes.legend(frameon=False, fontsize=9, loc="lower right", labelcolor=plots.INK)
    plots.sources(figure, f"kernels: {traces.case('10').source}", "roofs: NVIDIA's data sheet")
    told = "; ".join(NAMES.values()).replace("\n", " ")
    return figure, f"{title}: {told}."


CAUSES = {"compute": "arithmetic"}  # the clock's causes, as the tree names the limits
CAUSES |= dict.fromkeys(("waits", "unpinned copies", "cpu work"), name_of("copies"))


def draw_climb(make_step, rungs):
    """Return (Figure, sentence): images per second of `make_step(**switches)`, {name: switches with "batch"}, and each limit."""
    rows = []
    for name, switches in rungs.items():
        forecast = forecast_step(make_step, **switches)
        low, high = forecast.range
        rates = tuple(round(1000 * switches["batch"] / ms) for ms in (high, forecast.ms, low))
        rows.append((name, rates, CAUSES.get(forecast.cause, forecast.cause)))
    times = rows[-1][1][1] / rows[0][1][1]
    title = (
        f"Forecast for an A100: your changes bring about {times:.0f} times the photos per second"
    )
    unit, size = "images per second on an A100 (forecast)", (7.4, 1.1 + 0.29 * len(rows))
    figure = _ladder(rows, title, unit, size)
    told = "; ".join(f"{name} {plots.number(rates[1], 3)}, {word}" for name, rates, word in rows)
    return figure, f"{title}. Images per second and limit: {told}."


first_picture_b = sketches.formats
first_picture_c = sketches.launching
