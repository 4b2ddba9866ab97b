"""The figures of lesson 10: who holds what, what hides the traffic, how matrices, layers and experts are split."""

from itertools import product

from helpers import figures, plots, vega
from helpers.checks.core import chosen
from helpers.step_pictures import PALE
from lessons.lesson10.exercises import bytes as bytes_exercise

STAGES = ("DDP", "ZeRO stage 1", "ZeRO stage 2", "ZeRO stage 3")
SHARES = {"parameters": 4, "gradients": 4, "optimizer": 8}  # bytes each, in float32 with Adam
WIDE = 680  # pixels of a chart
NOTE = {"fontsize": 9, "color": figures.INK}


# --- who holds what ---------------------------------------------------------------------------------
def parts_gb(billions, ranks, stage):
    """Return {part: GB on each rank} of a model with so many billion parameters."""
    split = dict(zip(SHARES, (stage >= 3, stage >= 2, stage >= 1), strict=True))
    return {
        part: share * billions / (ranks if split[part] else 1) for part, share in SHARES.items()
    }


def first_picture():
    """Return (Figure, alternative text): 7 billion parameters on one H100, on four with DDP and with FSDP."""
    stages = {"one H100": 0, "each of four, DDP": 0, "each of four, FSDP": 3}
    rows = {label: parts_gb(7, 4, stage) for label, stage in stages.items()}
    title = "Training 7 billion parameters: too large for one H100, trained on four"
    figure = plots.stacked(rows, title, "GB for parameters, gradients and Adam")
    axes = figure.axes[0]
    axes.axvline(80, color=figures.TROUBLE, linewidth=1.8)
    axes.text(81, 2.42, "an H100 has 80 GB", color=figures.TROUBLE)
    axes.set_ylim(2.6, -0.5)
    return figure, "112 GB on one H100, 112 on each of four with DDP, 28 with FSDP; an H100 has 80."


def show_stages(parameters, ranks=4):
    """Show what each of `ranks` holds in each stage, in MiB."""
    scale = parameters / 2**20
    rows = {
        name: {part: size * scale for part, size in parts_gb(1, ranks, stage).items()}
        for stage, name in enumerate(STAGES)
    }
    totals = [figures.number(sum(row.values())) for row in rows.values()]
    title = f"Each of {ranks} ranks holds {totals[0]} MiB with DDP, {totals[3]} once all is split"
    figure = plots.stacked(rows, title, "MiB on each rank")
    figures.show(figure, f"MiB per rank: {', '.join(map(' '.join, zip(rows, totals)))}.")


def show_ranks(answer, billions=7, room=80):
    """Show GB of a rank by their number in four stages, by `answer` once its check passes."""
    function = chosen(bytes_exercise, answer)
    ranks = [2**n for n in range(8)]
    lines = {
        name: (ranks, [function(1e9 * billions, n, stage) / 1e9 for n in ranks])
        for stage, name in enumerate(STAGES)
    }
    looks = (figures.TROUBLE, *figures.GREENS[2::-1])
    title = f"{billions} billion parameters fit on two {room} GB GPUs from ZeRO stage 2 on"
    colors = dict(zip(lines, looks, strict=True))
    figure = plots.lines(lines, title, "ranks", "GB on each rank", True, True, colors)
    axes = figure.axes[0]
    axes.axhline(room, color=figures.INK, linewidth=1)
    axes.text(170, room, f"one GPU: {room}", va="center", **NOTE)
    figures.show(figure, "DDP 112 GB at any number; on two ranks stage 2 70 GB, stage 3 56.")


# --- what hides the traffic -------------------------------------------------------------------------
def show_hidden(tflops=277, gb_per_s=50):
    """Show the share of a GPU's speed that is left under FSDP, by tokens per GPU, with sliders for both rates."""
    tokens = [2 ** (7 + step / 8) for step in range(73)]
    limit = 1000 * tflops / gb_per_s
    title = "With few tokens per GPU, compute waits for the weights"
    lines = {"speed": (tokens, [min(100, 100 * each / limit) for each in tokens])}
    figure = plots.lines(lines, title, "tokens per GPU and step", "% of full speed", logx=True)
    figure.axes[0].get_lines()[0].set(marker="none", color=figures.GPU)
    figure.axes[0].axvline(limit, color=figures.COMM, linewidth=1)
    figure.axes[0].text(1.05 * limit, 8, f"{limit:,.0f} tokens", **NOTE)
    log = {"scale": {"type": "log", "base": 2}, "axis": {"values": [2**n for n in range(7, 17)]}}
    x = amount("tokens", "tokens per GPU and step", **log)
    y = amount("speed", "% of full speed", scale={"domain": [0, 100]})
    at = {"transform": [{"filter": "datum.tokens === 128"}]}
    to = {"x": {**x, "field": "limit"}}
    spec = {
        "title": title,
        "width": WIDE,
        "height": 210,
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
            {"mark": {"type": "line", "strokeWidth": 3}, "encoding": {"x": x, "y": y}},
            {**at, "mark": {"type": "rule", "color": figures.COMM}, "encoding": to},
            {**at, "mark": TEXT, "encoding": {**to, "text": {"field": "words"}}},
        ],
    }
    share = 100 * 1024 / limit
    alt = f"Speed rises with the tokens, and is full from {limit:,.0f} on; 1,024 give {share:.0f}%."
    figures.show_vega(spec, figure, alt)


TEXT = {"type": "text", "align": "left", "fontSize": 13, "y": 12, "dx": 6}


