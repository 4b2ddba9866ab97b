"""When the gradients of a data-parallel step travel: at the end, or in buckets while backward runs (06 and 06b)."""

import json

from course.gpt.data_parallel import MIB, all_reduces, backward_ms, cut, gpt_step
from course.show import vega
from course.show.vega import Texts, calculate, csv
from helpers import plots

PARTS = (plots.GREENS[2], plots.GPU, plots.COMM)  # forward, backward, all-reduce


# --- a GPT of GPT-2's size, by forecast ---------------------------------------------------------------
WAYS = {"NVLink": 8, "network": 32, "PCIe (direct)": 8}  # GPUs
LINKS = ("NVLink", "network", "PCIe")  # by way
NAMES = ("NVLink", "InfiniBand", "PCIe")  # by way
UNIT = "ms since the step began"
RATES = (
    "The step: our forecast for an H100. All-reduces: measured on 8 H200s (NVLink), 32 B200s in four machines "
    "(InfiniBand) and RTX 4090s with a patched driver (PCIe, here 8). GB/s: what each GPU sends, in a ring nearly twice its gradients."
)
BUCKETS = (1, 5, 10, 25, 50, 100, 200)  # MiB
LANES = ("each gradient alone", "all at the end", "in buckets of 25 MiB")
HIGH = 2.5  # of a lane, in the chart's rows


def draw_overlap(sizes=BUCKETS):
    """Return a Chart: when a step's gradients travel, at the end or in buckets of one of `sizes` MiB, by link.

    Where one chooses between sizes, there is a lane in which each gradient travels alone.
    """
    forecast, model = gpt_step(1)
    begin, end = backward_ms(forecast.on("H100 SXM"))
    names = LANES[len(sizes) == 1 :]
    lanes = [(0, 0), (0, 1e9), *((size, size * MIB) for size in sizes)][len(sizes) == 1 :]
    drawn = ["NVLink", "PCIe (direct)"][: 1 + (len(sizes) == 1)]
    rows, said, told, last = [], {link: [] for link in drawn}, Texts(), [0.0] * len(WAYS)
    for way, (link, gpus) in enumerate(WAYS.items()):
        for number, (bucket, size) in enumerate(lanes):
            lane = min(number, len(names) - 1)
            sent = all_reduces(model, begin, end, size, gpus, link)
            done = sent[-1][1]
            last[way] = max(last[way], done)
            bars = [(0, 0, begin), (1, begin, end), (5, end, done)]
            bars += [(2, *each) for each in cut(sent, end)]
            rows += [(way, lane, bucket, part, round(a, 2), round(b, 2), -1) for part, a, b in bars]
            words = f"{done - end:.1f} ms exposed", _of_all(sent, gpus, model)
            for part, text in enumerate(words, 3):
                rows.append((way, lane, bucket, part, round(done, 2), 0, told.index(text)))
            if bucket in (0, 25) and link in drawn:
                count = f"{len(sent)} all-reduce{'s' * (len(sent) > 1)}"
                said[link].append(f"{names[lane]}: {count}, {words[0]}")
    title = "351 MB of gradients: what travels after backward is exposed (forecast)"
    axis = [round(1.32 * each, 1) for each in last]  # with room for the words
    spec = _overlap_chart(rows, (begin, end), title, told, sizes, names, axis)
    still = _overlap_still(rows, title, [*told.places], names, drawn, axis)
    alt = " ".join(f"Over {link.split()[0]}, {'; '.join(each)}." for link, each in said.items())
    return vega.Chart(spec, still, alt, RATES)


def _of_all(sent, gpus, model):
    """Return how many MB each GPU sends in the all-reduces `sent`, or in how many buckets, and at how many GB/s."""
    megabytes = 2 * (gpus - 1) / gpus * sum(4e-6 * p.numel() for p in model.parameters())
    rate = megabytes / sum(end - start for start, end in sent)
    what = f"{len(sent)} buckets" if len(sent) > 1 else f"each sends {megabytes:.0f} MB"
    return f"{what} at {rate:.0f} GB/s"


