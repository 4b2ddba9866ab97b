"""The figures of lesson 04: photos with their names, training curves, a loader that starves."""

from course.pictures import machine

import textwrap
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course import photos
from course.lesson04.lab import features
from course.measurements import traces
from course.measurements.traces.intervals import merged
from course.show import figures
from helpers import plots
from helpers.training import evaluate, train_step

LOADERS = {  # the trace of one step for each
    "1a": "num_workers=0: the main process loads each batch itself",
    "1b": "num_workers=4: four more processes load ahead",
}


_JUDGED = {
    True: ("✓ ", plots.GPU),
    False: ("✗ ", plots.TROUBLE),
    None: ("", plots.INK),
}


def first_picture():
    """Return (Figure, alternative text): what the pretrained network calls test photos, and its names after training."""
    train, test = photos.load(negatives=True)
    network = photos.pretrained()
    old_head, network._fc = network._fc, nn.Identity()
    seen, x = (features(network, data) for data in (test, train))
    before = _imagenet(old_head(seen))
    torch.manual_seed(0)
    head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, len(train.classes)))
    optimizer = torch.optim.Adam(head.train().parameters(), lr=0.0005)
    loader = DataLoader(TensorDataset(x, train.labels), batch_size=12, shuffle=True)
    tests = DataLoader(TensorDataset(seen, test.labels), batch_size=12)
    for _ in range(5):
        evaluate(head, tests, "cpu")  # as in the lesson; each loader draws a random number
        for batch, labels in loader:
            train_step(head, batch, labels, optimizer)
    after = head.eval()(seen).argmax(1)
    chosen = [3, 11, 16, 19]
    title = "Four test images, before and after 30 steps of training"
    now = [(test.classes[after[i]], bool(after[i] == test.labels[i])) for i in chosen]
    return _renamed(title, test.images[chosen], [before[i] for i in chosen], now)


def _imagenet(logits):
    """Return the ImageNet name of each row of `logits` [n, 1000]."""
    names = photos.imagenet_names()
    return [names[answer] for answer in logits.argmax(1).tolist()]


