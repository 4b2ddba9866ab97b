"""The figures of lesson 01: PyTorch's way to a GPU, four machines, matmul as areas, rows through small layers, warps, which card to rent."""

import textwrap

from course import measurements
from course.checks.core import CORRECT
from course.lesson01 import exercises, which_card
from course.lesson01.jobs import jobs
from course.measurements import gpu_code
from course.pictures import moving as step_pictures
from course.pictures import stepper as steps
from course.show import figures, vega
from helpers import plots

# --- PyTorch's way to a GPU -----------------------------------------------------------------------
LINKS = {  # the middle of each box and its width, in inches, and what one asks there
    "PyTorch, CUDA runtime": (1.15, 1.6, "torch.version.cuda"),
    "libcuda": (3.0, 0.9, "CUDA_VISIBLE_DEVICES"),
    "kernel part": (4.75, 1.1, "nvidia-smi"),
    "GPU": (6.5, 0.8, "get_device_capability()"),
}
PARTS = {  # what encloses several of them: left, bottom, width, height, and the height of its name
    "your Python process": (0.18, 0.38, 3.67, 1.05, 1.28),
    "NVIDIA driver": (2.15, 0.08, 3.45, 0.98, 0.22),
}


def first_picture():
    """Return (Figure, alt): PyTorch's way to a GPU, and what to ask at each of its links."""
    from matplotlib.patches import Rectangle

    figure = plots.blank_figure((7.4, 1.9))
    figure.set_layout_engine("none")
    plots.set_title(figure, "PyTorch's way to a GPU, and what to ask there").set_y(0.94)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 7.4), ylim=(0, 1.9))
    axes.set_axis_off()
    note = {"fontsize": plots.SMALL, "color": plots.FAINT, "ha": "center", "va": "center"}
    for part, (left, bottom, width, height, y) in PARTS.items():
        frame = {"fill": False, "edgecolor": plots.WAIT, "linewidth": 1}
        axes.add_patch(Rectangle((left, bottom), width, height, **frame))
        axes.text(left + width / 2, y, part, **note)
    places = [x for x, _, _ in LINKS.values()]
    axes.plot((places[0], places[-1]), (0.83, 0.83), color=plots.CPU, linewidth=2, zorder=0)
    for name, (x, width, fact) in LINKS.items():
        color = plots.GPU if name == "GPU" else plots.CPU
        axes.add_patch(Rectangle((x - width / 2, 0.67), width, 0.32, color=color, linewidth=0))
        axes.text(x, 0.83, name, **{**note, "color": "white"})
        axes.text(x, 0.52, fact, **{**note, "color": plots.INK})
    asked = " → ".join(f"{name} ({fact})" for name, (_, _, fact) in LINKS.items())
    return figure, f"PyTorch's way to a GPU: {asked}."


# --- four machines --------------------------------------------------------------------------------
ASKED = {  # what `predict` takes after the key
    "A": (
        "What does this laptop need?",
        ("another driver", "another CUDA Toolkit", "another build of PyTorch"),
    ),
    "B": (
        "What repairs it?",
        (
            "installing a driver in the container",
            "starting it with access to the host's driver",
            "installing a build with CUDA",
        ),
    ),
    "C": (
        "The driver has to stay for now. Builds for which CUDA does it accept?",
        ("12.8 and older", "any 12.x and older", "all, with CUDA Toolkit 13"),
    ),
    "D": (
        "Where do you look first?",
        ("at the driver", "at the build of PyTorch", "at the environment variables"),
    ),
}
TOLD = {  # for `reveal`: evidence, cause and repair, a line each
    "A": (
        "another build of PyTorch",
        "Evidence: `collect_env` writes None as “Could not collect”, so `torch.version.cuda` is None.\n"
        "Cause: a CPU-only build. On Windows, plain `pip install torch` installs one. Its error is `Torch not compiled with CUDA enabled`.\n"
        "Repair: install a build with CUDA. It brings its own CUDA runtime, so the Toolkit, which reported 12.4.99, isn't needed.",
    ),
    "B": (
        "starting it with access to the host's driver",
        "Evidence: the build has CUDA. A missing `nvidia-smi` alone proves nothing, but put a tensor on the GPU, and PyTorch says `Found no NVIDIA driver on your system`.\n"
        "Cause: libcuda has to match the host's driver, so a container doesn't bring its own.\n"
        "Repair: `docker run --gpus all` brings in libcuda and `nvidia-smi`, if the host has the driver and the NVIDIA Container Toolkit.",
    ),
    "C": (
        "any 12.x and older",
        "Evidence: the build is for CUDA 13.0, and 12080 means that the driver was made for 12.8. Tests that need a GPU are skipped without one, so none failed.\n"
        "Cause: the major number, 13 against 12. A driver accepts builds for every older CUDA, and for newer ones up to its own major number, such as 12.9.\n"
        "Repair: a newer driver, or a build for CUDA 12. The Toolkit changes nothing.",
    ),
    "D": (
        "at the environment variables",
        "Evidence: driver and build worked in the terminal, so the script's environment must differ.\n"
        "Cause: the shell script set `CUDA_VISIBLE_DEVICES=2`, and this PC has only GPU 0. CUDA reads the list up to the first number that doesn't exist, so nothing is left.\n"
        "Repair: remove the line and start Python again, because CUDA reads the variable once, when it starts. If Jupyter inherited it, restart Jupyter itself.",
    ),
}


