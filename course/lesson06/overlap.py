"""When the gradients of a data-parallel step travel: at the end, or in buckets while backward runs (06b)."""

import json

from course.gpt.data_parallel import MIB, all_reduces, backward_ms, cut, gpt_step
from course.show import vega
from course.show.vega import Texts, calculate, csv
from helpers import plots

PARTS = (plots.GREENS[2], plots.GPU, plots.COMM)  # forward, backward, all-reduce


# --- a GPT of GPT-2's size, by forecast ---------------------------------------------------------------
WAYS = {"NVLink": 8, "network": 32, "PCIe (direct)": 8}  # GPUs
CARDS = ("H100 SXM", "H100 SXM", "RTX 4090")  # by way
LINKS = ("NVLink", "network", "PCIe")  # by way
NAMES = ("NVLink", "InfiniBand", "PCIe")  # by way
RATES = (
    "The step: our forecast for an H100, over PCIe for an RTX 4090. All-reduces: measured on 8 H200s (NVLink), 32 B200s in four machines "
    "(InfiniBand) and RTX 4090s with a patched driver (PCIe, here 8). GB/s: what each GPU sends, in a ring nearly twice its gradients."
)
BUCKETS = (1, 5, 10, 25, 50, 100, 200)  # MiB
UNIT = "ms since the step began"
LANES = ("each gradient alone", "all at the end", "in buckets of 25 MiB")


def draw_overlap():
    """Return a Chart: when a step's gradients travel, each alone, at the end or in buckets of a chosen size, by link."""
    forecast, model = gpt_step(1)
    lanes = [(0, 0), (0, 1e9), *((size, size * MIB) for size in BUCKETS)]
    rows, said, told = [], [], Texts()
    last, ends = [0.0] * len(WAYS), [0.0] * len(WAYS)
    for way, (link, gpus) in enumerate(WAYS.items()):
        begin, end = backward_ms(forecast.on(CARDS[way]))
        ends[way] = round(end, 2)
        for number, (bucket, size) in enumerate(lanes):
            lane = min(number, len(LANES) - 1)
            sent = all_reduces(model, begin, end, size, gpus, link)
            done = sent[-1][1]
            last[way] = max(last[way], done)
            exposed = f"{done - end:.1f} ms exposed"
            bars = [(0, 0, begin), (1, begin, end), (5, end, done)]
            bars += [(2, *each) for each in cut(sent, end)]
            bars = [(*each, -1) for each in bars]
            words = [(0, 0, "forward"), (1, begin, "backward"), (3, done, exposed)]
            words.append((4, done, _of_all(sent, gpus, model)))
            bars += [(part, at, at, told.index(text)) for part, at, text in words]
            rows += [
                (way, lane, bucket, part, round(a, 2), round(b, 2), text)
                for part, a, b, text in bars
            ]
            if bucket in (0, 25) and way == 0:
                said.append(
                    f"{LANES[lane]}: {len(sent)} all-reduce{'s' * (len(sent) > 1)}, {exposed}"
                )
    title = "351 MB of gradients: what travels after backward is exposed (forecast)"
    axis = [round(1.32 * each, 1) for each in last]  # with room for words
    spec = _overlap_chart(rows, ends, title, told, axis)
    still = _overlap_still(rows, title, [*told.places], axis[0])
    return vega.Chart(spec, still, f"Over {LINKS[0]}, {'; '.join(said)}.", RATES)


def _of_all(sent, gpus, model):
    """Return how many MB each GPU sends in the all-reduces `sent`, or in how many buckets, and at how many GB/s."""
    megabytes = 2 * (gpus - 1) / gpus * sum(4e-6 * p.numel() for p in model.parameters())
    rate = megabytes / sum(end - start for start, end in sent)
    what = f"{len(sent)} buckets" if len(sent) > 1 else f"each sends {megabytes:.0f} MB"
    return f"{what} at {rate:.0f} GB/s"


