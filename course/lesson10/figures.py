"""The figures of lesson 10: who holds what, what hides the traffic, how matrices and layers are split, and four plans."""

import math
from itertools import accumulate, product

from course.checks.core import chosen
from course.lesson10.exercises import bytes as bytes_exercise
from course.lesson10.plans import JOBS, RATE, ROOM, fits, forecast, is_plan, works
from course.pictures.cells import box
from course.pictures.moving import PALE
from course.show import figures, vega
from helpers import plots
from helpers.memory import format_bytes

STAGES = ("DDP", "stage 1", "stage 2", "stage 3")
SHARES = ("parameters", "gradients", "optimizer")
NOTE = {"fontsize": 9, "color": plots.INK}
PARTS = [*(plots.MEMORY[part] for part in ("optimizer", "parameters", "gradients")), plots.COMM]


def still_needs(parameters):
    """Return what the last call of page 10's step still needs, in words."""
    return f"Adam needs {format_bytes(8 * parameters)} more."


# --- who holds what ---------------------------------------------------------------------------------
def gpu_memory(billions=8, ranks=8, blocks=32):
    """Return GB of the parts that a rank holds under FSDP in each moment of a step, in float32: (part, values) from below.

    Forward and backward take a moment per block. Gathered are the block that runs and the next one; in backward, the block's
    gradients are whole until they are reduce-scattered.
    """
    state, block = 4 * billions / ranks, 4 * billions / blocks
    gathered = block * (1 - 1 / ranks)  # a rank has its own part already
    moments = 2 * blocks + 2  # and at rest, before and after
    done = [max(0, min(blocks, moment - 1 - blocks)) for moment in range(moments)]
    runs = [0, *[1] * (2 * blocks), 0]
    next_one = [on and moment not in (blocks, 2 * blocks) for moment, on in enumerate(runs)]
    backward = [moment > blocks and on for moment, on in enumerate(runs)]
    return {
        "optimizer": [2 * state] * moments,
        "parameters": [state] * moments,
        "gradients": [
            state * part / blocks + block * on for part, on in zip(done, backward, strict=True)
        ],
        "gathered": [gathered * (on + more) for on, more in zip(runs, next_one, strict=True)],
    }


def first_picture(billions=8, ranks=8, room=80):
    """Return (Figure, alternative text): what a rank holds at its peak under DDP and FSDP, and under FSDP in each moment of a step."""
    held = gpu_memory(billions, ranks)
    peak = max(zip(*held.values(), strict=True), key=sum)
    title = f"{billions} billion parameters, {ranks} GPUs, no activations: DDP {16 * billions} GB, FSDP about {sum(peak):.3g}"
    figure, (left, right) = plots.panels(title, 1, 2, (7.3, 3.2), width_ratios=(1, 1.9))
    whole = 8 * billions, 4 * billions, 4 * billions, 0
    for place, (way, parts) in enumerate((("DDP", whole), ("FSDP", peak))):
        _stack(left, place, parts)
        words = f"{way}: {sum(parts):.3g}"
        left.text(place, sum(parts) + 2, words, ha="center", fontsize=10, color=plots.INK)
    left.axhline(room, color=plots.TROUBLE, linewidth=1.2, linestyle="--")
    left.text(0.55, room + 2, f"an H100: {room}", fontsize=9, color=plots.TROUBLE)
    left.set(ylim=(0, 18 * billions), xlim=(-0.5, 1.5), xticks=[], ylabel="GB on each GPU, peak")
    moments = range(len(held["gathered"]))
    right.stackplot(moments, *held.values(), colors=PARTS, step="mid")
    for x, y, words, ink in (
        (0.5, 4, "Adam's moments", plots.INK),
        (0.5, 10, "parameters", "white"),
        (0.68, 12.9, "gradients", "white"),
        (0.03, 15.4, "gathered: the block that\nruns, and the next one", plots.COMM),
    ):
        side = "left" if x < 0.1 else "center"
        look = {"fontsize": 9, "ha": side, "va": "center", "color": ink}
        right.text(x * moments[-1], y * billions / 8, words, **look)
    right.set(ylim=(0, 2.6 * billions), xlim=(0, moments[-1]), yticks=range(0, 21, 5))
    right.set_xticks([moments[-1] / 4, 0.75 * moments[-1]], ["forward", "backward"])
    right.set_ylabel("GB on each GPU, FSDP")
    for axes in (left, right):
        plots.tidy(axes)
        axes.grid(False)
    return figure, (
        f"GB on each GPU, without activations. DDP: {16 * billions} at the peak; an H100 has {room}. FSDP: {sum(part[0] for part in held.values()):.0f} "
        f"at rest, {sum(peak):.3g} at the peak, as gradients grow and two blocks at a time are gathered."
    )


