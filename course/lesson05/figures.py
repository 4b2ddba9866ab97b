"""The figures of lesson 05: a step, what saves memory, and what a real GPU held."""

import copy
import functools
from contextlib import contextmanager

import torch
from torch.utils.checkpoint import checkpoint

from course import measurements, photos
from course.checks.core import chosen
from course.lesson05 import lora
from course.lesson05.exercises import accumulate, accumulation
from course.lesson05.memory import PASSING_GRAY, by_part, draw_step, in_total, point_at
from helpers import plots
from helpers.memory import MIB
from helpers.training import train_step
from practice_gpus import practice_gpus

# --- one step ---------------------------------------------------------------------------------------
OPTIMIZERS = {
    "SGD": torch.optim.SGD,
    "Adam": torch.optim.Adam,
}


def mountain(make_model):
    """Return draw(batch, optimizer), which draws what a step of that model holds over time, from shapes alone."""

    def draw(batch, optimizer):
        with practice_gpus(1, values=False):
            model = make_model()
            update = OPTIMIZERS[optimizer](model.parameters())
            rows = torch.empty(batch, 1024, device="cuda")
            labels = torch.zeros(batch, dtype=torch.int64, device="cuda")

            def step():
                train_step(model, rows, labels, update)

            step()  # the first step creates the optimizer's state
            return draw_step(model, update, (rows, labels), step, 235)

    return draw


# --- the photo network ------------------------------------------------------------------------------
HIGHEST = 6000  # MiB, where the axis ends


def first_picture():
    """Return (Figure, alternative text): what a step on 64 photos holds over time, by forecast, and what is known of it."""
    with _photo_step() as (network, optimizer, batch, step):
        _, sizes = by_part(network, optimizer, batch, step)
    totals = [sum(each) for each in zip(*sizes.values(), strict=True)]
    title = f"64 photos in one training step: {max(totals):,.0f} MiB at the peak (forecast)"
    figure, axes = plots.new_figure(
        title, "from the start of the step to its end", "MiB in use", (7.4, 3)
    )
    axes.fill_between(range(len(totals)), totals, color=PASSING_GRAY, step="pre")
    axes.set(xlim=(0, len(totals) - 1), ylim=(0, HIGHEST), xticks=[])
    axes.yaxis.set_major_formatter(lambda y, _: plots.number(y))
    network, images = max(sizes["parameters"]), max(sizes["batch"])
    place = 0.5 * len(totals), 0.42 * max(totals)
    words = f"the network: {network:.0f} MiB\n64 photos: {images:.0f} MiB\nthe rest: ?"
    plots.note(axes, words, place, (0, 0), fontsize=13, path_effects=[])
    told = f"the network is {network:.0f} MiB and the photos {images:.0f}"
    return figure, f"{title}, of which {told}."


@contextmanager
def _photo_step():
    """The second training step on 64 photos: (network, optimizer, batch, step), on a practice GPU that only counts."""
    with practice_gpus(1, card="T4", values=False):
        network, optimizer, *batch = _photo_training(64)

        def step():
            train_step(network, *batch, optimizer)

        step()  # the first one creates Adam's averages
        yield network, optimizer, batch, step


def first_picture_b():
    """Return (Figure, alternative text): a step on 64 photos, before and after all that saves memory; forecasts."""
    ways = WAYS["64 at once"], WAYS["+ checkpoints"]
    plain, saving = (_forecast(accumulate, *way) for way in ways)
    title = f"64 photos in one step: {_peak(plain)} MiB or {_peak(saving)} (forecasts for a T4)"
    return _draw_hills(title, {"the plain step": plain, "the leaner step, at the end": saving})


# there are no values to compare
_CHECKPOINT = {"use_reentrant": False, "determinism_check": "none"}


@functools.cache
def _photo_network():
    """The photo network, loaded once: forecasts never look at its weights."""
    return photos.pretrained(3)


def make_step(batch, accumulate, size, half=False, saves=False):
    """Return a step that trains all layers of EfficientNet-Lite0 on the current GPU, by `accumulate` in pieces of `size`.

    `half`: under autocast in float16; `saves`: each block is checkpointed. In eval mode, so that batch norm and dropout
    give the same gradients in pieces.
    """
    network, optimizer, images, labels = _photo_training(batch)
    for block in network._blocks if saves else ():
        block.forward = functools.partial(checkpoint, block.forward, **_CHECKPOINT)

    def step():
        with torch.autocast("cuda", torch.float16, half):
            accumulate(network, images, labels, size)
        optimizer.step()

    return step


