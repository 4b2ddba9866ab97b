"""The figures of lesson 06: equal gradients, links, efficiency, when the gradients travel, and more GPUs by forecast."""

import functools

import torch
from torch import nn
from torch.nn import functional as F

import measurements
from helpers import figures, plots
from helpers.vega import calculate, csv
from lessons.gpt import TinyGPT, course_words
from practice_gpus import practice_gpus


# --- the same gradient --------------------------------------------------------------------------------
def first_picture():
    """Return (Figure, alternative text): the gradients of the lesson's two shards, their mean, and the whole batch's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    x, y = torch.randn(6, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    parts = (slice(0, 3), slice(3, 6), slice(0, 6))
    losses = [F.cross_entropy(model(x[part]), y[part]) for part in parts]
    first, second, whole = (torch.autograd.grad(loss, model[0].bias)[0] for loss in losses)
    order = (first - second).abs().argsort()
    first, second, whole = first[order], second[order], whole[order]
    mean = (first + second) / 2
    title = "The two GPUs disagree, and their mean is the gradient of the whole batch"
    labels = ("16 biases of the first layer, by how far the GPUs disagree", "gradient")
    figure, axes = figures.new_figure(title, *labels, size=(7.4, 3.0))
    places = range(len(whole))
    axes.vlines(places, first, second, color=figures.RULE, linewidth=3)
    axes.plot(places, first, "^", color=figures.GREENS[2])
    axes.plot(places, second, "v", color=figures.GREENS[0])
    axes.plot(places, whole, "o", color=figures.INK, fillstyle="none", markersize=11)
    axes.plot(places, mean, "x", color=figures.COMM, markersize=7)
    axes.set(xticks=[], xlim=(-0.7, 19.5))
    told = (
        ("GPU 0", first[-1], figures.GREENS[1]),
        ("GPU 1", second[-1], figures.GREENS[0]),
        ("x  mean of both", mean[-1], figures.COMM),
        ("o  whole batch", whole[-1] + 0.015, figures.INK),
    )
    for words, height, color in told:
        axes.annotate(words, (15.5, height), color=color, va="center")
    off = max((grad - whole).abs().max() for grad in (first, second))
    return figure, f"A half is off by up to {off:.2f}; their mean is the whole batch's gradient."


# --- measured by others -------------------------------------------------------------------------------
PCIE = 25.8  # GB/s: copies of 100 MB to an A100, measurements/published/copies_a100.json
PARTS = (figures.GREENS[2], figures.GPU, figures.COMM)  # forward, backward, all-reduce
LINKS = ("8 × A100", "8 × H200", "8 × B200", "32 × B200, four machines")
SIZES = {1 / 32: "32 KiB", 1: "1 MiB", 32: "32 MiB", 1024: "1 GiB", 16384: "16 GiB"}  # by MiB


def draw_links():
    """Return (Figure, sentence): published rates of all-reduces by size, beside a plain copy over PCIe."""
    data = measurements.published("all_reduce_nodes")
    lines = {}
    for name in LINKS:
        rows = [row for row in data.rows(device=name) if row["gb_per_s"] > 0.1]
        lines[name] = ([r["bytes"] / 2**20 for r in rows], [r["gb_per_s"] for r in rows])
    group = plots.Group("published", lines, [f"published: {data.source}"])
    title = "Small all-reduces waste the link: it takes megabytes to fill it"
    names = ("size of one all-reduce (log scale)", "bus bandwidth (GB/s, log scale)")
    steps = dict(zip(LINKS, (*figures.GREENS[2::-1], figures.COMM), strict=True))
    figure = plots.lines([group], title, *names, logx=True, logy=True, colors=steps)
    axes = figure.axes[0]
    axes.axhline(PCIE, color=figures.COPY, linestyle=":")
    words = {"color": figures.COPY, "fontsize": 9, "textcoords": "offset points"}
    axes.annotate(f"a copy over PCIe 4: {PCIE} GB/s", (60, PCIE), (0, -13), **words)
    axes.set_ylim(0.5, 1500)
    axes.set_xticks([*SIZES], SIZES.values())
    return (
        figure,
        "8 × A100: 18 GB/s at 1 MiB, 229 at 1 GiB; B200: 723 in a machine, 362 between four.",
    )


def draw_efficiency():
    """Return (Figure, sentence): published efficiencies of several GPUs, with DDP and with DataParallel."""
    names = ("ddp_v100", "resnet50_lambda", "dataparallel_2080ti")
    ddp, a100, old = found = [measurements.published(name) for name in names]
    each = {r["gpus"]: r["images_per_s"] / 329 for r in ddp.rows(network="ResNet-50")}
    half = a100.rows("training", device="A100 80GB SXM4", precision="AMP")
    parallel = old.rows(network="ResNet-18", precision="float32")
    shares = {
        "DDP, V100, batch 32 each": each | {1: 1.0},  # 329: one GPU without DDP
        "DDP, A100, 16 bits": _efficiencies(half),
        "DataParallel, RTX 2080 Ti": _efficiencies(parallel),
    }
    lines = {name: ([*s], [100 * v for v in s.values()]) for name, s in shares.items()}
    colors = dict(zip(lines, (figures.GPU, figures.GREENS[0], figures.TROUBLE), strict=True))
    title = "DDP keeps 90% or more of each GPU, DataParallel less than half"
    group = [plots.Group("published", lines, [f"published: {d.source}" for d in found])]
    share = "efficiency (% of perfect scaling)"
    figure = plots.lines(group, title, "GPUs", share, logx=True, colors=colors)
    figure.axes[0].set_ylim(0, 105)
    figure.axes[0].texts[1].xyann = (8, -12)  # below the V100's line
    told = [f"{name}: {ys[-1]:.0f}% with {xs[-1]}" for name, (xs, ys) in lines.items()]
    return figure, "; ".join(told)


def _efficiencies(rows):
    rates = {row["gpus"]: row["images_per_s"] for row in rows}
    return {gpus: rates[gpus] / gpus / rates[1] for gpus in sorted(rates)}


# --- a GPT of GPT-2's size, by forecast ---------------------------------------------------------------
@functools.cache
def gpt_step(batch):
    """Return (forecast, model) of a training step of a GPT of GPT-2's size, for `batch` sequences of 1,024 tokens."""
    with practice_gpus(1, card="A100 80", values=False) as gpu:
        model = TinyGPT(course_words(), width=768, heads=12, layers=12, context=1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.zeros(batch, 1024, dtype=torch.long, device="cuda")

        def step():
            F.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

        return gpu.forecast(step), model


WHEN = {"at the end": 1e9, "for each parameter": 0, "in buckets of 25 MiB": 26.2}  # MB to wait for
WAYS = {  # GPUs, GB/s, and the ms of the smallest all-reduce that was published
    "NVLink, 8 GPUs": (8, 463.6, 0.040),
    "network, 32 GPUs": (32, 362, 0.378),
    "PCIe, 8 GPUs": (8, PCIE, 0.040),
}


def all_reduces(model, begin, end, size, way):
    """Return [(start, end)] in ms of the all-reduces of a backward pass that runs from `begin` to `end` ms.

    A gradient is ready when the pass has done its share of the bytes; MB are sent from `size` on, one after the other.
    """
    gpus, rate, least = WAYS[way]
    megabytes = [4e-6 * p.numel() for p in model.parameters()][::-1]
    done, waiting, sent = 0.0, 0.0, []
    for number, each in enumerate(megabytes, 1):
        done, waiting = done + each, waiting + each
        if waiting >= size or number == len(megabytes):
            ready = begin + (end - begin) * done / sum(megabytes)
            start = max([ready, *(stop for _, stop in sent[-1:])])
            sent.append((start, start + max(least, 2 * (gpus - 1) / gpus * waiting / rate)))
            waiting = 0.0
    return sent


def show_overlap():
    """Show when the gradients of a step travel: at the end, for each parameter or in buckets, over three links."""
    forecast, model = gpt_step(1)
    spans = forecast.on("H100 SXM").spans
    passes = [s for s in spans if s.bound and getattr(s.entry, "backward", False)]
    begin, end = 1e3 * passes[0].start, 1e3 * passes[-1].end
    rows, told = [], []
    for w, way in enumerate(WAYS):
        for t, size in enumerate(WHEN.values()):
            sent = all_reduces(model, begin, end, size, way)
            spans = [(0, 0, begin), (1, begin, end), *((2, *each) for each in sent)]
            rows += [(w, t, row, round(a, 3), round(b, 3)) for row, a, b in spans]
            late = max(0, sent[-1][1] - end)
            told.append(f"{len(sent)} all-reduce{'s' * (len(sent) > 1)}, {late:.1f} ms exposed")
    title = "Buckets hide the communication, but not over PCIe (forecast)"
    pairs = zip([f"{way}, {when}" for way in WAYS for when in WHEN], told, strict=True)
    still = _overlap_still([row[1:] for row in rows if row[0] == 1], title, told[3:6])
    figures.show_vega(_overlap_chart(rows, title, told), still, "; ".join(map(": ".join, pairs)))


def _overlap_chart(rows, title, told):
    chosen = f"3 * indexof({[*WAYS]}, way) + indexof({[*WHEN]}, when)"
    looks = {"scale": {"domain": [0, 1, 2], "range": PARTS}, "legend": None}
    stroke = {"field": "r", "type": "nominal", **looks}
    names = {"labelExpr": f"{['forward', 'backward', 'all-reduce']}[datum.value]", "ticks": False}
    row = {"field": "r", "type": "ordinal", "title": None, "axis": names}
    start = {"field": "b", "type": "quantitative", "title": "ms", "scale": {"domain": [0, 60]}}
    place = {"x": start, "x2": {"field": "e"}, "y": row}
    bar = {"type": "bar", "fillOpacity": 0, "strokeWidth": 1}
    words = {"type": "text", "align": "left", "x": 8, "y": -8, "fontSize": 13}
    return {
        "title": {"text": title, "offset": 24},
        "params": [
            {"name": name, "value": [*of][1], "bind": {"input": "radio", "options": [*of]}}
            for name, of in (("when", WHEN), ("way", WAYS))
        ],
        **csv("w,t,r,b,e", rows),
        "transform": [{"filter": f"3 * datum.w + datum.t == {chosen}"}],
        "width": 640,
        "height": 110,
        "layer": [
            {"mark": bar, "encoding": place | {"stroke": stroke}},
            {
                "transform": [{"filter": "datum.r == 0"}, *calculate(s=f"{told}[{chosen}]")],
                "mark": words,
                "encoding": {"text": {"field": "s"}},
            },
        ],
    }


def _overlap_still(rows, title, told):
    figure, axes = figures.new_figure(title, "ms, over a network", size=(7.3, 2.9))
    for when, part, begin, end in rows:
        place = when + (0.17 if part == 2 else -0.17)
        axes.barh(place, end - begin, 0.3, begin, facecolor="none", edgecolor=PARTS[part])
    names = [f"{when}\n{words.split(', ')[1]}" for when, words in zip(WHEN, told, strict=True)]
    axes.set_yticks(range(3), names)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    return figure


def draw_more_gpus(card, batch, shared):
    """Return (Figure, sentence): forecast throughput of 1 to 8 of `card`; the batch is each GPU's own, or shared."""
    rates = {}
    for gpus in (1, 2, 4, 8):
        each = batch if shared == "of each GPU" else max(1, batch // gpus)
        forecast, model = gpt_step(each)
        several = forecast.on(card, gpus=gpus, gradients=model)
        low, high = several.range
        rates[f"{gpus} × {card}"] = tuple(
            1000 * gpus * each * 1.024 / ms for ms in (high, several.ms, low)
        )
    times = rates[f"8 × {card}"][1] / rates[f"1 × {card}"][1]
    title = f"Forecast: eight GPUs bring {times:.2g} times the throughput of one"
    figure = plots.bars([plots.forecast(rates)], title, "thousand tokens per second")
    return figure, f"{card}, batch {batch} {shared}: {title}."