def _draw_photo(axes, image, size):
    """Draw `image` with as many pixels as it has on the page, and 32 shades, so that notebooks stay small."""
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    axes.imshow((small.byte() // 8 * 8).permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_axis_off()


def _renamed(title, images, before, after):
    """Return (Figure, alternative text) of up to six photos: the old name above in quotes, `after` (text, right) below.

    Where `right` is None, nothing is judged.
    """
    wide = 7.1 / len(images)  # inches of a photo
    figure, row = plots.panels(title, 1, len(images), (7.4, wide + 1.05), squeeze=False)
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
    title = "It knows coffee and cats; your classes get the nearest names it has"
    figures.show(*_renamed(title, images, names, told[: len(images)]))


def verdict(network, head, test, features, *paths):
    """Show the image of `test` that got its class's lowest probability from `head`, then the photos at `paths`, with bars.

    `features` [n, 1280] are those of `test`, on the CPU; a path is a sample's name, or leads to a photo of yours.
    """
    device = next(head.parameters()).device
    own = [photos.sample(path) if path in photos.SAMPLES else photos.read(path) for path in paths]
    with torch.inference_mode():
        chances = head.eval()(features.to(device)).softmax(1).cpu()
        hardest = chances.gather(1, test.labels[:, None])[:, 0].argmin()
        images = torch.stack([test.images[hardest], *own])
        seen = network(photos.prepare(images.to(device)))
        chances = head(seen).softmax(1).cpu()
    names = [f"hardest test image ({test.classes[test.labels[hardest]]})"]
    names += [{"chelsea": "our cat"}.get(path, Path(path).stem) for path in paths]
    known = len(test.classes)
    title = f"Whatever you show it, it answers with one of its {known} names"
    wide = 7.1 / max(3, len(images))  # inches of a photo
    size, ratios = (7.4, 1.5 + wide), {"height_ratios": (wide, 0.2 * min(known, 3))}
    figure, (above, below) = plots.panels(title, 2, len(images), size, squeeze=False, **ratios)
    figures.colorful(figure).get_layout_engine().set(
        w_pad=0.04, wspace=0, rect=(0.014, 0, 0.976, 1)
    )
    said = []
    for top, bottom, image, name, chance in zip(above, below, images, names, chances, strict=True):
        _draw_photo(top, image, photos.SIZE)
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


MIXED_UP = (  # for `reveal`
    "C",
    "Its loss falls, because it learns the wrong labels by heart, but on the test images it stays near chance. B's learning rate is too low.",
)


def curves(new_head, pairs, test_loader, epochs=15):
    """Show loss and test accuracy of runs A to C: a good one, a slow one, one with labels mixed up."""
    x, y = pairs.tensors
    title = f"Three runs of {epochs} epochs, one of them with labels mixed up"
    figure, (left, right) = plots.panels(title, 1, 2, (7.2, 3))
    with torch.random.fork_rng():
        for name, rate, color, style in (
            ("A", 3e-3, plots.INK, "-"),
            ("B", 1e-5, plots.FAINT, "-"),
            ("C", 1e-2, plots.INK, ":"),
        ):
            head = new_head()
            device = head[1].weight.device
            optimizer = torch.optim.Adam(head.parameters(), lr=rate)
            labels = y[torch.randperm(len(y))] if name == "C" else y
            loader = DataLoader(TensorDataset(x, labels), batch_size=12, shuffle=True)
            losses, shares = [], []
            for _ in range(epochs):
                steps = [train_step(head, a.to(device), b.to(device), optimizer) for a, b in loader]
                losses.append(torch.stack(steps).mean().item())
                shares.append(100 * evaluate(head, test_loader, device))
            for axes, values in ((left, losses), (right, shares)):
                axes.plot(range(1, epochs + 1), values, style, color=color, label=name)
    for axes, what in ((left, "loss, mean of the epoch"), (right, "test images right, in %")):
        plots.tidy(axes)
        axes.set_title(what, fontsize=9, color=plots.INK, loc="left")
        axes.set(xlabel="epoch", ylim=(0, None), xticks=range(0, epochs + 1, 5))
        plots.label_ends(axes)
    figures.show(figure, f"{title}: loss and test accuracy of A, B and C by epoch.")


def starving():
    """Show one training step on a V100, from published traces: the photos late, and in time, on one axis of ms."""
    steps = {case: traces.case(case) for case in LOADERS}
    late, fed = (step.length / 1e3 for step in steps.values())
    title = f"With its images in time, the V100 does in {fed:.0f} ms what took {late:.0f}"
    figure, both = plots.panels(title, 2, 1, (7.2, 3.3), sharex=True)
    for axes, (case, step) in zip(both, steps.items(), strict=True):
        loads = [span for span in step.cpu if "DataLoader" in span.name]
        plots.tidy(axes)
        axes.set_title(LOADERS[case], fontsize=9, color=plots.INK, loc="left")
        rows = (0, "#B4CAE8", loads, plots.CPU), (-1, plots.WAIT + "4D", step.gpu, plots.GPU)
        for place, behind, events, color in rows:
            axes.barh(place, step.length / 1e3, height=0.7, color=behind)
            pieces = [(a / 1e3, (b - a) / 1e3) for a, b in merged(events, step.length)]
            axes.broken_barh(pieces, (place - 0.35, 0.7), facecolors=color)
        axes.set_yticks([0, -1], ["CPU", "GPU"])
        axes.tick_params(axis="y", labelcolor=plots.INK)
        axes.grid(False, axis="y")
    look = {"fontsize": 9, "va": "center", "ha": "center"}
    both[0].text(34, 0, "loads the next images", color="white", **look)
    both[0].text(40, -1, "waits 57 ms", color=plots.INK, **look)
    for axes, x in zip(both, (121, 63), strict=True):
        axes.text(x, 0, "launches kernels", color=plots.INK, **look)
    both[1].set_xlabel("ms since the step began")
    both[1].set_xlim(0, 176)
    plots.sources(figure, steps["1a"].source)
    told = f"loading takes the CPU 69 ms of {late:.0f}, and the GPU waits 57; with four workers, the step takes {fed:.0f}"
    figures.show(figure, f"Who works when in one step: {told}.")


def first_picture_b():
    """Return (Figure, alternative text) of the picture at the top of page 04b."""
    return machine.draw(title="Take it to another machine"), machine.words()
