"""The figures of lesson 01: processors side by side, the race, the flat line of overhead, and which card to rent."""

import measurements
from helpers import figures, plots
from helpers.palette import INK
from helpers.vega import calculate
from measurements import atlas

FIRST = (  # of the published processors: those that a learner may have or rent
    *("RTX 4090", "H100 PCIe", "RTX 3090", "A100 80GB", "RTX 3060", "T4"),
    *("Xeon Gold 6330", "Epyc 7763", "Core i9-13900K", "Core i7-8750H"),
)


def first_picture():
    """(Figure, alt): the best published rate of a float32 matmul on four CPUs and six GPUs."""
    data = measurements.published("cpus_and_gpus")
    best = {row["device"]: row["tflop_per_s"] for row in data.rows("best", dtype="float32")}
    rates = dict(sorted(((name, best[name]) for name in FIRST), key=lambda pair: -pair[1]))
    kinds = {name: _kind(data, name) for name in rates}
    labels = {f"{name} ({kinds[name]})": rate for name, rate in rates.items()}
    most = {kind: max(rates[name] for name in rates if kinds[name] == kind) for kind in _KINDS}
    title = "GPUs multiply matrices at up to {GPU:g} TFLOP/s, CPUs at up to {CPU:g}".format(**most)
    figure, axes = plots.new_figure(title, "TFLOP/s in float32, best published", size=(7.4, 2.6))
    for y, (label, rate) in enumerate(labels.items()):
        color = figures.CPU if "CPU" in label else figures.GPU
        axes.barh(-y, rate, height=0.72, color=color, zorder=2)
        axes.annotate(f"{rate:g}", (rate, -y), (5, 0), textcoords="offset points", **_VALUE)
    axes.set_yticks([-y for y in range(len(labels))], [*labels], fontsize=8)
    axes.tick_params(axis="y", labelcolor=INK, pad=4)
    axes.grid(False, axis="y")
    axes.margins(y=0.01)
    told = ", ".join(f"{label} {rate:g}" for label, rate in labels.items())
    return figure, f"Bars of TFLOP per second: {told}. Source: {data.source}."


_KINDS = ("GPU", "CPU")
_VALUE = {"va": "center", "fontsize": 8, "color": INK}


def _kind(data, name):
    return "CPU" if data.devices[name]["kind"] == "cpu" else "GPU"


def draw_race(rates):
    """A figure and its words: TFLOP/s of matmuls by size, `rates` ({label: (sizes, TFLOP/s)}) here and published ones."""
    cards = ["V100-SXM2-16GB", "A100-PCIE-40GB", "H100 80GB HBM3"]
    where = {"dtype": "float32", "device": cards}
    published = plots.published("matmul_sizes", "tflop_per_s", x="size", **where)
    published = published.renamed(dict(zip(cards, ("V100", "A100", "H100"), strict=True)))
    yours = plots.yours("matmul", "tflop_per_s", x="size", dtype="float32")
    recorded = plots.recorded("matmul", "size", "tflop_per_s", kind="cuda", dtype="float32")
    name, (_, values) = next(iter(rates.items()))
    h100 = max(published["H100"][1])
    title = f"An H100 has {h100 / max(values):,.0f}× the matmul throughput of {name}"
    groups = [plots.here(rates), yours, recorded, published]
    axes = ("matrix size n (log scale)", "TFLOP/s in float32 (log scale)")
    figure = plots.lines(groups, title, *axes, logx=True, logy=True)
    return figure, f"{name}: {max(values):.3g} TFLOP/s at best. H100: {h100:.3g}."


