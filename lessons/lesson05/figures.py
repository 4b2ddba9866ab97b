"""The figures of lesson 05: a step's memory over time, cards that hold it, what saves memory, a real layer."""

import functools

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import measurements
from helpers import figures, photos, plots
from helpers.checks.core import chosen
from helpers.gpus import CARDS
from helpers.memory import MIB, draw_step, in_total
from lessons.lesson05.exercises import accumulate, accumulation
from measurements import traces
from practice_gpus import practice_gpus
from practice_gpus.cards import get_card

_OFFSET = {"textcoords": "offset points"}
_BESIDE = {"va": "center", "fontsize": 9, "color": figures.INK}
USABLE = 0.9  # of a card's memory: the rest is for the context and for workspaces of libraries


# --- the mountain -----------------------------------------------------------------------------------
def first_picture():
    """Return (Figure, alternative text): the memory of the lesson's step over time."""
    torch.manual_seed(0)
    with practice_gpus(1, memory="1 GiB", real="hide"):
        layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(5)]
        model = nn.Sequential(*layers, nn.Linear(1024, 10)).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        rows = torch.rand(2048, 1024, device="cuda")
        labels = torch.randint(10, (2048,), device="cuda")

        def step():
            optimizer.zero_grad()
            F.cross_entropy(model(rows), labels).backward()
            optimizer.step()

        step()
        return draw_step(model, optimizer, (rows, labels), step)


# --- the photo network ------------------------------------------------------------------------------
_CHECKPOINT = {
    "use_reentrant": False,
    "determinism_check": "none",
}  # there are no values to compare


def make_step(batch, accumulate, size, half=False, saves=False):
    """Return a step that trains all layers of EfficientNet-Lite0 on the current GPU, by `accumulate` in pieces of `size`.

    `half`: under autocast in float16; `saves`: each block is checkpointed.
    """
    network = photos.pretrained(3).cuda().train()
    optimizer = torch.optim.AdamW(network.parameters())
    images = torch.empty(batch, 3, photos.SIZE, photos.SIZE, device="cuda")
    labels = torch.zeros(batch, dtype=torch.int64, device="cuda")
    for block in network._blocks if saves else ():
        block.forward = functools.partial(checkpoint, block.forward, **_CHECKPOINT)

    def step():
        with torch.autocast("cuda", torch.float16, half):
            accumulate(network, images, labels, size)
        optimizer.step()

    return step


WAYS = {  # size of a piece, what else, and where its words stand
    "64 at once": (64, {}, -84, 14),
    "float16": (64, {"half": True}, 8, 0),
    "checkpoint each block": (64, {"saves": True}, 8, 0),
    "both, 4 pieces of 16": (16, {"half": True, "saves": True}, 8, 0),
}


def draw_ways():
    """Return (Figure, sentence): memory and time of the photo network's step on a T4, each way to save; forecasts."""
    points = {}
    for words, (size, way, *place) in WAYS.items():
        with practice_gpus(1, card="T4", values=False) as gpus:
            step = make_step(64, accumulate, size, **way)
            torch.cuda.reset_peak_memory_stats()
            milliseconds = gpus.forecast(step).ms
            points[words] = (torch.cuda.max_memory_allocated() / MIB, milliseconds, *place)
    sizes = [size for size, *_ in points.values()]
    most, least = (plots.number(size) for size in (max(sizes), min(sizes)))
    title = f"A batch of 64 images: from {most} to {least} MiB (forecast)"
    figure, _ = _draw_ways(title, "MiB at the peak", "ms per step on a T4", points, figures.CARD)
    return figure, f"Forecast for a step of EfficientNet-Lite0. {_told(points, 'MiB', 'ms')}"


def _draw_ways(title, xlabel, ylabel, points, face=figures.GPU):
    """(Figure, Axes) of ways to save: `points` has memory, time and where its words stand, by words."""
    figure, axes = figures.new_figure(title, xlabel, ylabel, (7.4, 3.2))
    for words, (x, y, right, up) in points.items():
        axes.plot(x, y, "o", color=figures.GPU, markerfacecolor=face, markersize=8)
        axes.annotate(f"{words}: {plots.number(x)}", (x, y), (right, up), **_OFFSET, **_BESIDE)
    axes.set_xlim(0, 1.13 * max(x for x, *_ in points.values()))
    axes.set_ylim(0, 1.25 * max(y for _, y, *_ in points.values()))
    return figure, axes


def _told(points, size, time):
    return "; ".join(
        f"{w}: {plots.number(x)} {size}, {y:.0f} {time}" for w, (x, y, *_) in points.items()
    )


def draw_pieces(answer):
    """Return (Figure, sentence): the photo network's batch of 64 at once and in pieces of 8, by `answer` if it is right."""
    pieces_of = chosen(accumulation, answer)
    with practice_gpus(1, memory="8 GiB", values=False):
        whole, pieces = (in_total(make_step(64, pieces_of, size)) for size in (64, 8))
    title = f"Eight pieces of 8 images: {1 - max(pieces) / max(whole):.0%} off the peak (forecast)"
    figure, both = figures.panels(title, 1, 2, (7.4, 2.7), sharey=True)
    for axes, sizes, name in zip(both, (whole, pieces), ("64 at once", "8 × 8"), strict=True):
        figures.tidy(axes)
        axes.fill_between(range(len(sizes)), sizes, color=figures.MEMORY["activations"])
        axes.annotate(f"{name}: {plots.number(max(sizes), 2)} MiB", (0.04, 0.9), **_CORNER)
        axes.set_xticks([])
        axes.set_ylim(0, 1.25 * max(whole))
        axes.set_xlabel("allocations and releases, in order")
    both[0].set_ylabel("MiB in use")
    most, least = (plots.number(max(sizes), 2) for sizes in (whole, pieces))
    return figure, f"{title}: from {most} MiB to {least} MiB."


