"""The figures of lesson 07: who worked when, what a stopwatch says, and forecasts before and after."""

import json

import torch

from course import timeline
from course.checks.core import chosen
from course.lesson07 import exercises
from course.lesson07.loop import draw_lanes, forecast_spans, lay_out
from course.measurements import traces
from course.show import figures, vega
from course.timeline.rows import lay_out as lay_out_trace
from helpers import plots
from practice_gpus import practice_gpus

ROWS = {"Python": "CPU", "GPU": "GPU"}  # of what `simulate` returns
LABELS = {"prepares": "prepare", "works": "compute", "waits": "blocked"}


def first_picture():
    """Return (Figure, alternative text): a convolution on a CPU and on a GPU, as first measured, and the one asked for.

    Source: The Carpentries, GPU programming, episode CuPy: 2.4 s by SciPy and 98.2 µs on a T4, without synchronizing.
    """
    title = "How long does the GPU take for this convolution?"
    words = {"CPU": "2,400 ms", "T4, a GPU": "0.098 ms", "T4, honestly timed": "?"}
    times = dict(zip(words, (2400, 0.098, 0), strict=True))
    unit = "ms, measured by the Carpentries"
    figure = plots.bars(times, title, unit, words=words, size=(7.4, 2.3))
    figure.axes[0].set(xlim=(0, 2700))
    figure.axes[0].grid(False)
    alt = "One convolution, measured by the Carpentries: 2,400 ms on a CPU, 0.098 ms on a T4."
    return figure, f"{alt} On the T4, honestly timed: ?"


LAUNCHED = (  # for `reveal`
    "21 ms",
    "The call put the convolution into a queue, the GPU's stream, and returned. Such a call is asynchronous, and the first clock timed "
    "a launch. torch.cuda.synchronize() waits until the stream is empty. Timed with it, the T4 took 21 ms, so 24,000 became 116.",
)
CARPENTRIES = {  # ms; source: see `first_picture`, the last one by cupyx.profiler.benchmark
    "CPU": 2400,
    "T4, the call alone": 0.098,
    "T4, honestly timed": 20.6,
}


def draw_answer():
    """Return (Figure, sentence): the bars of `first_picture`, all known now."""
    title = "Honestly timed, the T4 takes 21 ms, the CPU 2,400"
    words = dict(zip(CARPENTRIES, ("2,400 ms", "0.098 ms", "21 ms"), strict=True))
    figure = plots.bars(CARPENTRIES, title, "ms, measured by the Carpentries", words=words)
    figure.axes[0].set(xlim=(0, 2700))
    figure.axes[0].grid(False)
    return figure, f"{title}, and its call alone 0.098 ms."


def show_call(returned, finished):
    """Show a call that came back after `returned` ms and was done after `finished` ms."""
    back, done = (plots.number(ms, 2) for ms in (returned, finished))
    spans = [
        ("CPU", f"launch, {back} ms", 0, returned),
        ("CPU", "blocked in synchronize()", returned, finished),
        ("GPU", "matmul", returned, finished),
    ]
    title = f"The call returns after {back} ms; the GPU is done after {done}"
    figure, axes = plots.new_figure(title, "time (ms)", size=(7.2, 2.1))
    draw_lanes(axes, spans, finished)
    figures.show(figure, f"{title}. Python is blocked in synchronize meanwhile.")


WAYS = ("a wait in each step", "one wait at the end")  # when Python waits
ONE_WAIT = (  # for `reveal`
    "140 ms",
    "With a wait in every step, CPU and GPU take turns. With a single one, Python prepares the next step while the GPU computes. "
    "Try the sliders: when does a single wait hardly help?",
)
MASK = (
    "The values of the mask decide how many numbers x[x > 0.5] has. Python waits where it needs a value from the GPU, or a size "
    "that depends on values. An ordinary copy between CPU and GPU makes it wait, too."
)
PARTS = {"Python prepares": plots.CPU, "Python waits": plots.WAIT, "GPU computes": plots.GPU}