def show_lookups():
    """Show published times of looking up rows by their number; return who is faster with ten, in words."""
    data = measurements.published("operations_cpu_gpu")
    names = {"Xeon Gold 6254": "a Xeon Gold 6254 (CPU)", "A100 80 GB PCIe": "an A100"}
    counts = (10, 1_000, 1_000_000)
    times = {
        name: [
            data.rows(operation=f"gather {count:,} indices", device=device)[0]["time_ms"]
            for count in counts
        ]
        for device, name in names.items()
    }
    series = {
        name.removeprefix("a ").removeprefix("an "): (counts, ms) for name, ms in times.items()
    }
    cpu, gpu = (ms[-1] for ms in times.values())
    title = f"Ten rows: the CPU wins. A million rows: the A100, by a factor of {cpu / gpu:.0f}"
    labels = ("rows to look up (log scale)", "ms (log scale)")
    figure = plots.lines(series, title, *labels, logx=True, logy=True)
    figure.axes[0].set_xticks(counts, [f"{count:,}" for count in counts])
    plots.sources(figure, data.source)
    told = "; ".join(f"{name} {', '.join(map(str, ms))} ms" for name, ms in times.items())
    plots.show(figure, f"Times for 10, 1,000 and 1,000,000 rows: {told}.")
    return min(times, key=lambda name: times[name][0])


# --- which card for which job ---------------------------------------------------------------------
def show_cards(hours=10, memory_gb=12, power=10):
    """Show the explorer of cards: a job of `hours` on a T4, by the GB it needs and 2**`power` operations per byte."""
    cards = atlas.cards("float16")
    tflop = hours * 3600 * cards["T4"].tflop_per_s
    fit = [card for card in cards.values() if card.memory_gb >= memory_gb]
    times = {card: card.seconds(tflop, tflop * 1000 / 2**power) / 60 for card in fit}
    bars = {card.name: minutes for card, minutes in sorted(times.items(), key=lambda pair: pair[1])}
    title = f"{hours} hours of 16-bit matmuls on a T4: how long on other cards?"
    figure = plots.bars(bars, title, "minutes at best")
    plots.sources(figure, *dict.fromkeys(source for card in fit for source in card.sources))
    told = ", ".join(f"{name} {minutes:.0f} minutes" for name, minutes in bars.items())
    spec = _cards_spec([vars(card) for card in cards.values()], hours, memory_gb, power)
    plots.show_vega(spec, figure, f"Bars by card: {told}.", atlas.BOUND)


def _cards_spec(rows, hours, memory_gb, power):
    """The explorer as Vega-Lite: a card's time is the longer of arithmetic and memory, relative to the T4's."""
    [t4] = [row for row in rows if row["name"] == "T4"]
    seconds = "max(1 / datum.tflop_per_s, 1000 / (pow(2, power) * datum.gb_per_s))"
    on_t4 = f"max(1 / {t4['tflop_per_s']}, 1000 / (pow(2, power) * {t4['gb_per_s']}))"
    compute = "1 / datum.tflop_per_s >= 1000 / (pow(2, power) * datum.gb_per_s)"
    dollars = "'$' + format(datum.usd_per_h * datum.hours, '.2f') + ' (' + datum.listed + ')'"
    price = f"isValid(datum.usd_per_h) ? {dollars} : 'no price listed'"
    words = f"format(datum.hours, '.2~f') + ' h, ' + datum.limit + '-bound, ' + ({price})"
    y = {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": {"field": "hours", "op": "min", "order": "ascending"},
    }
    return {
        "title": {
            "text": f"A job of {hours} hours on a T4: how long on other cards, and why?",
            "subtitle": {
                "expr": "memory + ' GB needed, ' + round(pow(2, power)) + ' operations per byte'"
            },
        },
        "params": [
            _slider("memory", memory_gb, 4, 120, 4, "memory needed (GB) "),
            _slider("power", power, 0, 12, 1, "operations per byte: 2 to the power of "),
        ],
        "data": {"values": rows},
        "width": 720,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "height": {"step": 26},
        "transform": [
            {"filter": "datum.memory_gb >= memory"},
            *calculate(hours=f"{hours} * {seconds} / {on_t4}"),
            *calculate(limit=f"{compute} ? 'compute' : 'memory'"),
            *calculate(told=words),
        ],
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "bar", "color": figures.GPU, "height": 17},
                "encoding": {"x": _HOURS},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "color": INK},
                "encoding": {"x": _HOURS, "text": {"field": "told"}},
            },
        ],
    }


_HOURS = {
    "field": "hours",
    "type": "quantitative",
    "title": "hours at best",
    "scale": {"domain": [0, 19], "clamp": True},
}


def _slider(name, value, low, high, step, label):
    bind = {"input": "range", "min": low, "max": high, "step": step, "name": label}
    return {"name": name, "value": value, "bind": bind}
