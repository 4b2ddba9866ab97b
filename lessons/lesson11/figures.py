"""The figures of lesson 11, Write a kernel: drawn from the addresses that `lessons.lesson11.tracer` noted."""

import torch

from helpers import plots
from helpers.figures import SMALL, blank_figure, plain_ticks
from lessons.lesson11.tracer import trace

LIGHT = 0.35  # share of a program's color in its cells, so that black text can be read


def touched(seen, title):
    """Show which program touched which elements: a cell for each element, with the number of its program."""
    plots.show(*touched_figure(seen, title))


def touched_figure(seen, title):
    """The figure of `touched` and its sentence.

    Elements beside a tensor are hatched and marked with "!"; dotted cells beside a row are lanes that are masked off.
    """
    tensors = list(seen.tensors.items())
    flat = all(tensor.ndim < 2 for _, tensor in tensors)
    size = (6.4, 0.75 + 0.62 * len(tensors)) if flat else (6.4, 1.7)
    figure = blank_figure(size)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    for place, (name, tensor) in enumerate(tensors, 1):
        grid = (len(tensors), 1) if flat else (1, len(tensors))
        axes = figure.add_subplot(*grid, place)
        masked = _masked_beside(seen, name, tensor)
        _draw_tensor(axes, name, tensor, _programs_of(seen, name), masked)
    return figure, _said(seen)


def _masked_beside(seen, name, tensor):
    """Return the cells (row, column) of the lanes that masks ruled out beside a vector, or beside the rows of a matrix.

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
            lanes = [place - row * columns for place in access.masked]
            cells |= {(row, lane) for lane in lanes if not 0 <= lane < columns}
    return sorted(cells)


def _columns(tensor):
    return max(1, tensor.shape[-1]) if tensor.ndim else 1


def _programs_of(seen, name):
    """Return {place: numbers of the programs that touched it} of one tensor."""
    programs = seen.programs()
    found = {}
    for access in seen.accesses:
        if access.name != name:
            continue
        number = programs.index(access.program)
        for place in access.places:
            found.setdefault(place, set()).add(number)
    return {place: sorted(numbers) for place, numbers in found.items()}


def _draw_tensor(axes, name, tensor, programs, masked):
    columns = _columns(tensor)
    count = tensor.numel()
    beside = [place for place in programs if not 0 <= place < count]
    for place in [*range(count), *beside]:
        row, column = divmod(place, columns) if 0 <= place < count else (0, place)
        _draw_cell(axes, row, column, programs.get(place, []), 0 <= place < count)
    for row, column in masked:
        look = {"facecolor": "none", "edgecolor": "#808080", "linestyle": ":", "linewidth": 1}
        _draw_box(axes, row, column, look, "–", color="#606060")
    rows = max(1, count // columns)
    beside += [column for _, column in masked]
    axes.set_xlim(min([0, *beside]) - 0.1, max([columns, *(place + 1 for place in beside)]) + 0.1)
    axes.set_ylim(rows + 0.05, -0.05)
    axes.set_aspect("equal", adjustable="box", anchor="W")
    axes.set_xticks([])
    axes.set_yticks([rows / 2], [name], fontsize=10)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_cell(axes, row, column, numbers, inside):
    """A cell with the numbers of the programs that touched it; beside the tensor it is hatched and has a "!"."""
    from matplotlib.colors import to_rgb

    text = ",".join(map(str, numbers)) if len(numbers) < 3 else f"{len(numbers)}×"
    if not inside:
        look = {"facecolor": "white", "edgecolor": "#b00000", "linewidth": 1.5, "hatch": "///"}
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        _draw_box(axes, row, column, look, f"{text}!", bbox=paper)
        return
    fill = "white"
    if numbers:
        color = to_rgb(plots.COLORS[numbers[0] % 7])
        fill = [1 - LIGHT * (1 - part) for part in color]
    look = {"facecolor": fill, "edgecolor": "#606060", "linewidth": 0.8}
    _draw_box(axes, row, column, look, text)


def _draw_box(axes, row, column, look, text, **letters):
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column, row), 1, 1, **look))
    middle = {"ha": "center", "va": "center", "fontsize": SMALL}
    axes.text(column + 0.5, row + 0.5, text, **middle, **letters)


def _said(seen):
    """Say in a sentence what each program wrote, and what it touched beside the tensors."""
    programs = seen.programs()
    written = []
    for number, program in enumerate(programs):
        places = []
        for access in seen.accesses:
            if access.program == program and access.kind == "write":
                places += access.places
        if places:
            written.append(f"{number}: {min(places)} to {max(places)}")
    many = f" and {len(written) - 6} more" if len(written) > 6 else ""
    sentence = f"{len(programs)} programs; places written by each: {', '.join(written[:6])}{many}."
    lanes = _lanes_off(seen, programs)
    if lanes:
        sentence += f" Lanes masked off: {lanes}."
    for access in seen.outside():
        number = programs.index(access.program)
        places = ", ".join(map(str, access.outside))
        sentence += f" Program {number} {access.kind}s beside {access.name}: {places}."
    return sentence


def _lanes_off(seen, programs):
    """Say how many lanes each program's mask rules out, for the programs with any, such as "2: 2"."""
    off = {}
    for access in seen.accesses:
        if access.masked:
            number = programs.index(access.program)
            off[number] = max(off.get(number, 0), len(access.masked))
    return ", ".join(f"{number}: {count}" for number, count in off.items())