# --- a second of matmul ---------------------------------------------------------------------------
CPUS = {"Core i9-13900K": "Core i9-13900K, desktop CPU"}
CARDS = {"T4": "T4, Colab's free GPU", "RTX 4090": "RTX 4090, gaming GPU"}
LARGEST, FLOOR = 1.85, 0.72  # inches: a side of the largest square, and where squares stand


def draw_race(rates):
    """Return (Figure, alt): matmul on published processors and with `rates` ({label: TFLOP/s}) of this machine, as areas."""
    groups = [
        gpu_code.yours("matmul", "tflop_per_s", x="size", dtype="float32"),
        gpu_code.recorded("matmul", "size", "tflop_per_s", kind="cuda", dtype="float32"),
    ]
    squares = {f"{name}, measured here": rate for name, rate in rates.items()}
    for group in groups:
        for name, (_, values) in group.items():
            squares[f"{name}, {plots.KINDS[group.kind]}"] = max(values)
    if len(squares) < 3:  # there is room
        squares |= _published(CPUS)
    sources = [line for group in groups for line in group.sources]
    return _draw_squares(squares | _published(CARDS), next(iter(rates)), sources)


def compare_race(rates):
    """Return what `reveal` takes: how many of this machine's CPU equal an RTX 4090, and all throughputs as areas."""
    rate = next(iter(rates.values()))
    card = _published(CARDS)[CARDS["RTX 4090"]]
    (desktop,) = _published(CPUS).values()
    because = f"It would take {plots.number(card / desktop, 2)} of a fast desktop CPU, the Core i9."
    return {"actual": card / rate, "because": because, "figure": draw_race(rates)}


def _published(names):
    """Return {label: TFLOP/s in float32} of published processors."""
    rows = measurements.published("cpus_and_gpus").rows("best", dtype="float32")
    best = {row["device"]: row["tflop_per_s"] for row in rows}
    return {label: best[name] for name, label in names.items()}


def _draw_squares(squares, first, sources):
    figure = plots.blank_figure((7.4, 3.05))
    figure.set_layout_engine("none")
    ahead = squares[CARDS["RTX 4090"]] / next(iter(squares.values()))
    times = plots.number(ahead, 2)
    plots.set_title(figure, f"An RTX 4090 has {times}× the matmul throughput of {first}")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 7.4), ylim=(0, 3.05))
    axes.set_axis_off()
    read = "The area is the throughput, in TFLOP/s, of 32-bit numbers."
    axes.text(0.15, 2.5, read, fontsize=9, color=plots.FAINT, va="top")
    scale = LARGEST / max(squares.values()) ** 0.5
    widths = [max(1.1, scale * rate**0.5) for rate in squares.values()]
    gap = (7.3 - sum(widths)) / len(widths)
    left = 0.1
    for (label, rate), width in zip(squares.items(), widths, strict=True):
        _draw_square(axes, left + width / 2, label, rate, scale * rate**0.5)
        left += width + gap
    plots.sources(figure, *sources, measurements.published("cpus_and_gpus").source)
    told = "; ".join(f"{label}: {plots.number(rate, 2)}" for label, rate in squares.items())
    return figure, f"Squares, their areas in TFLOP per second. {told}."


def _draw_square(axes, middle, label, rate, side):
    """Draw the square, and below it the name and the number."""
    from matplotlib.patches import Rectangle

    color = plots.CPU if "CPU" in label else plots.GPU
    axes.add_patch(Rectangle((middle - side / 2, FLOOR), side, side, color=color, linewidth=0))
    name, _, what = label.partition(", ")
    words = f"{name}\n{textwrap.shorten(what, 18, placeholder='…')}"
    if "measured here" in label:
        high = FLOOR + side + 0.04
        arrow = {"arrowstyle": "->", "color": plots.INK, "linewidth": 1.5}
        place = {"xytext": (middle, high + 0.45), "ha": "center", "color": plots.INK}
        axes.annotate("yours", (middle, high), arrowprops=arrow, fontsize=plots.SMALL, **place)
    style = {"ha": "center", "va": "top", "fontsize": plots.SMALL}
    axes.text(middle, FLOOR - 0.05, words, color=plots.FAINT, **style)
    axes.text(middle, FLOOR - 0.38, plots.number(rate, 2), color=plots.INK, **style)


def draw_warps(load: int, work: int) -> vega.Chart:
    """Return the chart whose slider adds warps, each of which computes `work` cycles and then waits `load` for its data."""
    caption = (
        "Green: computing. Gray: waiting for memory or its turn, and idle in the top row. "
        f"From left to right: {2 * (load + work)} clock cycles."
    )
    return steps.chart(step_pictures.latency_hiding(load, work), still=2, caption=caption, start=2)


