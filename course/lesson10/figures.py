"""The figures of lesson 10: who holds what, what hides the traffic, how matrices and layers are split, and four plans."""

import math
from itertools import product

from course.checks.core import chosen
from course.lesson10.exercises import bytes as bytes_exercise
from course.lesson10.plans import JOBS, ROOM, fits, forecast, is_plan, works
from course.pictures.moving import PALE
from course.show import figures, vega
from helpers import plots

STAGES = ("DDP", "stage 1", "stage 2", "stage 3")
SHARES = ("parameters", "gradients", "optimizer")
WIDE = 680  # pixels of a chart
NOTE = {"fontsize": 9, "color": plots.INK}


# --- who holds what ---------------------------------------------------------------------------------
def first_picture(room=80, across=27):
    """Return (Figure, alternative text): H100s that 16 bytes for each parameter of Llama 3.1 fill, each a square."""
    title = "Not counting activations, Llama 3.1 405B fills 81 H100s"
    figure, axes = plots.new_figure(title, size=(7.4, 2.8))
    top, told = 0, []
    for billions in (8, 70, 405):
        full = 16 * billions / room
        count = math.ceil(full)
        for gpu in range(count):
            place = top + gpu // across, 0.86, 0.86, gpu % across
            axes.barh(*place, color=plots.GREENS[4])
            axes.barh(place[0], min(1, full - gpu) * 0.86, *place[2:], color=plots.GPU)
        size = plots.number(16 * billions)
        axes.text(-0.7, top, f"{billions}B: {size} GB", ha="right", va="center", **NOTE)
        told.append(f"{billions} billion parameters {count}")
        axes.text(min(count, across) + 0.3, top, f"× {count}", va="center", **NOTE)
        top += math.ceil(count / across) + 0.7
    axes.set(xlim=(-5.2, across + 2), ylim=(top - 1, -0.8))
    axes.set_axis_off()
    return figure, f"H100s that parameters, gradients and Adam fill: {', '.join(told)}."


def show_ranks(answer, billions=7, room=80):
    """Show GB of a rank by their number in four stages, by `answer` once its check passes."""
    function = chosen(bytes_exercise, answer)
    ranks = [1, 2, 3, 4, 6, 8, 12, 16]
    lines = {
        name: (ranks, [function(1e9 * billions, n, stage) / 1e9 for n in ranks])
        for stage, name in enumerate(STAGES)
    }
    looks = (plots.INK, *plots.GREENS[2::-1])
    title = f"With DDP, {billions} billion parameters never fit in {room} GB; sharded, they do"
    colors = dict(zip(lines, looks, strict=True))
    figure = plots.lines(lines, title, "ranks", "GB on each rank", logx=True, colors=colors)
    figure.set_size_inches(7.2, 3)
    axes = figure.axes[0]
    axes.set(ylim=(0, 120), xticks=[1, 2, 3, 4, 8, 16])
    axes.axhline(room, color=plots.TROUBLE, linewidth=1.8)
    axes.text(16, room + 3, f"a GPU has {room} GB", ha="right", color=plots.TROUBLE)
    told = "on two ranks stage 2 70 GB and stage 3 56, on three stage 1 75"
    figures.show(figure, f"DDP 112 GB at any number; {told}.")


# --- four processes -----------------------------------------------------------------------------------
def show_run(results):
    """Show what a process holds and how fast all are, from `results` of shard.py: one process, DDP and FSDP."""
    speeds, whole = results["tokens_per_s"], results["ddp_bytes"]
    held = {"one process": whole, "DDP": whole, "FSDP": results["ranks"][0]}
    losses = {"one process": "alone", "DDP": "ddp", "FSDP": "losses"}
    title = "One loss: FSDP trains like the others, with a quarter of the bytes on each process"
    size, wide = (7.4, 2.5), {"width_ratios": (1.7, 1)}
    figure, (left, right) = plots.panels(title, 1, 2, size, sharey=True, **wide)
    for way, parts in held.items():
        label = f"{way}\nlast loss {results[losses[way]][-1]:.4f}"
        sizes = [parts[part] / 2**20 for part in SHARES]
        for place, (part, size) in enumerate(zip(SHARES, sizes, strict=True)):
            left.barh(label, size, left=sum(sizes[:place]), color=plots.MEMORY[part])
            if way == "one process":
                middle = sum(sizes[:place]) + size / 2
                name = {"fontsize": 8, "color": "white" if place < 2 else plots.INK}
                left.text(middle, label, part, ha="center", va="center", **name)
        left.text(sum(sizes) + 1, label, f"{sum(sizes):.1f}", va="center", **NOTE)
        right.barh(label, speeds[way], color=plots.meaning(results["device"].upper()))
        right.text(speeds[way], label, f" {speeds[way]:,.0f}", va="center", **NOTE)
    labels = "MiB on each process", "tokens per second, together"
    for axes, label in zip((left, right), labels, strict=True):
        plots.tidy(axes)
        axes.grid(False, axis="y")
        axes.margins(x=0.2)
        axes.set_xlabel(label)
    right.locator_params(axis="x", nbins=3)
    left.invert_yaxis()
    told = ", ".join(f"{way} {speed:,.0f}" for way, speed in speeds.items())
    figures.show(figure, f"{title}. Tokens per second: {told}.")


