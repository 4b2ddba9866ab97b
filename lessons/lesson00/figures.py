"""The figures of lesson 00: twenty images and the guesses of a network, photos and their names, other machines."""

import torch
from torch import nn

import measurements
from helpers import figures, photos
from helpers.data import CLASSES, shapes
from helpers.training import SmallCNN, train_step

ANSWERS = ("about 2, as now", "about half", "nearly all")


def twenty():
    """Return twenty images that the network is never trained on, [20, 3, 32, 32], and their labels [20]."""
    return shapes(20, seed=7)


def guesses_of(model):
    """Return the network's guess for each of the twenty images, as labels [20]."""
    model.eval()
    with torch.inference_mode():
        guesses = model(twenty()[0]).argmax(1)
    model.train()
    return guesses


def how_many(model):
    """Return how many of the twenty guesses are right, in the words of the prediction: one of `ANSWERS`."""
    right = (guesses_of(model) == twenty()[1]).sum().item()
    if right <= 5:
        return ANSWERS[0]
    return ANSWERS[1] if right <= 15 else ANSWERS[2]


def show_guesses(model):
    """Show the twenty images, each above the network's guess: right in green, wrong in red."""
    guesses = guesses_of(model)
    right = (guesses == twenty()[1]).sum().item()
    figure = figures.blank_figure((7.4, 2.45))
    figure.set_layout_engine("none")
    _heading(figure, f"{right} of 20 guesses are right", 0.02)
    _draw_guesses(figure, guesses, (0.02, 0.03, 0.96, 0.83), columns=10)
    figures.show(figure, f"Twenty images of shapes and the network's guesses: {right} are right.")


def first_picture():
    """Return (Figure, alternative text): the guesses of the lesson's network before its training and after."""
    torch.manual_seed(0)
    model = SmallCNN()
    before = guesses_of(model)
    train(model)
    after = guesses_of(model)
    figure = figures.blank_figure((7.4, 3.0))
    figure.set_layout_engine("none")
    right = [(guesses == twenty()[1]).sum().item() for guesses in (before, after)]
    _heading(figure, f"Before training: {right[0]} of 20 right", 0.02)
    _heading(figure, f"After: {right[1]} of 20 right", 0.53)
    _draw_guesses(figure, before, (0.02, 0.03, 0.45, 0.84), columns=5)
    _draw_guesses(figure, after, (0.53, 0.03, 0.45, 0.84), columns=5)
    alt = f"Twenty images with a network's guesses: {right[0]} right before training, {right[1]} after"
    return figure, alt


def _heading(figure, text, left):
    style = {"fontsize": figures.TITLE, "fontweight": "bold", "color": figures.INK}
    figure.text(left, 0.965, text, va="top", **style)


def _draw_guesses(figure, guesses, place, columns):
    """Draw the twenty images into `place` (left, bottom, width, height of the figure), each above its guess."""
    images, labels = twenty()
    left, bottom, width, height = place
    wide, high = width / columns, height * columns / len(images)
    for i, (image, guess, label) in enumerate(zip(images, guesses, labels, strict=True)):
        row, column = divmod(i, columns)
        low = bottom + height - (row + 1) * high
        axes = figure.add_axes((left + column * wide, low + 0.26 * high, 0.92 * wide, 0.72 * high))
        axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_axis_off()
        color = figures.GPU if guess == label else figures.TROUBLE
        mark = "✓" if guess == label else "✗"
        style = {"fontsize": figures.SMALL, "color": color, "ha": "center", "va": "top"}
        axes.text(0.5, -0.05, f"{mark} {CLASSES[guess]}", transform=axes.transAxes, **style)


def train(model, epochs=4):
    """Train `model` on 3,000 images as the lesson does."""
    images, labels = shapes(3000)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(epochs):
        for batch in torch.randperm(3000).split(25):
            train_step(model, images[batch], labels[batch], optimizer)


