"""The figures of lesson 03: what the network sees, its time by batch, and when a GPU waits."""

import functools
from pathlib import Path

import torch
from torch.nn import functional as F

from course import measurements, photos
from course.checks.core import CORRECT
from course.lesson03 import exercises
from course.show import figures
from helpers import plots
from helpers.plots import CARD
from practice_gpus import practice_gpus

CARDS = {"T4": "T4", "V100 16GB, DGX-1": "V100"}  # of NVIDIA's table
BATCHES = (1, 4, 16, 64, 256)
LAUNCHES = 159  # of our network for one batch
FIRST = 10  # kernels that are drawn
TOP = 2  # names of a photo in the first picture
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


def _lit(photo, evidence_map, highest):
    """Return the photo with all dark but the places that speak for its name; full light at `highest`."""
    light = (evidence_map / highest).clamp(0, 1)[None, None]
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
    look = {"va": "top", "fontsize": 9, "color": plots.INK, **style}
    axes.text(0, -0.05, below, transform=axes.transAxes, **look)


def first_picture():
    """Return (Figure, alternative text): three photos, their names, and where the network sees them."""
    network = photos.pretrained()
    figure = plots.blank_figure((7.4, 2.05))
    figure.set_layout_engine("none")
    plots.set_title(figure, "The bright places are where the network finds its answer").set_y(0.94)
    said = []
    for i, sample in enumerate(photos.SAMPLES):
        photo = photos.sample(sample)
        (name, chance, where), (second, less, _) = evidence(network, photo)
        places = [(0.02 + 0.325 * i + x, 0.24, 0.15, 0.54) for x in (0, 0.155)]
        left, right = map(figure.add_axes, places)
        said.append(f"{chance:.0%} {name}")
        _picture(left, photo, said[-1], color=plots.GPU, weight="bold")
        _picture(right, _lit(photo, where, where.max()))
        left.text(0, 290, f"{less:.0%} {second}", fontsize=9, color=plots.FAINT)
    return figure, f"Photos beside copies, brightest where the answer is: {', '.join(said)}"


def seen(network, photo, *asked, file=None):
    """Show a photo, and where in it the network finds each of the names `asked`, else of the likeliest.

    `file`: a name such as "seen.png" under which the picture is saved, too.
    """
    found = evidence(network, photo, *asked)
    words = [f"{name}, {chance:.1%}" for name, chance, _ in found]
    *others, last = [name for name, *_ in found]
    title = f"Where it finds {', '.join(others)}{' and ' * bool(others)}{last}"
    figure, axes = plots.panels(title, 1, 1 + len(found), (1.85 * (1 + len(found)), 2.3))
    _picture(axes[0], _small(photo / 255), "the photo")
    highest = max(each.max() for *_, each in found)  # one scale for all names
    for place, text, (*_, each) in zip(axes[1:], words, found, strict=True):
        _picture(place, _small(_lit(photo, each, highest)), text)
    figures.show(figure, f"A photo, and where the network finds each name: {'; '.join(words)}.")
    if file:
        Path(file).write_bytes(figures.png(figure))


def answered(network, x):
    """Return what `reveal` takes: where `network`, moved without an assignment, answers to `x`, and why."""
    with torch.inference_mode():
        scores = network(x)
    moved = network.state_dict().values()
    places = ", ".join({str(tensor.device) for tensor in moved})
    lines = [
        f"{photos.imagenet_names()[scores.argmax()]} on {scores.device}",
        f"all {len(moved)} tensors of the network on {places}",
    ]
    because = "A tensor's .to returns a moved copy, but a module's .to moves the module's own tensors, in place. So network.to(device) needs no assignment."
    return {"actual": "answer on the GPU", "because": because, "lines": lines}


