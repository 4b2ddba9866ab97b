"""The figures of lesson 04: photos with their names, and training curves."""

import textwrap
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from course import photos
from course.lesson04 import lab
from course.show import figures
from helpers import plots
from helpers.training import evaluate, train_step

_JUDGED = {
    True: ("✓ ", plots.GPU),
    False: ("✗ ", plots.TROUBLE),
    None: ("", plots.INK),
}


def first_picture():
    """Return (Figure, alternative text): what the pretrained network calls test photos, and its names after training."""
    train, test = photos.load(negatives=True)
    body = photos.pretrained()
    old_head, body._fc = body._fc, nn.Identity()
    loader, tests = lab.loaders(body, train, test)
    seen = tests.dataset.tensors[0]
    before = _imagenet(old_head(seen))
    head = lab.new_head(len(train.classes)).train()
    optimizer = torch.optim.Adam(head.parameters(), lr=0.0005)
    for _ in range(5):
        evaluate(head, tests, "cpu")  # as in the lesson; each loader draws a random number
        for batch, labels in loader:
            train_step(head, batch, labels, optimizer)
    after = head.eval()(seen).argmax(1)
    chosen = [3, 11, 16, 19]
    title = "Four test images, before and after 30 steps of training"
    now = [(test.classes[after[i]], bool(after[i] == test.labels[i])) for i in chosen]
    return _renamed(title, test.images[chosen], [before[i] for i in chosen], now, 6)


def _imagenet(logits):
    """Return the ImageNet name of each row of `logits` [n, 1000]."""
    names = photos.imagenet_names()
    return [names[answer] for answer in logits.argmax(1).tolist()]