def show_names(*paths):
    """Show photos (a sample's name, or the path of your own) and the three names a real network thinks likeliest."""
    names = photos.imagenet_names()
    images = torch.stack([_photo(path) for path in paths])
    with torch.inference_mode():
        chances = photos.pretrained()(photos.prepare(images)).softmax(1)
    figure = figures.blank_figure((7.4, 1.6 * -(-len(paths) // 3)))
    rows = figure.subplots(-(-len(paths) // 3), 6, squeeze=False)
    said = []
    for i, (image, chance) in enumerate(zip(images, chances, strict=True)):
        picture, bars = rows[i // 3][2 * (i % 3)], rows[i // 3][2 * (i % 3) + 1]
        picture.imshow(image.permute(1, 2, 0).numpy())
        best = chance.topk(3)
        labels = [names[k] for k in best.indices]
        _draw_chances(bars, labels, best.values.tolist())
        said.append(f"{labels[0]} {best.values[0]:.0%}")
    for axes in rows.flat:
        axes.set_axis_off()
    alt = f"Photos and their likeliest names: {', '.join(said)}"
    figures.show(figure, alt)


def _photo(path):
    return photos.sample(path) if path in photos.SAMPLES else photos.read(path)


def _draw_chances(axes, labels, chances):
    axes.barh(range(len(labels)), chances, color=figures.GPU, height=0.22)
    axes.set(xlim=(0, 1.25), ylim=(2.5, -0.75))
    for row, (label, chance) in enumerate(zip(labels, chances, strict=True)):
        text = label if len(label) <= 16 else label[:15] + "…"
        axes.text(0, row - 0.26, text, fontsize=figures.SMALL, color=figures.INK)
        note = {"fontsize": figures.SMALL, "color": figures.FAINT, "va": "center"}
        axes.text(chance + 0.03, row, f"{chance:.0%}", **note)


DEVICES = {
    "Intel CPU (not named)": "an Intel CPU",
    "Apple M1 Pro, CPU": "Apple M1 Pro, CPU",
    "RTX 2080 Ti": "RTX 2080 Ti",
    "RTX 3090": "RTX 3090",
}


def show_elsewhere():
    """Show published minutes per epoch of a large network and a small one, on CPUs and on GPUs."""
    data = measurements.published("vgg_and_lenet")
    title = "The large network needs a GPU; the small one is faster on a laptop"
    figure, places = figures.panels(title, 1, 2, (7.4, 2.7))
    for axes, network in zip(places, ("VGG-16, CIFAR-10", "LeNet, MNIST"), strict=True):
        rows = {row["device"]: row["epoch_minutes"] for row in data.rows(network=network)}
        minutes = [rows[device] for device in DEVICES]
        colors = [figures.CPU if "CPU" in device else figures.GPU for device in DEVICES]
        bars = axes.barh(list(DEVICES.values()), minutes, color=colors, height=0.62)
        texts = [figures.duration(60 * value) for value in minutes]
        axes.bar_label(bars, texts, padding=4, fontsize=9, color=figures.INK)
        figures.tidy(axes)
        axes.grid(False)
        axes.set(xticks=(), xlabel=f"{network}: time per epoch")
        axes.spines["bottom"].set_visible(False)
        axes.margins(x=0.32)
        axes.invert_yaxis()
    places[1].set_yticklabels([])
    figures.sources(figure, data.source)
    alt = (
        "Time per epoch. VGG-16: Apple M1 Pro 110 minutes, RTX 3090 3.36 minutes. "
        "LeNet: the laptop 4.8 seconds, the RTX 3090 10.8 seconds."
    )
    figures.show(figure, alt)


CARDS = ("T4", "V100", "RTX 3090", "RTX 4090", "L40S", "A100 80GB", "H100 SXM", "B200")


def show_cards():
    """Show forecasts of one training step on eight cards: of the lesson's network, and of VGG-16."""
    small = _forecasts(SmallCNN, (25, 3, 32, 32))
    large = _forecasts(_vgg16, (64, 3, 224, 224))
    title = "Forecast: VGG-16 gains from every faster card, the small network from none"
    figure, places = figures.panels(title, 1, 2, (7.4, 3.6))
    names = ("our network, batch of 25", "VGG-16, batch of 64")
    for axes, rows, name in zip(places, (small, large), names, strict=True):
        _draw_forecasts(axes, rows)
        axes.set_xlabel(f"{name}: ms per step")
    places[1].set_yticklabels([])
    words = [f"{card} {figures.number(row.ms)} ms" for card, row in zip(CARDS, large, strict=True)]
    alt = (
        f"Forecast ms per training step on eight cards. Our network: {_milliseconds(small[-1])} ms on each. "
        f"VGG-16: {', '.join(words)}."
    )
    figures.show(figure, alt, "The line through each bar is the forecast's range.")


def _forecasts(build, shape):
    """Return the forecasts of a training step of `build()` on `CARDS`, in their order, from shapes alone."""
    from practice_gpus import practice_gpus

    with practice_gpus(1, memory="80 GiB", card=CARDS[0], values=False) as gpus:
        model = build().cuda()
        optimizer = torch.optim.Adam(model.parameters())
        images = torch.empty(shape, device="cuda")
        labels = torch.empty(shape[0], dtype=torch.int64, device="cuda")

        def step():
            train_step(model, images, labels, optimizer)

        step()
        forecast = gpus.forecast(step)
    return [forecast.on(card) for card in CARDS]


def _milliseconds(row):
    """Return a forecast as text: its range where the CPU decides, else one number."""
    if row.limits["overhead"] > row.limits["compute"] + row.limits["memory"]:
        return f"{figures.number(row.low_ms, 2)} to {figures.number(row.high_ms, 2)}"
    return figures.number(row.ms)


def _vgg16():
    """Return VGG-16: thirteen convolutions in five stages, each halved by pooling, and three linear layers."""
    layers, channels = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    linear = nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()
    return nn.Sequential(*layers, nn.Flatten(), *linear, nn.Linear(4096, 1000))


def _draw_forecasts(axes, rows):
    style = {"facecolor": "none", "edgecolor": figures.GPU, "linewidth": 1.4}
    axes.barh(CARDS, [row.ms for row in rows], height=0.6, **style)
    for place, row in enumerate(rows):
        axes.plot((row.low_ms, row.high_ms), (place, place), color=figures.GPU, linewidth=1)
        note = {"fontsize": 9, "color": figures.INK, "va": "center"}
        axes.text(row.high_ms, place, f"  {_milliseconds(row)}", **note)
    figures.tidy(axes)
    axes.set(xticks=(), xlim=(0, 1.25 * max(row.high_ms for row in rows)))
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)
    axes.invert_yaxis()