def draw_queue(ms=20):
    """Return a Chart: six steps of a loop with a wait in each, and with one at the end; sliders for Python and the GPU."""
    step = [("Python", "prepares", ms), ("GPU", "works", ms)]
    totals = [lay_out(steps)[1] for steps in (6 * [*step, "waits"], [*(6 * step), "waits"])]
    told = (f"{name}, {total:.0f} ms" for name, total in zip(WAYS, totals, strict=True))
    return vega.Chart(_queue_chart(ms), _queue_still(step), f"Six steps: {'; '.join(told)}.")


def _queue_chart(ms):
    """The spec: a row (way, part, step) for each bar; its start and end follow from the two sliders."""
    rows = [
        (way, part, i)
        for way in range(2)
        for part in range(3)
        for i in range(6)
        if part != 1 or way == 0 or i == 5
    ]
    turn, pace = "python + device", "max(python, device)"
    begin = (
        f"datum.w == 0 ? datum.i * ({turn}) + (datum.p > 0 ? python : 0) : datum.p == 0 ? datum.i * python "
        f": datum.p == 1 ? 6 * python : python + datum.i * {pace}"
    )
    end = (
        "datum.p == 0 ? datum.start + python : datum.p == 2 || datum.w == 0 ? datum.start + device "
        f": python + 5 * {pace} + device"
    )
    lane = {"type": "quantitative", "scale": {"domain": [5.4, 0], "nice": False}, "axis": None}
    ms_axis = {
        "type": "quantitative",
        "scale": {"domainMin": 0, "domainMax": {"expr": f"max(240, 6 * ({turn}))"}, "nice": False},
        "axis": {"title": "ms", "grid": False, "tickCount": 6},
    }
    color = {
        "field": "part",
        "type": "nominal",
        "scale": {"domain": [*PARTS], "range": [*PARTS.values()]},
        "legend": {"title": None},
    }
    title = f"'Six steps: ' + 6 * ({turn}) + ' ms with a wait in each, ' + (python + 5 * {pace} + device) + ' ms with one at the end'"
    columns = vega.calculate(
        start=begin,
        end=end,
        part=f"{json.dumps([*PARTS])}[datum.p]",
        top="datum.w * 2.8 + 0.7 + (datum.p == 2 ? 0.9 : 0)",
        bottom="datum.top + 0.8",
        words=f"{json.dumps(WAYS)}[datum.w]",
        above="datum.w * 2.8 + 0.35",
        middle="datum.top + 0.4",
        lane="datum.p == 2 ? 'GPU' : 'CPU'",
    )
    bars = {
        "x": {"field": "start", **ms_axis},
        "x2": {"field": "end"},
        "y": {"field": "top", **lane},
        "y2": {"field": "bottom"},
        "color": color,
    }
    names_at = {
        "x": {"datum": 0, **ms_axis},
        "y": {"field": "above", **lane},
        "text": {"field": "words"},
    }
    lanes_at = {
        "x": {"datum": 0, **ms_axis},
        "y": {"field": "middle", **lane},
        "text": {"field": "lane"},
    }
    return {
        "title": {"text": {"expr": title}},
        "params": [
            vega.slider("python", 40, 5, ms, "Python (ms)", low=5),
            vega.slider("device", 40, 5, ms, "GPU (ms)", low=5),
        ],
        **vega.csv("w,p,i", rows),
        "transform": columns,
        "width": 825,
        "height": 190,
        "layer": [
            {"mark": {"type": "rect", "stroke": plots.CARD}, "encoding": bars},
            {
                "transform": [{"filter": "datum.p == 0 && datum.i == 0"}],
                "mark": {"type": "text", "align": "left", "fontSize": 13},
                "encoding": names_at,
            },
            {
                "transform": [{"filter": "datum.p != 1 && datum.i == 0"}],
                "mark": {"type": "text", "align": "right", "dx": -6, "fontSize": 13},
                "encoding": lanes_at,
            },
        ],
    }


