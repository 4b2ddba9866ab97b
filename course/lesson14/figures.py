"""The pictures of lesson 14: the birds' calls, the report as a sheet, a port's memory from batch to batch, and its step on a timeline."""

import ast
import re
from dataclasses import replace

from matplotlib import colormaps

from course.lesson14 import judge
from course.lesson14.runs import MEMORY, held, in_full, two_steps
from helpers import plots
from practice_gpus.clock import Copy, Host

GIB = 2**30
LIMIT = float(MEMORY.split()[0])
BEFORE = "Ines's version"
PARTS = {
    "spectrogram": plots.KERNELS["attention"],
    "convolutions": plots.KERNELS["matmul"],
    "everything else": plots.KERNELS["elementwise"],
}
COLORS = {
    "copy": plots.COPY,
    "wait": plots.WAIT,
    "issue": plots.CPU,
    "host": "#9DB7DB",
    **PARTS,
}
LEFT = {  # of the parts in the key, as shares of its width
    "clips": 0,
    "spectrogram": 0.155,
    "convolutions": 0.415,
    "everything else": 0.69,
}
CONVOLUTION = re.compile(
    r"^convolution|channels last|\(bias\)"
)  # kernels, with those that serve them
FINEST = 1500  # parts of a step's length: shorter gaps are not drawn, but counted
KEY = (
    "CPU: blue issues kernels, faint blue prepares clips, gray waits. GPU: amber copies, green computes, by forecast. Clips: "
    "until the GPU has them. Convolutions: with their bias and the rearranging of their input."
)
SCALER = " A GradScaler's wait costs little while the GPU is busy."
TICKS = (3, 10, 30, 100, 300)  # ms
SHOWN = ("T4", "A10G", "A100", "H100", "H200")  # cards on the sheet


