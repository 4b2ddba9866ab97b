"""The figures of lesson 11, Write a kernel: drawn from the addresses that its compiled code touched."""

import functools

import torch

from helpers import plots
from helpers.figures import GPU, GREENS, SMALL, TROUBLE, blank_figure, set_title
from helpers.palette import FAINT, INK, RULE
from lessons import ladder
from lessons.forecasts import recorded, tiny_gpt
from lessons.trace import microseconds, total, traffic

# lightness steps of the GPU's green and gray: neighbors differ; black text can be read on each
PROGRAMS = ("#8CCBAE", "#E3E6EA", "#4FAE83", "#CFEADD", "#C3C8CF")
WORDS, WIDTH = 8192, 64  # of the first picture: words, and numbers of a head for each word
TRITON, APART = (
    4,
    38,
)  # bytes of RMS norm per number: one kernel, and LinkedIn's separate operations
KINDS = {  # what a step of TinyGPT does, and the operators that do it
    "products in attention": ("bmm",),
    "softmax": ("_softmax", "_softmax_backward_data"),
    "scale, mask, casts": ("div", "masked_fill", "_to_copy"),
    "linear layers": ("mm", "addmm"),
}
REST = "all the rest"
SCORES = 2 * 64 * 4 * 1024**2  # bytes of a layer's scores: 64 texts, 4 heads, 1,024 words
STEPS = {  # what each operation of attention reads and writes
    "q @ k.T": ("q", "k", "write"),
    "× scale": ("read", "write"),
    "softmax": ("read", "write"),
    "weights @ v": ("read", "v", "out"),
}


def first_picture():
    """Return (figure, alternative text): what attention moves as separate operations and as one kernel, to scale."""
    from lessons.kernels import attend

    tensors = [torch.empty(WORDS, WIDTH, dtype=torch.half, device="meta") for _ in "qkv"]
    unfused = total(traffic(attend, *tensors)) / 1e6
    one = 4 * 2 * WORDS * WIDTH / 1e6  # q, k, v and the result in float16
    figure = blank_figure((7.3, 3.1))
    words = f"Attention over {WORDS:,} words: {unfused:.0f} MB unfused, {one:.0f} MB in one kernel"
    set_title(figure, words)
    axes = figure.subplots()
    axes.text(0, 1.36, f"four operations: {unfused:.0f} MB", fontsize=10, color=INK)
    left = 0
    for name, moved in STEPS.items():
        axes.text(left, 1.08, name, fontsize=9, color=FAINT, family="monospace")
        for each in moved:
            left = _draw_moved(axes, left, each) + 0.06
        left += 0.12
    axes.text(0, -0.32, f"one kernel: {one:.1f} MB", fontsize=10, color=INK)
    for place in range(4):
        _draw_area(axes, (0, -0.45 - 0.07 * place), 1, WIDTH / WORDS, GPU)
    beside = "q, k, v read and out written, once each. All areas are drawn to scale."
    axes.text(1.1, -0.56, beside, fontsize=9, color=FAINT, va="center")
    axes.set(xlim=(-0.02, left), ylim=(-0.72, 1.5))
    axes.set_aspect("equal", anchor="W")
    axes.axis("off")
    said = f"four operations move a square of scores six times, {unfused:.0f} MB with the rest"
    return figure, f"Areas to scale: {said}; one kernel moves four slivers, {one:.1f} MB."


def _draw_moved(axes, left, name):
    """Draw the scores (a square) as "read" or "write", or the sliver of another tensor; returns its right edge."""
    if name not in ("read", "write"):
        _draw_area(axes, (left, 0), WIDTH / WORDS, 1, GPU)
        return left + WIDTH / WORDS
    _draw_area(axes, (left, 0), 1, 1, GREENS[3] if name == "read" else GREENS[2])
    middle = {"ha": "center", "va": "center", "fontsize": 9, "color": INK}
    axes.text(left + 0.5, 0.5, f"{name} scores\n{2 * WORDS**2 / 1e6:.0f} MB", **middle)
    return left + 1


def _draw_area(axes, corner, width, height, color):
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle(corner, width, height, facecolor=color, linewidth=0))


def touched(seen, title):
    """Show which program touched which elements: a cell for each element, with the number of its program."""
    plots.show(*touched_figure(seen, title))


def touched_figure(seen, title):
    """Return the figure of `touched` and its sentence; dotted cells are places that a mask rules out."""
    tensors = list(seen.tensors.items())
    flat = all(tensor.ndim < 2 for _, tensor in tensors)
    figure = blank_figure((7.3, 0.9 + 0.66 * len(tensors)) if flat else (7.3, 1.6))
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
    """Return a sentence for the number of programs, and one for what each of them writes."""
    programs = seen.programs()
    said = [f"{len(programs)} program{'s' if len(programs) != 1 else ''}"]
    for number, program in enumerate(programs):
        stores = [each for each in seen.accesses if (each.block, each.kind) == (program, "store")]
        places = [place for each in stores for place in each.places]
        if places:
            said.append(f"Program {number} writes elements {min(places)} to {max(places)}")
    return ". ".join(said) + "."