def _overlap_chart(rows, ends, title, told, axis):
    high = 2.5  # of a lane, in the chart's rows
    radios = (
        ("link", [*LINKS], [*NAMES], LINKS[0], "the link "),
        ("bucket", [*BUCKETS], [*map(str, BUCKETS)], 25, "bucket, MiB "),
    )
    place = f"indexof({json.dumps(LINKS)}, link)"
    lanes = [*LANES[:-1], "in buckets"]
    down = {"type": "quantitative", "scale": {"domain": [high * len(lanes), 0], "nice": False}}
    axis_of_lanes = {
        "values": [high * (lane + 0.5) for lane in range(len(lanes))],
        "labelExpr": f"{json.dumps(lanes)}[floor(datum.value / {high})]",
        "grid": False,
        "domain": False,
        "title": None,
    }
    down["axis"] = axis_of_lanes
    scale = {"domainMin": 0, "domainMax": {"expr": f"{json.dumps(axis)}[{place}]"}, "nice": False}
    ms = {"type": "quantitative", "title": UNIT, "scale": scale, "axis": {"grid": False}}
    color = {"field": "p", "type": "nominal", "legend": None}
    color["scale"] = {"domain": [0, 1, 2, 5], "range": [*PARTS, plots.COMM]}
    exposed = f"datum.p == 2 && datum.b > {json.dumps(ends)}[datum.w] - 0.02"
    filled = [("datum.p == 5", 0.2), (exposed, 0.5)]
    return {
        "title": {"text": title},
        "params": [
            {
                "name": name,
                "value": start,
                "bind": {"input": "radio", "options": of, "labels": labels, "name": told_by},
            }
            for name, of, labels, start, told_by in radios
        ],
        **csv("w,l,k,p,b,e,t", rows),
        "transform": [
            {"filter": f"{place} == datum.w && indexof([0, bucket], datum.k) >= 0"},
            *calculate(
                top=f"{high} * datum.l + 0.25 + (datum.p == 2 || datum.p == 4 ? 1.05 : 0)",
                bottom="datum.top + (datum.p == 5 ? 2 : 0.95)",
                middle="datum.top + 0.5",
                words=f"{told.list}[datum.t]",
            ),
        ],
        "width": 860,
        "height": 29 * high * len(lanes),
        "encoding": {"x": {"field": "b", **ms}},
        "layer": [
            {
                "transform": [{"filter": "datum.t < 0"}],
                "mark": {"type": "rect", "strokeWidth": 1},
                "encoding": {
                    "x2": {"field": "e"},
                    "y": {"field": "top", **down},
                    "y2": {"field": "bottom"},
                    "fill": color,
                    "stroke": color,
                    "strokeOpacity": {
                        "condition": {"test": "datum.p == 5", "value": 0},
                        "value": 1,
                    },
                    "fillOpacity": {
                        "condition": [{"test": test, "value": value} for test, value in filled],
                        "value": 0.1,
                    },
                },
            },
            {
                "transform": [{"filter": "datum.t >= 0"}],
                "mark": {"type": "text", "align": "left", "fontSize": 11.5, "dx": 3},
                "encoding": {"y": {"field": "middle", **down}, "text": {"field": "words"}},
            },
        ],
    }


def _overlap_still(rows, title, told, axis):
    """The figure of buckets of 25 MiB over the first link, for pages that draw no chart."""
    figure, axes = plots.new_figure(title, UNIT, size=(7.3, 3.1))
    for row in rows:
        if row[0] == 0 and row[2] in (0, 25):
            _bar(axes, *row[1:], told)
    axes.set(xlim=(0, axis), xlabel=f"{UNIT}, over {NAMES[0]}")
    axes.set_yticks(range(len(LANES)), LANES)
    axes.invert_yaxis()
    axes.grid(False)
    return figure


def _bar(axes, lane, _, part, begin, end, text, told):
    place = lane + {2: 0.17, 4: 0.17}.get(part, -0.17)
    if text >= 0:
        axes.text(begin + 0.1, place, told[text], va="center", fontsize=8.5, color=plots.INK)
    elif part == 5:
        axes.barh(lane, end - begin, 0.68, begin, color=PARTS[2], alpha=0.2)
    else:
        axes.barh(place, end - begin, 0.3, begin, facecolor="none", edgecolor=PARTS[part])
