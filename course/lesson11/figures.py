"""The figures of lesson 11, Write a kernel: drawn from the addresses that its compiled code touched."""

import math

import torch

from course.lesson11.traffic import total, trace, traffic
from course.pictures.cells import box
from course.show import figures
from course.show.widgets import explore, slider
from helpers import plots
from helpers.plots import (
    FAINT,
    GPU,
    GREENS,
    INK,
    RULE,
    SMALL,
    blank_figure,
    drawing,
    set_title,
    tidy,
)

PROGRAMS = (GREENS[3], GREENS[4])  # neighbors differ; black text can be read on each
TOKENS, WIDTH = 8192, 64  # of the first picture: tokens, and the dimension of a head
TILES = (  # for `reveal`
    "half as much",
    "Each program loads twice as much, but there are only a quarter as many.",
)
RESCALE = (  # for `reveal`
    "it's multiplied by exp(3 − 5)",
    "exp(s − 3) · exp(3 − 5) = exp(s − 5): one factor corrects all weights at once.",
)
STEPS = {  # what each operation of attention reads and writes
    "q @ k.T": ("q", "k", "write"),
    "× scale": ("read", "write"),
    "softmax": ("read", "write"),
    "weights @ v": ("read", "v", "out"),
}


def first_picture():
    """Return (figure, alternative text): what attention moves as separate operations and as one kernel, to scale."""
    from course.lesson11.kernels import attend

    tensors = [torch.empty(TOKENS, WIDTH, dtype=torch.half, device="meta") for _ in "qkv"]
    unfused = total(traffic(attend, *tensors)) / 1e6
    one = 4 * 2 * TOKENS * WIDTH / 1e6  # q, k, v and the result in float16
    title = f"One kernel needs to move {one:.0f} MB where four operations move {unfused:.0f}"
    figure, axes = drawing(title, (7.3, 2.9))
    axes.text(0, 1.3, "four operations", fontsize=10, color=INK)
    left = 0
    for name, moved in STEPS.items():
        axes.text(left, 1.08, name, fontsize=9, color=FAINT, family="monospace")
        for each in moved:
            left = _draw_moved(axes, left, each) + 0.06
        left += 0.12
    axes.text(0, -0.32, "one kernel", fontsize=10, color=INK)
    for place in range(4):
        box(axes, 0, -0.45 - 0.07 * place, 1, WIDTH / TOKENS, GPU)
    beside = f"{one:.1f} MB: q, k, v read, out written, {TOKENS:,} tokens × {WIDTH}, float16. Areas to scale."
    axes.text(1.1, -0.56, beside, fontsize=9, color=FAINT, va="center")
    axes.set(xlim=(-0.02, left), ylim=(-0.72, 1.4))
    axes.set_aspect("equal", anchor="W")
    said = f"four operations move a square of scores six times, {unfused:.0f} MB with the rest"
    return figure, f"Areas to scale: {said}; one kernel moves four slivers, {one:.1f} MB."


def _draw_moved(axes, left, name):
    """Draw the scores (a square) as "read" or "write", or the sliver of another tensor; returns its right edge."""
    if name not in ("read", "write"):
        box(axes, left, 0, WIDTH / TOKENS, 1, GPU)
        return left + WIDTH / TOKENS
    words = f"{name} scores\n{2 * TOKENS**2 / 1e6:.0f} MB"
    box(axes, left, 0, 1, 1, GREENS[3] if name == "read" else GREENS[2], words)
    return left + 1


def touched(seen, title):
    """Show which program touched which elements: a cell for each element, with the number of its program."""
    figures.show(*touched_figure(seen, title))


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
        _draw_box(axes, *divmod(place, columns), fill, text)
    for row, column in masked:
        _draw_box(axes, row, column, "none", "–", linestyle=":")
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


