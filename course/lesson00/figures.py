"""The figures of lesson 00: twenty images watched while a network learns, images per step, two GPUs, half a cat."""

import functools
import json

import torch
from IPython.display import clear_output
from matplotlib.patches import Rectangle

from course import show
from course.checks import panel
from course.checks.predictions import Prediction
from course.lesson00 import exercises
from course.show import figures, vega
from helpers import plots
from helpers.data import CLASSES, shapes
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


SCORES = ("at most half", "most, but not all", "all")
SCORE = "After these four epochs, how many of the twenty does it classify correctly?", SCORES


class Board:
    """The twenty images with what `model` takes them for; `update` asks it again, in the same place.

    Until there is a guess in `asked`, it asks for one in that place; `answer` is what `asked.reveal` takes.
    """

    def __init__(self, model: torch.nn.Module, asked: Prediction) -> None:
        self.model, self.asked = model, asked
        self.history = [guesses_of(model)]
        self.seconds = 0.0
        self.shown = show.page(*self._page())

    def update(self, seconds: float) -> None:
        """Show what the network says now, after another epoch that took so long."""
        self.seconds += seconds
        self.history.append(guesses_of(self.model))
        page, text = self._page()
        if self.shown:
            bundle = {"text/html": show.CLOSED + page, "text/plain": text}
            self.shown.update(bundle, raw=True)
        else:
            show.page(page, text)

    def answer(self) -> dict:
        """Return how many are right after the 480 steps, and the figure unless it's shown already."""
        right = (self.history[-1] == twenty()[1]).sum().item()
        actual = SCORES[0 if right <= 10 else 1 if right < 20 else 2]
        told = f"{self._mistakes()}The 480 steps took your CPU {plots.number(self.seconds, 2)} s."
        answer = {"actual": actual, "because": told}
        if self.asked.guess is None:
            answer["because"] += "\n\nRun this cell again to watch the verdicts flip."
            answer["figure"] = self._figure()
            if self.shown:
                clear_output(wait=True)  # `reveal` asks in its place
        return answer

    def _mistakes(self):
        """What the network still takes for something else, in a sentence; "" where that's nothing, or much."""
        pairs = zip(twenty()[1].tolist(), self.history[-1].tolist())
        wrong = dict.fromkeys(
            f"a {CLASSES[is_]} for a {CLASSES[said]}" for is_, said in pairs if is_ != said
        )
        return f"It still takes {' and '.join(wrong)}. " if len(wrong) in (1, 2) else ""

    def _page(self):
        if self.asked.guess is None:
            later = "Choose above while it trains: the verdicts will appear here."
            asks = panel.Content("open", "What is your guess?", later)
            return panel.as_html(asks), panel.as_text(asks)
        figure, alt = self._figure()
        return figures.page(figure, alt), alt

    def _figure(self):
        """(Figure, text) of the images, each above the latest guess and the verdicts so far."""
        before, *after = ((guesses == twenty()[1]).sum().item() for guesses in self.history)
        title, told = f"Before training: {before} of 20 right", f"{before} right before training"
        if after:
            took = f"{plots.number(self.seconds, 2)} s"
            title = f"After epoch {len(after)} and {took}: {after[-1]} of 20 right"
            told += f", {', '.join(map(str, after))} after each epoch"
        figure = plots.blank_figure((7.4, 3.1))
        figure.set_layout_engine("none")
        _heading(figure, title, 0.02)
        marks = "Marks, from left to right: before training, then after each epoch"
        note = {"fontsize": plots.SMALL + 1, "color": plots.INK, "va": "top"}
        figure.text(0.02, 0.885, marks, **note)
        _draw_guesses(figure, self.history, (0.02, 0.0, 0.96, 0.81), columns=10, marks=True)
        return figure, f"Twenty images of shapes and the network's guesses: {told}."


def first_picture():
    """Return (Figure, alternative text): twenty images and an untrained network's guesses."""
    torch.manual_seed(0)
    guesses = guesses_of(SmallCNN())
    right = (guesses == twenty()[1]).sum().item()
    figure = figures.colorful(plots.blank_figure((7.4, 2.3)))
    figure.set_layout_engine("none")
    _heading(figure, f"An untrained network: {right} of 20 right", 0.02)
    _draw_guesses(figure, [guesses], (0.02, 0.02, 0.96, 0.83), columns=10)
    return (
        figure,
        f"Twenty images of shapes, {right} classified correctly by an untrained network",
    )


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


def _axes(figure, left, bottom, width, height):
    """Axes without a frame at a place in inches."""
    wide, high = figure.get_size_inches()
    axes = figure.add_axes((left / wide, bottom / high, width / wide, height / high))
    axes.set_axis_off()
    return axes


SPEEDS = ("as many or more", "fewer, but at least half", "less than half")
SIZES = (
    "With a batch of one, how many images per second does the CPU train on, compared with batches of 25?",
    SPEEDS,
)