def blocks(kernel):
    """Return draw(n, block) for `explore`: which program of an addition touches which of n numbers."""

    def draw(n, block):
        x = torch.ones(n)
        programs = -(-n // block)
        seen = trace(kernel, (programs,), x, x, x, n, BLOCK=block)
        off = programs * block - n
        noun = "program" if programs == 1 else "programs"
        words = f"{n} numbers, blocks of {block}: {programs} {noun}, {off} lanes masked off"
        return touched_figure(seen, words)[0], f"{words}."

    return draw


def one_program(seen, n):
    """Return draw(row, column) for `explore`: what the program of one tile of a product reads and writes."""

    def draw(row, column):
        program = (row, column, 0)
        figure = blank_figure((6.4, 2.6))
        title = (
            f"Program ({row}, {column}) reads a band of a and a band of b, and writes a tile of c"
        )
        figure.suptitle(title, fontsize=11, x=0.01, ha="left")
        counts = {name: _times(seen, program, name, n) for name in seen.tensors}
        for place, (name, times) in enumerate(counts.items(), 1):
            _draw_matrix(figure.add_subplot(1, 3, place), name, times)
        numbers = {name: int((times > 0).sum()) for name, times in counts.items()}
        words = ", ".join(f"{count} of {name}" for name, count in numbers.items())
        return figure, f"Program ({row}, {column}) touches {words} ({n * n} numbers each)."

    return draw


def _times(seen, program, name, n):
    """Return how often a program touched each element of an n × n tensor."""
    times = torch.zeros(n * n, dtype=torch.long)
    for access in seen.accesses:
        if access.program == program and access.name == name:
            places = torch.tensor(access.places)
            times += torch.bincount(places, minlength=n * n)
    return times.view(n, n)


def _draw_matrix(axes, name, times):
    n = len(times)
    axes.imshow(times > 0, cmap="Blues", vmin=0, vmax=1.6)
    axes.set_xticks([place - 0.5 for place in range(1, n)], minor=True)
    axes.set_yticks([place - 0.5 for place in range(1, n)], minor=True)
    axes.grid(which="minor", color="#d0d0d0", linewidth=0.5)
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    axes.set_title(f"{name}: {int((times > 0).sum())} numbers", fontsize=9)


def softmax_traffic(rows, seen, n):
    """Show the bytes a number that separate operations move, and those of one kernel."""
    separate = {}
    for name, read, written in rows:
        separate[name] = separate.get(name, 0) + (read + written) / n
    fused = {"softmax_kernel": (seen.bytes("read") + seen.bytes("write")) / n}
    bars = {"one kernel": fused, "five operations": separate}
    total = sum(separate.values())
    times = total / fused["softmax_kernel"]
    title = f"Separate operations move {times:.1f} times the bytes of one kernel"
    sentence = f"Bytes for each number: {total:.1f} in separate operations, {fused['softmax_kernel']:.1f} in one kernel."
    plots.show(plots.stacked(bars, title, "bytes read and written, for each number"), sentence)


def tile_traffic(counted, n):
    """Show the bytes that a tiled product reads by the size of its tiles: `counted` is {tile: bytes}."""
    tiles = list(counted)
    kilobytes = [count / 1000 for count in counted.values()]
    least = 2 * n * n * 4 / 1000
    series = {
        "counted": (tiles, kilobytes),
        "each number of a and b once": ([tiles[0], tiles[-1]], [least, least]),
    }
    title = f"Tiles twice as wide read half as much ({n} × {n} product)"
    figure = plots.lines(series, title, "width of a tile", "kilobytes read", logx=True, logy=True)
    words = ", ".join(f"{tile}: {count:.0f}" for tile, count in zip(tiles, kilobytes, strict=True))
    plots.show(
        figure, f"Kilobytes read by width of the tile: {words}; each number once: {least:.0f}."
    )


PANELS = {  # source: title
    "triton_rms_norm_a100": "RMS norm, bfloat16, on an A100",
    "triton_softmax_rtx3090": "Softmax, float32, on an RTX 3090",
}


def elsewhere():
    """Show published times of Triton kernels and PyTorch: a panel for each of two sources, each with a card of its own."""
    title = "Fused, RMS norm is six to ten times as fast; softmax was fused already"
    figure = blank_figure((6.4, 3.4))
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    sources = []
    for axes, (name, words) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        group = plots.published(name, "time_ms", x="width", by="code", section="forward")
        sources += group.sources
        for place, (code, line) in enumerate(group.items()):
            look = {"color": plots.COLORS[place], "marker": plots.MARKERS[place]}
            label = code.split(", ")[1].split(" (")[0]  # the panel's title has the rest
            axes.plot(*line, label=label, linestyle=":", markerfacecolor="white", **look)
        axes.set_title(words, fontsize=9)
        _logarithmic(axes)
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
    axes.tick_params(labelsize=SMALL)
    axes.set_xlabel("numbers in a row (2,048 rows)", fontsize=9)
    axes.set_ylabel("milliseconds", fontsize=9)
    axes.legend(frameon=False, fontsize=SMALL, loc="upper left")
    plots.tidy(axes)
    axes.set_ylim(top=axes.get_ylim()[1] * 3)  # room for the legend