def _queue_still(step):
    """The figure of both loops, for pages that draw no chart."""
    loops = [lay_out(steps) for steps in (6 * [*step, "waits"], [*(6 * step), "waits"])]
    title = "Six steps: {:.0f} ms with a wait in each, {:.0f} ms with one at the end"
    title = title.format(*(total for _, total in loops))
    figure, places = plots.panels(title, 2, 1, (7.2, 3.4), sharex=True)
    for axes, way, (simulated, _) in zip(places, WAYS, loops, strict=True):
        plots.tidy(axes)
        spans = [(ROWS[row], LABELS[label], *times) for row, label, *times in simulated]
        draw_lanes(axes, spans, loops[0][1])
        axes.set_title(way, fontsize=9, color=plots.INK, loc="left", pad=10)
    places[-1].set_xlabel("time (ms)")
    return figure


CLOCKS = ("CPU", "GPU, the call alone", "GPU, honestly timed")


def show_stopwatch(stopwatch, a, b):
    """Show the times of `a @ b` on this machine, for `a` and `b` on the GPU; nothing until `stopwatch` passes."""
    if chosen(exercises.stopwatch, stopwatch) is not stopwatch:
        return
    host = a.cpu(), b.cpu()
    cpu = stopwatch(lambda: host[0] @ host[1])
    call = stopwatch(lambda: a @ b, synchronize=lambda: None)
    here = cpu, call, stopwatch(lambda: a @ b)
    title = "By your stopwatch, the GPU takes {} ms; the call alone, {}".format(
        *(plots.number(ms) for ms in here[:0:-1])
    )
    figure = plots.bars(dict(zip(CLOCKS, here, strict=True)), title, "ms", size=(7.2, 2.3))
    figure.axes[0].grid(False)
    figures.show(figure, f"{title}, and the CPU {plots.number(cpu)}.")


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
    title = "Forecast: on a second stream, the copy hides behind the matmul"
    show_forecasts(title, {"one stream": one, "two streams": two}, rows="GPU")


def show_forecasts(title, forecasts, rows=""):
    """Show forecasts {name: forecast} as timelines with one time axis; `rows`: only those whose name starts so."""
    whole = max(f.ms for f in forecasts.values())
    drawn = [forecast_spans(f) for f in forecasts.values()]
    spans = [[span for span in own if span[0].startswith(rows)] for own in drawn]
    lanes = [len({lane for lane, *_ in own}) for own in spans]
    size = (7.2, 1.0 + 0.45 * len(lanes) + 0.36 * sum(lanes))
    figure, places = plots.panels(
        title, len(lanes), 1, size, height_ratios=lanes, sharex=True, squeeze=False
    )
    told = {}
    for axes, own, (name, forecast) in zip(places[:, 0], spans, forecasts.items(), strict=True):
        plots.tidy(axes)
        draw_lanes(axes, own, 1.01 * whole, hollow=True)
        ms, low, high = (plots.number(ms, 2) for ms in (forecast.ms, *forecast.range))
        told[name] = f"{name}: {ms} ms, likely {low} to {high}"
        axes.set_title(told[name], fontsize=9, color=plots.INK, loc="left", pad=10)
    card = next(iter(forecasts.values())).card.name
    places[-1, 0].set_xlabel(f"time (ms), forecast for {card}")
    figures.show(figure, f"{title}. {'; '.join(told.values())}.")


def compare_busy(busy):
    """Return which of two choices is busier, by `busy`, {choice: share}, and why."""
    other, busier = sorted(busy.values())
    because = (
        f"It runs kernels {busier:.0%} of the time, the other {other:.0%}. 79 ms is the V100's delay: its queue is full, so a kernel is always ready. "
        "On the A100, a kernel starts right after its launch. Then the GPU waits."
    )
    return max(busy, key=busy.get), because


# --- the straggler ------------------------------------------------------------------------------------
LATE = (  # for `reveal`
    "rank 7, with 1.7 ms",
    "It joins last, and the others wait for it. They look busy, because the collective's kernel runs while it waits. Suspect who communicates least.",
)


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