def one_program(seen, walked=()):
    """Return draw(row, column, step) for `explore`: what one program of a grid loads and stores of each matrix.

    Of the matrices `walked`, one of four tiles is loaded in each step: it's strong, those before it are pale.
    """

    def draw(row, column=0, step=0):
        figure = blank_figure((7.3, 3.0))
        counts = {name: _touched_by(seen, (row, column, 0), name) for name in seen.tensors}
        *bands, (_, tile) = counts.items()
        loaded = sum(int(on.sum()) for _, on in bands)
        title = f"This program loads {loaded:,} numbers and stores {int(tile.sum()):,}"
        set_title(figure, title)
        for place, (name, on) in enumerate(counts.items(), 1):
            axes = figure.add_subplot(1, len(counts), place)
            _draw_matrix(axes, name, on, step if name in walked else None)
        words = ", ".join(
            f"{int(on.sum()):,} of {on.numel():,} in {name}" for name, on in counts.items()
        )
        return figure, f"The program touches {words}."

    return draw


def _touched_by(seen, program, name):
    """Return which elements of a matrix a program touched."""
    found = torch.zeros(seen.tensors[name].numel(), dtype=torch.bool)
    for access in seen.accesses:
        if access.block == program and access.name == name:
            found[access.places] = True
    return found.view(seen.tensors[name].shape)


def _draw_matrix(axes, name, on, step=None):
    from matplotlib.colors import ListedColormap

    rows, columns = on.shape
    tile = rows // 4
    shade = 2 * on.int()
    if step is not None:
        shade[: step * tile] -= 1
        shade[(step + 1) * tile :] = 0
    axes.imshow(shade, cmap=ListedColormap(["white", GREENS[4], GPU]), vmin=0, vmax=2)
    for place in range(0, rows + 1, tile):
        axes.axhline(place - 0.5, color=RULE, linewidth=0.8)
    for place in range(0, columns + 1, tile):
        axes.axvline(place - 0.5, color=RULE, linewidth=0.8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(f"{name}: {int(on.sum()):,} numbers", fontsize=9, color=INK)


def rms_norm():
    """Show published times of RMS norm on an A100, as separate operations and as one Triton kernel, beside the clock's forecast."""
    group = plots.published(
        "triton_rms_norm_a100", "time_ms", x="width", by="code", section="forward"
    )
    measured = group.renamed({code: code.split(", ")[1].split(" (")[0] for code in group})
    expected = {}
    for name, (widths, _) in measured.items():
        size = 2048 * (TRITON if name == "Triton" else APART)
        times = [microseconds("A100 80", size * width) / 1000 for width in widths]
        expected[name] = (widths, times)
    title = "RMS norm on an A100: fusion makes it 5.8 to 10.5 times as fast"
    colors = {name: GPU if name == "Triton" else TROUBLE for name in measured}
    axis = "row length (2,048 rows, bfloat16)"
    series = [measured, plots.forecast(expected)]
    figure = plots.lines(series, title, axis, "time (ms)", logx=True, logy=True, colors=colors)
    words = "0.280 ms in separate operations, 0.031 ms in one Triton kernel"
    plots.show(
        figure,
        f"Lines of time by row length; rows of 4,096 take {words}. Beside each, dashed, its forecast.",
    )


def hot():
    """Show where TinyGPT's step goes on an A100 with attention by hand, by the clock's forecast."""
    work = functools.partial(ladder.step, attend=ladder.by_hand)
    step = recorded(tiny_gpt(64, work, torch.bfloat16, context=1024)).on("A100 80")
    spent = dict.fromkeys((*KINDS, REST), 0.0)
    for each in step.kernels:
        kind = next((kind for kind in KINDS if each.name in KINDS[kind]), REST)
        of_scores = each.bytes > SCORES or kind == "linear layers"
        spent[kind if of_scores else REST] += each.ms
    share = 1 - (spent["linear layers"] + spent[REST]) / sum(spent.values())
    title = f"Attention by hand takes {share:.0%} of TinyGPT's step on an A100"
    unit = "milliseconds of a step: 64 texts of 1,024 words, bfloat16"
    figure = plots.bars([plots.forecast(spent)], title, unit, colors=dict.fromkeys(spent, GPU))
    said = ", ".join(f"{kind} {ms:.1f}" for kind, ms in spent.items())
    plots.show(figure, f"Bars of milliseconds, a forecast: {said}.")
