"""The figures of lesson 02: where tensors live, copies by size, and when the CPU wins."""

import torch

from course import measurements, photos
from course.checks.core import CORRECT
from course.lesson02 import exercises
from course.measurements import gpu_code
from course.show import figures
from helpers import plots
from helpers.plots import CARD, INK

TUTORIAL = "the tutorial"
TICKS = {10**3: "1 kB", 10**4: "10 kB", 10**5: "100 kB", 10**6: "1 MB", 10**7: "10 MB"}
WEIGHTS = 128 * 4096**2  # of the network that meets one input


def first_picture():
    """(Figure, alt): a photo, and the same photo in two, four and eight colors that k-means chose."""
    photo = photos.sample("coffee")
    drawn = {"the photo": photo}
    for k in (2, 4, 8):
        centers, _ = exercises.kmeans(photo.flatten(1).T / 255, k)
        drawn[f"{k} colors"] = _painted(photo, centers)
    title = "K-means paints a photo with two, four or eight colors"
    words = "Photos of one cup of coffee: in all its colors, and in two, four and eight that k-means chose."
    return _in_a_row(drawn, title), words


def show_poster(kmeans, photo, k):
    """Show `photo` in the `k` colors that `kmeans` finds on the GPU; until it is right, in those of the code to port."""
    ported = exercises.repair.outcome(kmeans).status == CORRECT
    points = (photo.flatten(1).T / 255).to("cuda" if ported else "cpu")
    centers, _ = (kmeans if ported else exercises.starter)(points, k)
    found = "your k-means" if ported else "the old k-means"
    title = f"{k} colors, by {found} on {points.device}"
    drawn = {"the photo": photo, "the poster": _painted(photo, centers)}
    figures.show(_in_a_row(drawn, title), f"{title}: the photo, and beside it the poster.")


def _painted(photo, centers):
    """Return `photo` with each pixel in the nearest of the colors `centers`, a NumPy array [k, 3] from 0 to 1."""
    colors = torch.from_numpy(centers)
    nearest = torch.cdist(photo.flatten(1).T / 255, colors).argmin(1)
    return (255 * colors[nearest].T).reshape(photo.shape).byte()


def _in_a_row(drawn, title):
    """A Figure of images {words: uint8 [3, h, w]}, side by side."""
    figure, axes = plots.panels(title, 1, len(drawn), (1.85 * len(drawn), 2.4))
    for place, (words, image) in zip(axes, drawn.items(), strict=True):
        place.imshow(image.permute(1, 2, 0).numpy())
        place.set_axis_off()
        look = {"va": "top", "fontsize": 9, "color": plots.INK}
        place.text(0, -0.05, words, transform=place.transAxes, **look)
    return figure


def first_picture_b():
    """(Figure, alt): one input through 2.1 billion weights, on a CPU and on a GPU, with a copy of the weights and without."""
    cpu, gpu = (row["time_ms"] for row in _shapes(4096))
    fast, slow = _copy_ms(_fast_rate()), _copy_ms(_slow_rate())
    title = f"A GPU {cpu / gpu:.0f} times as fast as the CPU would lose if it had to copy the weights first"
    told = (f"{cpu:.0f}", f"{fast + gpu:.0f} to {slow + gpu:.0f}", f"{gpu:.0f}")
    names = ("16-core CPU", "RTX 4090, copy first", "RTX 4090, weights there")
    lengths = ({"CPU": cpu}, {"": slow, "GPU": gpu}, {"GPU": gpu})
    rows = dict(zip(names, lengths, strict=True))
    figure, axes = plots.new_figure(title, "ms for one input", size=(7.4, 2.1))
    plots.draw_bars(axes, rows, colors={"": CARD}, words=dict(zip(names, told, strict=True)))
    hollow = {"height": 0.62, "color": CARD, "edgecolor": plots.COPY, "linewidth": 1.8}
    axes.barh(1, slow, linestyle="--", zorder=2, **hollow)
    axes.barh(1, fast, zorder=2, **hollow)
    axes.barh(1, gpu, height=0.62, left=fast, color=plots.GPU, zorder=2)
    plots.note(axes, "the copy, by forecast", (0, 1), (8, 0))
    plots.note(axes, "or up to here, at a slower rate", (fast + gpu, 1), (8, 0))
    axes.set_xticks([])
    axes.margins(x=0.13)
    axes.grid(False)
    words = "CPU {}; RTX 4090 {} after a copy, by forecast, else {}".format(*told)
    return figure, f"Bars of ms for one input through 2.1 billion weights: {words}."


def _shapes(width):
    """The published rows of the CPU and of the RTX 4090 for layers of this width."""
    return measurements.published("crossover_4090").rows("shape", width=width)