def _photo_training(batch):
    """EfficientNet-Lite0 in eval mode, its optimizer, a batch of photos and their labels, on the current GPU."""
    network = copy.deepcopy(_photo_network()).cuda()
    images = torch.empty(batch, 3, photos.SIZE, photos.SIZE, device="cuda")
    labels = torch.zeros(batch, dtype=torch.int64, device="cuda")
    return network, torch.optim.Adam(network.parameters()), images, labels


REST = ("gradients and Adam's averages", "what the layers computed", "copies of the photos")
PEAK = (  # for `reveal`
    REST[1],
    "These are the activations. One convolution shows why: it has 6 KiB of weights, and it computes 294 MiB from 64 photos, because it applies the same weights at 112 × 112 positions of each. In the small network, a layer with 4 MiB of weights computes only 8 MiB. Gradients and Adam's averages take 39 MiB together.",
)
SHORT = ("40 MiB, because 26 of the 66 are free", "66 MiB", "about 2,000 MiB")
NEEDED = (  # for `reveal`
    SHORT[2],
    "The 66 MiB are only the request that failed. Activations grow with the batch, so 128 photos need about twice the peak of 64, 10,200 MiB. The card has 8,192.",
)


def draw_photo_step():
    """Return (Figure, sentence): the mountain of the first picture, by what it is for."""
    with _photo_step() as (network, optimizer, batch, step):
        figure, told = draw_step(network, optimizer, batch, step, HIGHEST)
    [axes] = figure.axes
    mib = [sum(each.nbytes for each in part) / MIB for part in (network.parameters(), batch)]
    words = "batch {1:.0f} MiB\noptimizer {2:.0f} MiB\nparameters {0:.0f} MiB".format(
        *mib, 2 * mib[0]
    )
    point_at(axes, words, (axes.get_xlim()[1], sum(mib)), (12, 26), "left")
    return figure, told


def train_photos(batch, memory):
    """Return the MiB at the peak of two training steps on a practice GPU with so much `memory`, from shapes alone."""
    with practice_gpus(1, memory=memory, values=False):
        network, optimizer, images, labels = _photo_training(batch)
        for _ in range(2):  # the first one creates Adam's averages
            train_step(network, images, labels, optimizer)
        return torch.cuda.max_memory_allocated() / MIB


WAYS = {  # size of a piece, and what else, by what each adds
    "64 at once": (64, {}),
    "float16": (64, {"half": True}),
    "+ 4 pieces of 16": (16, {"half": True}),
    "+ checkpoints": (16, {"half": True, "saves": True}),
}


def draw_ways(answer):
    """Return (Figure, sentence): memory and time of the photo network's step on a T4 by `WAYS`; forecasts.

    The pieces are sent through by `answer` if it is right.
    """
    pieces_of = chosen(accumulation, answer)
    found = {words: _forecast(pieces_of, *way) for words, way in WAYS.items()}
    first, *_, last = found.values()
    title = f"64 photos in one step: from {_peak(first)} to {_peak(last)} MiB (forecasts for a T4)"
    return _draw_hills(title, found)


def _forecast(pieces_of, size, options):
    """(MiB in use after each allocation and release, forecast of the time) of a step on 64 photos, in pieces of `size`."""
    found = []
    with practice_gpus(1, card="T4", values=False) as gpus:
        step = make_step(64, pieces_of, size, **options)
        step()  # the first one creates Adam's averages
        sizes = in_total(lambda: found.append(gpus.forecast(step)))
    return sizes, found[0]


def _peak(found):
    return plots.number(max(found[0]))


def _draw_hills(title, found):
    """(Figure, sentence): memory over a step in one panel for each of `found`: words, sizes and forecast of the time.

    Allocations and releases follow one another in order, not to scale.
    """
    figure, row = plots.panels(title, 1, len(found), (7.4, 3.0), sharey=True)
    told = {}
    for axes, (words, (sizes, time)) in zip(row, found.items(), strict=True):
        plots.tidy(axes)
        axes.fill_between(range(len(sizes)), sizes, color=plots.MEMORY["activations"])
        peak = f"{_peak((sizes, time))} MiB"
        span = f"{time.low_ms / 1e3:.1f} to {time.high_ms / 1e3:.1f} s"
        told[words] = f"{peak}, {span}"
        place = {"va": "top", "xycoords": "axes fraction"}
        plots.note(axes, words, (0.03, 0.99), (1, 0), **place)
        plots.note(axes, peak, (0.03, 0.91), (1, 0), fontsize=13, weight="bold", **place)
        plots.note(axes, span, (0.03, 0.81), (1, 0), **place)
        axes.set_xticks([])
        axes.yaxis.set_major_formatter(lambda y, _: plots.number(y))
    highest = max(max(sizes) for sizes, _ in found.values())
    row[0].set_ylim(0, 1.4 * highest)
    row[0].set_yticks(range(0, int(highest) + 1, 1000))
    row[0].set_ylabel("MiB in use")
    figure.supxlabel("allocations and releases, in their order", fontsize=9, color=plots.INK)
    return figure, f"{title}. {'; '.join(f'{words}: {each}' for words, each in told.items())}."