def _draw_photo(axes, image, size):
    """Draw `image` with as many pixels as it has on the page, and 32 shades, so that notebooks stay small."""
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    axes.imshow((small.byte() // 8 * 8).permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_axis_off()


def _renamed(title, images, before, after, size=7.4):
    """Return (Figure, alternative text) of up to six photos: the old name above in quotes, `after` (text, right) below.

    Where `right` is None, nothing is judged. `size` is the figure's width in inches.
    """
    wide = (size - 0.3) / len(images)  # inches of a photo
    figure, row = plots.panels(title, 1, len(images), (size, wide + 1.05), squeeze=False)
    figures.colorful(figure).get_layout_engine().set(
        w_pad=0.02, wspace=0, rect=(0.016, 0, 0.968, 1)
    )
    said = []
    for axes, image, old, (new, right) in zip(row[0], images, before, after, strict=True):
        _draw_photo(axes, image, min(photos.SIZE, round(wide * plots.PIXELS)))
        axes.set_title(f"“{textwrap.fill(old, 16)}”", fontsize=10, color=plots.INK)
        mark, color = _JUDGED[right]
        style = {"fontsize": 11, "color": color, "ha": "center", "va": "top", "weight": "bold"}
        axes.text(0.5, -0.05, f"{mark}{new}", transform=axes.transAxes, **style)
        said.append(f"{old}, now {new}" if right is not None else f"{new}: {old}")
    lead = "" if right is None else "Before and after: "
    return figure, f"Photos. {title}. {lead}{'; '.join(said)}."


def first_names(network, data):
    """Show the network's ImageNet name of two of the course's photos and of an image of each class of `data`."""
    places = [(data.labels == label).nonzero()[:4, 0] for label in range(len(data.classes))]
    images = [
        photos.sample("coffee"),
        photos.sample("chelsea"),
        *(data.images[i[-1]] for i in places),
    ][:6]
    with torch.inference_mode():
        names = _imagenet(network(photos.prepare(torch.stack(images))))
    told = [("our coffee", None), ("our cat", None), *((name, None) for name in data.classes)]
    title = "It knows coffee and cats; everything else gets one of the same 1,000 names"
    figures.show(*_renamed(title, images, names, told[: len(images)]))


def verdict(network, head, test, loader, *paths):
    """Show the image of `test` that got its class's lowest probability from `head`, then the photos at `paths`, with bars.

    `loader` hands out the features of `test`, in its order; a path is a sample's name, or leads to a photo of yours.
    """
    device = next(head.parameters()).device
    own = [photos.sample(path) if path in photos.SAMPLES else photos.read(path) for path in paths]
    with torch.inference_mode():
        features = loader.dataset.tensors[0]
        chances = head.eval()(features.to(device)).softmax(1).cpu()
        hardest = chances.gather(1, test.labels[:, None])[:, 0].argmin()
        images = torch.stack([test.images[hardest], *own])
        seen = network(photos.prepare(images.to(device)))
        chances = head(seen).softmax(1).cpu()
    names = [f"hardest test image ({test.classes[test.labels[hardest]]})"]
    names += [{"chelsea": "our cat"}.get(path, Path(path).stem) for path in paths]
    known = len(test.classes)
    title = f"Whatever you show it, it answers with one of its {known} names"
    wide = 5.7 / max(3, len(images))  # inches of a photo
    size, ratios = (6, 1.5 + wide), {"height_ratios": (wide, 0.2 * min(known, 3))}
    figure, (above, below) = plots.panels(title, 2, len(images), size, squeeze=False, **ratios)
    figures.colorful(figure).get_layout_engine().set(
        w_pad=0.04, wspace=0, rect=(0.014, 0, 0.976, 1)
    )
    said = []
    for top, bottom, image, name, chance in zip(above, below, images, names, chances, strict=True):
        _draw_photo(top, image, round(wide * plots.PIXELS))
        top.set_title(name, fontsize=10, color=plots.INK)
        best = chance.topk(min(known, 3))
        values, labels = best.values.tolist(), [test.classes[k] for k in best.indices]
        bottom.barh(range(len(values)), values, color=plots.GPU, height=0.6)
        bottom.set(xlim=(0, 2), ylim=(len(values) - 0.5, -0.5))
        bottom.set_axis_off()
        for row, (label, value) in enumerate(zip(labels, values, strict=True)):
            look = {"fontsize": 10, "color": plots.INK, "va": "center"}
            bottom.text(value + 0.05, row, f"{value:.0%} {label}", **look)
        said.append(f"{name}: {labels[0]} {values[0]:.0%}")
    figures.show(figure, f"Photos and what the new head calls them: {'; '.join(said)}.")


def training(losses, accuracies):
    """Show the loss of each step above the test accuracy, before training and after each epoch.

    `losses` is a list of tensors, one for each step; `accuracies` a list of floats, 0 to 1, the first before training.
    """
    values = torch.stack(losses).tolist()
    title = f"Loss down to {values[-1]:.2f}, accuracy up to {accuracies[-1]:.0%}"
    figure, (above, below) = plots.panels(title, 2, 1, size=(7.2, 3.3), sharex=True)
    steps = range(1, len(values) + 1)
    above.plot(steps, values, color=plots.INK, linewidth=1.8)
    above.set(ylim=(0, None))
    epochs = len(accuracies) - 1
    ends = [len(values) * epoch / epochs for epoch in range(epochs + 1)]
    below.plot(ends, [100 * a for a in accuracies], color=plots.GPU, marker="o", linewidth=1.8)
    below.set(ylim=(0, 108), xlabel="step")
    for axes, name in ((above, "loss of each batch"), (below, "test images right, in %")):
        plots.tidy(axes)
        axes.set_title(name, fontsize=9, color=plots.INK, loc="left")
    figures.show(figure, f"{title}, in {len(values)} steps.")


def first_picture_b():
    """Return (Figure, alternative text): what a checkpoint takes from a borrowed GPU to a laptop."""
    title = "A session ends, a run goes on: everything it needs fits into one file"
    figure, axes = plots.drawing(title, (6, 2.5))
    axes.set(xlim=(-1, 101), ylim=(0, 34))
    boxes = {
        "a borrowed GPU": (0, 30, plots.GPU, "weights\nAdam's averages\n5 epochs done"),
        "run.pt": (41, 18, plots.COPY, "one file"),
        "your laptop": (70, 30, plots.CPU, "the sixth epoch\nbegins"),
    }
    for name, (left, wide, color, inside) in boxes.items():
        axes.add_patch(_box(left, wide, color))
        look = {"ha": "center", "va": "center", "color": plots.INK}
        axes.text(left + wide / 2, 30, name, fontsize=11, weight="bold", **look)
        axes.text(left + wide / 2, 14, inside, fontsize=10, **look)
    for left, right in ((30, 41), (59, 70)):
        arrow = {"arrowstyle": "-|>", "color": plots.COPY, "linewidth": 2}
        axes.annotate("", (right - 0.5, 14), (left + 0.5, 14), arrowprops=arrow)
    told = "weights, Adam's averages and the number of epochs go from a borrowed GPU into one file"
    return figure, f"{title}. {told}, and on a laptop the sixth epoch begins."


def _box(left, wide, color):
    from matplotlib.patches import FancyBboxPatch

    style = {"boxstyle": "round,pad=0,rounding_size=2", "edgecolor": color, "linewidth": 1.8}
    return FancyBboxPatch((left, 3), wide, 22, facecolor=color + "1A", **style)
