"""The figures of lesson 03: what the network sees, its layers and their bytes, its time by batch."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

import measurements
from helpers import figures, photos, plots
from helpers.memory import format_bytes
from helpers.palette import CARD

TOP = 2  # names of a photo in the first picture, channels of a layer


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


def _picture(axes, image, below="", **style):
    """Draw `image` [channels, height, width], with words below it."""
    axes.imshow(image.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray")
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


def seen(network, photo, *asked):
    """Show a photo, and where in it the network finds each of the names `asked`, else of the likeliest."""
    found = evidence(network, photo, *asked)
    words = [f"{name}, {chance:.1%}" for name, chance, _ in found]
    title = f"Where it finds each: {', '.join(name for name, *_ in found)}"
    figure, axes = figures.panels(title, 1, 1 + len(found), (6.4, 2.15))
    _picture(axes[0], photo, "the photo")
    for place, text, (*_, each) in zip(axes[1:], words, found, strict=True):
        _picture(place, _lit(photo, each), text)
    figures.show(figure, f"A photo, and where the network finds each name: {'; '.join(words)}.")


def layers(network, photo):
    """Show a photo on its way through the network: two channels of five layers, and the layers' shapes."""
    title = "Through the network: fewer pixels, more channels"
    figure, axes = figures.panels(title, TOP, 6, (7.4, 2.9))
    for row in axes:
        row[0].set_axis_off()
    _picture(axes[-1][0], photo, "3 × 224 × 224\n147 KiB")
    shapes = []
    for column, maps in zip(axes.T[1:], _activations(network, photo), strict=True):
        shapes.append(" × ".join(map(str, maps.shape)))
        contrast = maps.std((1, 2)) * (maps < 6).float().mean((1, 2))  # ReLU6 cuts at 6
        for place, channel in zip(column, contrast.topk(TOP).indices, strict=True):
            _picture(place, maps[None, channel])
        _picture(column[-1], maps[None, channel], f"{shapes[-1]}\n{maps.nbytes / 2**10:,.0f} KiB")
    figures.show(figure, f"A photo and two channels of five layers: {', '.join(shapes)}.")


def _activations(network, photo):
    """Return what the activation functions of the first layer, of three blocks and of the last layer put out."""
    twin = copy.deepcopy(network).cpu()
    found = {}

    def note(module, inputs, output):
        found.setdefault((module, output.shape[-1]), output[0])

    for part in (twin, *(twin._blocks[place] for place in (2, 4, 10))):
        part._swish.register_forward_hook(note)
    with torch.inference_mode():
        twin(photos.prepare(photo[None]))
    return sorted(found.values(), key=lambda maps: -maps.shape[-1])


def bytes_by_layer(batch, pixels):
    """A figure and a sentence: MiB of parameters and of layers' outputs by the size of the maps, from shapes alone."""
    rows, total = {}, {"parameters": 0, "activations": 0}

    def note(module, inputs, output):
        size = f"{output.shape[2]} × {output.shape[3]}" if output.ndim == 4 else "last layer"
        row = rows.setdefault(size, dict.fromkeys(total, 0))
        parameters = sum(p.nbytes for p in module.parameters())
        for part, count in (("parameters", parameters), ("activations", output.nbytes)):
            row[part] += count / 2**20
            total[part] += count

    network = photos.pretrained().to("meta")
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU6, nn.Linear)):
            module.register_forward_hook(note)
    network(torch.empty(batch, 3, pixels, pixels, device="meta"))
    sizes = " and ".join(f"{format_bytes(count)} of {part}" for part, count in total.items())
    title = f"{batch} photos: {sizes}"
    return plots.stacked(rows, title, "MiB, by the size of a layer's maps"), f"{title}."


def published():
    """Show published times of ResNet-50 by batch, on a T4 and a V100; returns the V100's, {batch: ms}."""
    data = measurements.published("resnet50_nvidia")
    times = {}
    for device, name in (("T4", "T4"), ("V100 16GB, DGX-1", "V100")):
        rows = data.rows("inference", device=device, precision="FP32")
        times[name] = {row["batch"]: 1000 * row["batch"] / row["images_per_s"] for row in rows}
    v100 = times["V100"]
    title = f"A V100 takes {v100[1]:.1f} ms for one image and {v100[8]:.1f} for eight"
    figure = by_batch(times, title, "images")
    plots.sources(figure, data.source)
    told = [f"{name} {ms[1]:.3g} ms for 1, {ms[256]:.3g} for 256" for name, ms in times.items()]
    figures.show(figure, f"ResNet-50 by batch: {'; '.join(told)}.")
    return v100


def bend(forecasts):
    """Show `forecasts`, {batch: {card: Forecast}}: how long each card would take for a batch of photos."""
    times = {card: {} for card in next(iter(forecasts.values()))}
    for batch, rows in forecasts.items():
        for card, row in rows.items():
            times[card][batch] = row.ms
    ones = [row.ms for row in forecasts[1].values()]
    title = f"Forecast: one photo takes {min(ones):.1f} ms on each card, 256 show the difference"
    told = [f"{c} {ms[1]:.3g} ms for 1, {ms[256]:.3g} for 256" for c, ms in times.items()]
    first = forecasts[1]["H100 SXM"]
    note = (
        f"The flat part is a forecast of {first.low_ms:.1f} to {first.high_ms:.1f} ms, by the CPU."
    )
    figures.show(by_batch(times, title, "photos", True), f"Forecast: {'; '.join(told)}.", note)


def by_batch(times, title, things, hollow=False):
    """A figure of `times`, {label: {batch: ms}}: left the time of a batch, right how many `things` per second."""
    figure, (left, right) = figures.panels(title, 1, 2, (7.4, 3.1))
    most = max(map(max, times.values()))
    looks = {"markersize": 5, "linewidth": 1.8}
    if hollow:
        looks |= {"linestyle": (0, (4, 2.5)), "markerfacecolor": CARD}
    for place, label in enumerate(times):
        color = plots.GREEN_LINES[place % 3]
        batches, ms = [*times[label]], [*times[label].values()]
        rates = [1000 * batch / each for batch, each in zip(batches, ms, strict=True)]
        for axes, values in ((left, ms), (right, rates)):
            marker = plots.MARKERS[place]
            axes.plot(batches, values, label=label, color=color, marker=marker, **looks)
    names = ("latency: ms per batch (log scale)", f"throughput: {things} per second")
    for axes, name in zip((left, right), names, strict=True):
        figures.tidy(axes)
        ticks = [batch for batch in (1, 4, 16, 64, 256) if batch <= most]
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, ticks)
        axes.set(xlim=(0.85, 2.8 * most), xlabel=f"{things} in a batch (log scale)")
        axes.set_title(name, fontsize=9, color=figures.INK, loc="left")
    left.set_yscale("log")
    figures.plain_ticks(left.yaxis)
    right.set_ylim(0, 1.08 * right.get_ylim()[1])
    right.yaxis.set_major_formatter("{x:,g}")
    for axes in (left, right):
        plots.label_ends(axes)
    return figure
