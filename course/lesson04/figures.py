"""The figures of lesson 04: photos with their names, and what `reveal` takes."""

import textwrap

import torch
from torch import nn
from torch.nn import functional as F

from course import photos
from course.lesson04 import lab
from course.show import figures
from helpers import plots
from helpers.training import train_step

_JUDGED = {
    True: ("✓ ", plots.GPU),
    False: ("✗ ", plots.TROUBLE),
}


def first_picture():
    """Return (Figure, alternative text): what the pretrained network calls test photos, and its names after training."""
    train, test = photos.load(inverted=True)
    body = photos.pretrained()
    old_head, body._fc = body._fc, nn.Identity()
    loader, tests = lab.loaders(body, train, test)
    seen = tests.dataset.tensors[0]
    before = _imagenet(old_head(seen))
    head = lab.new_head(len(train.classes))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.0005)
    for _ in range(5):
        for batch, labels in loader:
            train_step(head, batch, labels, optimizer)
    after = head(seen).argmax(1)
    chosen = [3, 11, 16, 12]
    title = "Four test images, before and after 30 steps of training"
    inverted = [i in test.inverted for i in chosen]
    now = [(test.classes[after[i]], bool(after[i] == test.labels[i])) for i in chosen]
    return _renamed(title, test.images[chosen], [before[i] for i in chosen], now, inverted, 6)


def _imagenet(logits):
    """Return the ImageNet name of each row of `logits` [n, 1000]."""
    names = photos.imagenet_names()
    return [names[answer] for answer in logits.argmax(1).tolist()]


