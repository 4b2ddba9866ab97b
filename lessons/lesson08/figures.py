"""The figures of lesson 08: ladders, the parts of a step, three loops."""

import copy
import os

import torch

import measurements
from helpers import plots
from helpers.figures import number
from lessons.timeline import lay_out

GREY = "#9a9a9a"
PROFILED = {"convolution": "conv", "pooling": "pool", "optimizer": "optimizer.step"}


# --- ladders --------------------------------------------------------------------------------------
def draw_published(name, field, unit, title, memory=None, accuracy=None, **where):
    """A published ladder as (figure, sentence): `field` is what counts, `memory` and `accuracy` stand beside it.

    A change that gained less than a hundredth, or lost, is grey.
    """
    data = measurements.published(name)
    rungs = []
    best = None
    for row in data.rows("ladder", **where):
        gain = None if best is None else row[field] / best
        words = {"gain": "" if gain is None else f"× {gain:.2f}"}
        if memory:
            words["memory"] = f"{row[memory] / 1024:.1f} GiB"
        if accuracy:
            words["accuracy"] = f"{row[accuracy]:.1%}"
        rungs.append((row["name"], row[field], gain is None or gain >= 1.01, words))
        best = max(best or 0, row[field])
    figure = _ladder(rungs, title, unit)
    plots.sources(figure, f"published: {data.source}")
    lost = [name for name, _, gained, _ in rungs if not gained]
    return figure, f"{title}. No gain from: {', '.join(lost)}."


def draw_gpt():
    """Ten changes to the training of a network of GPT-2's size, as (figure, sentence)."""
    title = "One A100: from 12,525 to 142,156 tokens a second"
    return draw_published("ladder_gpt_a100", "tokens_per_s", "tokens a second", title)


def draw_cutter():
    """Seven changes to Segment Anything, with memory and accuracy, as (figure, sentence)."""
    title = "Seven changes, and the last two don't pay"
    fields = {"memory": "memory_mib", "accuracy": "accuracy"}
    name = "ladder_sam_a100"
    return draw_published(name, "images_per_s", "images a second", title, **fields, network="vit_b")