def _stack(axes, place, parts):
    """Draw a bar of the parts that a GPU holds, in GB, from below."""
    for bottom, part, color in zip(accumulate(parts, initial=0), parts, PARTS, strict=False):
        axes.bar(place, part, 0.7, bottom, color=color)


def first_picture_b():
    """Return (Figure, alternative text) of what job A's GPUs send in a step, split in three ways."""
    job = JOBS["A"]
    others, passed = 1 - 1 / job.gpus, 2 * 2 * job.texts * job.tokens * job.width  # there and back
    sent = {
        "FSDP: weights": 6 * job.parameters * others,
        "tensor parallelism: activations": 8 * others * passed / 2 * job.layers,
        "a pipeline: activations": passed,
    }
    gb = {way: size / 1e9 for way, size in sent.items()}
    title = "FSDP moves weights, tensor parallelism moves activations"
    figure = plots.bars(gb, title, "GB that each of 8 GPUs sends per step", colors=plots.COMM)
    told = "FSDP 42 GB of weights, tensor parallelism 120 GB of activations, a pipeline 1.1 GB of activations"
    return figure, f"Bars of what each GPU sends per step: {told}."


def show_ranks(answer, billions=8, room=80):
    """Show GB of a rank by their number in four stages, by `answer` once its check passes."""
    function = chosen(bytes_exercise, answer)
    ranks = [1, 2, 3, 4, 6, 8, 12, 16]
    lines = {
        name: (ranks, [function(1e9 * billions, n, stage) / 1e9 for n in ranks])
        for stage, name in enumerate(STAGES)
    }
    looks = (plots.INK, *plots.GREENS[2::-1])
    title = f"DDP keeps {16 * billions} GB of state on every rank; each stage leaves less"
    colors = dict(zip(lines, looks, strict=True))
    figure = plots.lines(
        lines, title, "ranks", "GB of state on each rank", logx=True, colors=colors
    )
    figure.set_size_inches(7.2, 3)
    axes = figure.axes[0]
    axes.set(ylim=(0, 136), xticks=[1, 2, 3, 4, 8, 16])
    plots.limit(axes, room, f"a GPU has {room} GB")
    told = "on two ranks stage 2 80 GB and stage 3 64, on eight stage 3 16"
    figures.show(figure, f"DDP 128 GB at any number; {told}.")


# --- four processes -----------------------------------------------------------------------------------
def show_run(results):
    """Show what a process holds and how fast all are, from `results` of shard.py: one process, DDP and FSDP."""
    speeds, whole = results["tokens_per_s"], results["ddp_bytes"]
    held = {"one process": whole, "DDP": whole, "FSDP": results["ranks"][0]}
    losses = {"one process": "alone", "DDP": "ddp", "FSDP": "losses"}
    names = {way: f"{way}\nlast loss {results[losses[way]][-1]:.4f}" for way in held}
    sizes = {
        names[way]: {part: parts[part] / 2**20 for part in SHARES} for way, parts in held.items()
    }
    title = "One loss, and with FSDP a quarter of the model's state on each process"
    figure, (left, right) = plots.panels(
        title, 1, 2, (7.4, 2.5), sharey=True, width_ratios=(1.7, 1)
    )
    plots.draw_bars(left, sizes)
    color = plots.meaning(results["device"].upper())
    together = {names[way]: speeds[way] for way in held}
    words = {name: f"{speed:,.0f}" for name, speed in together.items()}
    plots.draw_bars(right, together, colors=color, words=words)
    for bar, part in zip(left.patches, SHARES, strict=False):  # of the first row
        place = (bar.get_x() + bar.get_width() / 2, 0)
        ink = plots.INK if part == "optimizer" else "white"
        plots.note(left, part, place, (0, 0), fontsize=8, color=ink)
    for axes, label in ((left, "MiB on each process"), (right, "tokens per second, together")):
        axes.margins(x=0.2)
        axes.set_xlabel(label)
    right.locator_params(axis="x", nbins=3)
    if results["device"] == "cpu":
        look = {"fontsize": 9, "color": plots.FAINT, "loc": "left"}
        right.set_title("CPU processes on shared cores", **look)
    told = ", ".join(f"{way} {speed:,.0f}" for way, speed in speeds.items())
    figures.show(figure, f"{title}. Tokens per second: {told}.")
    apart = results["own"]["difference"]
    print(f"largest difference of fsdp_block's gradients from whole blocks': {apart:g}")


# --- what hides the traffic -------------------------------------------------------------------------
def hides(tokens=4096, block=8e9 / 32):
    """Return (Figure, sentence): how long a block's forward pass computes, and how long its gather takes over two links."""
    compute = 1000 * 2 * block * tokens / RATE
    links = {"PCIe 4.0, 24 GB/s": 24e9, "NVLink, 370 GB/s": 370e9}
    gathers = {f"gather it over {link}": 1000 * 2 * block / rate for link, rate in links.items()}
    block_runs = "compute the block, at most"
    times = {block_runs: compute, **gathers}
    colors = dict.fromkeys(times, plots.COMM) | {block_runs: plots.GPU}
    title = f"{tokens:,} tokens hide the gather over NVLink, not over PCIe 4.0"
    figure = plots.bars(
        times, title, "ms, forecast, for one block of an 8-billion model", colors=colors
    )
    told = ", ".join(f"{name} {time:.3g}" for name, time in times.items())
    return figure, f"Bars, in ms: {told}."