# --- where tensors live ---------------------------------------------------------------------------
HOMES = {"cpu": "cpu, the CPU's memory", "cuda:0": "cuda:0, the GPU's memory"}  # from left to right


def draw_homes(values, title):
    """(Figure, sentence): where `values` ({name: tensor}) live, on the CPU or on the first GPU.

    What isn't a tensor is Python's, and on the CPU. ValueError for another device.
    """
    living = {device: [] for device in HOMES}
    for name, value in values.items():
        device = str(getattr(value, "device", "cpu"))
        if device not in living:
            raise ValueError(f"{name} is on {device}; the map shows {', '.join(sorted(HOMES))}")
        living[device].append(name)
    rows = max(2, *map(len, living.values()))
    figure = plots.blank_figure((7.4, 0.85 + 0.3 * rows))
    plots.set_title(figure, title)
    axes = figure.add_subplot()
    axes.set(xlim=(-0.02, 9.47), ylim=(-0.1, rows + 0.75))
    axes.set_axis_off()
    for place, (device, names) in enumerate(living.items()):
        _draw_home(axes, 5.25 * place, rows, device, names)
    axes.plot([4.2, 5.25], [rows / 2] * 2, color=plots.COPY, linewidth=2.2)
    axes.text(4.72, rows / 2 - 0.25, "PCIe", color=plots.FAINT, fontsize=9, ha="center", va="top")
    lists = (f"on {device}: {', '.join(names)}" for device, names in living.items() if names)
    return figure, f"Two memories, joined by a thin link. {'; '.join(lists)}."


def _draw_home(axes, left, rows, device, names):
    """Draw one memory as a frame, and the names of what it holds inside."""
    from matplotlib.patches import FancyBboxPatch, Rectangle

    color = plots.CPU if device == "cpu" else plots.GPU
    frame = {"fill": False, "edgecolor": color, "linewidth": 1.2}
    axes.add_patch(Rectangle((left, 0), 4.2, rows + 0.1, **frame))
    words = {"fontsize": 9, "va": "center"}
    axes.text(left, rows + 0.45, HOMES[device], color=color, weight="bold", **words)
    for row, name in enumerate(names):
        y = rows - 0.95 - row
        shape = {"boxstyle": "round,pad=0,rounding_size=0.12", "mutation_aspect": 2, "linewidth": 0}
        axes.add_patch(FancyBboxPatch((left + 0.12, y + 0.1), 3.95, 0.8, facecolor=color, **shape))
        code = {"family": "DejaVu Sans Mono", "color": "white"}
        short = name if len(name) < 38 else f"{name[:36]}…"
        axes.text(left + 0.22, y + 0.5, short, **words, **code)


def compare_homes(a, b):
    """Return what `reveal` takes: which of `a` and `b` is on the GPU, why, and both in their homes."""
    because = (
        "A tensor's .to returns a copy, or the tensor itself if it's there already. "
        "Nothing kept b's copy, and b itself stays where it was. Keep what .to returns."
    )
    figure = draw_homes({"a": a, "b": b}, "Only a kept its copy")
    return {"actual": "only a", "because": because, "figure": figure}


def compare_new(c, new):
    """Return what `reveal` takes: which of the tensors `new`, {name: tensor}, isn't where `c` is, why, and all of them."""
    because = "A shape is plain numbers. zeros_like takes c's device, and c.sum() is where c is."
    figure = draw_homes({"c": c} | new, "Only zeros(c.shape) is on the CPU")
    return {"actual": "zeros(c.shape)", "because": because, "figure": figure}


def compare_copies(one_by_one, together):
    """Return what `reveal` takes: the copies to the CPU of the second way, why, and those of both, as `counted` gives them."""
    because = (
        "Each .item() copies one number, and your program waits until it has arrived. torch.stack makes one "
        "tensor of all twenty on the GPU, and .tolist() copies that, so there's one copy and one wait."
    )
    counts = [ways["d2h"] for ways in (one_by_one, together)]
    told = f"copies to the CPU, one by one: {counts[0]}, together: {counts[1]}"
    return {"actual": str(counts[1]), "because": because, "lines": told}


def _slow_rate():
    """GB/s of the slower build of PyTorch's tutorial, from ordinary memory."""
    return min(exercises.fit_copy(*exercises.published_copies(build))[1] for build in "12")


def _fast_rate():
    """GB/s of a large copy over PCIe 4, from pinned memory, as published for an A100."""
    rows = measurements.published("copies_a100").rows("copies", direction="h2d", bytes=10**9)
    return rows[0]["gb_per_s"]


def _copy_ms(gb_per_s):
    """Milliseconds for the copy of all `WEIGHTS`."""
    return 4 * WEIGHTS / gb_per_s / 1e6