# --- what hides the traffic -------------------------------------------------------------------------
TICKS = [2**n for n in range(8, 17, 2)]  # tokens


def show_hidden(tflops=277, gb_per_s=24):
    """Show the share of a GPU's speed that is left under FSDP, by tokens per GPU, with sliders for both rates."""
    tokens = [2 ** (7 + step / 8) for step in range(73)]
    limit = 1000 * tflops / gb_per_s
    title = "With few tokens per GPU, compute waits for the weights"
    figure, axes = plots.new_figure(title, "tokens per GPU and step", "% of the time", (7.2, 3.2))
    axes.set_facecolor(PALE)
    axes.grid(False)
    axes.fill_between(tokens, [min(100, 100 * each / limit) for each in tokens], color=plots.GPU)
    axes.axvline(limit, color=plots.INK, linewidth=1)
    axes.text(1.05 * limit, 8, f"{limit:,.0f} tokens", color="white")
    axes.set_xscale("log", base=2)
    axes.set(xlim=(128, 2**16), ylim=(0, 100), xticks=TICKS)
    axes.xaxis.set_major_formatter("{x:,g}")
    log = {"scale": {"type": "log", "base": 2, "nice": False}}
    log["axis"] = {"values": TICKS, "labelFlush": False, "labelBound": False, "grid": False}
    x = amount("tokens", "tokens per GPU and step", **log)
    y = amount("speed", "% of the time", scale={"domain": [0, 100]}, axis={"grid": False})
    at = {"transform": [{"filter": "datum.tokens === 128"}]}
    to = {"x": {**x, "field": "limit"}}
    spec = {
        "title": title,
        "width": WIDE,
        "height": 220,
        "view": {"fill": PALE},
        "params": [
            slide("tflops", 1000, tflops, "a GPU's speed (TFLOP/s)", low=10),
            slide("gb", 900, gb_per_s, "its link (GB/s)", low=5),
        ],
        **vega.csv("tokens", [(round(each),) for each in tokens]),
        "transform": vega.calculate(
            limit="1000 * tflops / gb",
            speed="min(100, 100 * datum.tokens / datum.limit)",
            words="format(datum.limit, ',.0f') + ' tokens'",
        ),
        "layer": [
            {"mark": {"type": "area", "color": plots.GPU}, "encoding": {"x": x, "y": y}},
            {**at, "mark": {"type": "rule", "color": plots.INK}, "encoding": to},
            {**at, "mark": WHITE, "encoding": {**to, "text": {"field": "words"}}},
        ],
    }
    alt = f"Compute's share of the time rises with the tokens, and is 100% from {limit:,.0f} on."
    vega.show(spec, figure, alt, "Green: computing. Gray: waiting for weights.")


TEXT = {"type": "text", "align": "left", "fontSize": 13, "y": 12, "dx": 6}
WHITE = {**TEXT, "y": 205, "color": "white"}


