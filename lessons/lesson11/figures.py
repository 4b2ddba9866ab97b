"""The figures of lesson 11, Write a kernel: drawn from the addresses that its compiled code touched."""

import torch

from helpers import plots
from helpers.figures import GPU, GREENS, SMALL, TROUBLE, blank_figure, plain_ticks, set_title
from helpers.palette import FAINT, INK, RULE
from lessons.lesson11.trace import Trace, trace

PROGRAMS = (
    "#8CCBAE",
    "#E3E6EA",
    "#4FAE83",
    "#CFEADD",
    "#C3C8CF",
)  # lightness steps of the GPU's green and gray: neighbors differ; black text can be read on each


def first_picture():
    """Return (figure, alternative text): three programs of eight lines each add ten numbers."""
    from lessons.lesson11.kernels import add_kernel

    x = torch.arange(10.0)
    seen = trace(add_kernel, 3, x, x.clone(), torch.empty(10), 10, BLOCK=4)
    figure, words = touched_figure(
        seen, "Eight lines, three programs: which one touches which element"
    )
    return (
        figure,
        f"The elements of x, y and out as cells with the number of their program. {words}",
    )


def touched(seen, title):
    """Show which program touched which elements: a cell for each element, with the number of its program."""
    plots.show(*touched_figure(seen, title))


def touched_figure(seen, title):
    """Return the figure of `touched` and its sentence; dotted cells are places that a mask rules out."""
    tensors = list(seen.tensors.items())
    flat = all(tensor.ndim < 2 for _, tensor in tensors)
    figure = blank_figure((7.3, 0.9 + 0.66 * len(tensors)) if flat else (7.3, 2.1))
    set_title(figure, title)
    for place, (name, tensor) in enumerate(tensors, 1):
        grid = (len(tensors), 1) if flat else (1, len(tensors))
        axes = figure.add_subplot(*grid, place)
        _draw_tensor(
            axes, name, tensor, _programs_of(seen, name), _masked_beside(seen, name, tensor)
        )
    return figure, _said(seen)


def _masked_beside(seen, name, tensor):
    """Return the cells (row, column) that masks ruled out beside a vector, or beside the rows of a matrix.

    In a matrix their addresses belong to the next row; they are drawn beside the row that their program touched.
    """
    columns = _columns(tensor)
    cells = set()
    for access in seen.accesses:
        if access.name != name:
            continue
        rows = {place // columns for place in access.places} if tensor.ndim > 1 else {0}
        if len(rows) == 1:
            [row] = rows
            places = [place - row * columns for place in access.off]
            cells |= {(row, place) for place in places if not 0 <= place < columns}
    return sorted(cells)


def _columns(tensor):
    return max(1, tensor.shape[-1]) if tensor.ndim else 1


def _programs_of(seen, name):
    """Return {place: numbers of the programs that touched it} of one tensor."""
    programs = seen.programs()
    found = {}
    for access in seen.accesses:
        if access.name == name:
            number = programs.index(access.block)
            for place in access.places:
                found.setdefault(place, set()).add(number)
    return {place: sorted(numbers) for place, numbers in found.items()}


def _draw_tensor(axes, name, tensor, programs, masked):
    columns = _columns(tensor)
    count = tensor.numel()
    for place in range(count):
        numbers = programs.get(place, [])
        fill = PROGRAMS[numbers[0] % len(PROGRAMS)] if numbers else "white"
        text = ",".join(map(str, numbers)) if len(numbers) < 3 else f"{len(numbers)}×"
        _draw_box(
            axes,
            *divmod(place, columns),
            {"facecolor": fill, "edgecolor": FAINT, "linewidth": 0.8},
            text,
        )
    for row, column in masked:
        _draw_box(
            axes, row, column, {"facecolor": "none", "edgecolor": FAINT, "linestyle": ":"}, "–"
        )
    rows = max(1, count // columns)
    beside = [column for _, column in masked]
    axes.set_xlim(min([0, *beside]) - 0.1, max([columns, *(place + 1 for place in beside)]) + 0.1)
    axes.set_ylim(rows + 0.05, -0.05)
    axes.set_aspect("equal", adjustable="box", anchor="W")
    axes.set_xticks([])
    axes.set_yticks([rows / 2], [name], fontsize=10, color=INK)
    axes.tick_params(length=0)
    axes.set_facecolor("none")
    axes.spines[:].set_visible(False)


def _draw_box(axes, row, column, look, text):
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column, row), 1, 1, **look))
    middle = {"ha": "center", "va": "center", "fontsize": SMALL, "color": INK}
    axes.text(column + 0.5, row + 0.5, text, **middle)