def _overlap_chart(rows, backward, title, told, sizes, names, axis):
    begin, end = backward
    several = len(sizes) > 1
    radios = (
        ("link", LINKS, NAMES, LINKS[0 if several else 2], "the link "),
        ("bucket", [*sizes], [*map(str, sizes)], 25, "bucket, MiB "),
    )
    place = f"indexof({json.dumps(LINKS)}, link)"
    bucket = "bucket" if several else "25"
    lanes = [*names[:-1], "in buckets" if several else names[-1]]
    down = {"type": "quantitative", "scale": {"domain": [HIGH * len(names), 0], "nice": False}}
    down["axis"] = {
        "values": [HIGH * (lane + 0.5) for lane in range(len(names))],
        "labelExpr": f"{json.dumps(lanes)}[floor(datum.value / {HIGH})]",
        "grid": False,
        "domain": False,
        "title": None,
    }
    scale = {"domainMin": 0, "domainMax": {"expr": f"{json.dumps(axis)}[{place}]"}, "nice": False}
    ms = {"type": "quantitative", "title": UNIT, "scale": scale, "axis": {"grid": False}}
    color = {"field": "p", "type": "nominal", "legend": None}
    color["scale"] = {"domain": [0, 1, 2, 5], "range": [*PARTS, plots.COMM]}
    ends = "backward" if several else f"backward, {end - begin:.0f} ms"
    filled = [("datum.p == 5", 0.2), (f"datum.p == 2 && datum.b > {end - 0.01}", 0.5)]
    return {
        "title": {"text": title},
        "params": [
            {
                "name": name,
                "value": start,
                "bind": {"input": "radio", "options": of, "labels": labels, "name": told_by},
            }
            for name, of, labels, start, told_by in radios[: 1 + several]
        ],
        **csv("w,l,k,p,b,e,t", rows),
        "transform": [
            {"filter": f"{place} == datum.w && indexof([0, {bucket}], datum.k) >= 0"},
            *calculate(
                top=f"{HIGH} * datum.l + 0.25 + (datum.p == 2 || datum.p == 4 ? 1.05 : 0)",
                bottom="datum.top + (datum.p == 5 ? 2 : 0.95)",
                middle="datum.top + 0.5",
                words=f"datum.p < 2 ? ['forward', '{ends}'][datum.p] : {told.list}[datum.t]",
            ),
        ],
        "width": 860,
        "height": 72 * len(names),
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
                "transform": [{"filter": "datum.p < 2 || datum.t >= 0"}],
                "mark": {"type": "text", "align": "left", "fontSize": 11.5, "dx": 3},
                "encoding": {"y": {"field": "middle", **down}, "text": {"field": "words"}},
            },
        ],
    }


def _overlap_still(rows, title, told, names, drawn, axis):
    """The figure of buckets of 25 MiB over the links `drawn`, for pages that draw no chart."""
    height = 1.0 + 0.7 * len(names) * len(drawn)
    figure, places = plots.panels(title, len(drawn), 1, (7.3, height), squeeze=False)
    for axes, link in zip(places.flat, drawn, strict=True):
        plots.tidy(axes)
        way = [*WAYS].index(link)
        for place in (row for row in rows if row[0] == way and row[2] in (0, 25)):
            _bar(axes, *place[1:], told)
        axes.set(xlim=(0, axis[way]), xlabel=f"{UNIT}, over {NAMES[way]}")
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(False)
    return figure


def _bar(axes, lane, _, part, begin, end, text, told):
    place = lane + (0.17 if part in (2, 4) else -0.17)
    if part == 5:
        axes.barh(lane, end - begin, 0.68, begin, color=PARTS[2], alpha=0.2)
    elif part < 3:
        axes.barh(place, end - begin, 0.3, begin, facecolor="none", edgecolor=PARTS[part])
    words = ("forward", "backward")[part] if part < 2 else told[text] if text >= 0 else ""
    axes.text(begin + 0.1, place, words, va="center", fontsize=8.5, color=plots.INK)
