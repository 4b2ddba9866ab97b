"""When the gradients of a data-parallel step travel: at the end, or in buckets while backward runs (06 and 06b)."""

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
EIGHT = (
    "The GPT has 88 million parameters in float32; each GPU trains on a text of 1,024 tokens. PCIe: eight RTX 4090s, whose all-reduce runs at the "
    "25.8 GB/s of four with a patched driver (tinygrad, issue 36), over PCIe 4.0. NVLink: eight H100s, all-reduces measured on H200s."
)
BUCKETS = (1, 5, 10, 25, 50, 100, 200)  # MiB
LANES = ("each gradient alone", "all at the end", "in buckets of 25 MiB")
TOTALS = ("backward + all-reduce one after the other", "overlapped")


def draw_overlap(sizes=BUCKETS):
    """Return a Chart: when a step's gradients travel, at the end or in buckets of one of `sizes` MiB, by link.

    Where one chooses between sizes, there is a lane in which each gradient travels alone. With a single size, the
    time begins with backward, and each lane says how long both take.
    """
    several = len(sizes) > 1
    forecast, model = gpt_step(1)
    names = LANES if several else TOTALS
    lanes = [(0, 0), (0, 1e9), *((size, size * MIB) for size in sizes)][not several :]
    drawn = ["NVLink"] if several else ["PCIe (direct)", "NVLink"]
    rows, said, told = [], {link: [] for link in drawn}, Texts()
    last, ends = [0.0] * len(WAYS), [0.0] * len(WAYS)
    for way, (link, gpus) in enumerate(WAYS.items()):
        if not several and link not in drawn:
            continue
        begin, end = backward_ms(forecast.on(CARDS[way]))
        zero = 0 if several else begin
        ends[way] = round(end - zero, 2)
        for number, (bucket, size) in enumerate(lanes):
            lane = min(number, len(names) - 1)
            sent = all_reduces(model, begin, end, size, gpus, link)
            done = sent[-1][1]
            last[way] = max(last[way], done - zero)
            bars = [(0, 0, begin)] * several + [(1, begin, end), (5, end, done)]
            bars += [(2, *each) for each in cut(sent, end)]
            bars = [(*each, -1) for each in bars]
            line = f"{names[lane]}: "
            if several:
                exposed = f"{done - end:.1f} ms exposed"
                words = [(0, 0, "forward"), (1, begin, "backward"), (3, done, exposed)]
                words.append((4, done, _of_all(sent, gpus, model)))
                line += f"{len(sent)} all-reduce{'s' * (len(sent) > 1)}, {exposed}"
            else:
                line += f"{done - begin:.0f} ms"
                words = [(6, begin, line), *_lengths(begin, sent, end)]
            bars += [(part, at, at, told.index(text)) for part, at, text in words]
            rows += [
                (way, lane, bucket, part, round(a - zero, 2), round(b - zero, 2), text)
                for part, a, b, text in bars
            ]
            if bucket in (0, 25) and link in drawn:
                said[link].append(line)
    title = "351 MB of gradients: what" if several else "What"
    title += " travels after backward is exposed (forecast)"
    axis = [round((1.32 if several else 1.01) * each, 1) for each in last]  # with room for words
    spec = _overlap_chart(rows, ends, title, told, sizes, names, axis)
    still = _overlap_still(rows, title, [*told.places], names, drawn, axis)
    alt = " ".join(f"Over {link.split()[0]}, {'; '.join(each)}." for link, each in said.items())
    return vega.Chart(spec, still, alt, RATES if several else EIGHT)


def _lengths(begin, sent, end):
    """Return [(part, its start, its words)] of backward, and of an all-reduce that has room for them."""
    [first, last], *others = sent
    words = [(1, begin, f"backward, {end - begin:.0f} ms")]
    room = not others and last - first > 5
    return words + room * [(4, first, f"all-reduce, {last - first:.0f} ms")]