def draw_compile():
    """A step of two language models with and without torch.compile, as (figure, sentence)."""
    where = {"section": "steps", "part": "step with AdamW", "mode": ["eager", "compile"]}
    steps = plots.published("compile_b200", "time_ms", x="model", by="mode", **where)
    steps = steps.renamed({"eager": "one by one (eager)", "compile": "torch.compile"})
    title = "torch.compile on a B200: three times as fast, or a little slower"
    figure = plots.dots(steps, title, "milliseconds a step", log=True)
    axes = figure.axes[0]
    axes.margins(x=0.2, y=0.5)
    for y, times in enumerate(zip(*(times for _, times in steps.values()), strict=True)):
        for ms, side, points in zip(sorted(times), ("right", "left"), (-8, 8), strict=True):
            place = {"xytext": (points, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{number(ms)} ms", (ms, -y), ha=side, fontsize=9, **place)
    return figure, "Llama 1B: 58.8 ms eager, 18.7 compiled. Llama 8B: 637 and 674 ms."


def draw_climb(rows):
    """Your ladder as (figure, sentence): `rows` of `Climb`; a change that was not kept is grey."""
    rungs = []
    for row in rows:
        words = {"gain": f"× {row['ratio']:.2f}" if row["rung"] else ""}
        if row["peak_bytes"] is not None:
            words["memory"] = f"{row['peak_bytes'] / 2**20:.0f} MiB"
        words["accuracy"] = f"{row['accuracy']:.1%}"
        rungs.append((row["name"], row["images_per_s"], row["kept"], words))
    best = [row for row in rows if row["kept"]][-1]
    factor = best["images_per_s"] / rows[0]["images_per_s"]
    title = f"{factor:.1f} times the baseline, with {best['name']} on top"
    figure = _ladder(rungs, title, "images a second")
    lost = [row["name"] for row in rows if not row["kept"]]
    said = [f"Not kept: {', '.join(lost) or 'none'}"]
    for precision in ("float32", "float16"):
        said += _said_of_gpus(precision)
    return figure, f"{title}. {'; '.join(said)}."


def _said_of_gpus(precision):
    """What the network of this lesson reaches on your GPU and on recorded ones, a text each."""
    where = {"x": "batch", "y": "images_per_s", "network": "SmallCNN", "precision": precision}
    yours = plots.yours("training", **where)
    gpus = yours.renamed({name: f"your GPU ({name})" for name in yours})
    gpus |= plots.recorded("training", kind="cuda", **where)
    return [f"{name}, {precision}: {number(max(rates))}" for name, (_, rates) in gpus.items()]


def _ladder(rungs, title, unit):
    """Bars from top to bottom: `rungs` are (name, value, kept, words); words, by their heading, stand in columns."""
    figure, axes = plots.new_figure(title, unit, size=(7.2, 1.4 + 0.34 * len(rungs)))
    for y, (_, value, kept, words) in enumerate(rungs):
        color = plots.COLORS[0] if kept else GREY
        hatch = "" if kept else "//"
        axes.barh(-y, value, color=color, hatch=hatch, edgecolor="white")
        digits = 6 if value > 1000 else 3
        axes.annotate(f" {number(value, digits)}", (value, -y), va="center", fontsize=9)
        _write_columns(axes, -y, words.values())
    _write_columns(axes, 0.8, rungs[0][3], color="#404040")
    axes.set_yticks([-y for y in range(len(rungs))], [name for name, *_ in rungs])
    axes.set_ylim(-len(rungs) + 0.4, 1.1)
    axes.set_xlim(0, 1.2 * max(value for _, value, *_ in rungs))
    axes.grid(False)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def _write_columns(axes, y, words, **look):
    """Words beside the axes at the height `y`, each in a column of its own."""
    place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    for column, word in enumerate(words, 1):
        right = {"xytext": (54 * column, 0), "ha": "right", "va": "center", "fontsize": 9}
        axes.annotate(word, (1, y), **place, **right, **look)


# --- the parts of a step --------------------------------------------------------------------------
def draw_parts(make, network, batch):
    """A step's milliseconds by kind of operation, in both layouts, as (figure, sentence).

    `make(model)` returns step(x, y), as for `Climb`; `batch` is (x, y).
    """
    rows = {}
    for name, layout in (
        ("channels first", torch.contiguous_format),
        ("channels_last", torch.channels_last),
    ):
        model = copy.deepcopy(network).to(memory_format=layout)
        step = make(model)
        tries = [_parts(step, *batch) for _ in range(3)]
        rows[name] = min(tries, key=lambda parts: sum(parts.values()))  # the least disturbed
    first = rows["channels first"]
    most = max(PROFILED, key=first.get)
    title = f"The largest part of this step: {most}, {first[most] / sum(first.values()):.0%}"
    figure = plots.stacked(rows, title, "milliseconds a step, profiled", digits=2)
    said = "; ".join(
        f"{name}: " + ", ".join(f"{part} {ms:.1f}" for part, ms in parts.items())
        for name, parts in rows.items()
    )
    return figure, f"{title}. {said} ms."


def _parts(step, x, y, steps=3):
    """Milliseconds of one step by kind; the optimizer with all it calls, the others by their own time."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its library writes about start and end
    with torch.profiler.profile(acc_events=True) as profile:
        for _ in range(steps):
            step(x, y)
    clock = "device_time_total" if x.is_cuda else "cpu_time_total"
    parts = dict.fromkeys(PROFILED, 0.0)
    total = 0.0
    for event in profile.key_averages():
        if "CPU" not in str(event.device_type):
            continue  # kernels count with the calls that launched them
        own = getattr(event, f"self_{clock}") / 1000 / steps
        total += own
        for kind, word in PROFILED.items():
            if word in event.key.lower():
                whole = getattr(event, clock) / 1000 / steps
                parts[kind] += whole if kind == "optimizer" else own
    return {**parts, "other": max(0.0, total - sum(parts.values()))}


# --- three loops ----------------------------------------------------------------------------------
CHANGES = ("data on the device", "CUDA graph", "mixed precision")


def loop_spans(loader, launch, kernel, count, steps=2):
    """Spans and ms in all (see `lay_out`) of a loop: it loads a batch in `loader` ms, launches `count` kernels, and waits.

    A launch takes `launch` ms of Python, a kernel `kernel` ms of the GPU.
    """
    step = [("Python", "launch", launch), ("GPU", "kernel", kernel)] * count
    if loader:
        step = [("Python", "loader", loader), *step]
    spans, total = lay_out(steps * [*step, "waits"])
    return [span for span in spans if span[1] != "waits"], total


def changed(loop, change):
    """The loop, a dict of `loop_spans`'s arguments, after a change: one of `CHANGES`."""
    if change == "data on the device":
        return {**loop, "loader": 0}
    if change == "CUDA graph":
        return {**loop, "kernel": loop["kernel"] * loop["count"], "count": 1}
    return {**loop, "kernel": loop["kernel"] / 2}  # 16 bits: half the time, say


def length(loop):
    """Milliseconds of two steps of the loop."""
    return loop_spans(**loop)[1]


def draw_loops(loops, choices=None):
    """The loops as timelines, (figure, sentence); with `choices`, loop to change, each before and after it."""
    figure = plots.blank_figure((7.2, 4.6))
    all_axes = figure.subplots(len(loops), 1)
    told = []
    for axes, (name, loop) in zip(all_axes, loops.items(), strict=True):
        before = length(loop)
        title = f"{name}: {before:.1f} ms"
        lanes = _place(loop_spans(**loop)[0], "")
        change = choices.get(name) if isinstance(choices, dict) else None
        if change in CHANGES:
            after = changed(loop, change)
            title += f", {length(after):.1f} ms with {change}"
            lanes += _place(loop_spans(**after)[0], " then")
        _draw_lanes(axes, lanes)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlim(0, before)
        told.append(title)
    all_axes[-1].set_xlabel("milliseconds", fontsize=9)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside upper right", ncols=3)
    return figure, ". ".join(told) + "."


def _place(spans, suffix):
    return [(lane + suffix, label, start, end) for lane, label, start, end in spans]


def _draw_lanes(axes, spans):
    names = list(dict.fromkeys(lane for lane, *_ in spans))
    looks = {
        "loader": {"color": plots.COLORS[1], "hatch": "//"},
        "launch": {"color": plots.COLORS[0], "hatch": ""},
        "kernel": {"color": plots.COLORS[2], "hatch": ".."},
    }
    longest = max(end for *_, end in spans)
    for lane, label, start, end in spans:
        edge = 0.5 if end - start > longest / 100 else 0  # an edge would cover short spans
        look = {"edgecolor": "white", "linewidth": edge, **looks[label]}
        axes.barh(lane, end - start, left=start, height=0.7, **look)
    for label, look in looks.items():
        axes.barh(names[0], 0, label=label, **look)
    axes.invert_yaxis()
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