def what_stayed(model, x):
    """Return what `reveal` takes: what `model(x)` finds on the CPU, why, and where each is."""
    normalize, network = model
    held = {
        "the photo": x,
        "the network's weights": next(network.parameters()),
        "mean and std": normalize.mean,
    }
    stayed = [name for name, tensor in held.items() if tensor.device.type == "cpu"]
    because = ".to moves only what is registered: parameters, modules that are attributes, and buffers. Both are plain attributes, which it doesn't see."
    lines = [f"{name} on {tensor.device}" for name, tensor in held.items()]
    return {"actual": ", ".join(stayed) or "nothing", "because": because, "lines": lines}


def _of_nvidia():
    """The Group of milliseconds per batch of ResNet-50, as NVIDIA published them: {card: (batches, ms)}."""
    where = {"x": "batch", "section": "inference", "precision": "FP32"}
    cards = measurements.published("resnet50_nvidia").group(
        "images_per_s", device=[*CARDS], **where
    )
    there = {
        f"{CARDS[device]}, ResNet-50": (sizes, [1000 * n / rate for n, rate in zip(sizes, rates)])
        for device, (sizes, rates) in cards.items()
    }
    return type(cards)(cards.kind, there, cards.sources)


EIGHT = "Near 8, one photo already fills your device. Near 1, it leaves most of it idle."


def by_batch(times, device):
    """(Figure, sentence): ms per batch by photos, `times` here, {batch: ms}, and NVIDIA's of a T4 and a V100."""
    name = "this CPU" if device.type == "cpu" else "this GPU"
    here = plots.here({name: (list(times), list(times.values()))})
    there = _of_nvidia()
    [(_, ours)] = here.values()
    v100 = dict(zip(*there["V100, ResNet-50"], strict=True))
    eight = f"{v100[8] / v100[1]:.1f} with ResNet-50 on a V100"
    title = f"Eight photos: {times[8] / times[1]:.1f} times one photo's time here, {eight}"
    axes = ("photos in a batch (log scale)", "milliseconds per batch (log scale)")
    figure = plots.lines([here, there], title, *axes, logx=True, logy=True)
    figure.axes[0].set_xticks(BATCHES, BATCHES)
    label = next(text for text in figure.axes[0].texts if text.get_text().startswith(name))
    label.set(ha="right", position=(-9, 3))  # to its right are the others' lines
    told = "; ".join(
        f"{label}: {ys[0]:.3g} for one photo, {ys[-1]:.3g} for {xs[-1]}"
        for label, (xs, ys) in there.items()
    )
    first = f"{name}: {ours[0]:.3g} for one photo, {ours[-1]:.3g} for {max(times)}"
    return figure, f"Milliseconds per batch. {first}; {told}."


def waited_ms():
    """Milliseconds that a photo waits in a batch of 1,024 on an RTX 3090, as Hugging Face published them; and why."""
    rows = measurements.published("timm_infer_3090").rows(network="efficientnet_lite0")
    because = "1,024 photos at 8,000 per second, and before that until the batch is full."
    return next(row["time_ms"] for row in rows if row["batch"] == 1024), because


@functools.cache
def _forecast(batch, card="H100 SXM"):
    """The Forecast of the pretrained network on a card under inference_mode."""
    with practice_gpus(1, memory="80 GiB", card=card, values=False) as clocked:
        network = photos.pretrained().cuda()
        x = torch.empty(batch, 3, 224, 224, device="cuda")
        with torch.inference_mode():
            return clocked.forecast(lambda: network(x))


def photo_us(card="H100 SXM"):
    """Microseconds of GPU work per photo by forecast, in a batch of 256."""
    spans = _forecast(BATCHES[-1], card).queue.spans
    return 1e6 * sum(span.end - span.start for span in spans if span.row != "cpu") / BATCHES[-1]