def _of_all(sent, gpus, model):
    """Return how many MB each GPU sends in the all-reduces `sent`, or in how many buckets, and at how many GB/s."""
    megabytes = 2 * (gpus - 1) / gpus * sum(4e-6 * p.numel() for p in model.parameters())
    rate = megabytes / sum(end - start for start, end in sent)
    what = f"{len(sent)} buckets" if len(sent) > 1 else f"each sends {megabytes:.0f} MB"
    return f"{what} at {rate:.0f} GB/s"


def _overlap_chart(rows, ends, title, told, sizes, names, axis):
    several = len(sizes) > 1
    high = 2.5 if several else 3.2  # of a lane, in the chart's rows
    order = (0, 1, 2) if several else (2, 0)
    links, shown = ([of[way] for way in order] for of in (LINKS, NAMES))
    radios = (
        ("link", links, shown, links[0], "the link "),
        ("bucket", [*sizes], [*map(str, sizes)], 25, "bucket, MiB "),
    )
    place = f"indexof({json.dumps(LINKS)}, link)"
    bucket = "bucket" if several else "25"
    lanes = [*names[:-1], "in buckets"]
    down = {"type": "quantitative", "scale": {"domain": [high * len(names), 0], "nice": False}}
    axis_of_lanes = {
        "values": [high * (lane + 0.5) for lane in range(len(names))],
        "labelExpr": f"{json.dumps(lanes)}[floor(datum.value / {high})]",
        "grid": False,
        "domain": False,
        "title": None,
    }
    down["axis"] = axis_of_lanes if several else None
    scale = {"domainMin": 0, "domainMax": {"expr": f"{json.dumps(axis)}[{place}]"}, "nice": False}
    ms = {"type": "quantitative", "title": _unit(several), "scale": scale, "axis": {"grid": False}}
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
            for name, of, labels, start, told_by in radios[: 1 + several]
        ],
        **csv("w,l,k,p,b,e,t", rows),
        "transform": [
            {"filter": f"{place} == datum.w && indexof([0, {bucket}], datum.k) >= 0"},
            *calculate(
                top=f"{high} * datum.l + (datum.p == 6 ? 0 : {high - 2.25}) + (datum.p == 2 || datum.p == 4 ? 1.05 : 0)",
                bottom="datum.top + (datum.p == 5 ? 2 : 0.95)",
                middle="datum.top + 0.5",
                words=f"{told.list}[datum.t]",
            ),
        ],
        "width": 860,
        "height": 29 * high * len(names),
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


def _overlap_still(rows, title, told, names, drawn, axis):
    """The figure of buckets of 25 MiB over the links `drawn`, for pages that draw no chart."""
    several = len(drawn) == 1
    height = 1.0 + (0.7 if several else 0.85) * len(names) * len(drawn)
    figure, places = plots.panels(title, len(drawn), 1, (7.3, height), squeeze=False)
    for axes, link in zip(places.flat, drawn, strict=True):
        plots.tidy(axes)
        way = [*WAYS].index(link)
        for place in (row for row in rows if row[0] == way and row[2] in (0, 25)):
            _bar(axes, *place[1:], told)
        axes.set(xlim=(0, axis[way]), xlabel=f"{_unit(several)}, over {NAMES[way]}")
        axes.set_yticks(*((range(len(names)), names) if several else ([],)))
        axes.invert_yaxis()
        axes.grid(False)
    return figure


def _bar(axes, lane, _, part, begin, end, text, told):
    place = lane + {2: 0.17, 4: 0.17, 6: -0.5}.get(part, -0.17)
    if text >= 0:
        axes.text(begin + 0.1, place, told[text], va="center", fontsize=8.5, color=plots.INK)
    elif part == 5:
        axes.barh(lane, end - begin, 0.68, begin, color=PARTS[2], alpha=0.2)
    else:
        axes.barh(place, end - begin, 0.3, begin, facecolor="none", edgecolor=PARTS[part])


def _unit(several):
    return "ms since the step began" if several else "ms since backward began"
