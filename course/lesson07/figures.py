"""The figures of lesson 07: who worked when, what a stopwatch says, and forecasts before and after."""

import torch

from course import timeline
from course.lesson07.loop import draw_lanes, forecast_spans, lay_out
from course.measurements import traces
from course.show import figures
from course.show.widgets import choice, explore, slider
from course.timeline.rows import lay_out as lay_out_trace
from helpers import plots
from practice_gpus import practice_gpus

ROWS = {"Python": "CPU", "GPU": "GPU"}  # of what `simulate` returns
LABELS = {"prepares": "prepare", "works": "compute", "waits": "blocked"}


def first_picture():
    """Return (Figure, alternative text): the times of the same convolution on a CPU and on a GPU, as first measured.

    Source: The Carpentries, GPU programming, episode CuPy: 2.4 s by SciPy and 98.2 µs on a T4, without synchronizing.
    """
    title = "One convolution: 2.4 seconds, or 98 microseconds?"
    words = {"CPU": "2,400 ms", "T4, a GPU": "0.098 ms"}
    times = {"CPU": 2400, "T4, a GPU": 0.098}
    figure = plots.bars(
        times, title, "ms, measured by the Carpentries", words=words, size=(7.4, 1.9)
    )
    figure.axes[0].set(xlim=(0, 2700))
    return (
        figure,
        "One convolution, measured by the Carpentries: 2,400 ms on a CPU, 0.098 ms on a T4.",
    )


def _timeline(spans, title, whole, height):
    figure, axes = plots.new_figure(title, "time (ms)", size=(7.2, height))
    draw_lanes(axes, spans, whole)
    return figure, axes


def draw_call(returned, finished):
    """Return (Figure, sentence) of a call that came back after `returned` ms and was done after `finished` ms."""
    back, done = (plots.number(ms, 2) for ms in (returned, finished))
    spans = [
        ("CPU", f"launch, {back} ms", 0, returned),
        ("CPU", "blocked in synchronize()", returned, finished),
        ("GPU", "matmul", returned, finished),
    ]
    title = f"The call returns after {back} ms; the GPU is done after {done}"
    figure, _ = _timeline(spans, title, finished, 2.1)
    return figure, f"{title}. Python is blocked in synchronize meanwhile."


def queue(python, device, wait):
    """Draw six steps: Python prepares for `python` ms, the GPU computes for `device` ms; (Figure, sentence)."""
    step = [("Python", "prepares", python), ("GPU", "works", device)]
    steps = 6 * [*step, "waits"] if wait == "after every step" else [*(6 * step), "waits"]
    simulated, total = lay_out(steps)
    spans = [(ROWS[row], LABELS[label], *times) for row, label, *times in simulated]
    busy = 6 * device / total
    title = f"Six steps take {total:.0f} ms; the GPU is busy {busy:.0%} of the time"
    figure, _ = _timeline(spans, title, 6 * 40, 2.1)  # the slowest that the lesson offers
    return figure, f"{title}."


def explore_queue():
    """Show `queue` with its choices: how long Python and the GPU take, and when Python synchronizes."""
    explore(
        queue,
        python=slider("Python prepares (ms)", [5, 10, 15, 20], 20),
        device=slider("GPU computes (ms)", [5, 10, 15, 20], 20),
        wait=choice("Synchronize", ["at the end", "after every step"], "after every step"),
    )


def show_stopwatch(stopwatch, images):
    """Show what `stopwatch` says of growing matmuls, and of the bare call."""
    sizes = [size for size in (16, 32, 64, 128, 256) if size <= len(images)]
    honest, calls = [], []
    for size in sizes:
        some = images[:size]
        honest.append(stopwatch(lambda some=some: some @ some.T))
        calls.append(stopwatch(lambda some=some: some @ some.T, synchronize=lambda: None))
    series = {"time_ms": (sizes, honest), "the call alone": (sizes, calls)}
    times = plots.number((sizes[-1] / sizes[0]) ** 2)
    title = f"{times} times the work, and the call alone doesn't notice"
    colors = dict(zip(series, (plots.GPU, plots.TROUBLE), strict=True))
    axes = ("images (log scale)", "time (ms, log scale)")
    figure = plots.lines(series, title, *axes, logx=True, logy=True, colors=colors)
    figure.axes[0].margins(x=0.2)
    ends = [plots.number(values[-1]) for values in (honest, calls)]
    alt = f"Time by number of images: at {sizes[-1]}, {ends[0]} ms by the stopwatch, {ends[1]} ms for the call."
    figures.show(figure, alt)


def in_turn(host, work, side):
    """Copy and compute on one stream."""
    return host.to("cuda", non_blocking=True), work()


