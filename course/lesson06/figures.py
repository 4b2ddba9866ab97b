"""The figures of lesson 06: equal gradients, and what a second card adds."""

import torch
from matplotlib.patches import Rectangle
from torch import nn
from torch.nn import functional as F

from course.lesson06.overlap import BUCKETS, draw_overlap
from course.measurements import published
from course.show import vega
from course.show.vega import Texts, calculate, csv
from helpers import plots

__all__ = ["BUCKETS", "draw_overlap"]  # the pages call them here, too


# --- the same gradient --------------------------------------------------------------------------------
def _found(parts=(slice(0, 3), slice(3, 6), slice(0, 6))):
    """Return the same number of the gradient of each of the batch's `parts`: of both halves, then of all."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    x, y = torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    losses = [F.cross_entropy(model(x[part]), y[part]) for part in parts]
    return [torch.autograd.grad(loss, model[2].weight)[0][0, 11].item() for loss in losses]


def _signed(number, digits=4):
    return f"{number:+.{digits}f}".replace("-", "−") if number else "0"


def first_picture():
    """Return (Figure, alternative text): one batch through two GPUs, and through one whose gradient is asked for."""
    first, second, _ = _found()
    title = "Half a batch each, two gradients. What would the whole batch give?"
    figure, axes = _split(title, (_signed(first), _signed(second), "?"))
    _note(axes, 57, 36, "one number of the gradient")
    alt = f"A batch of six samples. GPU 0 takes three and finds a gradient of {_signed(first)}, GPU 1 the others and "
    return figure, f"{alt}{_signed(second)}. What one GPU finds with all six is a question mark."


def draw_mean():
    """Return a Chart with a slider: six samples dealt to two GPUs, the mean of what both find, and the whole batch's.

    A sample stands as its own number of the gradient, so that one can work the means out.
    """
    each = _found([slice(place, place + 1) for place in range(6)])
    rows, told = [], Texts()
    for first in range(1, 6):
        shares = each[:first], each[first:], each
        means = [sum(share) / len(share) for share in shares]
        both, equal = sum(means[:2]) / 2, first == 3
        for row, (share, mean) in enumerate(zip(shares, means, strict=True)):
            begin = first if row == 1 else 0
            for place, number in enumerate(share, begin):
                rows.append((first, 0, place, row, told.index(_signed(number))))
            rows.append((first, 1, 6.25, row, told.index(f"mean {_signed(mean)}")))
        words = f"mean of both {_signed(both)}"
        rows.append((first, 3 - equal, 8.1, 0.5, told.index(words)))
    named = [(0, 4, -0.15, row, told.index(name)) for row, name in enumerate(GPUS)]
    shares = _found([slice(0, 5), slice(5, 6), slice(0, 6)])
    both = sum(shares[:2]) / 2
    alt = f"With five samples on GPU 0 and one on GPU 1, the mean of both is {_signed(both)}, and one GPU finds {_signed(shares[2])}."
    return vega.Chart(_mean_chart(rows + named, told), _mean_still(shares, both), alt)


SHARES = (  # for `reveal`
    "no, GPU 1's one counts too much",
    "By default, cross-entropy is a mean over the samples, so each GPU finds the mean of its own. In the mean of both, one half comes from five samples, and the other half from one. "
    "For any shares, let each GPU sum its losses, and divide the sum of both gradients by six.\n\n"
    "Below, each square shows what its sample alone finds. Move the slider: which shares give what one GPU finds?",
)

GPUS = ("GPU 0", "GPU 1", "one GPU")
DEALT = "'the same as one GPU finds with all six' : 'not what one GPU finds with all six'"


def _mean_chart(rows, told):
    """The spec: a row for each GPU of two, and one for a single GPU with all samples."""
    x = {"type": "quantitative", "scale": {"domain": [-1.2, 11], "nice": False}, "axis": None}
    y = {"type": "quantitative", "scale": {"domain": [3, 0], "nice": False}, "axis": None}
    ink = {
        "condition": [
            {"test": "datum.k == 2", "value": plots.COMM},
            {"test": "datum.k == 3", "value": plots.TROUBLE},
        ],
        "value": plots.INK,
    }
    side = ("datum.k == 0", "datum.k > 0 && datum.k < 4", "datum.k == 4")
    place = {"x": {"field": "at", **x}, "y": {"field": "middle", **y}, "text": {"field": "words"}}
    return {
        "title": {"text": {"expr": f"'The mean of both is ' + (first == 3 ? {DEALT})"}},
        "params": [vega.slider("first", 5, 1, 5, "samples on GPU 0", low=1)],
        **csv("c,k,x,y,t", rows),
        "transform": [
            {"filter": "datum.c == first || datum.c == 0"},
            *calculate(
                end="datum.x + 0.92",
                bottom="datum.y + 0.72",
                middle="datum.y + 0.36",
                at="datum.k == 0 ? datum.x + 0.46 : datum.x",
                words=f"{told.list}[datum.t]",
            ),
        ],
        "width": 860,
        "height": 170,
        "layer": [
            {
                "transform": [{"filter": side[0]}],
                "mark": {"type": "rect", "color": plots.MEMORY["batch"], "cornerRadius": 3},
                "encoding": {
                    "x": {"field": "x", **x},
                    "x2": {"field": "end"},
                    "y": {"field": "y", **y},
                    "y2": {"field": "bottom"},
                },
            },
            *(
                {
                    "transform": [{"filter": test}],
                    "mark": {"type": "text", "align": align, "fontSize": 13},
                    "encoding": {**place, "color": ink},
                }
                for test, align in zip(side, ("center", "left", "right"), strict=True)
            ),
        ],
    }


def _mean_still(shares, both):
    """The figure of five samples and one, for pages that draw no chart."""
    title = "The mean of both is not what one GPU finds with all six"
    told = [_signed(number) for number in shares]
    figure, axes = _split(title, told, ("01234", "5", "012345"))
    for middle, end in ((31, 27.5), (20, 23.5)):
        axes.annotate("", (73, end), (67.5, middle), arrowprops=_look(plots.COMM))
    _box(axes, "mean", 73, 25.5, 11, plots.COMM)
    axes.annotate("", (88, 25.5), (84, 25.5), arrowprops=_look(plots.COMM))
    axes.text(89, 25.5, _signed(both), va="center", fontsize=11, color=plots.TROUBLE)
    return figure


def _split(title, gradients, shares=("012", "345", "012345")):
    """Return (Figure, axes): six samples through two GPUs and through one, and the number that each of them finds."""
    figure, axes = plots.drawing(title, size=(7.4, 2.8))
    axes.set(xlim=(0, 100), ylim=(0, 37))
    rows = zip(GPUS, shares, (31, 20, 5), strict=True)
    for (name, samples, middle), told in zip(rows, gradients, strict=True):
        _samples(axes, samples, middle)
        _arrow(axes, 27, 34, middle)
        _box(axes, name, 34, middle, 16, plots.GREENS[1])
        _arrow(axes, 50, 56, middle)
        axes.text(57, middle, told, va="center", fontsize=11, color=plots.INK)
    _note(axes, 1, 36, "batch of six samples")
    return figure, axes


def _note(axes, x, y, words):
    axes.text(x, y, words, va="center", fontsize=9, color=plots.FAINT)


def _look(color):
    return {"arrowstyle": "-|>", "color": color, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}


def _arrow(axes, begin, end, y):
    axes.annotate("", (end, y), (begin, y), arrowprops=_look(plots.FAINT))


def _box(axes, words, left, middle, width, color):
    axes.add_patch(Rectangle((left, middle - 4), width, 8, facecolor=color))
    center = left + width / 2, middle
    axes.text(*center, words, ha="center", va="center", fontsize=9.5, color="white")


def _samples(axes, samples, middle):
    for sample in samples:
        left = 1 + 4.2 * int(sample)
        axes.add_patch(Rectangle((left, middle - 2), 3.6, 4, facecolor=plots.MEMORY["batch"]))


# --- the rule beside measured runs ---------------------------------------------------------------------
def measured_runs():
    """Return {run: (what `speedup` takes, the measured speedup)} of published trainings; backward is two thirds of a step."""
    runs = {}
    images = {
        row["gpus"]: row["images_per_s"]
        for row in published("ddp_v100").rows(network="ResNet-50")
        if row["gpus"] > 1 or row["mode"] == "no DDP"
    }
    step = 1000 * 32 / images[1]
    for gpus, link, gb_per_s in ((2, "NVLink", 25), (16, "InfiniBand", 50)):  # by data sheet
        offer = gpus, 102.2, gb_per_s, step, 2 / 3 * step
        runs[f"{gpus} V100s, {link}"] = offer, gpus * images[gpus] / images[1]
    one, *several = published("ddp_3090ti").rows(accumulated=False)
    step = 1000 * 5 / one["samples_per_s"]
    for row in several:
        sent = row["gradient_mb"]  # in one bucket
        offer = 2, sent, row["gb_per_s"], step, 2 / 3 * step, sent
        runs[f"2 RTX 3090 Ti, {row['link']}"] = offer, row["samples_per_s"] / one["samples_per_s"]
    return runs


def draw_rule(runs, speedup):
    """Return (Figure, sentence): what `speedup` says of `runs` beside what was measured, for each GPU in %."""
    by_rule = {run: 100 * speedup(*offer) / offer[0] for run, (offer, _) in runs.items()}
    measured = {run: 100 * gain / offer[0] for run, (offer, gain) in runs.items()}
    title = "The rule is a little high over fast links, and too low over the slow one"
    series = [plots.forecast({"the rule": by_rule}), {"measured": measured}]
    unit = "throughput per GPU, % of one GPU alone"
    figure = plots.dots(series, title, unit, digits=2, colors=plots.GPU)
    figure.axes[0].set_xlim(0, 104)
    told = (f"published: {published(name).source}" for name in ("ddp_v100", "ddp_3090ti"))
    plots.sources(figure, *told)
    told = "; ".join(f"{run}: {by_rule[run]:.0f} by the rule, {measured[run]:.0f}" for run in runs)
    return figure, f"{title}. Per GPU, in %: {told} measured."


# --- what a second card adds ---------------------------------------------------------------------------
BRIDGE = "With the bridge, the second card adds 81%, without it 26%."
THOUSAND = (  # for `reveal`
    "nearly twice",
    "In each half, it sends 999 chunks, and each is a thousandth of its gradients.",
)


def first_picture_b():
    """Return (Figure, alternative text): a published training on one card, on two, and on two without their bridge."""
    table = published("ddp_3090ti")
    one, bridged, _ = (row["samples_per_s"] for row in table.rows(accumulated=False))
    title = f"Across its bridge, a second RTX 3090 Ti adds {bridged / one - 1:.0%}. And without?"
    unit = "texts per second, training GPT-2 medium"
    figure, axes = plots.new_figure(title, unit, size=(7.4, 2.2))
    names = ("one card", "two, joined by NVLink", "two, without the bridge")
    axes.barh(range(3), (one, bridged, 0), 0.62, color=plots.GPU)
    for row, told in enumerate((f"{one:.1f}", f"{bridged:.1f}", "?")):
        plots.note(axes, told, ((one, bridged, 0)[row], row))
    axes.set_yticks(range(3), names)
    axes.set(xlim=(0, 36))
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    plots.sources(figure, f"published: {table.source}")
    alt = f"Texts per second: one RTX 3090 Ti {one:.1f}; two, joined by NVLink, {bridged:.1f}; two without the bridge: ?"
    return figure, alt