def _said(seen):
    """Say in a sentence how many programs there are, and what the first and the last of them write."""
    programs = seen.programs()
    written = []
    for program in programs:
        stores = [
            each.places for each in seen.accesses if each.block == program and each.kind == "store"
        ]
        written.append([place for places in stores for place in places])
    first, last = written[0], written[-1]
    noun = "program" if len(programs) == 1 else "programs"
    if not first or not last:
        return f"{len(programs)} {noun}."
    sentence = f"{len(programs)} {noun}. Program 0 writes elements {min(first)} to {max(first)}"
    if len(programs) > 1:
        sentence += f", program {len(programs) - 1} elements {min(last)} to {max(last)}"
    return f"{sentence}."


def blocks(kernel):
    """Return draw(n, block) for `explore`: which program of an addition touches which of n numbers."""

    def draw(n, block):
        x = torch.ones(n)
        programs = -(-n // block)
        seen = trace(kernel, programs, x, x, x, n, BLOCK=block)
        off = programs * block - n
        noun = "program" if programs == 1 else "programs"
        words = f"{n} numbers, blocks of {block}: {programs} {noun}, {off} places masked off"
        only = Trace({"out": seen.tensors["out"]}, seen.accesses)
        return touched_figure(only, words)[0], f"{words}."

    return draw


def one_program(seen, n):
    """Return draw(row, column) for `explore`: what the program of one tile of a product loads and stores."""

    def draw(row, column):
        figure = blank_figure((7.3, 3.0))
        set_title(figure, f"Program ({row}, {column}): a band of a, a band of b, one tile of c")
        counts = {name: _touched_by(seen, (row, column, 0), name, n) for name in seen.tensors}
        for place, (name, on) in enumerate(counts.items(), 1):
            _draw_matrix(figure.add_subplot(1, 3, place), name, on)
        words = ", ".join(f"{int(on.sum()):,} of {name}" for name, on in counts.items())
        return figure, f"Program ({row}, {column}) touches {words} ({n * n:,} numbers each)."

    return draw


def _touched_by(seen, program, name, n):
    """Return which elements of an n × n tensor a program touched."""
    found = torch.zeros(n * n, dtype=torch.bool)
    for access in seen.accesses:
        if access.block == program and access.name == name:
            found[access.places] = True
    return found.view(n, n)


def _draw_matrix(axes, name, on):
    from matplotlib.colors import ListedColormap

    n = len(on)
    axes.imshow(on, cmap=ListedColormap(["white", GPU]), vmin=0, vmax=1)
    for place in range(0, n + 1, n // 4):
        axes.axhline(place - 0.5, color=RULE, linewidth=0.8)
        axes.axvline(place - 0.5, color=RULE, linewidth=0.8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(f"{name}: {int(on.sum()):,} numbers", fontsize=9, color=INK)


def softmax_traffic(rows, seen, n):
    """Show the bytes per number that separate operations move, and those of one kernel."""
    separate = {}
    for name, read, written in rows:
        separate[name] = separate.get(name, 0) + (read + written) / n
    fused = (seen.bytes("load") + seen.bytes("store")) / n
    total = sum(separate.values())
    bars = {"one kernel": {"all at once": fused}, "five operations": separate}
    colors = dict(zip(separate, (GREENS[0], *GREENS[2:], RULE), strict=False)) | {
        "all at once": GPU
    }
    title = f"Fused softmax moves {fused:.0f} bytes per number instead of {total:.0f}"
    what = "that separate operations and one kernel read and write for each number of a matrix"
    sentence = f"Two stacked bars of the bytes {what}: {total:.0f} and {fused:.0f}."
    figure = plots.stacked(bars, title, "bytes read and written, per number", colors=colors)
    plots.show(figure, sentence)


def tile_traffic(counted, n):
    """Show the bytes that a tiled product loads by the size of its tiles: `counted` is {tile: bytes}."""
    tiles = list(counted)
    kilobytes = [count / 1000 for count in counted.values()]
    least = 2 * n * n * 4 / 1000
    series = {
        "loaded by the programs": (tiles, kilobytes),
        "each number once": ([tiles[0], tiles[-1]], [least, least]),
    }
    title = "Double the tile, halve the traffic"
    figure = plots.lines(series, title, "tile width", "data loaded (kB)", logx=True, logy=True)
    words = ", ".join(f"{tile}: {count:.0f}" for tile, count in zip(tiles, kilobytes, strict=True))
    what = f"that the programs of a {n} × {n} product load, over the width of their tiles"
    plots.show(figure, f"A line of the kilobytes {what}: {words}; at least {least:.0f}.")


def attention_traffic(counted):
    """Show bytes of attention by hand and in one kernel: `counted` is {words: (by hand, in one kernel)}."""
    lengths = list(counted)
    series = {
        "by hand": (lengths, [hand / 1e3 for hand, _ in counted.values()]),
        "one kernel": (lengths, [one / 1e3 for _, one in counted.values()]),
    }
    hand, one = counted[lengths[-1]]
    moved = f"{one / 1e3:.0f} kB instead of {hand / 1e3:.0f}"
    title = f"Attention over {lengths[-1]} words: one kernel moves {moved}"
    colors = {"by hand": TROUBLE, "one kernel": GPU}
    figure = plots.lines(
        series,
        title,
        "sequence length (words)",
        "data moved (kB)",
        logx=True,
        logy=True,
        colors=colors,
    )
    figure.axes[0].set_xticks(lengths, lengths)
    words = "; ".join(f"{n}: {a / 1e3:.0f} and {b / 1e3:.0f}" for n, (a, b) in counted.items())
    plots.show(figure, f"Kilobytes moved, by hand and in one kernel, by length: {words}.")


PANELS = {  # source: title
    "triton_rms_norm_a100": "RMS norm, bfloat16, on an A100",
    "triton_softmax_rtx3090": "Softmax, float32, on an RTX 3090",
}
LINES = {"separate": TROUBLE, "Triton": GPU, "PyTorch": INK}


def elsewhere():
    """Show published times of Triton kernels and PyTorch: a panel for each of two sources, each with a card of its own."""
    figure = blank_figure((7.3, 3.4))
    set_title(figure, "Fusion speeds up RMS norm 6–10×; softmax was fused already")
    sources = []
    for axes, (name, words) in zip(figure.subplots(1, 2, sharey=True), PANELS.items(), strict=True):
        group = plots.published(name, "time_ms", x="width", by="code", section="forward")
        sources += group.sources
        for place, (code, line) in enumerate(group.items()):
            label = code.split(", ")[1].split(" (")[0]  # the panel's title has the rest
            color = next((color for part, color in LINES.items() if part in label), INK)
            axes.plot(*line, marker=plots.MARKERS[place], color=color, markersize=4, label=label)
        axes.set_title(words, fontsize=9, color=INK)
        _logarithmic(axes)
    figure.axes[0].set_ylabel("time (ms, log scale)", fontsize=9, color=FAINT)
    plots.sources(figure, *sources)
    plots.show(
        figure,
        "RMS norm of rows of 4,096 on an A100: 0.280 ms in separate operations, 0.031 ms in one Triton kernel. "
        "Softmax of such rows on an RTX 3090: 0.083 ms in PyTorch's own kernel, 0.080 ms in Triton's.",
    )


def _logarithmic(axes):
    """Label the axes of a panel of times by the length of a row, both in factors."""
    axes.set_xscale("log", base=4)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_yscale("log")
    plain_ticks(axes.yaxis)
    axes.set_xlabel("row length (2,048 rows)", fontsize=9, color=FAINT)
    axes.legend(frameon=False, fontsize=SMALL, loc="upper left")
    plots.tidy(axes)