def show_overlap(side_by_side):
    """Show forecasts for an H100: a pinned copy of 32 MiB and a matmul on one stream, and by `side_by_side` on two."""
    with practice_gpus(1, card="H100 SXM", values=False) as gpus:
        side = torch.cuda.Stream()
        square = torch.empty(3072, 3072, device="cuda")
        host = torch.empty(8 * 2**20).pin_memory()
        one, two = (
            gpus.forecast(lambda way=way: way(host, lambda: square @ square, side))
            for way in (in_turn, side_by_side)
        )
    times = [plots.number(f.ms) for f in (one, two)]
    title = "Forecast: on a second stream, the copy hides behind the matmul"
    alt = f"Copy and matmul take {times[0]} ms in turn on one stream, {times[1]} ms side by side on two."
    show_forecasts(title, {"one stream": one, "two streams": two}, alt, rows="GPU")


def show_forecasts(title, forecasts, alt, rows=""):
    """Show forecasts {name: forecast} as timelines with one time axis; `rows`: only those whose name starts so."""
    whole = max(f.ms for f in forecasts.values())
    drawn = [forecast_spans(f) for f in forecasts.values()]
    spans = [[span for span in own if span[0].startswith(rows)] for own in drawn]
    lanes = [len({lane for lane, *_ in own}) for own in spans]
    size = (7.2, 1.0 + 0.45 * len(lanes) + 0.36 * sum(lanes))
    figure, places = plots.panels(title, len(lanes), 1, size, height_ratios=lanes, sharex=True)
    for axes, own, (name, forecast) in zip(places, spans, forecasts.items(), strict=True):
        plots.tidy(axes)
        draw_lanes(axes, own, 1.01 * whole, hollow=True)
        ms, low, high = (plots.number(ms, 2) for ms in (forecast.ms, *forecast.range))
        share = f"kernels run {1 - forecast.idle:.0%} of the time"
        note = f"{name}: {ms} ms (likely {low} to {high}), {share}"
        axes.set_title(note, fontsize=9, color=plots.INK, loc="left", pad=10)
    places[-1].set_xlabel(f"time (ms), forecast for {next(iter(forecasts.values())).card.name}")
    figures.show(figure, alt)


def show_before_and_after(before, after):
    """Show the forecasts of an epoch as first written, and with all changes; the title says which change saves most."""
    both, prepare, waits = (
        plots.number(ms, 1 + (ms > 10))
        for ms in (before.ms - after.ms, before.gains["cpu work"], before.gains["waits"])
    )
    title = f"Forecast: {both} ms saved, {prepare} of them by preparing on the GPU"
    alt = f"{title}. Fewer waits alone save {waits}. Launches set the pace, and leave gaps."
    show_forecasts(title, {"as first written": before, "with all changes": after}, alt)


# --- the straggler ------------------------------------------------------------------------------------
def join_times(trace):
    """Return {rank: µs at which it enters its first collective} of a trace of several ranks."""
    kernels = {rank: trace.rank(rank).gpu for rank in trace.ranks}
    return {
        rank: min(event.start for event in events if event.kind == "communication")
        for rank, events in kernels.items()
    }


def draw_straggler(joins):
    """Return (Figure, sentence): eight ranks of a real trace until the last enters a collective; `joins`: {rank: µs}."""
    trace = traces.case("7").between(0, 11_000)
    last = max(joins, key=joins.get)
    late = joins[last] / 1000
    title = f"Eight V100s: seven wait in a collective until rank {last} joins"
    figure = timeline.draw(lay_out_trace(trace, 60), title)
    axes = figure.axes[0]
    axes.axvline(late, color=plots.TROUBLE, linewidth=1.4)
    words = {"va": "center", "fontsize": 9}
    told = f"rank {last} joins at {late:.1f} ms"
    axes.text(7.7, last + 0.5, told, ha="right", color=plots.TROUBLE, **words)
    for rank, begin in joins.items():
        wait = late - begin / 1000
        if wait > 1:
            place = (begin / 1000 + late) / 2, rank + 0.5
            axes.text(*place, f"waits {wait:.1f} ms", ha="center", color="white", **words)
    plots.sources(figure, trace.source)
    return figure, f"{title}, at {late:.1f} ms; rank 1 has waited since {joins[1] / 1000:.1f} ms."


def first_picture_b():
    """Return (Figure, alternative text): 30 ms of a step on an A100."""
    trace = traces.case("5a").between(60_000, 90_000)
    title = "30 ms of a training step on an A100"
    figure = timeline.draw(lay_out_trace(trace, 120), title)
    plots.sources(figure, trace.source)
    alt = "Python is busy throughout, launches follow each other, and short kernels have long gaps."
    return figure, f"{title}. {alt}"
