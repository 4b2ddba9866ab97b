"""The figures of lesson 00: twenty images watched while a network learns, two cards, half a cat, photos and their names."""

import json
from functools import cache

import torch

from course import photos, show
from course.checks.core import CORRECT
from course.gpt.forecasts import draw_bars
from course.lesson00 import exercises
from course.show import figures, vega
from course.show.vega import slider
from helpers import plots
from helpers.data import CLASSES, shapes
from helpers.plots import CARD
from helpers.training import SmallCNN, train_step
from practice_gpus import practice_gpus


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


class Board:
    """The twenty images, shown with what `model` takes them for; `update` asks it again, in the same place."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.history = [guesses_of(model)]
        self.shown = show.page(*self._page())

    def update(self) -> None:
        """Show what the network says now, after another epoch."""
        self.history.append(guesses_of(self.model))
        page, text = self._page()
        if self.shown:
            bundle = {"text/html": show.CLOSED + page, "text/plain": text}
            self.shown.update(bundle, raw=True)
        else:
            show.page(page, text)

    def _page(self):
        """(HTML, text) of the images, each above the latest guess and the verdicts so far."""
        before, *after = ((guesses == twenty()[1]).sum().item() for guesses in self.history)
        title, told = f"Before training: {before} of 20 right", f"{before} right before training"
        if after:
            title = f"After epoch {len(after)}: {after[-1]} of 20 right"
            told += f", {', '.join(map(str, after))} after each epoch"
        figure = plots.blank_figure((7.4, 2.9))
        figure.set_layout_engine("none")
        _heading(figure, title, 0.02)
        _draw_guesses(figure, self.history, (0.02, 0.0, 0.96, 0.88), columns=10, marks=True)
        alt = f"Twenty images of shapes and the network's guesses: {told}."
        return figures.page(figure, alt), alt


def first_picture():
    """Return (Figure, alternative text): an untrained network's guesses, and a cat that's split between two GPUs."""
    torch.manual_seed(0)
    guesses = guesses_of(SmallCNN())
    right = (guesses == twenty()[1]).sum().item()
    figure = figures.colorful(plots.blank_figure((7.4, 3.0)))
    figure.set_layout_engine("none")
    _heading(figure, f"An untrained network: {right} of 20 right", 0.02)
    _heading(figure, "Half a cat on each GPU", 0.6)
    _draw_guesses(figure, [guesses], (0.02, 0.03, 0.5, 0.84), columns=5)
    for place, half in enumerate(exercises.halves()):
        axes = _axes(figure, 4.44 + (SIDE / 2 + 0.4) * place, 0.62, SIDE / 2, SIDE)
        small = torch.nn.functional.avg_pool2d(half.float(), 2).byte()  # for a small file
        axes.imshow(small.permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.text(0.5, -0.04, f"cuda:{place}", transform=axes.transAxes, **_BELOW)
    alt = f"Twenty images of shapes, {right} named right by an untrained network, and half a cat on each of two GPUs"
    return figure, alt


_TITLE: dict = {"fontsize": plots.TITLE, "fontweight": "bold", "color": plots.INK}


def _heading(figure, text, left):
    figure.text(left, 0.965, text, va="top", **_TITLE)


def _draw_guesses(figure, history, place, columns, marks=False):
    """Draw the twenty images into `place` (left, bottom, width, height of the figure), each above its latest guess.

    With `marks`, whether each of the guesses in `history` was right stands below that.
    """
    images, labels = twenty()
    left, bottom, width, height = place
    wide, high = width / columns, height * columns / len(images)
    below = 0.38 if marks else 0.26  # of the height: words
    for i, image in enumerate(images):
        row, column = divmod(i, columns)
        low = bottom + height - (row + 1) * high
        spot = (left + column * wide, low + below * high, 0.92 * wide, (0.98 - below) * high)
        axes = figure.add_axes(spot)
        axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_axis_off()
        verdicts = [(guesses[i] == labels[i]).item() for guesses in history]
        word = CLASSES[history[-1][i]]
        for n, right in enumerate(verdicts if marks else ()):
            _below(axes, 0.16 + 0.17 * n, -0.27, _MARKS[right], right)
        name = word if marks else f"{_MARKS[verdicts[-1]]} {word}"
        _below(axes, 0.5, -0.05, name, verdicts[-1])


_MARKS = {True: "✓", False: "✗"}


def _below(axes, x, y, word, right):
    """Write `word` below a picture, green where the network is right."""
    color = plots.GPU if right else plots.TROUBLE
    style = {"fontsize": plots.SMALL, "color": color, "ha": "center", "va": "top"}
    axes.text(x, y, word, transform=axes.transAxes, **style)


SIDE = 224 / plots.PIXELS  # inches of a photo: each of its pixels is one of the page


def show_names(*paths: str) -> None:
    """Show photos (a sample's name, or the path of your own), each above the three names a real network finds likeliest."""
    names = photos.imagenet_names()
    images = torch.stack([_photo(path) for path in paths])
    with torch.inference_mode():
        chances = photos.pretrained()(photos.prepare(images)).softmax(1)
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
        place = _axes(figure, left, top - SIDE - 0.8, 2.3, 0.75)
        _draw_chances(place, labels, best.values.tolist())
        said.append(f"{labels[0]} {best.values[0]:.0%}")
    figures.show(figure, f"Photos and their likeliest names: {', '.join(said)}")


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
SIZES = range(25, 1601, 75)  # images per step
CPU = "your CPU, 25 per step"
IMAGES = 4 * 3000  # of the lesson's training
FACTORS = ("about the same", "10 times as fast", "100 times as fast")


def compare_cards(seconds: float) -> dict:
    """Return what `reveal` takes: the answer, why, and a chart of two cards below the learner's own CPU.

    `seconds` are those of the training here; its slider chooses the images per step.
    """
    forecasts = _forecasts()
    pairs = [[_row(size, card) for card in forecasts[size]] for size in SIZES]
    titles = [_finding(*pair) for pair in pairs]
    caption = "Filled: measured here. Hollow: forecast, with its range. Log scale: each line is ten times the one before."
    told = [titles[SIZES.index(size)] for size in (25, 100, 400, 1600)]
    alt = f"Your CPU: {plots.number(seconds)} s. {'. '.join(told)}."
    spec = _spec(seconds, [row for pair in pairs for row in pair], titles)
    first = pairs[0][0]
    because = (
        f"By our forecast, each takes {first['low']:.2g} to {first['high']:.2g} s for the {IMAGES:,} images that took "
        f"your CPU {plots.number(seconds)} s. The launches take all of that time on both. "
        "A GPU helps only if each step gives it enough to do."
    )
    chart = vega.Chart(spec, _draw_ends(seconds, pairs), alt, caption)
    return {"actual": FACTORS[0], "because": because, "chart": chart}


@cache
def _forecasts():
    """{images per step: forecasts of a step of the lesson's training on `CARDS`, in their order}."""
    with practice_gpus(1, card="A100 80", values=False, stand_in=1.0) as gpus:
        model = SmallCNN().cuda()
        optimizer = torch.optim.Adam(model.parameters())

        def step(size):
            images = torch.empty(size, 3, 32, 32, device="cuda")
            labels = torch.empty(size, dtype=torch.int64, device="cuda")
            return lambda: train_step(model, images, labels, optimizer)

        step(SIZES[0])()  # makes the optimizer's state
        recorded = {size: gpus.forecast(step(size)) for size in SIZES}
    return {size: [forecast.on(card) for card in CARDS] for size, forecast in recorded.items()}


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
    first, ends = SIZES[0], f"{SIZES[0]} … {SIZES[-1]:,}"
    axis = {"title": f"seconds for {IMAGES:,} images (log scale)", "tickCount": 4, "format": "~g"}
    domain = [min(row["low"] for row in rows) / 1.5, 200 * max(seconds, rows[0]["high"])]
    x = {"type": "quantitative", "scale": {"type": "log", "domain": domain}, "axis": axis}
    at = {"x": {"field": "seconds", **x}}
    card = [{"filter": "datum.size === size"}]
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
        "title": {"text": {"expr": f"{json.dumps(titles)}[(size - {first}) / {SIZES.step}]"}},
        "params": [slider("size", SIZES[-1], SIZES.step, first, f"images per step: {ends}", first)],
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
    title = f"T4 and B200 tie at {few} images per step, but not at {many}"
    figure, _ = draw_bars(title, panels, log=True, digits=2)
    for axes in figure.axes:
        axes.axvline(seconds, color=plots.CPU, linewidth=2.2)
        look = {"color": plots.CPU, "ha": "right", "va": "top", "fontsize": plots.SMALL}
        axes.text(0.93 * seconds, 0.99, "your CPU", transform=axes.get_xaxis_transform(), **look)
        axes.set_xlim(pairs[-1][1]["low"] / 2, 4 * seconds)
        plots.plain_ticks(axes.xaxis)
    return figure


# --- half a cat on each GPU -----------------------------------------------------------------------
def show_cat(join):
    """Show the halves on two practice GPUs, and beside them what the learner's `join` makes of them."""
    right = exercises.warm_up.outcome(join).status == CORRECT
    with practice_gpus(2):
        parts = [half.to(f"cuda:{place}") for place, half in enumerate(exercises.halves())]
        whole, where = _joined(join, *parts)
        shown = [*(part.cpu() for part in parts), whole]
    title = "The cat is whole again" if right else "Half a cat on each GPU"
    figure, places = plots.panels(title, 1, 3, (7.4, 2.6), width_ratios=(1, 1, 2))
    figures.colorful(figure)
    names = ["left, on cuda:0", "right, on cuda:1", where]
    for axes, image, name in zip(places, shown, names, strict=True):
        axes.set_axis_off()
        axes.text(0.5, -0.04, name, transform=axes.transAxes, **_BELOW)
        if image is not None:
            axes.imshow(image.permute(1, 2, 0).numpy())
    if whole is None:
        look = {"ha": "center", "va": "center", "fontsize": 40, "color": plots.WAIT}
        axes.text(0.5, 0.5, "?", transform=axes.transAxes, **look)
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