def times_as_long():
    """How many times as long 1,000 copies of 1,000 floats take as one copy of a million, by PyTorch's tutorial; and why."""
    small, large = exercises.published_copies()
    because = "The same bytes took 16.2 ms, because each copy has its own overhead."
    return 1000 * small[1] / large[1], because


def pinned_first_ms():
    """Milliseconds of 1,000 copies of a million floats, each pinned just before, by PyTorch's tutorial; and why."""
    rows = measurements.published("pinned_a10g").rows("many", build="1", way="blocking")
    times = {row["tensors"]: row["time_ms"] for row in rows}
    because = "Pinning is a copy, too, within the CPU's memory. Pin a buffer you'll reuse."
    return times["same, pinned just before"], because


def show_small_copies(answer, times, device):
    """Show µs by size: `answer`'s formula (ours until it is right), what was measured, and `times` on a GPU, {bytes: µs}."""
    right = exercises.fit.outcome(answer).status == CORRECT
    tutorial = exercises.published_copies()
    fitted = (answer if right else exercises.fit_copy)(*tutorial)
    sizes = [10 ** (k / 8) for k in range(24, 57)]
    formula = [exercises.copy_us(size, *fitted) for size in sizes]
    name = "your formula" if right else "our formula"
    where = {"x": "bytes", "y": "gb_per_s", "direction": "h2d", "pinned": True}
    source = f"published: {measurements.published('pinned_a10g').source}"
    lines = [plots.forecast({name: (sizes, formula)})]
    lines += [plots.Group("published", {TUTORIAL: [*zip(*tutorial, strict=True)]}, [source])]
    lines += [_microseconds(gpu_code.yours("copies", **where))]
    lines += [_microseconds(gpu_code.recorded("copies", **where))]
    if str(device) != "cpu":
        lines.append(plots.here({f"to {device}": ([*times], [*times.values()])}))
    even = fitted[0] * fitted[1] * 1000
    figure = _by_size(
        lines, f"Below about {round(even, -4) / 1000:.0f} kB, a copy is mostly overhead", name
    )
    plots.split(figure.axes[0], even, "mostly overhead", "mostly transfer")
    told = f"{fitted[0]:.0f} µs + bytes ÷ {fitted[1]:.1f} GB/s"
    figures.show(figure, f"µs by bytes in one copy: {told} is flat at first, then rises.")


def _by_size(lines, title, formula=""):
    """A figure of µs by bytes: the line called `formula` without markers, what was measured as points alone."""
    axes = ("bytes in one copy (log scale)", "µs for one copy (log scale)")
    colors = {formula: INK, TUTORIAL: plots.COPY}
    figure = plots.lines(lines, title, *axes, logx=True, logy=True, colors=colors)
    for line in figure.axes[0].get_lines():
        if line.get_label().startswith(formula or " "):
            line.set_marker("None")
        elif line.get_label().startswith(("to ", TUTORIAL)):
            line.set_linestyle("None")
            line.set_markersize(7)
    figure.axes[0].set_xticks([*TICKS], [*TICKS.values()])
    figure.axes[0].set_ylim(bottom=2)
    return figure


def _microseconds(group):
    """A group of GB/s by bytes in microseconds by bytes."""
    lines = {
        label: (sizes, [size / rate / 1000 for size, rate in zip(sizes, rates, strict=True)])
        for label, (sizes, rates) in group.items()
    }
    return type(group)(group.kind, lines, group.sources)


def narrow_ms():
    """Milliseconds of an RTX 4090 for one input through the narrowest layers, as published; and why."""
    ms = _shapes(128)[1]["time_ms"]
    return ms, f"That's {1000 * ms / 131_072:.0f} µs per layer, nearly all overhead."


def draw_crossing():
    """(Figure, sentence, note): published times of 2.1 billion weights in narrow and in wide layers."""
    times = measurements.published("crossover_4090").group("time_ms", x="width", section="shape")
    times = times.renamed({label: label.removesuffix(", 16 cores") for label in times})
    (wide_cpu, wide_gpu), (cpu, gpu) = (
        [row["time_ms"] for row in _shapes(width)] for width in (4096, 128)
    )
    title = (
        f"The GPU wins {wide_cpu / wide_gpu:.0f} to 1 with wide layers, and loses with narrow ones"
    )
    axes = ("width of a layer (log scale)", "ms for one input (log scale)")
    figure = plots.lines(times, title, *axes, logx=True, logy=True)
    figure.axes[0].set_ylim(bottom=5)
    told = f"Layers of 128: CPU {cpu:,.0f} ms, GPU {gpu:,.0f}; of 4,096: CPU {wide_cpu:.0f}, GPU {wide_gpu:.0f}."
    note = "Measured under WSL 2 (Linux inside Windows), where a launch takes longer than on Linux itself."
    return figure, told, note