def _draw_box(axes, row, column, color, text, **look):
    edge = {"edgecolor": FAINT, "linewidth": 0.8, **look}
    box(axes, column, row, 1, 1, color, text, fontsize=SMALL, **edge)


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

    Of the matrices `walked`, one of four tiles is loaded in each step: it's strong, those before it are pale. The
    scores that belong to it are drawn, too, though no memory holds them.
    """

    def draw(row, column=0, step=0):
        counts = {name: _touched_by(seen, (row, column, 0), name) for name in seen.tensors}
        *loads, stored = [int(on.sum()) for on in counts.values()]
        title = f"This program loads {sum(loads):,} numbers and stores {stored:,}"
        said = ", ".join(
            f"{int(on.sum()):,} of {on.numel():,} in {name}" for name, on in counts.items()
        )
        if walked:
            title = f"Step {step + 1} of program {row}: one tile of scores, kept on the chip"
            whole = next(iter(counts.values()))[:, :1]
            *others, last = counts
            counts = {name: counts[name] for name in others}
            counts |= {
                "scores": whole.expand(-1, len(whole)),
                last: _touched_by(seen, (row, column, 0), last),
            }
        figure = blank_figure((7.3, 2.7))
        set_title(figure, title)
        widths = [on.shape[1] for on in counts.values()]
        places = figure.subplots(1, len(counts), width_ratios=widths)
        for axes, (name, on) in zip(places, counts.items(), strict=True):
            _draw_matrix(axes, name, on, step if name in (*walked, "scores") else None)
        return figure, f"The program touches {said}."

    return draw


def _touched_by(seen, program, name):
    """Return which elements of a matrix a program touched."""
    found = torch.zeros(seen.tensors[name].numel(), dtype=torch.bool)
    for access in seen.accesses:
        if access.block == program and access.name == name:
            found[access.places] = True
    return found.view(seen.tensors[name].shape)


def _draw_matrix(axes, name, on, step=None):
    """Draw which elements are `on`; with `step`, of four tiles that one strong and those before it pale."""
    from matplotlib.colors import ListedColormap

    rows, columns = on.shape
    tile = rows // 4
    shade = 2 * on.int()
    if step is not None:
        along = shade.T if name == "scores" else shade
        along[: step * tile] = along[: step * tile].clamp(max=1)
        along[(step + 1) * tile :] = 0
    axes.imshow(shade, cmap=ListedColormap(["white", GREENS[4], GPU]), vmin=0, vmax=2)
    for place in range(0, rows + 1, tile):
        axes.axhline(place - 0.5, color=RULE, linewidth=0.8)
    for place in range(0, columns + 1, tile):
        axes.axvline(place - 0.5, color=RULE, linewidth=0.8)
    axes.set_xticks([])
    axes.set_yticks([])
    if name == "scores":
        axes.spines[:].set(linestyle=":", color=FAINT)
    axes.set_title(name, fontsize=9, color=INK)


def addresses(n=8, tile=4):
    """Show how a column of addresses and a row add up to a square of addresses: a tile of an n × n matrix."""
    rows, columns = range(tile, 2 * tile), range(tile)
    figure, axes = drawing("A column plus a row is a square of addresses", (7.3, 3.2))
    top, flat, square, matrix = (n - tile) / 2, tile / 2 - 0.6, tile + 4.2, 2 * tile + 5.4
    for i, row in enumerate(rows):
        _draw_box(axes, top + i, 0, GREENS[3], str(row * n))
        _draw_box(axes, top + tile / 2 - 0.5, flat + i + 0.6, GREENS[3], str(columns[i]))
        for j, column in enumerate(columns):
            _draw_box(axes, top + i, square + j, GREENS[3], str(row * n + column))
    for place in range(n * n):
        row, column = divmod(place, n)
        color = GREENS[3] if row in rows and column in columns else "white"
        _draw_box(axes, row, matrix + column, color, str(place))
    middle = {"ha": "center", "va": "center", "fontsize": 13, "color": INK}
    axes.text((1 + flat + 0.6) / 2, n / 2, "+", **middle)
    axes.text((flat + 0.6 + tile + square) / 2, n / 2, "=", **middle)
    notes = {
        0.5: ("rows * n\n[:, None]", top),
        flat + 0.6 + tile / 2: ("columns\n[None, :]", top + tile / 2 - 0.5),
        square + tile / 2: (f"{tile * tile} addresses", top),
        matrix + n / 2: (f"its place in an {n} × {n} matrix", 0),
    }
    for x, (text, y) in notes.items():
        axes.text(x, y - 0.25, text, ha="center", va="bottom", fontsize=9, color=INK)
    axes.set(xlim=(-0.6, matrix + n + 0.1), ylim=(n + 0.1, -1))
    axes.set_aspect("equal", anchor="W")
    said = f"{[row * n for row in rows]} as a column plus {list(columns)} as a row"
    figures.show(figure, f"{said}: the {tile * tile} addresses of a tile of an {n} × {n} matrix.")


def online(scores, values, tile=2):
    """Return draw(step) for `explore`: a softmax over `scores`, `tile` at a time, as its sum and `acc` are rescaled."""

    def draw(step):
        seen = step * tile
        old, new = scores[:seen], scores[seen : seen + tile]
        before, now = max(old, default=-math.inf), max(old + new)
        alpha = math.exp(before - now)
        shrunk = f"{now} is larger than {before}, so everything so far shrinks to {alpha:.3f} of its size"
        title = shrunk if 0 < alpha < 1 else f"the largest score so far is {now}"
        title = f"Step {step + 1}: {title}"
        figure = blank_figure((7.3, 2.7))
        set_title(figure, title)
        left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
        weights = [math.exp(each - now) for each in old + new]
        _draw_weights(left.subplots(), scores, weights, len(old), alpha)
        said = []
        for axes, (name, factors) in zip(
            right.subplots(2, 1), {"row_sum": [1] * len(scores), "acc": values}.items(), strict=True
        ):
            parts = [factor * weight for factor, weight in zip(factors, weights, strict=False)]
            kept, added = sum(parts[:seen]), sum(parts[seen:])
            sums = f"{kept / alpha:.3f} × {alpha:.3f} + {added:.3f} = " if old else ""
            said.append(f"{name}: {sums}{kept + added:.3f}")
            most = 1.1 * sum(f * math.exp(s - max(scores)) for f, s in zip(factors, scores))
            _draw_sum(axes, said[-1], kept, alpha, added, most)
        return figure, f"{title}. {said[0]}; {said[1]}."

    return draw


def _draw_weights(axes, scores, weights, count, alpha):
    """Draw the weights so far; the first `count` are of earlier tiles, dashed as they were before."""
    tidy(axes)
    if 0 < alpha < 1:
        before = [weight / alpha for weight in weights[:count]]
        axes.bar(range(count), before, color="none", edgecolor=FAINT, linestyle="--")
    axes.bar(range(len(weights)), weights, color=[GREENS[4]] * count + [GPU] * len(weights[count:]))
    names = [
        f"{score}" if place < len(weights) else f"({score})" for place, score in enumerate(scores)
    ]
    axes.set(ylim=(0, 1.05), xticks=range(len(scores)), xticklabels=names)
    axes.set_xlabel("score (in brackets: not seen yet)")
    axes.set_ylabel("weight: exp(score − largest)")


def _draw_sum(axes, words, kept, alpha, added, most):
    """Draw what is left of an old sum (dashed as it was) and what a tile adds, on a scale up to `most`."""
    tidy(axes)
    axes.grid(False)
    axes.set_title(words, fontsize=9, color=INK, loc="left")
    if 0 < alpha < 1:
        axes.barh(0, kept / alpha, color="none", edgecolor=FAINT, linestyle="--")
    axes.barh(0, kept, color=GREENS[4])
    axes.barh(0, added, left=kept, color=GPU)
    axes.set(yticks=[], ylim=(-0.6, 0.6), xlim=(0, most))


def walk_softmax():
    """Show which program of the model answer's softmax touches which elements of four rows."""
    from course.lesson11.kernels import softmax_kernel

    x = torch.randn(4, 10)
    seen = trace(softmax_kernel, 4, x, torch.empty_like(x), 10, BLOCK=16)
    touched(seen, "Each program takes a row and masks out six elements of its block")


