"""The figures of lesson 00: twenty images and the guesses of a network, photos and their names, two cards, half a cat."""

import json
from functools import cache
from time import perf_counter

import torch

from course import photos
from course.gpt.forecasts import draw_bars, recorded
from course.show import figures, vega
from course.show.vega import slider
from helpers import plots
from helpers.data import CLASSES, shapes
from helpers.plots import CARD
from helpers.training import SmallCNN, train_step


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
    figure = figures.colorful(plots.blank_figure((7.4, 2.45)))
    figure.set_layout_engine("none")
    _heading(figure, f"{right} of 20 guesses are right", 0.02)
    _draw_guesses(figure, guesses, (0.02, 0.03, 0.96, 0.83), columns=10)
    figures.show(figure, f"Twenty images of shapes and the network's guesses: {right} are right.")


def first_picture():
    """Return (Figure, alternative text): an untrained network's guesses, and a cat that's split between two GPUs."""
    torch.manual_seed(0)
    guesses = guesses_of(SmallCNN())
    right = (guesses == twenty()[1]).sum().item()
    figure = figures.colorful(plots.blank_figure((7.4, 3.0)))
    figure.set_layout_engine("none")
    _heading(figure, f"An untrained network: {right} of 20 right", 0.02)
    _heading(figure, "Half a cat on each GPU", 0.6)
    _draw_guesses(figure, guesses, (0.02, 0.03, 0.5, 0.84), columns=5)
    for place, half in enumerate(halves()):
        axes = _axes(figure, 4.44 + (SIDE / 2 + 0.4) * place, 0.62, SIDE / 2, SIDE)
        small = torch.nn.functional.avg_pool2d(half.float(), 2).byte()  # for a small file
        axes.imshow(small.permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.text(0.5, -0.04, f"cuda:{place}", transform=axes.transAxes, **_BELOW)
    alt = f"Twenty images of shapes, {right} named right by an untrained network, and half a cat on each of two GPUs"
    return figure, alt


_TITLE = {"fontsize": plots.TITLE, "fontweight": "bold", "color": plots.INK}


def _heading(figure, text, left):
    figure.text(left, 0.965, text, va="top", **_TITLE)


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
        color = plots.GPU if guess == label else plots.TROUBLE
        mark = "✓" if guess == label else "✗"
        style = {"fontsize": plots.SMALL, "color": color, "ha": "center", "va": "top"}
        axes.text(0.5, -0.05, f"{mark} {CLASSES[guess]}", transform=axes.transAxes, **style)


SIDE = 224 / plots.PIXELS  # inches of a photo: each of its pixels is one of the page


def show_names(*paths):
    """Show photos (a sample's name, or the path of your own), each above the three names a real network thinks likeliest.

    Below them, print how long one photo took here, and what the clock forecasts for two cards.
    """
    names = photos.imagenet_names()
    images = torch.stack([_photo(path) for path in paths])
    network = photos.pretrained()
    with torch.inference_mode():
        chances = network(photos.prepare(images)).softmax(1)
        start = perf_counter()
        network(photos.prepare(images[:1]))
        ms = 1000 * (perf_counter() - start)
    height = 0.42 + 2.85 * -(-len(paths) // 3)
    figure = figures.colorful(plots.blank_figure((7.4, height)))
    figure.set_layout_engine("none")
    figure.text(0.02, 1 - 0.12 / height, "The network's three likeliest names", va="top", **_TITLE)
    said = []
    for i, (image, chance) in enumerate(zip(images, chances, strict=True)):
        left, top = 0.15 + 2.45 * (i % 3), height - 0.45 - 2.85 * (i // 3)
        picture = _axes(figure, left, top - SIDE, SIDE, SIDE)
        picture.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
        best = chance.topk(3)
        labels = [names[k] for k in best.indices]
        _draw_chances(
            _axes(figure, left, top - SIDE - 0.8, 2.3, 0.75), labels, best.values.tolist()
        )
        said.append(f"{labels[0]} {best.values[0]:.0%}")
    figures.show(figure, f"Photos and their likeliest names: {', '.join(said)}")
    print(f"{'':20}{'one photo':<24}{MANY} photos")
    print(f"{'your CPU, measured':20}{f'{plots.number(ms, 2)} ms':<24}not timed")
    for card in CARDS:
        one, many = (_with_range(seen_by(card, number)) for number in (1, MANY))
        print(f"{f'{card}, forecast':20}{one:<24}{many}")


MANY = 256  # photos at once


def seen_by(card, number):
    """The clock's forecast of how long a card takes to name `number` photos at once."""
    return _sight(number).on(card)


def _with_range(forecast):
    low, middle, high = (
        plots.number(ms, 2) for ms in (forecast.low_ms, forecast.ms, forecast.high_ms)
    )
    return f"{middle} ms ({low} to {high})"


@cache
def _sight(number):
    """The clock's forecast of the pretrained network on `number` photos."""

    def make_step():
        network = photos.pretrained().cuda()
        images = torch.empty(number, 3, photos.SIZE, photos.SIZE, device="cuda")

        def step():
            with torch.inference_mode():
                network(images)

        return step

    return recorded(make_step)


def _axes(figure, left, bottom, width, height):
    """Axes without a frame at a place in inches."""
    wide, high = figure.get_size_inches()
    axes = figure.add_axes((left / wide, bottom / high, width / wide, height / high))
    axes.set_axis_off()
    return axes


def _photo(path):
    return photos.sample(path) if path in photos.SAMPLES else photos.read(path)


def _draw_chances(axes, labels, chances):
    axes.barh(range(len(labels)), chances, color=plots.GPU, height=0.6)
    axes.set(xlim=(0, 2.2), ylim=(2.5, -0.5))
    for row, (label, chance) in enumerate(zip(labels, chances, strict=True)):
        note = {"fontsize": 9, "color": plots.INK, "va": "center"}
        axes.text(chance + 0.05, row, f"{chance:.0%} {label}", **note)


CARDS = {"T4": "T4 (2018)", "B200": "B200 (2024)"}
SIZES = [25 * 2**doublings for doublings in range(7)]  # images per step, below the 3,000
CPU = "your CPU, 25 per step"
IMAGES = 4 * 3000  # of the lesson's training
FACTORS = ("about the same", "10 times as fast", "100 times as fast")


def show_cards(seconds):
    """Show how long two cards take for the lesson's images, by forecast, below the learner's own CPU.

    A slider doubles the images per step. `seconds` are those of the training here. Returns what `reveal` takes: the
    choice that's right, and why.
    """
    pairs = [[_row(size, card) for card in _forecasts(size)] for size in SIZES]
    titles = [_finding(*pair) for pair in pairs]
    caption = "Filled: measured here. Hollow: forecast, with its range. Log scale: each line is ten times the one before."
    alt = f"Your CPU: {plots.number(seconds)} s. {'. '.join(titles)}."
    spec = _spec(seconds, [row for pair in pairs for row in pair], titles)
    vega.show(spec, _draw_ends(seconds, pairs), alt, caption)
    first = pairs[0][0]
    because = (
        f"By this forecast, each takes about {first['seconds']:.2g} s ({first['low']:.2g} to {first['high']:.2g}) for the "
        f"{IMAGES:,} images that took your CPU {plots.number(seconds)} s. Most of the time, the B200 waits for its CPU."
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
    low, middle, high = (
        float(f"{ms / 1000 / size * IMAGES:.3g}")
        for ms in (forecast.low_ms, forecast.ms, forecast.high_ms)
    )
    label = f"{middle:.2g} s (forecast: {low:.2g} to {high:.2g})"
    card = CARDS[forecast.card.short]
    return {"size": size, "card": card, "low": low, "seconds": middle, "high": high, "label": label}


def _finding(old, new):
    faster = old["seconds"] / new["seconds"]
    says = f"the B200 is {plots.number(faster, 2)}× as fast" if faster > 1.15 else "T4 and B200 tie"
    return f"{old['size']:,} images per step: {says} (forecast)"


def _spec(seconds, rows, titles):
    """The learner's CPU, and the two cards for the number of images that the slider chooses."""
    cpu = {"card": CPU, "seconds": seconds, "high": seconds}
    cpu["label"] = f"{plots.number(seconds)} s (measured here)"
    names = [CPU, *CARDS.values()]
    axis = {"title": f"seconds for {IMAGES:,} images (log scale)", "tickCount": 4, "format": "~g"}
    ends = [min(row["low"] for row in rows) / 1.5, 200 * max(seconds, rows[0]["high"])]
    x = {"type": "quantitative", "scale": {"type": "log", "domain": ends}, "axis": axis}
    at = {"x": {"field": "seconds", **x}}
    card = [{"filter": f"datum.size === {SIZES[0]} * pow(2, doublings)"}]
    hollow = {"filled": False, "stroke": plots.GPU, "fill": CARD}
    point = {"type": "point", "size": 150, "opacity": 1, "strokeWidth": 2.2}
    line = {"type": "rule", "color": plots.GPU, "strokeWidth": 1.5}
    text = {"type": "text", "align": "left", "dx": 12, "color": plots.INK}
    words = {"mark": text, "encoding": {"x": {"field": "high", **x}, "text": {"field": "label"}}}
    whole = {"x": {"field": "low", **x}, "x2": {"field": "high"}}
    mine = {"mark": {**point, "filled": True, "color": plots.CPU}, "encoding": at}
    theirs = {"mark": {**point, **hollow}, "encoding": at}
    y = {"field": "card", "type": "nominal", "sort": names, "scale": {"domain": names}}
    return {
        "title": {"text": {"expr": f"{json.dumps(titles)}[doublings]"}},
        "params": [slider("doublings", len(SIZES) - 1, step=1, label="doublings of the 25 images")],
        "width": 700,
        "height": {"step": 44},
        "data": {"values": rows},
        "encoding": {"y": {**y, "axis": {"title": None}}},
        "layer": [
            {"data": {"values": [cpu]}, "layer": [mine, words]},
            {"transform": card, "layer": [{"mark": line, "encoding": whole}, theirs, words]},
        ],
    }


def _draw_ends(seconds, pairs):
    """The fewest and the most images per step side by side, for pages that draw no chart."""
    few, many = f"{SIZES[0]:,}", f"{SIZES[-1]:,}"
    panels = {
        f"seconds, {name} per step": {
            row["card"]: (row["low"], row["seconds"], row["high"]) for row in pair
        }
        for name, pair in ((few, pairs[0]), (many, pairs[-1]))
    }
    title = f"{few} images per step, and {many}: T4 and B200 tie only at first (blue: your CPU)"
    figure, _ = draw_bars(title, panels, log=True, digits=2)
    for axes in figure.axes:
        axes.axvline(seconds, color=plots.CPU, linewidth=2.2)
        axes.set_xlim(pairs[-1][1]["low"] / 2, 4 * seconds)
        plots.plain_ticks(axes.xaxis)
    return figure


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
    figure, places = plots.panels(title, 1, 3, (7.4, 2.6), width_ratios=(1, 1, 2))
    figures.colorful(figure)
    names = ["left, on cuda:0", "right, on cuda:1", where]
    for axes, image, name in zip(places, shown, names, strict=True):
        axes.set_axis_off()
        if image is not None:
            axes.imshow(image.permute(1, 2, 0).numpy())
        axes.text(0.5, -0.04, name, transform=axes.transAxes, **_BELOW)
    if not found:
        axes.text(
            0.5,
            0.5,
            "?",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=40,
            color=plots.WAIT,
        )
    figures.show(figure, f"{title}: {', '.join(names)}.")


_BELOW = {"fontsize": plots.SMALL, "color": plots.FAINT, "ha": "center", "va": "top"}


def _joined(join, left, right):
    """Return (image on the CPU, its name) of `join(left, right)`; (None, …) where it makes no image of 224 x 224."""
    try:
        whole = join(left, right)
        if tuple(whole.shape) == (3, 224, 224):
            return whole.cpu(), f"your join(left, right), on {whole.device}"
    except Exception:  # noqa: BLE001 - the check names the error
        pass
    return None, "your join(left, right)"