def amount(field, title, **more):
    """Return the encoding of a quantity."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def slide(name, high, start, label, low=1):
    """Return the parameter `name`, a slider from `low` to `high`."""
    bind = {"input": "range", "min": low, "max": high, "step": 1, "name": f"{label} "}
    return {"name": name, "value": start, "bind": bind}


# --- matrices ---------------------------------------------------------------------------------------
MATRICES = (  # rows and columns of cells, along which a GPU holds its part, and the collective before
    ("x", 3, 4, None, ""),
    ("@  up", 4, 6, "columns", ""),
    ("=  hidden", 3, 6, "columns", ""),
    ("@  down", 6, 4, "rows", ""),
    ("=  a term", 3, 4, None, ""),
    ("the sum", 3, 4, None, "all-reduce"),
)
ACTIVATIONS = (
    ("its tokens", 4, 4, "rows", ""),
    ("all tokens", 4, 4, None, "all-gather"),
    ("hidden", 4, 6, "columns", ""),
    ("a term", 4, 4, None, ""),
    ("its tokens", 4, 4, "rows", "reduce-scatter"),
)
TALL = 8  # rows of cells for a GPU, with its labels


def show_split(gpus=2):
    """Show what each of `gpus` holds of two matrices, one split by columns, the next by rows: green what it holds."""
    title = "Columns first, rows second: one all-reduce for two matmuls"
    _show_matrices(title, MATRICES, gpus, "every GPU gets the sum.")


def show_sequence(gpus=2):
    """Show what each of `gpus` holds of the activations around two split matmuls, with its tokens only before and after."""
    title = "Sequence parallelism: outside the matmuls, each GPU holds its own tokens"
    _show_matrices(title, ACTIVATIONS, gpus, "all tokens between all-gather and reduce-scatter.")


def _show_matrices(title, matrices, gpus, told):
    figure, axes = plots.new_figure(title, size=(7.4, 0.5 + 1.35 * gpus))
    middle = TALL * (gpus - 1) / 2 + 1.5
    for gpu in range(gpus):
        top, left = TALL * gpu, 0
        axes.text(-1, top + 1.5, f"GPU {gpu}", ha="right", va="center", **NOTE)
        for name, rows, columns, split, collective in matrices:
            left += 4 * bool(collective)  # room for it
            if collective:
                _arrows(axes, left, top + 1.5, middle, collective == "all-gather")
            if collective and gpu == 0:
                violet = NOTE | {"color": plots.COMM}
                axes.text(left - 3, middle - 6.5, collective, ha="center", **violet)
            axes.text(left, top - 0.5, name, **NOTE)
            for row, column in product(range(rows), range(columns)):
                place = {"rows": row * gpus // rows, "columns": column * gpus // columns}
                held = place.get(split, gpu) == gpu
                color = plots.GPU if held else PALE
                axes.barh(top + row + 0.5, 0.94, 0.9, left + column, color=color)
            left += columns + 2
    axes.set(xlim=(-5, left - 1.5), ylim=(TALL * gpus - 1.5, -1.5))
    axes.set_axis_off()
    names = ", ".join(name.strip("@= ") for name, *_ in matrices)
    figures.show(figure, f"{title}. For each of {gpus} GPUs: {names}; {told}")


def _arrows(axes, right, here, middle, gathers):
    """Draw a GPU's part in a collective: what it has goes in, the result comes out to `right`; + where terms are added."""
    center = right - 3
    look = {"arrowstyle": "-|>", "color": plots.COMM, "linewidth": 1.6}
    axes.annotate("", (center - 0.8, middle), (center - 2.6, here), arrowprops=look)
    axes.annotate("", (right - 0.3, here), (center + 0.8, middle), arrowprops=look)
    note = {"color": plots.COMM, "ha": "center", "va": "center"}
    axes.text(center, middle, "" if gathers else "+", fontsize=18, fontweight="bold", **note)


# --- a pipeline -------------------------------------------------------------------------------------
def show_pipeline(stages=4, microbatches=1):
    """Show a pipeline's schedule, all forward passes and then all backward ones, with sliders for both numbers."""
    title = "A pipeline's bubble: GPUs wait while it fills and while it drains"
    figure, axes = plots.new_figure(title, "time (forward passes of a microbatch)", "", (7.2, 2.6))
    end = 3 * (microbatches + stages - 1)
    axes.set_facecolor(PALE)
    for stage, batch, back in product(range(stages), range(microbatches), (0, 1)):
        filled = microbatches + stages - 1
        start = filled + 2 * (stages - 1 - stage + batch) if back else stage + batch
        color = plots.GREENS[0] if back else plots.GREENS[2]
        axes.barh(stage, 1 + back, 0.9, start, color=color, edgecolor=plots.CARD)
    axes.set_yticks(range(stages), [f"GPU {stage}" for stage in range(stages)])
    axes.set(ylim=(stages - 0.5, -0.5), xlim=(0, end), xticks=range(0, end + 1, 3))
    axes.grid(False)
    share = (stages - 1) / (microbatches + stages - 1)
    alt = (
        f"{stages} stages, microbatches: {microbatches}. Each GPU is idle {share:.0%} of the time."
    )
    words = "Short: forward. Long: backward. Gray: idle."
    vega.show(_pipeline(title, stages, microbatches), figure, alt, words)