_CORNER = {"xycoords": "axes fraction", "fontsize": 9, "color": figures.INK}


# --- which card -------------------------------------------------------------------------------------
@functools.cache
def _bytes_per_pixel(precision):
    """Bytes that a step of EfficientNet-Lite0 holds for each pixel of its batch, from one step on shapes."""
    with practice_gpus(1, values=False):
        step = make_step(8, accumulate, 8, half=precision == "float16")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return (torch.cuda.max_memory_allocated() - before) / (8 * photos.SIZE**2)


def draw_fit(batch, pixels, optimizer, precision):
    """Return (Figure, sentence): what a step of the photo network needs, beside what well-known cards can hold."""
    weights = 13.5e6  # bytes of EfficientNet-Lite0 with three classes
    copies = {"SGD": 2, "AdamW": 4}[optimizer]
    need = (copies * weights + _bytes_per_pixel(precision) * batch * pixels**2) / 1e9
    sizes = {name: get_card(name).gigabytes for name in CARDS}
    fits = [name for name, size in sizes.items() if need <= USABLE * size]
    title = f"{plots.number(need)} GB by forecast: fits {len(fits)} of {len(sizes)} cards"
    figure, axes = figures.new_figure(
        title, "GB (data sheets); filled: the usable 90%", "", (7.4, 3.6)
    )
    for y, (name, size) in enumerate(sizes.items()):
        color = figures.GPU if name in fits else figures.GREENS[4]
        axes.barh(y, USABLE * size, height=0.62, color=color)
        axes.barh(y, size, height=0.62, facecolor="none", edgecolor=figures.WAIT, linewidth=0.8)
    names = [name if "GB" in name else f"{name} {size} GB" for name, size in sizes.items()]
    axes.set_yticks(range(len(sizes)), names)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(0, 155)
    axes.axvline(need, color=figures.TROUBLE, linewidth=1.8)
    axes.annotate(
        "this step", (min(need, 140), 1), (5, -10), xycoords=("data", "axes fraction"), **_LINE
    )
    return figure, f"{title}: {', '.join(fits) or 'none'}."


_LINE = {"textcoords": "offset points", "fontsize": 9, "color": figures.TROUBLE}

PUBLISHED = {  # what Hugging Face calls it: our words, and where they stand
    "batch 4": ("batch 4", -40, 14),
    "gradient accumulation 4 × 1": ("accumulation", -24, -16),
    "accumulation and checkpointing": ("+ checkpointing", 8, 0),
    "accumulation, checkpointing, fp16": ("+ 16 bits", -30, -16),
    "accumulation, checkpointing, fp16, Adafactor": ("+ Adafactor", -60, 14),
}


def draw_bert():
    """Return (Figure, sentence): published memory and time of BERT-large's training, one saving after the other."""
    data = measurements.published("bert_memory_v100")
    rows = {row["way"]: row for row in data.rows("ways")}
    points = {
        words: (rows[way]["memory_mib"] / 1024, rows[way]["time_s"], *place)
        for way, (words, *place) in PUBLISHED.items()
    }
    title = "BERT-large: from 14.6 to 4.7 GiB in the same time"
    figure, axes = _draw_ways(title, "GiB in use", "seconds for 512 sequences", points)
    axes.plot(*zip(*(point[:2] for point in points.values()), strict=True), color=figures.GPU)
    [floor] = data.rows("floor", way="one tiny tensor")
    context = floor["memory_mib"] / 1024
    axes.axvline(context, color=figures.INK, linestyle=":")
    axes.annotate("the context alone: 1.3", (context, 8), (6, 0), **_OFFSET, **_BESIDE)
    figures.sources(figure, f"published: {data.source}, one V100")
    return figure, f"BERT-large on a V100. {_told(points, 'GiB', 's')}"


# --- a real layer -----------------------------------------------------------------------------------
def draw_attention():
    """Return (Figure, sentence): what TimeSformer's first attention layer held on an H100, as the profiler saw it."""
    trace = traces.case("10")
    layer = trace.between(6700, 7400)
    times = [0, *(time / 1000 for time, _ in layer.memory), layer.length / 1000]
    sizes = [before for time, before in trace.memory if time < 6700][-1:]
    sizes = [size / 1e9 for size in [*sizes, *(size for _, size in layer.memory)]]
    title = "One attention layer on an H100: three matrices of 1.89 GB, two at a time"
    figure, axes = figures.new_figure(title, "ms on the CPU's clock", "GB allocated", (7.4, 3.0))
    axes.fill_between(times, [*sizes, sizes[-1]], step="post", color=figures.MEMORY["activations"])
    axes.set_xlim(0, layer.length / 1000)
    axes.set_ylim(0, 5.2)
    marks = (("scores", 0.27, "right"), ("+ scaled", 0.328, "right"), ("+ softmax", 0.37, "left"))
    for (words, x, side), y in zip(marks, (2.75, 4.6, 4.6), strict=True):
        axes.annotate(words, (x, y), ha=side, fontsize=9, color=figures.INK)
    figures.sources(figure, trace.source)
    peak = max(sizes)
    return figure, f"Memory rises from {sizes[0]:.2g} to {peak:.3g} GB, in steps of 1.89 GB."
