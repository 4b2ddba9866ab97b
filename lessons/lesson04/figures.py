"""The figures of lesson 04: samples, a training curve, mistakes, other machines, and a broken loop beside its fix."""

import torch

from helpers import plots
from helpers.checks.core import CORRECT
from helpers.training import SmallCNN, evaluate
from lessons.lesson04.exercises import bugs


def samples(data):
    """Show two pictures of each class of `data` under the names of the classes."""
    pictures, labels = data.tensors
    places = [(labels == label).nonzero().flatten()[:2] for label in range(len(data.classes))]
    order = torch.cat(places)
    names = [data.classes[label] for label in labels[order]]
    title = f"{len(data.classes)} classes, two pictures of each"
    figure = plots.pictures(pictures[order], names, title, columns=10)
    plots.show(figure, f"{title}.")


def training(losses, accuracies):
    """Show the loss of each step, thin, with its trend, bold, above the test accuracy after each epoch.

    `losses` is a list of tensors, one a step; `accuracies` a list of floats, 0 to 1, one an epoch.
    """
    values = torch.stack(losses).tolist()
    trend = _moving_mean(values, 10)
    title = f"Loss down to {trend[-1]:.2f}, accuracy up to {accuracies[-1]:.0%}"
    figure, (above, below) = plots.panels(title, 2, 1, size=(6.4, 4.6), sharex=True)
    _draw_loss(above, values, trend)
    _draw_accuracy(below, accuracies, len(values))
    plots.show(figure, f"{title}, in {len(values)} steps.")


def _moving_mean(values, reach):
    """Return for each place the mean of up to `reach` values before it and as many from it on."""
    means = []
    for place in range(len(values)):
        window = values[max(0, place - reach) : place + reach]
        means.append(sum(window) / len(window))
    return means


def _draw_loss(axes, values, trend):
    axes.plot(values, color=plots.COLORS[0], alpha=0.35, linewidth=0.8, label="each step")
    axes.plot(trend, color=plots.COLORS[0], linewidth=2.5, label="mean of 20 steps around it")
    axes.set_ylabel("loss")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    plots.tidy(axes)


def _draw_accuracy(axes, accuracies, steps):
    epochs = range(1, len(accuracies) + 1)
    ends = [steps * epoch / len(accuracies) for epoch in epochs]
    percent = [100 * accuracy for accuracy in accuracies]
    axes.plot(ends, percent, color=plots.COLORS[1], marker="s", linewidth=2)
    for end, value in zip(ends, percent, strict=True):
        axes.annotate(
            f"{value:.0f}%", (end, value), (-6, 0), textcoords="offset points", ha="right"
        )
    axes.axhline(10, color=plots.COLORS[6], linestyle=":", linewidth=1.2)
    axes.annotate("guessing", (0, 10), (0, 4), textcoords="offset points", fontsize=9)
    axes.set_ylim(0, 105)
    axes.set_ylabel("test pictures\nnamed right (%)")
    axes.set_xlabel("step")
    plots.tidy(axes)


def mistakes(data, logits, most=12):
    """Show the pictures of `data` that were named wrong with the most confidence.

    `logits` is a tensor [N, classes] on the CPU, in the order of `data`.
    """
    pictures, labels = data.tensors
    confidence, answers = logits.softmax(1).max(1)
    wrong = answers != labels
    count = int(wrong.sum())
    order = (confidence * wrong).topk(min(most, count)).indices
    names = [f"{data.classes[labels[i]]}:\n“{data.classes[answers[i]]}”" for i in order]
    title = f"{count} of {len(labels):,} named wrong; here are the surest mistakes"
    figure = plots.pictures(pictures[order], names, title, columns=6)
    plots.show(figure, f"{title}. Above each: what it is, and what the network said.")


def elsewhere():
    """Show the seconds of one epoch on two CPUs and seven GPUs, as published."""
    epochs = plots.published("gan_epoch_colab", "epoch_s")
    cpu = epochs["Colab's CPU"]
    t4 = epochs["Tesla T4"]
    title = f"One epoch: {cpu:,.0f} s on Colab's CPU, {t4:.0f} s on its T4"
    figure = plots.bars([epochs], title, "seconds an epoch", digits=4)
    for bar, name in zip(figure.axes[0].patches, epochs, strict=True):
        if "CPU" in name:
            bar.set(facecolor=plots.COLORS[1], hatch=plots.HATCHES[1])
    plots.show(figure, title)


def race(broken, fixed, train_loader, test_loader, reached, epochs=3):
    """Train the same network with the loop `broken`, and with `fixed` once its check passes; show both accuracies.

    `reached`, 0 to 1, is the accuracy after the lesson's own run, drawn as a line to compare with.
    """
    loops = {"with four bugs": broken}
    if bugs.outcome(fixed).status == CORRECT:
        loops["fixed"] = fixed
    series = {}
    for name, loop in loops.items():
        percent = _accuracies(loop, train_loader, test_loader, epochs)
        series[name] = (range(epochs + 1), percent)
    title = ", ".join(f"{name}: {ys[-1]:.0f}%" for name, (_, ys) in series.items())
    title = title[0].upper() + title[1:]
    figure = plots.lines(series, title, "epoch", "test pictures named right (%)")
    axes = figure.axes[0]
    axes.set_ylim(0, 105)
    axes.set_xticks(range(epochs + 1))
    axes.axhline(100 * reached, color=plots.COLORS[6], linestyle=":", linewidth=1.2)
    axes.annotate(
        "this lesson's loop",
        (0, 100 * reached),
        (0, -4),
        textcoords="offset points",
        va="top",
        fontsize=9,
    )
    plots.show(figure, f"After {epochs} epochs. {title}.")


def _accuracies(loop, train_loader, test_loader, epochs):
    """Return the test accuracy in percent before training and after each epoch of `loop`, on the CPU."""
    torch.manual_seed(0)
    model = SmallCNN(in_channels=train_loader.dataset.tensors[0].shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    percent = [100 * evaluate(model, test_loader, "cpu")]
    for _ in range(epochs):
        model.eval()  # as the test left it
        loop(model, train_loader, optimizer, "cpu")
        percent.append(100 * evaluate(model, test_loader, "cpu"))
    return percent