def show_bend(answer, launch_us=30):
    """Show ms per batch by forecast for two cards, and where `answer` (ours until it is right) has each line bend."""
    right = exercises.bend.outcome(answer).status == CORRECT
    fills_at = answer if right else exercises.fills_at
    lines = {
        card: (list(BATCHES), [1000 * _forecast(batch, card).queue.finish() for batch in BATCHES])
        for card in ("T4", "H100 SXM")
    }
    bends = {card: fills_at(LAUNCHES, launch_us, photo_us(card)) for card in lines}
    whose = "your" if right else "our"
    title = (
        f"By {whose} formula, a T4 is full at {bends['T4']} photos, an H100 at {bends['H100 SXM']}"
    )
    axes = ("photos in a batch (log scale)", "milliseconds per batch (log scale)")
    figure = plots.lines(plots.forecast(lines), title, *axes, logx=True, logy=True)
    [place] = figure.axes
    place.set_xticks(BATCHES, BATCHES)
    for bend in bends.values():
        place.axvline(bend, color=plots.FAINT, linestyle=":", linewidth=1.5)
    words = (f"{card} {ys[0]:.2g} for 1, {ys[-1]:.3g} for 256" for card, (_, ys) in lines.items())
    figures.show(figure, f"{title}. Milliseconds by forecast: {'; '.join(words)}.")


def busy(batch):
    """A figure and a sentence: the first ten kernels of a batch on an H100, by forecast, and when the CPU launched them."""
    forecast = _forecast(batch)
    queue = forecast.queue
    ms = 1000 * queue.finish()
    rows = {"CPU launches": [], "GPU computes": []}
    for span in queue.spans:
        row = "CPU launches" if span.row == "cpu" else "GPU computes"
        rows[row].append((1e6 * span.start, 1e6 * (span.end - span.start)))
    share = sum(length for _, length in rows["GPU computes"]) / 1000 / ms
    low, high = forecast.range
    photos_ = "1 photo keeps" if batch == 1 else f"{batch} photos keep"
    took = f"about {plots.number(ms, 2)} ms ({low:.1f} to {high:.1f})"
    title = f"By forecast, {photos_} an H100 busy for {share:.0%} of {took}"
    figure = plots.blank_figure((7.4, 2.2))
    plots.set_title(figure, title)
    _lanes(figure.subplots(), rows, sum(rows["GPU computes"][FIRST - 1]))
    return figure, f"{title}; about {plots.number(1000 * batch / ms, 2)} photos per second."


def _lanes(axes, rows, end):
    """Draw what CPU and GPU do, {row: [(start, length)]} in µs, until `end`."""
    plots.tidy(axes)
    axes.barh(-1, end, height=0.66, color=plots.WAIT, alpha=0.3)
    for place, (row, pieces) in enumerate(rows.items()):
        color = plots.CPU if row.startswith("CPU") else plots.GPU
        look = {"facecolors": color, "edgecolor": CARD, "linewidth": 0.8}
        axes.broken_barh(
            [piece for piece in pieces if piece[0] < end], (-place - 0.33, 0.66), **look
        )
    axes.set_yticks([0, -1], [*rows])
    axes.tick_params(axis="y", labelcolor=plots.INK)
    axes.set(xlim=(0, end), xlabel=f"µs, until the first {FIRST} kernels have run; gray: waiting")
    axes.grid(False, axis="y")


def first_picture_b():
    """(Figure, alternative text): a T4 and a V100 take equally long for one photo, and not for 256."""
    there = _of_nvidia()
    panels = {}
    for place, title in ((0, "ms for 1 photo"), (-1, "ms for 256 photos")):
        panels[title] = {
            card.removesuffix(", ResNet-50"): ys[place] for card, (_, ys) in there.items()
        }
    title = "One photo takes a V100 as long as a T4; 256 photos don't"
    figure, axes = plots.panels(title, 1, 2, (7.4, 1.7))
    for drawn, (name, bars) in zip(axes, panels.items(), strict=True):
        told = {card: f"{ms:.3g}" for card, ms in bars.items()}
        plots.draw_bars(drawn, {card: {"GPU": ms} for card, ms in bars.items()}, words=told)
        drawn.set_title(name, loc="left", fontsize=10, color=plots.FAINT)
        drawn.set_xticks([])
        drawn.grid(False)
    plots.sources(figure, *there.sources)
    told = "; ".join(
        f"{name}: " + ", ".join(f"{c} {ms:.3g}" for c, ms in bars.items())
        for name, bars in panels.items()
    )
    return figure, f"Bars for ResNet-50, {told}."