# --- BERT-large on a real GPU ---------------------------------------------------------------------
PUBLISHED = {  # our words: what Hugging Face calls it
    "batch of 4": "batch 4",
    "4 pieces of 1": "gradient accumulation 4 × 1",
    "+ checkpointing": "accumulation and checkpointing",
    "+ float16": "accumulation, checkpointing, fp16",
    "+ Adafactor": "accumulation, checkpointing, fp16, Adafactor",
}
HALF = (  # for `reveal`
    "added a little",
    "Few activations are left to halve. Autocast adds 16-bit copies of the weights.",
)


def bert():
    """Return {words: (GiB, seconds)}: published memory and time of BERT-large's training, one saving after the other."""
    rows = {row["way"]: row for row in measurements.published("bert_memory_v100").rows("ways")}
    found = {words: rows[way] for words, way in PUBLISHED.items()}
    return {words: (row["memory_mib"] / 1024, row["time_s"]) for words, row in found.items()}


def draw_bert():
    """Return (Figure, sentence): what `bert` returns."""
    data = measurements.published("bert_memory_v100")
    [floor] = data.rows("floor", way="one tiny tensor")
    context = floor["memory_mib"] / 1024
    title = "BERT-large, measured on a V100: a third of the memory in the same time"
    unit = "GiB in use on the card, context and cache included"
    told = {words: f"{plots.number(size)} GiB, {s:.0f} s" for words, (size, s) in bert().items()}
    parts = {words: {"": context, "GPU": size - context} for words, (size, _) in bert().items()}
    colors, size = {"": plots.GREENS[4]}, (7.4, 2.9)
    figure = plots.bars(parts, title, unit, colors=colors, words=told, size=size)
    [axes] = figure.axes
    plots.note(axes, "context", (0, -0.33), (1, 6), fontsize=8)
    axes.grid(False)
    axes.set(xlim=(0, 18), ylim=(len(parts) - 0.5, -0.7))
    plots.sources(figure, f"published: {data.source}, 512 sequences of 512 tokens")
    return figure, f"{title}. {'; '.join(f'{words}: {each}' for words, each in told.items())}."


# --- LoRA: a forecast beside what was published ---------------------------------------------------
LORA = {  # our words: bits of a weight and texts in a step, as LitGPT's table has them
    "16 bits, one text": ("bfloat16", 1),
    "16 bits, two texts": ("bfloat16", 2),
    "4 bits, one text": ("nf4", 1),
}
LORA_PEAK = 21.3, "13.5 GB are the frozen weights. Most of the rest is activations."


def draw_lora(model="Llama 2 7B"):
    """Return (Figure, sentence): the peak of LoRA's training of `model`, by forecast and as LitGPT published it."""
    data = measurements.published("litgpt_memory")
    rows = {(r["bits"], r["batch"]): r["memory_gb"] for r in data.rows("lora", model=model)}
    found = {}
    for words, way in LORA.items():
        found[words] = lora.peak_gb(model, *way), rows[way]
    title = (
        f"LoRA of {model}: each forecast within {_worst(found.values()):.1%} of the published peak"
    )
    figure, axes = plots.new_figure(title, "GB at the peak", size=(7.2, 3.1))
    for y, (forecast, measured) in enumerate(found.values()):
        axes.barh(y - 0.2, measured, 0.36, color=plots.GPU)
        look = {"facecolor": plots.GPU + "22", "edgecolor": plots.GPU, "linewidth": 1.4}
        axes.barh(y + 0.2, forecast, 0.36, **look)
        plots.note(axes, f"{plots.number(measured)}  published", (measured, y - 0.2))
        plots.note(axes, f"{plots.number(forecast)}  forecast", (forecast, y + 0.2))
    plots.tidy(axes)
    axes.set_yticks(range(len(found)), found)
    axes.tick_params(axis="y", labelcolor=plots.INK)
    axes.grid(False, axis="y")
    axes.set(xlim=(0, 37), ylim=(len(found) - 0.5, -0.5))
    plots.sources(figure, f"published: {data.source}, on an A100 of 40 GB")
    told = (f"{words}: published {b:.1f} GB, forecast {a:.1f}" for words, (a, b) in found.items())
    return figure, f"{title}. {'; '.join(told)}."


def _worst(pairs):
    return max(abs(forecast / measured - 1) for forecast, measured in pairs)