def birds(clips):
    """Return (Figure, alternative text): spectrograms of one clip of each bird, [birds, frames, bands], as the network sees them."""
    figure = plots.blank_figure((7.4, 3.1))
    plots.set_title(figure, "Eight birds, a second of each, as the network sees them")
    grid = figure.subplots(2, (len(clips) + 1) // 2, sharex=True, sharey=True)
    for number, (axes, clip) in enumerate(zip(grid.flat, clips, strict=True)):
        extent = (0, 1, 0, 4)  # second, kHz
        grays = colormaps["Greys"].resampled(24)  # more would double the file
        look = {"cmap": grays, "interpolation": "nearest", "origin": "lower", "aspect": "auto"}
        axes.imshow(clip.T, extent=extent, **look)
        axes.set_title(f"bird {number}", fontsize=9, loc="left", color=plots.INK)
        axes.set(xticks=(0, 1), yticks=(0, 4))
        axes.tick_params(labelsize=9, color=plots.FAINT, labelcolor=plots.INK)
        for edge in axes.spines.values():
            edge.set_color(plots.FAINT)
    figure.supxlabel("time (s)", fontsize=9, color=plots.INK)
    figure.supylabel("pitch (kHz)", fontsize=9, color=plots.INK)
    words = "each a slanted or level line of pitch against time, broken up by its trill, in a haze of wind"
    return figure, f"Spectrograms of {len(clips)} birdcalls, {words}."


def first_picture():
    """Return (Figure, alternative text): the sheet that the model solution earns."""
    return sheet(judge.SOLUTION)


def sheet(folder):
    """Return (Figure, alternative text) of a port's report on one sheet, with Ines's version beside it."""
    before, now = (two_steps(each).step for each in (judge.weekend(), folder))
    met = sum(mark.met for mark in judge.marks(folder).values())
    gone = sum(map(sum, judge.sins(folder).values()))
    numbers = {
        f"{before.ms:.0f} → {now.ms:.0f} ms": "a step on a T4, forecast",
        f"> 8 → {peak(folder):.2f} GiB": "at the peak of memory, counted",
        f"{met} of 6": "criteria met",
        f"{gone} of 10": "mistakes fixed",
    }
    faster = f"{before.ms / now.ms:.1f} times as fast on a T4, by forecast"
    title = f"The GPU report of birdcalls: {faster}"
    return drawn_sheet(folder, title, numbers, before)


def first_sheet():
    """Return (Figure, alternative text) of the same sheet with Ines's weekend version alone, and par."""
    step, par = (two_steps(each).step for each in (judge.weekend(), judge.SOLUTION))
    numbers = {
        f"{step.ms:.0f} ms": "a step on a T4, forecast",
        f"{par.ms:.0f} ms": "par for that step",
        "> 8 GiB": "at the peak of memory, counted",
    }
    title = "Ines's weekend version: the report to beat"
    return drawn_sheet(judge.weekend(), title, numbers)


def drawn_sheet(folder, title, numbers, before=None):
    """Return (Figure, alternative text): numbers, {value: words}, above the memory's curves and a step on several cards."""
    figure = plots.blank_figure((7.4, 3.5))
    plots.set_title(figure, title)
    above, below = figure.subfigures(2, 1, height_ratios=(1, 2.5))
    above.set_facecolor("none")
    below.set_facecolor("none")
    for axes, (value, words) in zip(above.subplots(1, len(numbers)), numbers.items(), strict=True):
        axes.axis("off")
        good = before or words.startswith("par")
        color = plots.GPU if good else plots.TROUBLE
        axes.text(0, 0.55, value, fontsize=15, fontweight="bold", color=color)
        axes.text(0, 0.1, words, fontsize=9, color=plots.FAINT)
    left, right = below.subplots(1, 2, width_ratios=(1.15, 1))
    curves(left, folder)
    by_card(right, before, two_steps(folder).facts["step"]["cards"])
    words = "; ".join(f"{words}: {value}" for value, words in numbers.items())
    return figure, f"{title}. {words}."


def peak(folder):
    """The most that a GPU holds during a port's whole training and test, in GiB."""
    return max(device["peak"] for device in in_full(folder)[0].facts["devices"]) / GIB


def by_card(axes, before, cards):
    """A step on several cards, hollow, with its ranges, below that of before, a step on a T4 or None."""
    rows = {"T4, before": (before.low_ms, before.ms, before.high_ms)} if before else {}
    for row in sorted(cards, key=lambda row: -row["ms"]):
        name = row["card"].split(" (")[0]
        if name.split()[0] in SHOWN:
            rows[name] = row["low_ms"], row["ms"], row["high_ms"]
    colors = dict.fromkeys(rows, plots.GPU if before else plots.TROUBLE)
    colors |= {"T4, before": plots.TROUBLE}
    words = {name: f"{ms:.3g} ms" for name, (_, ms, _) in rows.items()}
    plots.draw_dots(axes, rows, colors=colors, words=words)
    axes.set(xscale="log", xlabel="ms per step, forecast with its range")
    axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axes.set_xlim(2, 5 * max(high for *_, high in rows.values()))
    axes.minorticks_off()


def whole(folder):
    """(what was spied, the error or None) of the whole training: Ines's version needs no more than its memory."""
    if folder == judge.weekend():
        return held(folder)
    done, spy = in_full(folder)
    return spy, done.error


def curves(axes, folder):
    """What a GPU holds from batch to batch, in Ines's version and in a port's."""
    runs = {BEFORE: (judge.weekend(), plots.TROUBLE), "yours": (folder, plots.GPU)}
    for label, (each, color) in runs.items():
        spy, error = whole(each)
        if not spy.trained or (label != BEFORE and each == judge.weekend()):
            continue
        per = spy.trained / spy.taken  # calls of a batch
        gib = [number / GIB for number in spy.memory]
        axes.plot([n / per for n in range(len(gib))], gib, color=color, linewidth=1.6)
        if error is not None:
            axes.plot(len(gib) / per, LIMIT, "X", color=color, markersize=9)
        low = 6.9 if label == BEFORE else 4.9  # two curves may end at the same place
        x, y = (len(gib) / per + 0.8, low) if error else (20.8, max(gib) + 0.5)
        end = "\nruns out of memory" if error else f": {peak(each):.2f} GiB at the peak"
        side = "left" if error else "right"
        axes.text(x, y, label + end, color=color, fontsize=9, ha=side, va="center")
    plots.limit(axes, LIMIT, MEMORY, plots.INK)
    axes.axvline(3, color=plots.WAIT, linewidth=0.8, linestyle=":")
    axes.set(xlabel="batch (3 to train, then 18 to test)", ylabel="GiB on the GPU", ylim=(0, 9))
    axes.set(xlim=(0, 21.3), xticks=(0, 3, 9, 15, 21))
    plots.tidy(axes)


def memory(folder):
    """Return (Figure, alternative text): `curves` on a figure of their own."""
    spy, error = whole(folder)
    whose = BEFORE if folder == judge.weekend() else "Your port"
    title = f"{whose} fits {MEMORY}"
    if error is not None:
        batch = len(spy.memory) * spy.taken // spy.trained + 1
        title = f"{whose} runs out of {MEMORY} in batch {batch} of 21"
    figure, axes = plots.new_figure(title, size=(7.2, 2.8))
    curves(axes, folder)
    words = f"In {BEFORE}, memory grows from batch to batch, in the training and in the test"
    return figure, f"{title}. {words}."


def step(folder):
    """Return (Figure, alternative text): a step of Ines's version and one of the port on a timeline, and par."""
    folders = {BEFORE: judge.weekend()}
    if folder != judge.weekend():
        folders["yours"] = folder
    steps = {label: two_steps(each).step for label, each in folders.items()}
    par = two_steps(judge.SOLUTION).step.ms
    *_, (label, last) = steps.items()
    title = f"{label[0].upper()}{label[1:]}: {last.ms:.0f} ms per step on a T4 by forecast, par is {par:.0f}"
    figure, axes = plots.new_figure(title, "milliseconds", "", (7.2, 1.5 + 1.25 * len(steps)))
    axes.set_xlim(0, 1.04 * max(par, *(each.ms for each in steps.values())))
    ticks, told, idle = [], [], ""
    for place, (label, each) in enumerate(steps.items()):
        found = spans(each, folders[label])
        parts = drawn_step(axes, found, -3.6 * place)
        gaps = parts.get("spectrogram", 0) - sum(
            busy for _, kind, *_, busy in found if kind == "spectrogram"
        )
        if gaps >= 0.5:
            idle += f" In {label}, {gaps:.0f} of the spectrogram's {parts['spectrogram']:.0f} ms are gaps between small kernels."
        told.append(f"{label}: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in parts.items()))
        ticks += [(-3.6 * place, f"{label}: CPU"), (-3.6 * place - 1, "GPU")]
    y = -3.6 * len(steps) + 0.5
    axes.barh(y, par, height=0.7, facecolor="none", edgecolor=plots.GPU, linewidth=1.4)
    axes.text(par, y, f"  {par:.0f} ms", fontsize=9, va="center", color=plots.INK)
    ticks.append((y, "par"))
    axes.set_yticks([y for y, _ in ticks], [words for _, words in ticks])
    axes.grid(visible=False)
    return (
        figure,
        f"Timelines of a step. {title}. {'; '.join(told)}.",
        KEY + idle + SCALER * (len(steps) > 1),
    )


def spans(step, folder):
    """[(row, kind, start, end, line, ms without the gaps)] in ms of a step; neighbors of one kind are joined.

    What the program still does for the step before, such as reading its loss, comes at the end: there it waits.
    """
    begins = next((n for n, entry in enumerate(step.entries) if sends(entry)), 0)
    whole = replace(step, entries=step.entries[begins:] + step.entries[:begins])
    lines = spectrogram_lines(folder)
    rows: dict = {"CPU": [], "GPU": []}
    for span in sorted(whole.spans, key=lambda span: span.start):
        row = rows["CPU" if span.row == "cpu" else "GPU"]
        kind, start, end = kind_of(span, lines), 1e3 * span.start, 1e3 * span.end
        busy = end - start
        if row and row[-1][0] == kind and start - row[-1][2] < step.ms / FINEST:
            _, start, _, _, before = row.pop()
            busy += before
        row.append((kind, start, end, span.entry.place, busy))
    return [(row, *each) for row, found in rows.items() for each in found]


def sends(entry):
    """Whether an entry prepares a step's clips on the CPU, or sends them."""
    return isinstance(entry, Host) or (isinstance(entry, Copy) and entry.direction == "h2d")


def kind_of(span, lines):
    """What a span is, by a name in `COLORS`; `lines`: those of the spectrogram, as "model.py:33"."""
    entry = span.entry
    if span.row == "cpu":
        kind = "issue" if span.name.startswith("launch") else "wait"
        return "host" if isinstance(entry, Host) else kind
    if isinstance(entry, Copy):
        return "copy"
    if entry.place in lines and not entry.backward:
        return "spectrogram"
    return "convolutions" if CONVOLUTION.search(span.name) else "everything else"


def spectrogram_lines(folder):
    """The lines of the class `Spectrogram` of a port's model.py; none where it has no such class."""
    tree = ast.parse((folder / "model.py").read_text(encoding="utf-8"))
    own = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "Spectrogram")
    return {f"model.py:{line}" for n in own for line in range(n.lineno, n.end_lineno + 1)}


def drawn_step(axes, found, y):
    """Draw `spans` in two rows from `y` down, with a key of the GPU's parts below; return {part: ms, with its short gaps}."""
    kernels = [start for row, kind, start, *_ in found if row == "GPU" and kind in PARTS]
    totals = {"clips": min(kernels, default=0.0), **dict.fromkeys(PARTS, 0.0)}
    whole = axes.get_xlim()[1]
    for row, kind, start, end, line, _ in found:
        place = y - (row == "GPU")
        axes.barh(place, end - start, left=start, height=0.7, color=COLORS[kind], linewidth=0)
        if kind in totals:
            totals[kind] += end - start
        if kind == "wait" and end - start > whole / 4:
            words = f"waits at {line}"
            axes.text((start + end) / 2, place, words, fontsize=9, ha="center", va="center")
    totals = {kind: ms for kind, ms in totals.items() if ms}
    for kind, ms in totals.items():
        x = whole * LEFT[kind]
        color = COLORS["copy" if kind == "clips" else kind]
        axes.barh(y - 1.75, whole / 60, left=x, height=0.35, color=color, linewidth=0)
        words = f"{kind} {ms:.0f} ms"
        axes.text(x + whole / 45, y - 1.75, words, fontsize=9, va="center", color=plots.INK)
    return totals
