"""The figures of lesson 00: twenty images and the guesses of a network, photos and their names, other machines."""

import json

import torch

import measurements
from helpers import figures, photos
from helpers.data import CLASSES, shapes
from helpers.training import SmallCNN, train_step
from helpers.vega import slider
from lessons.forecasts import draw_bars, recorded


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


def show_guesses(model):
    """Show the twenty images, each above the network's guess: right in green, wrong in red."""
    guesses = guesses_of(model)
    right = (guesses == twenty()[1]).sum().item()
    figure = figures.colorful(figures.blank_figure((7.4, 2.45)))
    figure.set_layout_engine("none")
    _heading(figure, f"{right} of 20 guesses are right", 0.02)
    _draw_guesses(figure, guesses, (0.02, 0.03, 0.96, 0.83), columns=10)
    figures.show(figure, f"Twenty images of shapes and the network's guesses: {right} are right.")


def first_picture():
    """Return (Figure, alternative text): the guesses of the lesson's network before its training and after."""
    torch.manual_seed(0)
    model = SmallCNN()
    before = guesses_of(model)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums as in the page's own cell, where the kernel was given one
    train(model)
    torch.set_num_threads(threads)
    after = guesses_of(model)
    figure = figures.colorful(figures.blank_figure((7.4, 3.0)))
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
    figure = figures.colorful(figures.blank_figure((7.4, 0.4 + 1.6 * -(-len(paths) // 3))))
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
    figures.set_title(figure, f"The network says: {', '.join(said)}")
    figures.show(figure, f"Photos and their likeliest names: {', '.join(said)}")


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


DEVICES = {"Apple M1 Pro, CPU": "Apple M1 Pro (CPU)", "RTX 3090": "RTX 3090"}


def show_elsewhere():
    """Show published times per epoch of a large network and a small one, on a laptop's CPU and on a GPU."""
    data = measurements.published("vgg_and_lenet")
    title = "The GPU is 33× as fast with the large network, and slower with the small one"
    figure, places = figures.panels(title, 1, 2, (7.4, 1.9))
    networks = {"VGG-16, CIFAR-10": " at 224 × 224", "LeNet, MNIST": ""}
    for axes, (network, enlarged) in zip(places, networks.items(), strict=True):
        rows = {row["device"]: row["epoch_minutes"] for row in data.rows(network=network)}
        minutes = [rows[device] for device in DEVICES]
        colors = [figures.CPU if "CPU" in device else figures.GPU for device in DEVICES]
        bars = axes.barh(list(DEVICES.values()), minutes, color=colors, height=0.62)
        texts = [figures.duration(60 * value) for value in minutes]
        axes.bar_label(bars, texts, padding=4, fontsize=9, color=figures.INK)
        _bare(axes, f"{network}{enlarged}: time per epoch", 0.32)
    places[1].set_yticklabels([])
    figures.sources(figure, data.source)
    alt = (
        "Time per epoch. VGG-16 at 224 × 224: Apple M1 Pro 110 minutes, RTX 3090 3.36 minutes. "
        "LeNet: the laptop 4.8 seconds, the RTX 3090 10.8 seconds."
    )
    figures.show(figure, alt)


def _bare(axes, name, room):
    """Leave only the names of the bars, and what they measure."""
    figures.tidy(axes)
    axes.grid(False)
    axes.set(xticks=(), xlabel=name)
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=room)
    axes.invert_yaxis()


CARDS = {"T4": "T4 (2018)", "B200": "B200 (2024)"}
SIZES = [25 * 2**doublings for doublings in range(8)]  # images per step: the lesson's, and more
MILLION = 1_000_000
STEPS = 4 * 3000 // 25  # of the lesson's training
FACTORS = ("about the same", "10 times as fast", "100 times as fast")


def show_cards(seconds):
    """Show how long two cards take for a million images, by forecast: a slider doubles the images per step.

    `seconds` are those of `STEPS` steps here. Returns what `reveal` takes: the choice that's right, and why.
    """
    rows = [_row(size, card) for size in SIZES for card in _forecasts(size)]
    titles = [_finding(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)]
    here = seconds / (SIZES[0] * STEPS) * MILLION
    caption = "Hollow: forecast, with its range in parentheses. The slower the CPU, the longer the overhead."
    alt = f"Seconds for a million images. {'. '.join(titles)}."
    figures.show_vega(_spec(rows, titles), _draw_ends(rows, titles), alt, caption)
    because = (
        "By this forecast, the T4 can just keep up with what the CPU starts, and the B200 waits most of the time. "
        f"Your own CPU would take {here:,.0f} s for a million images, at the speed of your training."
    )
    return FACTORS[0], because


def _forecasts(size):
    """Return the forecasts of a step of the lesson's training with `size` images on `CARDS`, in their order."""

    def make_step():
        model = SmallCNN().cuda()
        optimizer = torch.optim.Adam(model.parameters())
        images = torch.empty(size, 3, 32, 32, device="cuda")
        labels = torch.empty(size, dtype=torch.int64, device="cuda")
        return lambda: train_step(model, images, labels, optimizer)

    forecast = recorded(make_step)
    return [forecast.on(card) for card in CARDS]


def _row(size, forecast):
    limits = forecast.limits
    low, middle, high = (
        float(f"{ms / 1000 / size * MILLION:.3g}")
        for ms in (forecast.low_ms, forecast.ms, forecast.high_ms)
    )
    return {
        "size": size,
        "card": CARDS[forecast.card.short],
        "low": low,
        "seconds": middle,
        "high": high,
        "label": f"{middle:g} s ({low:g} to {high:g}), limit: {max(limits, key=limits.get)}",
    }


def _finding(old, new):
    faster = old["seconds"] / new["seconds"]
    says = (
        f"the B200 is {figures.number(faster, 2)}× as fast" if faster > 1.15 else "T4 and B200 tie"
    )
    return f"Forecast for {old['size']:,} images per step: {says}"


def _spec(rows, titles):
    """The two cards as hollow bars, for the number of images that the slider chooses."""
    y = {"field": "card", "type": "nominal", "sort": None, "axis": {"title": None}}
    end = 1.8 * max(row["seconds"] for row in rows)
    axis = {"title": "seconds for a million images (forecast)", "grid": False}
    x = {"type": "quantitative", "scale": {"domain": [0, end]}, "axis": axis}
    bar = {"type": "bar", "fill": None, "stroke": figures.GPU, "strokeDash": [4, 3], "height": 24}
    text = {"type": "text", "align": "left", "dx": 8, "color": figures.INK}
    return {
        "title": {"text": {"expr": f"{json.dumps(titles)}[doublings]"}},
        "params": [slider("doublings", len(SIZES) - 1, step=1)],
        "width": 620,
        "height": {"step": 52},
        "data": {"values": rows},
        "transform": [{"filter": f"datum.size === {SIZES[0]} * pow(2, doublings)"}],
        "encoding": {"y": y},
        "layer": [
            {"mark": bar, "encoding": {"x": {"field": "seconds", **x}}},
            {
                "mark": text,
                "encoding": {"x": {"field": "seconds", **x}, "text": {"field": "label"}},
            },
        ],
    }


def _draw_ends(rows, titles):
    """The fewest and the most images per step side by side, for pages that draw no chart."""
    ends = {f"{size:,} per step: s for a million": size for size in (SIZES[0], SIZES[-1])}
    panels = {
        name: {
            row["card"]: (row["low"], row["seconds"], row["high"])
            for row in rows
            if row["size"] == size
        }
        for name, size in ends.items()
    }
    last = titles[-1].replace("Forecast for ", "").replace(" images per step", "")
    title = f"{titles[0]}. {last}"
    return draw_bars(title, panels)[0]


# --- half a cat on each GPU -----------------------------------------------------------------------
def halves():
    """Return the left and the right half of a photo of a cat, uint8 [3, 224, 112] each, on the CPU."""
    return photos.sample("chelsea").split(112, dim=2)


def show_cat(join):
    """Show the halves on two practice GPUs, and beside them what the learner's `join` makes of them."""
    from practice_gpus import practice_gpus

    with practice_gpus(2):
        parts = [half.to(f"cuda:{place}") for place, half in enumerate(halves())]
        whole, where = _joined(join, *parts)
        shown = [*(part.cpu() for part in parts), whole]
    found = whole is not None
    title = "The cat is whole again" if found else "Half a cat on each GPU"
    figure, places = figures.panels(title, 1, 3, (7.4, 2.6), width_ratios=(1, 1, 2))
    figures.colorful(figure)
    names = ["left, on cuda:0", "right, on cuda:1", where]
    for axes, image, name in zip(places, shown, names, strict=True):
        axes.set_axis_off()
        if image is not None:
            axes.imshow(image.permute(1, 2, 0).numpy())
        axes.text(0.5, -0.04, name, transform=axes.transAxes, ha="center", va="top", **_SMALL)
    if not found:
        axes.text(
            0.5,
            0.5,
            "?",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=40,
            color=figures.WAIT,
        )
    figures.show(figure, f"{title}: {', '.join(names)}.")


_SMALL = {"fontsize": figures.SMALL, "color": figures.FAINT}


def _joined(join, left, right):
    """Return (image on the CPU, its name) of `join(left, right)`; (None, …) where it makes no image of 224 x 224."""
    try:
        whole = join(left, right)
        if tuple(whole.shape) == (3, 224, 224):
            return whole.cpu(), f"your join(left, right), on {whole.device}"
    except Exception:  # noqa: BLE001 - the check names the error
        pass
    return None, "your join(left, right)"
