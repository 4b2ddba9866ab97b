"""The figures of lesson 06: equal gradients, when they travel, and what a second card adds."""

import json

import torch
from matplotlib.patches import Rectangle
from torch import nn
from torch.nn import functional as F

from course.gpt.data_parallel import MIB, all_reduces, backward_ms, cut, gpt_step
from course.measurements import published
from course.show import vega
from course.show.vega import Texts, calculate, csv
from helpers import plots


# --- the same gradient --------------------------------------------------------------------------------
def _found():
    """Return the same number of three gradients: of GPU 0's half of the batch, of GPU 1's, of the whole batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    x, y = torch.randn(6, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    parts = (slice(0, 3), slice(3, 6), slice(0, 6))
    losses = [F.cross_entropy(model(x[part]), y[part]) for part in parts]
    return [torch.autograd.grad(loss, model[0].bias)[0][0].item() for loss in losses]


def first_picture():
    """Return (Figure, alternative text): one batch through two GPUs, and through one whose gradient is asked for."""
    first, second, _ = _found()
    title = "Half a batch each, two gradients. What would the whole batch give?"
    figure, axes = _split(title, (f"{first:+.4f}", f"{second:+.4f}", "?"))
    _note(axes, 57, 36, "one number of the gradient")
    alt = f"A batch of six samples. GPU 0 takes three and finds a gradient of {first:+.4f}, GPU 1 the others and "
    return figure, f"{alt}{second:+.4f}. What one GPU finds with all six is a question mark."


def draw_mean():
    """Return (Figure, sentence): the mean of both halves' gradients beside that of the whole batch."""
    first, second, whole = _found()
    title = "The mean of the two gradients is the whole batch's"
    figure, axes = _split(title, [f"{number:+.4f}" for number in (first, second, whole)])
    for middle, end in ((31, 27.5), (20, 23.5)):
        axes.annotate("", (73, end), (67.5, middle), arrowprops=_look(plots.COMM))
    _box(axes, "mean", 73, 25.5, 15, plots.COMM)
    axes.text(89, 25.5, f"{(first + second) / 2:+.4f}", va="center", fontsize=11, color=plots.COMM)
    _note(axes, 67.5, 5, "the same number")
    told = f"{title}: {first:+.4f} and {second:+.4f} from the halves, {whole:+.4f} from the whole."
    return figure, told


def _split(title, gradients):
    """Return (Figure, axes): six samples through two GPUs and through one, and the number that each of them finds."""
    figure, axes = plots.drawing(title, size=(7.4, 2.8))
    axes.set(xlim=(0, 100), ylim=(0, 37))
    rows = zip(("GPU 0", "GPU 1", "one GPU"), ("012", "345", "012345"), (31, 20, 5), strict=True)
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


PARTS = (plots.GREENS[2], plots.GPU, plots.COMM)  # forward, backward, all-reduce


# --- a GPT of GPT-2's size, by forecast ---------------------------------------------------------------
WAYS = {"NVLink": 8, "network": 32, "PCIe (direct)": 8}  # GPUs
MEASURED_ON = ("8 H200s", "32 B200s", "RTX 4090s with a patched driver")  # all-reduces, by way
LINKS = [f"{way.split()[0]}: {cards}" for way, cards in zip(WAYS, MEASURED_ON, strict=True)]
SHOWN = (15, 18, 40)  # ms, by way; what takes longer runs out of the chart
BUCKETS = (1, 5, 10, 25, 50, 100, 200)  # MiB
LANES = ("each gradient alone", "all at the end", "in buckets of 25 MiB")


def draw_overlap(sizes=BUCKETS):
    """Return a Chart: when a step's gradients travel, at the end or in buckets of one of `sizes` MiB, by link.

    Where one chooses between sizes, there is a lane in which each gradient travels alone.
    """
    forecast, model = gpt_step(1)
    begin, end = backward_ms(forecast.on("H100 SXM"))
    names = LANES[len(sizes) == 1 :]
    lanes = [(0, 0), (0, 1e9), *((size, size * MIB) for size in sizes)][len(sizes) == 1 :]
    rows, told = [], Texts()
    for way, (link, gpus) in enumerate(WAYS.items()):
        for number, (bucket, size) in enumerate(lanes):
            lane = min(number, len(names) - 1)
            sent = all_reduces(model, begin, end, size, gpus, link)
            late = max(0, sent[-1][1] - end)
            words = f"{len(sent)} all-reduce{'s' * (len(sent) > 1)}, {late:.1f} ms exposed"
            words += ", beyond this axis" * (sent[-1][1] > SHOWN[way])
            bars = [(0, 0, begin), (1, begin, end), *((2, *each) for each in cut(sent, end))]
            rows += [(way, lane, bucket, part, round(a, 2), round(b, 2), -1) for part, a, b in bars]
            rows.append((way, lane, bucket, 3, 0, 0, told.index(words)))
    title = "351 MB of gradients: what sticks out after backward is exposed (forecast)"
    shown = [row for row in rows if row[0] == 0 and row[2] in (0, 25)]
    said = [[*told.places][row[6]] for row in shown if row[3] == 3]
    alt = "; ".join(map(": ".join, zip(names, said, strict=True)))
    spec = _overlap_chart(rows, end, title, told, sizes, names)
    return vega.Chart(spec, _overlap_still(shown, title, said, names), f"Over NVLink, {alt}.")