WARPS = ("11", "Each warp works for 40 of its 440 cycles: 440 ÷ 40.")  # for `reveal`


# --- many rows through small layers --------------------------------------------------------------
def compare_rows(times: dict) -> dict:
    """Return what `reveal` takes: how long 2,048 rows take an RTX 4090, why, and the times of all numbers of rows.

    `times` are this machine's, {label: {rows: ms}}.
    """
    data = measurements.published("crossover_4090")
    mine = {f"{name}, measured here": (list(ms), list(ms.values())) for name, ms in times.items()}
    others = {}
    for device in ("Ryzen 9 7950X3D, 16 cores", "RTX 4090"):
        found = data.rows("batch", device=device)
        others[device] = [row["batch"] for row in found], [row["time_ms"] for row in found]
    gpu = others["RTX 4090"][1]
    title = f"One row or 2,048: the RTX 4090 takes {min(gpu):.1f} to {max(gpu):.1f} ms"
    labels = ("rows (log scale)", "ms (log scale)")
    figure = plots.lines(others | mine, title, *labels, logx=True, logy=True)
    figure.axes[0].set_xticks((1, 8, 64, 512, 2048))
    plots.sources(figure, data.source)
    told = (
        f"{name} {ms[0]:.3g} ms for one row, {ms[-1]:.3g} for 2,048"
        for name, (_, ms) in (others | mine).items()
    )
    because = (
        f"{gpu[-1]:.2g} ms: launching 128 layers takes that long, however little work there is."
    )
    shown = figure, f"Times by the number of rows: {'; '.join(told)}."
    return {"actual": "about 2 ms", "because": because, "figure": shown}


def show_formula(answer):
    """Show 128 times what `answer` forecasts for one layer (ours until it is right), and what was measured."""
    right = exercises.limit.outcome(answer).status == CORRECT
    formula = answer if right else exercises.how_long
    card = exercises.RTX_4090
    sizes = [2**k for k in range(18)]
    forecast = [128 * formula(*exercises.layer(rows), card)[0] for rows in sizes]
    even = _work_equals_launch(card)
    data = measurements.published("crossover_4090")
    found = data.rows("batch", device="RTX 4090")
    measured = [row["batch"] for row in found], [row["time_ms"] for row in found]
    name = f"128 × {'your' if right else 'our'} formula"
    lines = [
        plots.forecast({name: (sizes, forecast)}),
        plots.Group("published", {"RTX 4090": measured}, [f"published: {data.source}"]),
    ]
    title = f"By our formula, launching takes longer than the work up to {even:,.0f} rows"
    labels = ("rows (log scale)", "ms for 128 layers (log scale)")
    colors = {name: plots.INK}
    figure = plots.lines(lines, title, *labels, logx=True, logy=True, colors=colors)
    axes = figure.axes[0]
    for line in axes.get_lines():
        if line.get_label().startswith(name):
            line.set_marker("None")
    axes.set_xticks((1, 8, 64, 512, 2048, 16384, 131072))
    axes.set_ylim(1, 40)
    plots.split(axes, even, "mostly launches", "mostly work")
    first, last = (128 * formula(*exercises.layer(rows), card)[0] for rows in (1, 2048))
    told = f"by formula {first:.2g} ms for one row, {last:.2g} for 2,048; measured {measured[1][0]:.2g} and {measured[1][-1]:.2g}"
    figures.show(
        figure,
        f"128 layers on an RTX 4090: {told}. From {even:,.0f} rows on, the work takes longer than the launches.",
    )


def _work_equals_launch(card):
    """How many rows make the work of a layer as long as its launch, to the nearest thousand."""
    for rows in range(1000, 10**6, 1000):
        if exercises.how_long(*exercises.layer(rows + 500), card)[0] >= 2 * card["launch_ms"]:
            return rows
    raise ValueError(f"{card}: a million rows are still launches")


# --- which card to rent --------------------------------------------------------------------------
def show_cards():
    """Show the explorer of cards: forecast minutes and dollars of an epoch, for each of two jobs."""
    which_card.explore(jobs())


def first_picture_b():
    """Return (Figure, alt): a scheduler with one warp, and with four that wait for most of their time."""
    picture = step_pictures.latency_hiding(places=4)
    title = "While one warp waits, the scheduler runs another"
    figure, places = plots.panels(title, 1, 2, (7.4, 2.2), sharey=True)
    for axes, warps in zip(places, (1, 4), strict=True):
        for box in picture.frames[warps][1]:
            axes.broken_barh([(box.x, box.width)], (box.y, box.height), color=box.color)
        axes.set(xlim=(0, picture.columns), ylim=(3.15, -0.1), xticks=[])
        axes.set_xlabel(f"clock cycles with {warps} warp{'s' * (warps > 1)}")
        axes.set_yticks((0.5, 2.1), ("scheduler", "warps"))
        plots.tidy(axes)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
    alt = (
        "A scheduler over 880 clock cycles. With one warp, it has work in two short spells and idles between them; "
        "with four, it has work four times as long."
    )
    return figure, alt
