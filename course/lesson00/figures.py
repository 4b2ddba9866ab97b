"""The figures of lesson 00: twenty images watched while a network learns, images per step, two cards, half a cat."""

import json

import torch
from IPython.display import clear_output
from matplotlib.patches import Rectangle

from course import measurements, show
from course.checks import panel
from course.checks.predictions import Prediction
from course.lesson00 import exercises
from course.show import figures, vega
from helpers import plots
from helpers.data import CLASSES, shapes
from helpers.training import SmallCNN
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


SCORES = ("0 to 5", "6 to 10", "11 to 15", "16 to 20")
SCORE = "After these four epochs, how many of the twenty does it classify correctly?", SCORES


class Board:
    """The twenty images with what `model` takes them for; `update` asks it again, in the same place.

    Until there is a guess in `asked`, it asks for one in that place; `answer` is what `asked.reveal` takes.
    """

    def __init__(self, model: torch.nn.Module, asked: Prediction) -> None:
        self.model, self.asked = model, asked
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

    def answer(self) -> dict:
        """Return how many are right after the 480 steps, and the figure unless it's shown already."""
        right = (self.history[-1] == twenty()[1]).sum().item()
        told = (
            f"{self._last()}The training took 480 steps. How fast is that, and what sets its speed?"
        )
        answer = {"actual": SCORES[max(right - 1, 0) // 5], "because": told}
        if self.asked.guess is None:
            answer["because"] += "\n\nRun this cell again to watch the verdicts flip."
            answer["figure"] = self._figure()
            if self.shown:
                clear_output(wait=True)  # `reveal` asks in its place
        return answer

    def _last(self):
        """The class that no earlier epoch got right, in a sentence; "" where there is none, or several."""
        rights = torch.stack([guesses == twenty()[1] for guesses in self.history])
        late = twenty()[1][rights[-1] & ~rights[:-1].any(0)].unique().tolist()
        if len(late) != 1:
            return ""
        name = CLASSES[late[0]].capitalize()
        return f"{name}{'es' if name.endswith('s') else 's'} came last. "

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
            title = f"After epoch {len(after)}: {after[-1]} of 20 right"
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
    alt = f"Twenty images of shapes, {right} classified correctly by an untrained network, and half a cat on each of two GPUs"
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
    if speeds.keys() == {1, 25}:
        because += "\n\nNow add 100 and 400 to the sizes, and run the cell again. Where does the CPU stop getting faster?"
    if len(speeds) > 2:
        because += f"\n\n{_where_it_stops(speeds)}"
    faster = speeds[most] / speeds[least]
    title = f"{most} images per step: {faster:.1f} times as many images per second as {least}"
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


_TWO_CARDS = {"T4": plots.GREENS[2], "V100": plots.GPU}
CARDS = {"T4": "T4", "V100 16GB, DGX-1": "V100"}
FACTORS = ("about as many", "twice as many", "three times as many")
ONE_PHOTO = (
    "With one photo at a time, how many photos per second does the V100 classify, compared with the T4?",
    FACTORS,
)


def compare_cards() -> dict:
    """Return what `reveal` takes: the answer, why, and a chart of NVIDIA's two cards whose photos at a time one chooses."""
    table = measurements.published("resnet50_nvidia")
    where = {"x": "batch", "section": "inference", "precision": "FP32"}
    cards = table.group("images_per_s", device=[*CARDS], **where)
    speeds = {CARDS[device]: dict(zip(*values, strict=True)) for device, values in cards.items()}
    t4, v100 = speeds["T4"], speeds["V100"]
    titles = {size: _finding(size, v100[size] / t4[size]) for size in t4}
    because = (
        f"{t4[1]} photos per second on the T4, {v100[1]} on the V100. The likely reason: both wait for their CPU to "
        "start the next operation.\n\nNow drag the slider below: when does the V100 pull ahead, and how far?"
    )
    still = plots.sources(_draw_ends(speeds, titles), *cards.sources)
    told = [f"{titles[n]}, {t4[n]:,} and {v100[n]:,} photos per second" for n in (1, 8, 64, 256)]
    chart = vega.Chart(_spec(speeds, titles), still, f"{'. '.join(told)}.")
    return {"actual": FACTORS[0], "because": because, "chart": chart}


def _finding(size, faster):
    at = f"{size} photo{'s' * (size > 1)} at a time"
    return f"{at}: " + (f"the V100 is {faster:.1f}× as fast" if faster > 1.15 else "a tie")


def _spec(speeds, titles):
    """The two cards at the number of photos that the reader chooses."""
    rows = [
        {"card": card, "nth": nth, "speed": speed, "label": f"{speed:,} photos per second"}
        for card, each in speeds.items()
        for nth, speed in enumerate(each.values())
    ]
    last = len(titles) - 1
    end = 1.4 * max(row["speed"] for row in rows)  # room for the words
    x = {"field": "speed", "type": "quantitative", "scale": {"domain": [0, end]}, "axis": None}
    look = {"title": None, "labelFontSize": 14, "labelColor": plots.INK}
    y = {"field": "card", "type": "nominal", "sort": [*speeds], "axis": look}
    colors = {"domain": [*_TWO_CARDS], "range": [*_TWO_CARDS.values()]}
    color = {"field": "card", "type": "nominal", "scale": colors, "legend": None}
    text = {"type": "text", "align": "left", "dx": 8, "color": plots.INK, "fontSize": 14}
    return {
        "title": {
            "text": {"expr": f"{json.dumps([*titles.values()], ensure_ascii=False)}[nth]"},
            "subtitle": "Move the slider, with the mouse or the arrow keys",
        },
        "params": [vega.slider("nth", last, 1, 0, f"photos at a time, 1 to {max(titles)}")],
        "height": {"step": 48},
        "data": {"values": rows},
        "transform": [{"filter": "datum.nth === nth"}],
        "encoding": {"y": y, "x": x},
        "layer": [
            {"mark": {"type": "bar", "height": 26}, "encoding": {"color": color}},
            {"mark": text, "encoding": {"text": {"field": "label"}}},
        ],
    }


def _draw_ends(speeds, titles):
    """The fewest and the most photos side by side, for pages that draw no chart."""
    ends = min(titles), max(titles)
    figure, places = plots.panels("; ".join(titles[size] for size in ends), 1, 2, (7.4, 1.9))
    for axes, size in zip(places, ends, strict=True):
        at = {card: each[size] for card, each in speeds.items()}
        plots.draw_bars(
            axes, at, colors=_TWO_CARDS, words={card: f"{n:,}" for card, n in at.items()}
        )
        axes.set(xlim=(0, 1.2 * max(each[ends[1]] for each in speeds.values())))
        axes.set_xlabel(f"photos per second, {size} at a time", fontsize=plots.SMALL)
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