def walk_product():
    """Explore which tiles a program of the model answer's product loads and stores, by its place in the grid."""
    from course.lesson11.kernels import matmul_kernel

    a, b = torch.randn(2, 64, 64).half()
    seen = trace(matmul_kernel, (4, 4), a, b, torch.empty(64, 64), 64, num_warps=4, TILE=16)
    sliders = {"row": slider("row", range(4), 1), "column": slider("column", range(4), 2)}
    explore(one_program(seen), **sliders)


def walk_attention():
    """Explore which tiles a program of the model answer's attention loads and stores, step by step."""
    from course.lesson11.kernels import attention_kernel

    q, k, v = torch.randn(3, 128, 32).half()
    values = q, k, v, torch.empty_like(q), 128, 32**-0.5
    seen = trace(attention_kernel, 4, *values, num_warps=4, D=32, BLOCK=32)
    sliders = {"row": slider("program", range(4), 1), "step": slider("step", range(4), 2)}
    explore(one_program(seen, walked=("k", "v")), **sliders)


def race(rows, title, caption):
    """Show a race: two bars of bytes for each way, and beside them its forecast and its time.

    `rows` are (name, bytes loaded and stored or 0, bytes from memory at least, µs by forecast of each count or none, measured).
    """
    figure, axes = plots.new_figure(title, size=(7.3, 0.52 * len(rows) + 1.25))
    most = max(loaded or least for _, loaded, least, *_ in rows)
    said = []
    for place, (name, loaded, least, times, measured) in enumerate(rows):
        forecast = " to ".join(f"{time:,.0f}" for time in sorted({round(t) for t in times}))
        forecast += " µs" * bool(times)
        counts = {place - 0.2: (loaded, GREENS[3])} if loaded else {}
        counts[place + 0.2 * bool(loaded)] = least, GPU
        for y, (count, color) in counts.items():
            axes.barh(y, count, height=0.34, color=color)
            plots.note(axes, megabytes(count), (count, y))
        plots.note(axes, forecast, (1.32 * most, place), (1, 0))
        plots.note(axes, measured, (1.62 * most, place), (1, 0))
        told = f"{megabytes(loaded)} loaded and stored, " if loaded else ""
        told += f"{megabytes(least)} from memory at least"
        told += f", forecast {forecast}" * bool(times)
        said.append(f"{name}: {told}{measured and f', measured {measured}'}")
    wide = 2.1 if rows[0][-1] else 1.66
    for x, words, color in (
        (0, "loaded and stored", GREENS[2]),
        (0.29 * wide, "from memory at least", GPU),
        (1.32, "forecast", INK),
        (1.62, "measured" if rows[0][-1] else "", INK),
    ):
        plots.note(axes, words, (x * most, -0.8), (1, 0), color=color, fontweight="bold")
    axes.set(xlim=(0, wide * most), ylim=(len(rows) - 0.4, -1.1))
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], color=INK)
    axes.set_xticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    figures.show(figure, f"{'; '.join(said)}.", caption)


def megabytes(count):
    """Return a count of bytes in MB, as it's written: "810 MB", "4.2 MB"."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"