HIDDEN = "only over NVLink", "The gather has to be shorter than the block's compute."
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
        "height": 220,
        "view": {"fill": PALE},
        "params": [
            vega.slider("tflops", 1000, 1, tflops, "a GPU's speed (TFLOP/s)", low=10),
            vega.slider("gb", 900, 1, gb_per_s, "its link (GB/s)", low=5),
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


# --- matrices ---------------------------------------------------------------------------------------
MATRICES = (  # rows and columns of cells, along which a GPU holds its part, and the collective before
    ("x", 3, 4, None, ""),
    ("@  up", 4, 6, "columns", ""),
    ("=  hidden", 3, 6, "columns", ""),
    ("@  down", 6, 4, "rows", ""),
    ("=  a term", 3, 4, None, ""),
    ("the sum", 3, 4, None, "all-reduce"),
)
TALL = 8  # rows of cells for a GPU, with its labels


def show_split(gpus=2):
    """Show what each of `gpus` holds of two matrices, one split by columns, the next by rows: green what it holds."""
    title = "Columns first, rows second: one all-reduce for two matmuls"
    _show_matrices(title, MATRICES, gpus, "every GPU gets the sum.")


def _show_matrices(title, matrices, gpus, told):
    figure, axes = plots.drawing(title, (7.4, 0.5 + 1.35 * gpus))
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
                color = plots.GPU if place.get(split, gpu) == gpu else PALE
                box(axes, left + column, top + row + 0.03, 0.94, 0.94, color)
            left += columns + 2
    axes.set(xlim=(-5, left - 1.5), ylim=(TALL * gpus - 1.5, -1.5))
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
def idle(stages=4, microbatches=4):
    """Return the share of the time that each GPU of a pipeline is idle, and why."""
    turns = microbatches + stages - 1
    return f"{(stages - 1) / turns:.0%}", f"It works {microbatches} turns out of {turns}."


def pipeline(stages=4, microbatches=4):
    """Return the Chart of a pipeline's schedule, all forward passes and then all backward ones, with sliders for both numbers."""
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
    return vega.Chart(_pipeline(title, stages, microbatches), figure, alt, words)


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
        "height": 200,
        "view": {"fill": PALE},
        "params": [
            vega.slider("p", 8, 1, stages, "stages", low=1),
            vega.slider("m", 16, 1, microbatches, "microbatches", low=1),
        ],
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
    held, shares, words, good, told = {}, {}, ({}, {}), 0, []
    for name, job in JOBS.items():
        plan = plans.get(name)
        if not is_plan(plan) or math.prod(plan) != job.gpus:
            row, found, share = f"{name}: no plan yet", None, 0
            told.append(row)
            held[row], words[0][row], words[1][row] = 0, "", ""
        else:
            row, found = f"{name}: {' × '.join(map(str, plan))}", forecast(job, *plan)
            good += works(job, plan)
            held[row] = {"parameters": found.state / 1e9, "activations": found.activations / 1e9}
            gb, share = sum(held[row].values()), found.computing * fits(found)
            words[0][row] = f"{gb:.0f}"
            words[1][row] = f"{share:.0%}" if fits(found) else "doesn't fit"
            told.append(f"{row}, {gb:.0f} GB, computes {found.computing:.0%} of the time")
        shares[row] = share
    plots.draw_bars(left, [plots.forecast(held)], words=words[0])
    plots.draw_bars(right, [plots.forecast(shares)], colors=plots.GPU, words=words[1])
    for memory, time in zip(left.texts, right.texts, strict=True):
        if time.get_text() == "doesn't fit":
            memory.set_color(plots.TROUBLE), time.set_color(plots.TROUBLE)
    left.axvline(ROOM / 1e9, color=plots.TROUBLE, linewidth=1.8)
    plots.note(left, "80 GB", (ROOM / 1e9, -0.65), (0, 0), color=plots.TROUBLE, va="bottom")
    left.set_xlabel("GB on each GPU: state, then activations")
    right.set_xlabel("share of the time that it computes")
    left.grid(False), right.grid(False)
    left.margins(x=0.15)
    right.set_xlim(0, 1.12)
    right.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    title = f"FSDP × tensor × pipeline, forecast: {good} of 4 jobs {'has' if good == 1 else 'have'} a good plan"
    plots.set_title(figure, title)
    figures.show(figure, f"{title}. {'; '.join(told)}.")