def compare_sizes(speeds: dict[int, float]) -> dict:
    """Return what `reveal` takes: images per second with 1 per step, compared with 25, and bars of all sizes.

    `speeds`: {images per step: images per second}, measured here. Without 1 or 25, the extremes are compared.
    """
    least, most = min(speeds), max(speeds)
    share = speeds[least] / speeds.get(25, speeds[most])
    actual = SPEEDS[0] if share >= 1 else SPEEDS[1] if share >= 0.5 else SPEEDS[2]
    because = (
        "Every operation, such as a convolution, takes time to start, however little it computes, and every step "
        "updates the weights. With one image per step, the CPU pays these fixed costs 25 times as often."
    )
    if len(speeds) > 2:
        because += f"\n\n{_where_it_stops(speeds)}"
    best = max(speeds, key=speeds.__getitem__)
    faster = speeds[best] / speeds[least]
    title = f"{best} images per step: {faster:.1f} times as many images per second as {least}"
    named = {f"{size} per step": speeds[size] for size in sorted(speeds)}
    words = {name: f"{speed:,.0f}" for name, speed in named.items()}
    unit = "images per second on this CPU"
    figure = plots.bars(plots.here(named), title, unit, words=words, colors=plots.CPU)
    told = ", ".join(f"{words[name]} with {name}" for name in words)
    return {"actual": actual, "because": because, "figure": (figure, f"Images per second: {told}.")}


def _where_it_stops(speeds):
    enough = min(size for size, speed in speeds.items() if speed >= 0.9 * max(speeds.values()))
    if enough == max(speeds):
        return f"At {enough} images per step, the CPU is still getting faster."
    return f"From {enough} images per step on, the CPU gains less than 10%: the fixed costs hardly count any more."


CARDS = {"T4": plots.GREENS[2], "H100 SXM": plots.GPU}
FACTORS = ("about as many", "twice as many", "ten times as many")
ONE_IMAGE = (
    "With one image per step, how many images per second does the H100 train on, compared with the T4?",
    FACTORS,
)
CAPTION = (
    "Forecast: the same steps, with network and images in the GPU's memory, on a CPU that takes 10 to 80 µs to start "
    "an operation. The line through a ring is the likely range."
)


@functools.cache
def _forecasts(size):
    """Return {card: (low, likely, high)}, images per second of the page's training with `size` images per step."""
    with practice_gpus(1, card="T4", values=False) as gpu:
        model = SmallCNN().cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        images = torch.empty(size, 3, 32, 32, device="cuda")
        labels = torch.zeros(size, dtype=torch.long, device="cuda")
        step = functools.partial(train_step, model, images, labels, optimizer)
        step()  # Adam allocates its averages
        told = {card: gpu.forecast(step, card=card) for card in CARDS}
    return {
        card: tuple(1000 * size / ms for ms in (each.high_ms, each.ms, each.low_ms))
        for card, each in told.items()
    }


def compare_cards(speeds: dict[int, float]) -> dict:
    """Return what `reveal` takes: the answer, why, and a chart of this CPU and two GPUs whose images per step one chooses.

    `speeds`: {images per step: images per second}, measured here.
    """
    because = (
        "By our forecast, one image per step keeps neither GPU busy. A larger GPU is faster only if each step gives it "
        "enough to do. Lesson 07 shows what both wait for instead.\n\nNow drag the slider: how much faster than your "
        "CPU does each GPU get?"
    )
    sizes = {size: _of_size(size, speeds[size]) for size in sorted(speeds)}
    titles = {size: _finding(size, rates) for size, rates in sizes.items()}
    told = f"Images per second. {'. '.join(titles.values())}."
    chart = vega.Chart(_spec(sizes, titles), _draw_ends(sizes, titles), told, CAPTION)
    return {"actual": FACTORS[0], "because": because, "chart": chart}


def _of_size(size, speed):
    """Return {device: images per second} with `size` images per step; a forecast is (low, likely, high)."""
    cards = {f"{card.split()[0]}, forecast": rates for card, rates in _forecasts(size).items()}
    return {"this CPU": speed, **cards}


def _finding(size, rates):
    cpu, (_, t4, _), (_, h100, _) = rates.values()
    images = f"{size} image{'s' * (size > 1)} per step"
    t4, h100 = (plots.number(rate / cpu, 2) for rate in (t4, h100))
    return f"{images}: a T4 is {t4}× as fast as this CPU, an H100 {h100}×"


def _colors(rates):
    return dict(zip(rates, (plots.CPU, *CARDS.values()), strict=True))


def _words(rate):
    """Images per second in words; of a forecast its likely number."""
    return plots.number(rate[1], 2) if isinstance(rate, tuple) else plots.number(rate)