def amount(field, title, **more):
    """Return the encoding of a quantity."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def slide(name, high, start, label, low=1):
    """Return the parameter `name`, a slider from `low` to `high`."""
    bind = {"input": "range", "min": low, "max": high, "step": 1, "name": f"{label} "}
    return {"name": name, "value": start, "bind": bind}


# --- matrices ---------------------------------------------------------------------------------------
TENSOR = (  # what a GPU has of each: rows and columns of cells, and along which they are split
    ("x", 3, 4, None),
    ("@  up", 4, 6, "columns"),
    ("=  hidden", 3, 6, "columns"),
    ("@  down", 6, 4, "rows"),
    ("=  part of a sum", 3, 4, None),
)
SEQUENCE = (
    ("norm", 4, 4, "rows"),
    ("all-gather", 4, 4, None),
    ("hidden", 4, 6, "columns"),
    ("part of a sum", 4, 4, None),
    ("reduce-scatter", 4, 4, "rows"),
)


def show_split(title, matrices, gpus=2):
    """Show what each of `gpus` holds of `matrices` (name, rows, columns, split): green what it holds."""
    figure, places = figures.panels(title, gpus, 1, size=(7.2, 0.6 + 1.3 * gpus))
    high = max(rows for _, rows, _, _ in matrices)
    for gpu, axes in enumerate(places):
        left = 0
        for name, rows, columns, split in matrices:
            axes.text(left, -0.5, name, **{**NOTE, "color": figures.meaning(name) or figures.INK})
            for row, column in product(range(rows), range(columns)):
                place = {"rows": row * gpus // rows, "columns": column * gpus // columns}
                held = place.get(split, gpu) == gpu
                color = figures.GPU if held else PALE
                axes.barh(row + 0.5, 0.94, 0.9, left + column, color=color)
            left += columns + 2
        axes.set_ylabel(f"GPU {gpu}", **NOTE)
        axes.set(xticks=[], yticks=[], xlim=(0, left - 2), ylim=(high, -1.2), facecolor="none")
        axes.spines[:].set_visible(False)
    names = ", ".join(name.strip("@= ") for name, *_ in matrices)
    figures.show(figure, f"{title}. For each of {gpus} GPUs: {names}.")


# --- a pipeline -------------------------------------------------------------------------------------
def show_pipeline(stages=4, microbatches=4):
    """Show a pipeline's schedule, all forward passes and then all backward ones, with sliders for both numbers."""
    title = "A pipeline's bubble: GPUs wait while it fills and drains"
    figure, axes = figures.new_figure(
        title, "time (forward passes of a microbatch)", "", (7.2, 2.6)
    )
    end = 3 * (microbatches + stages - 1)
    axes.barh(range(stages), end, 0.9, color=PALE)
    for stage, batch, back in product(range(stages), range(microbatches), (0, 1)):
        filled = microbatches + stages - 1
        start = filled + 2 * (stages - 1 - stage + batch) if back else stage + batch
        color = figures.GREENS[0] if back else figures.GREENS[2]
        axes.barh(stage, 1 + back, 0.9, start, color=color, edgecolor=figures.CARD)
    axes.set_yticks(range(stages), [f"GPU {stage}" for stage in range(stages)])
    axes.set(ylim=(stages - 0.5, -0.5), xlim=(0, end), xticks=range(0, end + 1, 3))
    axes.grid(False)
    share = (stages - 1) / (microbatches + stages - 1)
    alt = f"{stages} stages, {microbatches} microbatches: each GPU is idle for {share:.0%}."
    words = "Light: forward. Dark: backward, twice as long. Gray: idle."
    figures.show_vega(_pipeline(title, stages, microbatches), figure, alt, words)


def _pipeline(title, stages, microbatches):
    """The schedule as a Vega-Lite spec. Light: forward, one unit long; dark: backward, two."""
    words = "time (forward passes of a microbatch)"
    y = {"field": "gpu", "type": "ordinal", "title": None, "scale": {"paddingInner": 0.1}}
    passes = {"range": [figures.GREENS[2], figures.GREENS[0]], "domain": [0, 1]}
    color = {"field": "k", "type": "nominal", "scale": passes, "legend": None}
    whole = {"x": amount("zero", words, scale={"nice": False}), "x2": {"field": "last"}, "y": y}
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
        "params": [slide("p", 8, stages, "stages"), slide("m", 16, microbatches, "microbatches")],
        **vega.csv("i,j,k", product(range(8), range(16), (0, 1))),
        "transform": [
            {"filter": "datum.i < p && datum.j < m"},
            *vega.calculate(
                gpu="'GPU ' + datum.i",
                back="m + p - 1 + 2 * (p - 1 - datum.i + datum.j)",
                start="datum.k ? datum.back : datum.i + datum.j",
                end="datum.start + 1 + datum.k",
                zero="0",
                last="3 * (m + p - 1)",
                words="'each GPU idle for ' + format((p - 1) / (m + p - 1), '.0%')",
            ),
        ],
        "layer": [
            {
                "transform": [{"filter": "datum.j + datum.k === 0"}],
                "mark": {"type": "bar", "color": PALE},
                "encoding": whole,
            },
            {"mark": {"type": "bar", "stroke": figures.CARD}, "encoding": piece},
            {
                "transform": [{"filter": "datum.i + datum.j + datum.k === 0"}],
                "mark": {**TEXT, "y": -8, "x": 0, "dx": 0},
                "encoding": {"text": {"field": "words"}},
            },
        ],
    }
