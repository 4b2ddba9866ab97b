"""The figures of lesson 03: what the network sees, its layers and their bytes, its time by batch."""

import copy
import functools
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from helpers import figures, photos, plots
from helpers.memory import format_bytes
from helpers.palette import CARD, FAINT
from practice_gpus import practice_gpus

CARDS = ("T4", "V100", "A100 80", "H100 SXM")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOP = 2  # names of a photo in the first picture, channels of a layer
BLOCKS = (3, 5, 11)  # whose first convolution's channels are drawn, counted from 1
SIDE = 208  # pixels of a photo on the page


def evidence(network, photo, *asked):
    """Return [(name, probability, map [7, 7])] of the names `asked`, else of the likeliest, in a uint8 [3, 224, 224].

    A name's score is the mean of its map plus a bias, since the last layer is linear and takes means over all places
    (class activation maps: Zhou et al., 2016). A name that the network doesn't know raises ValueError.
    """
    names = photos.imagenet_names()
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise ValueError(f"asked: {unknown[0]!r} is none of the 1,000 names of imagenet_names()")
    device = next(network.parameters()).device
    with torch.inference_mode():
        features = network.extract_features(photos.prepare(photo[None].to(device)))[0]
        chances = network._fc(features.mean((1, 2))).softmax(0)
        places = [names.index(name) for name in asked] or chances.topk(TOP).indices.tolist()
        maps = torch.einsum("kc,chw->khw", network._fc.weight[places], features).cpu()
    return [(names[k], chances[k].item(), each) for k, each in zip(places, maps, strict=True)]


def _lit(photo, evidence_map):
    """Return the photo with all dark but the places that speak for its name."""
    light = (evidence_map / evidence_map.max()).clamp(0, 1)[None, None]
    light = F.interpolate(light, photo.shape[-2:], mode="bicubic").clamp(0, 1)[0, 0]
    return photo / 255 * (0.1 + 0.9 * light**1.5)


def _small(image):
    """Return `image`, 0 to 1, with as many pixels as it has on the page, and 32 shades, so that notebooks stay small."""
    small = F.interpolate(image[None], SIDE, mode="bilinear", antialias=True)[0]
    return (31 * small.clamp(0, 1)).round() / 31


def _picture(axes, image, below="", **style):
    """Draw `image` [channels, height, width], with words below it."""
    nearest = "nearest" if image.shape[-1] == SIDE else None
    axes.imshow(image.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", interpolation=nearest)
    axes.set_axis_off()
    look = {"va": "top", "fontsize": 9, "color": figures.INK, **style}
    axes.text(0, -0.05, below, transform=axes.transAxes, **look)


def first_picture():
    """Return (Figure, alternative text): three photos, their names, and where the network sees them."""
    network = photos.pretrained()
    figure = figures.blank_figure((7.4, 2.05))
    figure.set_layout_engine("none")
    figures.set_title(figure, "Bright: where the network finds its answer in each photo")
    said = []
    for i, sample in enumerate(photos.SAMPLES):
        photo = photos.sample(sample)
        (name, chance, where), (second, less, _) = evidence(network, photo)
        places = [(0.02 + 0.325 * i + x, 0.24, 0.15, 0.54) for x in (0, 0.155)]
        left, right = map(figure.add_axes, places)
        said.append(f"{chance:.0%} {name}")
        _picture(left, photo, said[-1], color=figures.GPU, weight="bold")
        _picture(right, _lit(photo, where))
        left.text(0, 290, f"{less:.0%} {second}", fontsize=9, color=figures.FAINT)
    return figure, f"Photos beside copies, bright where the answer is: {', '.join(said)}"


def seen(network, photo, *asked, file=None):
    """Show a photo, and where in it the network finds each of the names `asked`, else of the likeliest.

    `file`: a name such as "seen.png" under which the picture is saved, too.
    """
    found = evidence(network, photo, *asked)
    words = [f"{name}, {chance:.1%}" for name, chance, _ in found]
    *others, last = [name for name, *_ in found]
    title = f"Where it finds {', '.join(others)}{' and ' * bool(others)}{last}"
    figure, axes = figures.panels(title, 1, 1 + len(found), (1.85 * (1 + len(found)), 2.5))
    _picture(axes[0], _small(photo / 255), "the photo")
    for place, text, (*_, each) in zip(axes[1:], words, found, strict=True):
        _picture(place, _small(_lit(photo, each)), text)
    figures.show(figure, f"A photo, and where the network finds each name: {'; '.join(words)}.")
    if file:
        Path(file).write_bytes(figures.png(figure))


def layers(network, photo):
    """Show a photo on its way through the network: two channels of five layers, and the layers' shapes."""
    title = "Through the network: fewer pixels, more channels"
    figure, axes = figures.panels(title, TOP, 6, (7.4, 3.0))
    for row in axes:
        row[0].set_axis_off()
    _picture(axes[-1][0], photo, "the photo\n3 × 224 × 224\n588 KiB")
    shapes = []
    parts = ("stem", *(f"inside block {block}" for block in BLOCKS), "last convolution")
    for column, part, maps in zip(axes.T[1:], parts, _activations(network, photo), strict=True):
        shapes.append(" × ".join(map(str, maps.shape)))
        contrast = maps.std((1, 2)) * (maps < 6).float().mean((1, 2))  # ReLU6 cuts at 6
        for place, channel in zip(column, contrast.topk(TOP).indices, strict=True):
            _picture(place, maps[None, channel])
        below = f"{part}\n{shapes[-1]}\n{maps.nbytes / 2**10:,.0f} KiB"
        _picture(column[-1], maps[None, channel], below)
    told = ", ".join(map(" ".join, zip(parts, shapes, strict=True)))
    figures.show(figure, f"A photo and two channels of five layers: {told}.")


def _activations(network, photo):
    """Return what the first layer, the first one in each of three blocks, and the last layer put out, after activation."""
    twin = copy.deepcopy(network).cpu()
    found = {}

    def note(module, inputs, output):
        found.setdefault((module, output.shape[-1]), output[0])

    for part in (twin, *(twin._blocks[block - 1] for block in BLOCKS)):
        part._swish.register_forward_hook(note)
    with torch.inference_mode():
        twin(photos.prepare(photo[None]))
    return sorted(found.values(), key=lambda maps: -maps.shape[-1])


def bytes_by_layer(batch, pixels):
    """A figure and a sentence: MiB of all parameters, and of layers' outputs by the size of the maps, from shapes alone."""
    network = photos.pretrained().to("meta")
    outputs = Counter()

    def note(module, inputs, output):
        outputs[output.shape[2:]] += output.nbytes

    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU6)):
            module.register_forward_hook(note)
    network(torch.empty(batch, 3, pixels, pixels, device="meta"))
    total = {"parameters": sum(p.nbytes for p in network.parameters())}
    total["activations"] = outputs.total()
    rows = {"all parameters": {"parameters": total["parameters"] / 2**20}}
    for size, count in outputs.items():
        rows[f"maps of {size[0]} × {size[1]}"] = {"activations": count / 2**20}
    told = " and ".join(f"{format_bytes(count)} of {part}" for part, count in total.items())
    title = f"{batch} photo{'s' * (batch > 1)}: {told}"
    return plots.stacked(rows, title, "MiB"), f"{title}."