def _draw_photo(axes, image, size):
    """Draw `image` with as many pixels as it has on the page, and 32 shades, so that notebooks stay small."""
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    axes.imshow((small.byte() // 8 * 8).permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_axis_off()


def _renamed(title, images, before, after, inverted, size):
    """Return (Figure, alternative text) of photos: the old name above in quotes, `after` (text, right) below.

    A photo that is `inverted` is marked so. `size` is the figure's width in inches.
    """
    wide = (size - 0.3) / len(images)  # inches of a photo
    figure, row = plots.panels(title, 1, len(images), (size, wide + 1.05), squeeze=False)
    figures.colorful(figure).get_layout_engine().set(
        w_pad=0.02, wspace=0, rect=(0.016, 0, 0.968, 1)
    )
    said = []
    shown = zip(row[0], images, before, after, inverted, strict=True)
    for axes, image, old, (new, right), negative in shown:
        _draw_photo(axes, image, min(photos.SIZE, round(wide * plots.PIXELS)))
        axes.set_title(f"“{textwrap.fill(old, 14)}”", fontsize=10, color=plots.INK)
        mark, color = _JUDGED[right]
        style = {"fontsize": 11, "color": color, "ha": "center", "va": "top", "weight": "bold"}
        axes.text(0.5, -0.05, f"{mark}{new}", transform=axes.transAxes, **style)
        said.append(f"{old}, now {new}")
        if negative:
            ground = {"facecolor": plots.INK, "edgecolor": "none", "pad": 2}
            label = {"fontsize": 9, "color": plots.CARD, "bbox": ground, "va": "bottom"}
            axes.text(0.03, 0.03, "inverted", transform=axes.transAxes, **label)
            said[-1] += " (inverted)"
    for height, words in ((1.05, "before"), (-0.06, "after")):
        place = {"transform": row[0, 0].transAxes, "ha": "right", "fontsize": 10}
        va = "bottom" if height > 1 else "top"
        row[0, 0].text(-0.06, height, words, color=plots.FAINT, va=va, **place)
    return figure, f"Photos. {title}. Before and after: {'; '.join(said)}."


LEARNED = ("under half of them", "about two thirds", "all of them")


def compare_scores(scores, train, test):
    """Return what `reveal` takes: `scores` [epochs, 2], the shares right in training, by every third label wrong, and in the test."""
    trained, tested = zip(*scores, strict=True)
    share, best = trained[-1], tested.index(max(tested))
    told = (
        f"After {len(scores)} epochs, {share * len(train):.0f} of {len(train)} get their label, so the head has learned "
        "wrong labels by heart. That's overfitting, and in training it looks like success. The test images have "
        f"the right labels: {tested[best] * len(test):.0f} of {len(test)} were right in epoch {best + 1}, "
        f"and {tested[-1] * len(test):.0f} at the end."
    )
    epochs = range(1, len(scores) + 1)
    percent = {
        name: (epochs, [100 * each for each in shares])
        for name, shares in (("training", trained), ("test", tested))
    }
    title = f"In training, {share:.0%} get their label, yet the test ends at {tested[-1]:.0%}"
    colors = {"training": plots.INK, "test": plots.TROUBLE}
    figure = plots.lines(percent, title, "epoch", "images (%)", colors=colors)
    figure.set_size_inches(7.2, 2.7)
    actual = LEARNED[(share >= 0.5) + (share > 0.9)]
    return {"actual": actual, "because": told, "figure": (figure, f"Two lines. {title}.")}


SURE = ("under 40%", "40 to 90%", "over 90%")
WHY_NOT = "The new head has no answer “none of these”: whatever the photo shows, its classes share 100% among them."


def compare_verdicts(network, head, test, photo, chances):
    """Return what `reveal` takes: `chances` [1, classes], how sure body and head are of `photo`, and of their hardest test image."""
    device = next(head.parameters()).device
    with torch.inference_mode():
        known = head(lab.features(network, test).to(device)).softmax(1).cpu()
    hardest = known.gather(1, test.labels[:, None])[:, 0].argmin()
    images, chances = (
        (test.images[hardest], photo),
        torch.stack([known[hardest], chances[0].detach().cpu()]),
    )
    name = "our cat" if torch.equal(photo, photos.sample("chelsea")) else "your photo"
    figure = _verdicts(images, ["hardest test image", name], chances, test)
    sure, best = (each.tolist() for each in chances.max(1))
    percent = [max(_percents(each)) for each in chances]
    found, seen = (test.classes[each] for each in best)
    told = f"It's {percent[1]}% sure that {name} is {seen}. Of the {found} on the left, its hardest test image, "
    told += f"it's {percent[0]}% sure, and "
    told += f"{'right' if best[0] == test.labels[hardest] else 'wrong'}. {WHY_NOT}"
    return {"actual": SURE[(sure[1] >= 0.4) + (sure[1] > 0.9)], "because": told, "figure": figure}


def _percents(chances):
    """Return `chances` [classes], which sum to 1, as whole percentages that sum to 100."""
    exact = [100 * chance for chance in chances.tolist()]
    whole = [int(each) for each in exact]
    left = sorted(range(len(exact)), key=lambda k: whole[k] - exact[k])
    for k in left[: 100 - sum(whole)]:
        whole[k] += 1
    return whole


def _verdicts(images, names, chances, test):
    """Return (Figure, alternative text): each photo with its three likeliest classes beside it, three in a row."""
    known, across = min(len(test.classes), 3), min(3, len(images))
    down = -(-len(images) // across)
    title = f"Whatever you show it, it answers with one of its {len(test.classes)} names"
    size, wide = (7.4, 0.5 + 1.45 * down), {"width_ratios": (1.1, 1.3) * across}
    figure, grid = plots.panels(title, down, 2 * across, size, squeeze=False, **wide)
    figures.colorful(figure).get_layout_engine().set(
        w_pad=0.03, wspace=0, rect=(0.016, 0, 0.976, 1)
    )
    for axes in grid.flat:
        axes.set_axis_off()
    said, left, right = [], grid[:, ::2].flat, grid[:, 1::2].flat
    for photo, bars, image, name, chance in zip(left, right, images, names, chances, strict=False):
        _draw_photo(photo, image, 132)
        photo.set_title(name, fontsize=10, color=plots.INK, loc="left")
        best = chance.topk(known)
        values, labels = best.values.tolist(), [test.classes[k] for k in best.indices]
        percent = [_percents(chance)[k] for k in best.indices]
        bars.barh(range(known), values, color=plots.GPU, height=0.3)
        bars.set(xlim=(0, 1.25), ylim=(2.45, -0.9))
        for row, (label, value) in enumerate(zip(labels, percent, strict=True)):
            look = {"fontsize": 10, "color": plots.INK, "va": "bottom"}
            bars.text(0, row - 0.2, f"{value}% {label}", **look)
        said.append(f"{name}: {labels[0]} {percent[0]}%")
    return figure, f"Photos and what the new head calls them: {'; '.join(said)}."


NO_ERROR = (
    "In training mode, batch norm uses the mean and spread of the batch at hand, so an image's answer depends on its "
    "neighbors, and the head gets features that it never learned from. No error, no warning."
)
RIGHT = ("as many as with it", "fewer, but most", "fewer than half")


def compare_modes(network, head, test):
    """Return what `reveal` takes: how many images of `test` body and head get right in training mode, and after eval()."""
    forgot, tested = (lab.answers(network, head, test, training) for training in (True, False))
    wrong, right = ((each == test.labels).sum().item() for each in (forgot, tested))
    actual = RIGHT[(wrong < right) + (2 * wrong < right)]
    times, commonest = (each.item() for each in forgot.bincount().max(0))
    chance = f"chance alone would get about {len(test) / len(test.classes):.0f}"
    told = f"Without eval(), {wrong} of {len(test)} are right; with {len(test.classes)} classes, {chance}. "
    told += f"It says {test.classes[commonest]} {times} times. {NO_ERROR}"
    return {"actual": actual, "because": told, "figure": _modes(test, tested, forgot)}


def _modes(test, tested, forgot):
    """Return (Figure, alternative text): eight images of each class, with a cross where the answer is wrong."""
    kinds = range(min(4, len(test.classes)))
    rows = [(test.labels == kind).nonzero()[:8, 0].tolist() for kind in kinds]
    right_with, right_without = ((each == test.labels).sum().item() for each in (tested, forgot))
    title = f"{right_with} right with eval(), {right_without} without"
    figure, (left, right) = plots.panels(title, 1, 2, (7.4, 0.9 + 0.45 * len(rows)))
    figures.colorful(figure)
    said = []
    for axes, name, answers in ((left, "with", tested), (right, "without", forgot)):
        count = (answers == test.labels).sum().item()
        said.append(f"{name} eval(): {count} of {len(test)} right")
        axes.set_title(said[-1], fontsize=11, color=plots.INK, loc="left")
        for y, places in enumerate(rows):
            for x, place in enumerate(places):
                _draw_tile(
                    axes, test.images[place], x, y, bool(answers[place] == test.labels[place])
                )
        axes.set(xlim=(0, 8), ylim=(len(rows), 0), aspect="equal")
        axes.set_axis_off()
    return figure, f"Photos. {title}. {'; '.join(said)}."


def _draw_tile(axes, image, x, y, right):
    """Draw `image` into the square at (x, y), dark and with a cross unless the answer is `right`."""
    small = F.interpolate(image[None].float(), 48, mode="bilinear", antialias=True)[0].byte()
    seen = (small // 8 * 8).permute(1, 2, 0).numpy()
    extent = (x + 0.04, x + 0.96, y + 0.96, y + 0.04)
    axes.imshow(seen if right else seen // 24 * 8, extent=extent, interpolation="nearest")
    if not right:
        look = {"fontsize": 16, "color": plots.TROUBLE, "ha": "center", "va": "center"}
        axes.text(x + 0.5, y + 0.5, "✗", **look)


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
