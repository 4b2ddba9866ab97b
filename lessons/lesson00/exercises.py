"""Lesson 00, Start here: its warm-up exercise, and the figures of its twenty pictures."""

import torch

import measurements
from helpers import plots
from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, call
from helpers.data import CLASSES, shapes

ANSWERS = ("about 2, as now", "about half", "nearly all")


def twenty():
    """Twenty pictures that the network is never trained on, [20, 3, 32, 32], and their labels [20]."""
    return shapes(20, seed=7)


def guesses_of(model):
    """The network's guess for each of the twenty pictures, as labels [20]."""
    model.eval()
    with torch.inference_mode():
        guesses = model(twenty()[0]).argmax(1)
    model.train()
    return guesses


def how_many(model):
    """How many of the twenty guesses are right, in the words of the prediction: one of `ANSWERS`."""
    right = (guesses_of(model) == twenty()[1]).sum().item()
    if right <= 5:
        return ANSWERS[0]
    return ANSWERS[1] if right <= 15 else ANSWERS[2]


def show_guesses(model):
    """Show the twenty pictures, each under the network's guess: a check mark, or what it really is."""
    pictures, labels = twenty()
    guesses = guesses_of(model)
    right = guesses == labels
    titles = []
    for guess, label in zip(guesses, labels, strict=True):
        mark = "✓" if guess == label else f"\nno, {CLASSES[label]}"
        titles.append(f"{CLASSES[guess]} {mark}")
    count = f"{right.sum().item()} of 20 guesses are right"
    figure = plots.pictures(pictures, titles, count, columns=5)
    plots.show(figure, f"{count}.")


DEVICES = ("Intel CPU (not named)", "Apple M1 Pro, CPU", "RTX 2080 Ti", "RTX 3090")


def show_elsewhere():
    """Show published minutes of one pass of training: a large network and a small one, on CPUs and on GPUs."""
    data = measurements.published("vgg_and_lenet")
    sentence = (
        "VGG-16: laptop 110 minutes, RTX 3090 3.36. LeNet: laptop 0.08 minutes, RTX 3090 0.18."
    )
    figure = plots.blank_figure((7.2, 2.7))
    figure.suptitle("The large network needs a GPU, the small one doesn't", fontsize=11)
    places = figure.subplots(1, 2)
    for axes, network in zip(places, ("VGG-16, CIFAR-10", "LeNet, MNIST"), strict=True):
        rows = {row["device"]: row["epoch_minutes"] for row in data.rows(network=network)}
        minutes = [rows[device] for device in DEVICES]
        colors = ["#b35806" if "CPU" in device else "#00664d" for device in DEVICES]
        hatches = ["//" if "CPU" in device else "" for device in DEVICES]
        bars = axes.barh(DEVICES, minutes, color=colors, hatch=hatches, edgecolor="white")
        axes.bar_label(bars, [f"{value:.3g}" for value in minutes], padding=3, fontsize=9)
        axes.set_title(network, fontsize=10)
        axes.set_xlabel("minutes for one pass")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.2)
        axes.invert_yaxis()
    places[1].set_yticklabels([])
    figure.supxlabel(f"Published: {data.source}", fontsize=8)
    plots.show(figure, sentence)


# --- warm up: the share that is right -------------------------------------------------------------


def share_right(guesses, labels):
    return (guesses == labels).float().mean().item()


def _check_share(answer):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (40,), generator=generator)
    for right in (40, 30, 7, 0):
        guesses = labels.clone()
        guesses[right:] = (labels[right:] + 3) % 10
        share = expect.number(call(answer, guesses, labels), "your result")
        if share == right and right > 1:
            raise NotYet(
                f"{right} of 40 are right and you return {share:g}: that's how many. Which share is it?"
            )
        if abs(share - (40 - right) / 40) < 1e-6 and right != 20:
            raise NotYet(
                f"{right} of 40 are right and you return {share:g}, the share that is wrong."
            )
        if not abs(share - right / 40) <= 1e-6:
            raise NotYet(
                f"{right} of 40 guesses are right, a share of {right / 40:g}; you return {share:g}."
            )
    return "you can score any network in this course."


warm_up = Exercise(
    key="00.warm_up",
    title="score the network",
    check_answer=_check_share,
    hints=(
        "`guesses == labels` compares the two tensors number by number. What does it give?",
        "True counts as 1 and False as 0, once they are numbers: `.float()` makes them so. The mean is the share.",
        "`return (guesses == labels).float().mean()` and then `.item()`, which turns a tensor into a number.",
    ),
    reference=share_right,
    explanation="The comparison gives a tensor of True and False. As floats they are 1 and 0, so their mean is the "
    "share that is right, and item() takes the number out of the tensor.",
)