def _batches(axes, things):
    """Give `axes` an axis of batches from 1 to 256."""
    figures.tidy(axes)
    axes.set_xscale("log", base=2)
    ticks = [1, 4, 16, 64, 256]
    axes.set_xticks(ticks, ticks)
    axes.set(xlim=(0.85, 800), xlabel=f"{things} in a batch (log scale)")
    axes.yaxis.set_major_formatter("{x:,g}")


@functools.cache
def _forecasts():
    """{batch: Forecast} of the pretrained network under inference_mode."""
    with practice_gpus(1, memory="16 GiB", card="T4", values=False) as clocked:
        network = photos.pretrained().cuda()

        def forecast(batch):
            x = torch.empty(batch, 3, 224, 224, device="cuda")
            with torch.inference_mode():
                return clocked.forecast(lambda: network(x))

        return {batch: forecast(batch) for batch in BATCHES}


def busy(card, batch, launch):
    """A figure and a sentence: what CPU and GPU do during one batch, and what each card does per second.

    `launch` is what the CPU needs for one kernel, in microseconds.
    """
    queue = _forecasts()[batch].on(card).play(issue=launch / 1e6)
    ms = 1000 * queue.finish()
    rows = {"CPU launches": [], "GPU computes": []}
    for span in queue.spans:
        row = "CPU launches" if span.row == "cpu" else "GPU computes"
        rows[row].append((1000 * span.start, 1000 * (span.end - span.start)))
    share = sum(length for _, length in rows["GPU computes"]) / ms
    photos_ = "1 photo" if batch == 1 else f"{batch} photos"
    low, high = _forecasts()[batch].on(card).range
    title = f"By forecast, {photos_} in {figures.number(ms)} ms: the {card} works for {share:.0%} of that time"
    figure = figures.blank_figure((7.4, 3.7))
    figures.set_title(figure, title)
    above, below = figure.subplots(2, 1, height_ratios=(1, 2.1))
    _lanes(above, rows, ms)
    for name in CARDS:
        look = {"color": figures.GPU, "linewidth": 2.4} if name == card else {"color": FAINT}
        rates = _rates(name, launch)
        below.plot(BATCHES, rates, label=name, linestyle=(0, (4, 2.5)), **look)
    chosen = {"markersize": 9, "markerfacecolor": CARD, "markeredgewidth": 2.2, "label": "_"}
    below.plot(batch, 1000 * batch / ms, "o", color=figures.GPU, **chosen)
    below.set_title(
        "photos per second (forecast, log scale)", fontsize=9, color=figures.INK, loc="left"
    )
    _batches(below, "photos")
    below.set(yscale="log", ylim=(50, 30_000))
    figures.plain_ticks(below.yaxis)
    plots.label_ends(below)
    rate = f"{1000 * batch / ms:,.0f} photos per second"
    return figure, f"{title}; {rate}. A batch may take {low:.1f} to {high:.1f} ms."


def _rates(card, launch):
    """Photos per second of a card, by batch."""
    return [
        batch / each.on(card).play(issue=launch / 1e6).finish()
        for batch, each in _forecasts().items()
    ]


def _lanes(axes, rows, ms):
    """Draw what CPU and GPU do, {row: [(start, length)]}, within `ms`."""
    figures.tidy(axes)
    for place, (row, pieces) in enumerate(rows.items()):
        color = figures.CPU if row.startswith("CPU") else figures.GPU
        axes.barh(-place, ms, height=0.66, color=figures.WAIT, alpha=0.3)
        axes.broken_barh(pieces, (-place - 0.33, 0.66), facecolors=color)
    axes.set_yticks([0, -1], [*rows])
    axes.tick_params(axis="y", labelcolor=figures.INK)
    axes.set(xlim=(0, 1.01 * ms))
    axes.grid(False, axis="y")
    axes.set_title(
        "one batch, in ms; gray: waiting (forecast)", fontsize=9, color=figures.INK, loc="left"
    )