def _spec(sizes, titles):
    """The CPU and the two GPUs at the images per step that the reader chooses."""
    rows = [
        {"device": device, "nth": nth, **_point(rate), "label": _words(rate)}
        for nth, rates in enumerate(sizes.values())
        for device, rate in rates.items()
    ]
    colors = _colors(next(iter(sizes.values())))
    x = {"field": "speed", "type": "quantitative", "title": UNIT}
    x |= {"scale": {"type": "log", "domain": _ends(sizes)}, "axis": {"format": ",", "tickCount": 4}}
    look = {"title": None, "labelFontSize": 14, "labelColor": plots.INK}
    y = {"field": "device", "type": "nominal", "sort": [*colors], "axis": look}
    scale = {"domain": [*colors], "range": [*colors.values()]}
    color = {"field": "device", "type": "nominal", "scale": scale, "legend": None}
    fill = {"condition": {"test": "datum.high > datum.low", "value": plots.CARD}, **color}
    text = {"type": "text", "align": "left", "dx": 8, "color": plots.INK, "fontSize": 14}
    return {
        "title": {
            "text": {"expr": f"{json.dumps([*titles.values()], ensure_ascii=False)}[nth]"},
            "subtitle": "Move the slider, with the mouse or the arrow keys",
        },
        "params": [
            vega.slider("nth", len(sizes) - 1, 1, 0, f"images per step, up to {max(sizes)}")
        ],
        "height": {"step": 48},
        "data": {"values": rows},
        "transform": [{"filter": "datum.nth === nth"}],
        "encoding": {"y": y},
        "layer": [
            {
                "mark": "rule",
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": color},
            },
            {
                "mark": {"type": "point", "size": 120, "opacity": 1},
                "encoding": {"x": x, "color": color, "fill": fill},
            },
            {"mark": text, "encoding": {"x": {**x, "field": "high"}, "text": {"field": "label"}}},
        ],
    }


UNIT = "images per second (log scale)"


def _point(rate):
    low, speed, high = rate if isinstance(rate, tuple) else (rate,) * 3
    return {"low": round(low), "speed": round(speed), "high": round(high)}


def _ends(sizes):
    """The ends of the scale of images per second, with room for the words."""
    points = [_point(rate) for rates in sizes.values() for rate in rates.values()]
    return min(each["low"] for each in points) / 2, 8 * max(each["high"] for each in points)


def _draw_ends(sizes, titles):
    """The fewest and the most images side by side, for pages that draw no chart."""
    ends = min(sizes), max(sizes)
    figure, places = plots.panels(titles[ends[1]], 1, 2, (7.4, 2.4))
    for axes, size in zip(places, ends, strict=True):
        rates = sizes[size]
        words = {device: _words(rate) for device, rate in rates.items()}
        plots.draw_dots(axes, rates, colors=_colors(rates), words=words)
        axes.set_xscale("log")
        axes.set_xlim(*_ends(sizes))
        axes.set_xticks([1_000, 100_000], ["1,000", "100,000"])
        axes.minorticks_off()
        axes.set_title(f"{size} per step", loc="left", fontsize=10, color=plots.FAINT)
        axes.set_xlabel(UNIT, fontsize=plots.SMALL)
    return figure


# --- half a cat on each GPU -----------------------------------------------------------------------
def show_cat(join):
    """Show the halves on two practice GPUs, and beside them what the learner's `join` makes of them."""
    with practice_gpus(2):
        parts = [half.to(f"cuda:{place}") for place, half in enumerate(exercises.halves())]
        whole, where = _joined(join, *parts)
        shown = [*(part.cpu() for part in parts), whole]
    title = _what_is_there(whole, where)
    figure = figures.colorful(plots.blank_figure((7.4, 2.6)))
    figure.set_layout_engine("none")
    _heading(figure, title, 0.02)
    names = ["left, on cuda:0", "right, on cuda:1", where]
    half = SIDE / 2
    places = (0.15, half), (0.75 + half, half), (2 + 2 * half, SIDE)
    for (left, wide), image, name in zip(places, shown, names, strict=True):
        axes = _axes(figure, left, 0.32, wide, SIDE)
        axes.text(0.5, -0.04, name, transform=axes.transAxes, **_BELOW)
        if image is not None:
            axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
    if whole is None:
        look = {"ha": "center", "va": "center", "fontsize": plots.TITLE, "color": plots.WAIT}
        axes.text(0.5, 0.5, "no cat yet", transform=axes.transAxes, **look)
        frame = Rectangle((0, 0), 1, 1, transform=axes.transAxes, fill=False, clip_on=False)
        frame.set(edgecolor=plots.WAIT, linestyle="--")
        axes.add_patch(frame)
    figures.show(figure, f"{title}: {', '.join(names)}.")


def _what_is_there(whole, where):
    """The title above the halves and what has become of them: `whole`, an image or None, named `where`."""
    if whole is None:
        return "Half a cat on each GPU"
    if not torch.equal(whole, torch.cat(exercises.halves(), dim=2)):
        return "That isn't the cat yet"
    return "The cat is whole, but on the CPU" if where.endswith("cpu") else "The cat is whole again"


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
