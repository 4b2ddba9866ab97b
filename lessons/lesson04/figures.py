"""The figures of lesson 04: photos named, a training curve, unsure answers, forecasts for cards, and what bugs cost."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from helpers import figures, photos, plots
from helpers.checks.core import CORRECT
from helpers.training import evaluate, train_step
from lessons.lesson04.exercises import bugs
from practice_gpus import practice_gpus

CARDS = ("T4", "L4", "RTX 3060", "RTX 4090", "A100 80GB", "H100 SXM")


def first_picture():
    """Return (Figure, alternative text): guesses for twelve test photos before the lesson's training and after."""
    train, test = photos.load()
    x, y = _features(train.images), train.labels
    seen = _features(test.images)
    torch.manual_seed(0)
    head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, len(train.classes)))
    before = head.eval()(seen).argmax(1)
    optimizer = torch.optim.Adam(head.train().parameters(), lr=0.001)
    for batch in [b for _ in range(5) for b in torch.randperm(len(y)).split(12)]:
        train_step(head, x[batch], y[batch], optimizer)
    after = head.eval()(seen).argmax(1)
    figure = figures.blank_figure((7.4, 3.0))
    figure.set_layout_engine("none")
    said = []
    for left, guesses, when in ((0.02, before, "Before training"), (0.53, after, "After")):
        said.append(f"{when}: {int((guesses == test.labels).sum())} of {len(test)} photos right")
        style = {"fontsize": figures.TITLE, "fontweight": "bold", "color": figures.INK}
        figure.text(left, 0.965, said[-1], va="top", **style)
        _draw_guesses(figure, test, guesses, left)
    return figure, f"Test photos with the guesses of one network. {said[0]}. {said[1]}"


def _features(images):
    body = photos.pretrained()
    body._fc = nn.Identity()
    with torch.inference_mode():
        parts = [body(photos.prepare(x)) for x in images.split(12)]
    return torch.cat(parts)