def _pipeline(title, stages, microbatches):
    """The schedule as a Vega-Lite spec. Light: forward, one unit long; dark: backward, two."""
    words = "time (forward passes of a microbatch)"
    y = {"field": "gpu", "type": "ordinal", "title": None, "scale": {"paddingInner": 0.1}}
    passes = {"range": [plots.GREENS[2], plots.GREENS[0]], "domain": [0, 1]}
    color = {"field": "k", "type": "nominal", "scale": passes, "legend": None}
    piece = {
        "x": amount("start", words, scale={"nice": False}),
        "x2": {"field": "end"},
        "y": y,
        "color": color,
    }
    return {
        "title": title,
        "width": WIDE,
        "height": 200,
        "view": {"fill": PALE},
        "params": [slide("p", 8, stages, "stages"), slide("m", 16, microbatches, "microbatches")],
        **vega.csv("i,j,k", product(range(8), range(16), (0, 1))),
        "transform": [
            {"filter": "datum.i < p && datum.j < m"},
            *vega.calculate(
                gpu="'GPU ' + datum.i",
                back="m + p - 1 + 2 * (p - 1 - datum.i + datum.j)",
                start="datum.k ? datum.back : datum.i + datum.j",
                end="datum.start + 1 + datum.k",
                words="'each GPU idle ' + format((p - 1) / (m + p - 1), '.0%') + ' of the time'",
            ),
        ],
        "layer": [
            {"mark": {"type": "bar", "stroke": plots.CARD}, "encoding": piece},
            {
                "transform": [{"filter": "datum.i + datum.j + datum.k === 0"}],
                "mark": {**TEXT, "y": -8, "x": 0, "dx": 0},
                "encoding": {"text": {"field": "words"}},
            },
        ],
    }


# --- four plans ---------------------------------------------------------------------------------------
def show_plans(plans):
    """Show what `plans` ask of a GPU, forecast: memory and time. A job without a plan for its GPUs gets no bars."""
    figure, (left, right) = plots.panels("", 1, 2, (7.4, 2.6), sharey=True)
    good, told = 0, []
    for name, job in JOBS.items():
        plan = plans.get(name)
        if not is_plan(plan) or math.prod(plan) != job.gpus:
            told.append(f"{name}: no plan yet")
            for axes in (left, right):
                axes.barh(told[-1], 0)
            continue
        found = forecast(job, *plan)
        good += works(job, plan)
        row, gb = f"{name}: {' × '.join(map(str, plan))}", (found.state + found.activations) / 1e9
        held = {"parameters": found.state / 1e9, "activations": found.activations / 1e9}
        _stack(left, row, held, plots.MEMORY)
        color = plots.INK if fits(found) else plots.TROUBLE
        left.text(gb + 3, row, f"{gb:.0f}", **NOTE | {"color": color}, va="center")
        if fits(found):
            _stack(right, row, {"computes": found.computing}, {"computes": plots.GPU})
            share = f"{found.computing:.0%}"
            right.text(found.computing + 0.02, row, share, va="center", **NOTE)
        else:
            right.text(0.02, row, "doesn't fit", **NOTE | {"color": color}, va="center")
        told.append(f"{row}, {gb:.0f} GB, computes {found.computing:.0%} of the time")
    left.axvline(ROOM / 1e9, color=plots.TROUBLE, linewidth=1.8)
    left.text(ROOM / 1e9, -0.65, "80 GB", fontsize=9, color=plots.TROUBLE, ha="center")
    for axes, label in (
        (left, "GB on each GPU: state, then activations"),
        (right, "share of the time that it computes"),
    ):
        plots.tidy(axes)
        axes.grid(False)
        axes.set_xlabel(label)
    left.margins(x=0.15)
    left.invert_yaxis()
    right.set_xlim(0, 1.12)
    right.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    jobs = f"{good} of 4 jobs {'has' if good == 1 else 'have'} a good plan"
    title = f"FSDP × tensor × pipeline, forecast: {jobs}"
    plots.set_title(figure, title)
    figures.show(figure, f"{title}. {'; '.join(told)}.")


def _stack(axes, row, sizes, colors):
    """Draw `sizes` one after the other, pale since they are forecast."""
    left = 0
    for name, size in sizes.items():
        look = {"facecolor": colors[name] + "77", "edgecolor": colors[name]}
        axes.barh(row, size, 0.7, left=left, **look)
        left += size