def _overlap_chart(rows, end, title, told, sizes, names):
    exposed = f"datum.p == 2 && datum.b > {end - 0.01}"
    radios = (("link", LINKS, LINKS[0], "link "), ("bucket", [*sizes], 25, "bucket, MiB "))
    radios = radios[: 1 + (len(sizes) > 1)]
    bucket = "bucket" if len(sizes) > 1 else "25"
    chosen = (
        f"indexof({json.dumps(LINKS)}, link) == datum.w && indexof([0, {bucket}], datum.k) >= 0"
    )
    labels = f"{json.dumps([*names[:-1], 'in buckets'])}[floor(datum.value / 3)]"
    axis = {
        "values": [1, 4, 7][: len(names)],
        "labelExpr": labels,
        "grid": False,
        "domain": False,
        "title": None,
    }
    down = {
        "type": "quantitative",
        "axis": axis,
        "scale": {"domain": [3 * len(names), 0], "nice": False},
    }
    shown = {"expr": f"{json.dumps(SHOWN)}[indexof({json.dumps(LINKS)}, link)]"}
    scale = {"domainMin": 0, "domainMax": shown, "nice": False}
    ms = {"type": "quantitative", "title": "ms", "scale": scale}
    color = {"field": "p", "type": "nominal", "legend": None}
    color["scale"] = {"domain": [0, 1, 2], "range": [*PARTS]}
    texts = {"type": "text", "align": "left", "fontSize": 12, "dx": 5}
    return {
        "title": {"text": title},
        "params": [
            {"name": n, "value": start, "bind": {"input": "radio", "options": of, "name": label}}
            for n, of, start, label in radios
        ],
        **csv("w,l,k,p,b,e,t", rows),
        "transform": [
            {"filter": chosen},
            *calculate(
                top="3 * datum.l + 0.2 + 0.9 * (datum.p == 3 ? 2.1 : datum.p == 2 ? 1 : 0)",
                bottom="datum.top + 0.8",
                middle="datum.top + 0.4",
                words=f"datum.p < 2 ? ['forward', 'backward'][datum.p] : {told.list}[datum.t]"
                f" + ', at the rates of ' + {json.dumps(MEASURED_ON)}[datum.w]",
            ),
        ],
        "width": 860,
        "height": 90 * len(names),
        "encoding": {"x": {"field": "b", **ms}},
        "layer": [
            {
                "transform": [{"filter": "datum.p < 3"}],
                "mark": {"type": "rect", "strokeWidth": 1, "clip": True},
                "encoding": {
                    "x2": {"field": "e"},
                    "y": {"field": "top", **down},
                    "y2": {"field": "bottom"},
                    "fill": color,
                    "stroke": color,
                    "fillOpacity": {"condition": {"test": exposed, "value": 0.5}, "value": 0.1},
                },
            },
            {
                "transform": [{"filter": "datum.p != 2"}],
                "mark": texts,
                "encoding": {"y": {"field": "middle", **down}, "text": {"field": "words"}},
            },
        ],
    }


def _overlap_still(rows, title, told, names):
    unit = f"ms, over the NVLink of {MEASURED_ON[0]}"
    figure, axes = plots.new_figure(title, unit, size=(7.3, 0.8 + 0.7 * len(names)))
    for _, lane, _, part, begin, end, _ in rows:
        place = lane + (0.17 if part == 2 else -0.17)
        if part < 3:
            axes.barh(place, end - begin, 0.3, begin, facecolor="none", edgecolor=PARTS[part])
    rows = zip(names, told, strict=True)
    names = [f"{lane}\n{words.split(', ', 1)[1]}" for lane, words in rows]
    axes.set(xlim=(0, SHOWN[0]))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    return figure


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