def _draw_photo(axes, image, size=96):
    """Draw `image` with as many pixels as it has on the page, and 32 shades, so that notebooks stay small."""
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    axes.imshow((small.byte() // 8 * 8).permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_axis_off()


def _draw_guesses(figure, test, guesses, left):
    """Draw twelve of the photos in three rows, each above its guess: right in green, wrong in red."""
    chosen = range(0, len(test), 2)
    for place, i in enumerate(chosen):
        row, column = divmod(place, 4)
        axes = figure.add_axes((left + 0.115 * column, 0.66 - 0.29 * row, 0.105, 0.2))
        _draw_photo(axes, test.images[i])
        right = guesses[i] == test.labels[i]
        text = f"{'✓' if right else '✗'} {test.classes[guesses[i]]}"
        color = figures.GPU if right else figures.TROUBLE
        style = {"fontsize": figures.SMALL, "color": color, "ha": "center", "va": "top"}
        axes.text(0.5, -0.05, text, transform=axes.transAxes, **style)


def named(data, most=9):
    """Show photos of each class of `data` with its label and, quoted, the name that the pretrained network gives."""
    each = max(1, most // len(data.classes))
    places = [(data.labels == label).nonzero()[:, 0] for label in range(len(data.classes))]
    order = torch.cat([place[:: max(1, len(place) // each)][:each] for place in places])
    names = photos.imagenet_names()
    with torch.inference_mode():
        answers = photos.pretrained()(photos.prepare(data.images[order])).argmax(1)
    title = "Your label, and what the pretrained network calls it"
    figure, row = figures.panels(title, 1, len(order), (7.4, 1.5))
    said = []
    for axes, i, answer in zip(row, order, answers, strict=True):
        _draw_photo(axes, data.images[i])
        said.append(f"{data.classes[data.labels[i]]}\n“{names[answer][:13]}”")
        axes.set_title(said[-1], fontsize=figures.SMALL, color=figures.INK)
    figures.show(figure, f"{title}: {', '.join(said)}.".replace("\n", " "))


def training(losses, accuracies):
    """Show the loss of each step above the test accuracy, before training and after each epoch.

    `losses` is a list of tensors, one for each step; `accuracies` a list of floats, 0 to 1, the first before training.
    """
    values = torch.stack(losses).tolist()
    title = f"Loss down to {values[-1]:.2f}, accuracy up to {accuracies[-1]:.0%}"
    figure, (above, below) = figures.panels(title, 2, 1, size=(7.2, 3.4), sharex=True)
    above.plot(values, color=figures.INK, linewidth=1.8)
    above.set(ylabel="loss", ylim=(0, None))
    epochs = len(accuracies) - 1
    ends = [len(values) * epoch / epochs for epoch in range(epochs + 1)]
    below.plot(ends, [100 * a for a in accuracies], color=figures.GPU, marker="o", linewidth=1.8)
    below.set(ylabel="test photos right (%)", ylim=(0, 108), xlabel="step")
    for axes in (above, below):
        figures.tidy(axes)
    figures.show(figure, f"{title}, in {len(values)} steps.")


def confusion(data, logits, most=6):
    """Show how often each class of `data` got each answer, and the photos whose right answer was least sure.

    `logits` is a tensor [N, classes] on the CPU, in the order of `data`.
    """
    answers, classes = logits.argmax(1), data.classes
    chances = logits.softmax(1).gather(1, data.labels[:, None])[:, 0]
    wrong = int((answers != data.labels).sum())
    title = f"{wrong} of {len(answers)} wrong; on the right, the photos it was least sure of"
    figure = figures.blank_figure((7.4, 3.3))
    figures.set_title(figure, title)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.15))
    for part in (left, right):
        part.set_facecolor("none")
    _draw_counts(left.subplots(), data.labels, answers, classes)
    for axes, i in zip(right.subplots(2, 3).flat, chances.argsort()[:most], strict=False):
        _draw_photo(axes, data.images[i], 112)
        said = f"{classes[data.labels[i]]}: {chances[i]:.1%}"
        axes.set_title(said, fontsize=figures.SMALL, color=figures.INK)
    figures.show(
        figure, f"{title}: the lowest probability of a right answer is {chances.min():.1%}."
    )


def _draw_counts(axes, labels, answers, classes):
    places = range(len(classes))
    for row in places:
        total = (labels == row).sum()
        for column in places:
            count = int(((labels == row) & (answers == column)).sum())
            color = figures.GPU if row == column else figures.TROUBLE
            square = {"color": color, "alpha": 0.75 * count / int(total), "linewidth": 0}
            axes.fill_between((column - 0.48, column + 0.48), row - 0.48, row + 0.48, **square)
            axes.text(column, row, count, ha="center", va="center", color=figures.INK)
    axes.set_xticks(places, classes, fontsize=9)
    axes.set_yticks(places, classes, fontsize=9)
    axes.set(xlabel="the network's answer", ylabel="true class", aspect="equal")
    axes.invert_yaxis()
    figures.tidy(axes)
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)


def cards(forecast, steps):
    """Show the forecast seconds of `steps` steps on six cards, from the `forecast` of one step."""
    found = {card: forecast.on(card) for card in CARDS}
    seconds = {
        card: tuple(steps * ms / 1e3 for ms in (each.low_ms, each.ms, each.high_ms))
        for card, each in found.items()
    }
    first, last = (figures.number(seconds[card][1], 2) for card in ("T4", "H100 SXM"))
    title = f"Forecast: {steps} steps take a T4 {first} s and an H100 {last} s"
    bars = plots.bars([plots.forecast(seconds)], title, "seconds", digits=2)
    words = ", ".join(f"{card} {figures.number(s[1], 2)} s" for card, s in seconds.items())
    figures.show(bars, f"Forecast bars with ranges: {words}.")


def elsewhere():
    """Show the seconds of one epoch on two CPUs and seven GPUs, as published."""
    epochs = plots.published("gan_epoch_colab", "epoch_s")
    cpu, t4 = epochs["Colab's CPU"], epochs["Tesla T4"]
    title = f"One epoch: {figures.number(cpu)} s on Colab's CPU, {figures.number(t4)} s on its T4"
    meanings = {name: figures.CPU if "CPU" in name else figures.GPU for name in epochs}
    figure = plots.bars([epochs], title, "seconds per epoch", colors=meanings)
    figures.show(figure, f"Bars of two CPUs and seven GPUs. {title}.")


def costs(broken, fixed, head, train_loader, test_loader, epochs=5):
    """Show the gradient of the loop `broken` beside a sound loop's: `fixed` once its check passes, else the course's.

    The labels are put on the GPU beforehand, since `broken` would stop there.
    """
    sound = fixed if bugs.outcome(fixed).status == CORRECT else bugs.reference
    bad, good = (watched(loop, head, train_loader, test_loader, epochs) for loop in (broken, sound))
    title = f"The bugs: {bad['accuracy']:.0%} of the test photos right, and a gradient that won't shrink"
    figure, axes = figures.new_figure(title, "batch", "size of the gradient", (7.2, 2.9))
    batches = range(1, len(bad["gradient"]) + 1)
    axes.plot(batches, bad["gradient"], color=figures.TROUBLE, label="with four bugs")
    axes.plot(batches, good["gradient"], color=figures.GPU, label="fixed")
    axes.set(ylim=(0, None), xlim=(0, 1.2 * len(batches)))
    plots.label_ends(axes)
    ends = f"{bad['gradient'][-1]:.0f} with four bugs, {good['gradient'][-1]:.1f} fixed"
    alive = f"The result carries a graph of {bad['graph']} operations with four bugs, {good['graph']} fixed."
    figures.show(figure, f"Size of the gradient after {len(batches)} batches: {ends}.", alive)


def watched(loop, head, train_loader, test_loader, epochs):
    """Return {"gradient": its size after each batch, "graph": operations the result holds on to, "accuracy"}.

    `loop` trains a copy of `head` on cuda:0, a practice GPU where there is no other, in one call over all `epochs`.
    """
    sizes = []
    with practice_gpus(1):
        model = copy.deepcopy(head).to("cuda:0").eval()  # as a test left it
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

        def batches():
            for x, y in (batch for _ in range(epochs) for batch in train_loader):
                yield x, y.to("cuda:0")
                sizes.append(model[1].weight.grad.norm().item())

        result = loop(model, batches(), optimizer, "cuda:0")
        accuracy = evaluate(model, test_loader, "cuda:0")
        return {"gradient": sizes, "graph": _operations(result), "accuracy": accuracy}


def _operations(result):
    """Return how many operations are in the graph of `result`."""
    found, todo = set(), [getattr(result, "grad_fn", None)]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [each for each, _ in node.next_functions]
    return len(found)
