"""The figures of lesson 12, Look inside a kernel: sectors, banks, one multiprocessor, what compilers answered."""

import functools
import re

from course import show
from course.checks import puzzle
from course.lesson12.exercises import loads_per_ffma, per_ffma, with_results
from course.measurements import published
from course.pictures.cells import box, grid
from course.show.figures import show as show_figure
from helpers import plots
from helpers.plots import (
    COPY,
    FAINT,
    GPU,
    GREENS,
    INK,
    TROUBLE,
    WAIT,
    blank_figure,
    drawing,
    set_title,
)
from practice_gpus.cards import get_card

SECTOR = 32  # bytes
FLOATS = 8  # in a sector
MOVED = COPY + "73"  # bytes that move unused
SIDE, TILE = 64, 32  # of the matrices that are transposed here, and of a block's tile
WAYS = "row from threadIdx.x", "column from threadIdx.x"
RUNGS = {  # of Boehm's kernels: name of the measurement, his number and what it changes
    "a warp reads a column": ("1", "one thread per result"),
    "coalesced": ("2", "coalesced accesses"),
    "tiles in shared memory": ("3", "tiles in shared memory"),
    "8 results per thread": ("4", "8 results per thread"),
    "a tile per warp, sizes tuned": ("10", "a tile per warp, sizes tuned"),
    "cuBLAS": ("", "cuBLAS, NVIDIA's library"),
}


def first_picture():
    """Return (figure, alternative text): the rungs of Boehm's ladder as a table, with bars, and which of them this page climbs."""
    speeds = {row["name"]: row["tflop_per_s"] for row in published("matmul_a6000").rows()}
    best = speeds["cuBLAS"]
    times = speeds["a tile per warp, sizes tuned"] / speeds["a warp reads a column"]
    figure, axes = drawing(f"The same matmul, {times:.0f} times as fast", (7.3, 3.3))
    for x, words, side in (
        (0, "kernel", "left"),
        (39, "GFLOP/s", "right"),
        (53, "% of cuBLAS", "right"),
    ):
        axes.text(x, -0.8, words, ha=side, va="center", fontsize=9, color=FAINT)
    said = []
    for place, (name, (number, words)) in zip((0, 1, 2, 3, 5, 6), RUNGS.items(), strict=True):
        here = place < 3
        look = {
            "va": "center",
            "fontsize": 10,
            "color": INK,
            "fontweight": "bold" if here else None,
        }
        axes.text(1.5, place, number, ha="right", **look)
        axes.text(2.5, place, words, **look)
        axes.text(39, place, f"{1000 * speeds[name]:,.0f}", ha="right", **look)
        axes.text(53, place, f"{100 * speeds[name] / best:.1f}", ha="right", **look)
        color = WAIT if name == "cuBLAS" else GPU if here else GREENS[3]
        axes.barh(place, 30 * speeds[name] / best, 0.62, 55, color=color)
        said.append(
            f"{number} {words}: {1000 * speeds[name]:,.0f}, {speeds[name] / best:.1%}".strip()
        )
    axes.text(2.5, 4, "5 to 9 …", va="center", **NOTE | {"color": FAINT})
    axes.text(62, 1, "this page", va="center", fontsize=10, fontweight="bold", color=GPU)
    axes.set(xlim=(-0.5, 86), ylim=(6.6, -1.3))
    return figure, (
        "Boehm's kernels on an RTX A6000, in GFLOP/s and as a share of cuBLAS. "
        f"{'; '.join(said)}. This page climbs the first three."
    )


def first_picture_b():
    """Return (Figure, alternative text): how fast four transposes of one matrix are."""
    data = published("transpose_h100")
    speeds = {row["name"]: row["gb_per_s"] for row in data.rows()}
    speeds = {name: speeds[name] for name in CLIMB}
    gain = speeds[CLIMB[-1]] / speeds[CLIMB[0]]
    title = f"Four transposes that move the same bytes: the last is {gain:.2g} times as fast"
    figure = plots.bars(speeds, title, "GB/s on an H100, measured by yencal", 4, GPU)
    told = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    return figure, f"Bars of four transposes on an H100, measured by yencal, GB/s: {told}."


STRIDE = "8", "The floats reach from byte 0 to byte 251: eight sectors."
FASTER = (
    WAYS[1],
    "Its lanes read neighbors in b and share one number of a. The other's read down a column of a. "
    "We count what warps request and leave out the caches, so it's chance that 33 / 5 is close to 6.4.",
)
STALL = (
    "loads per FFMA",
    "The profiler found his warps in MIO throttle: they wait for room in the queue that takes shared-memory instructions. "
    "A load from shared memory is an instruction, too. For 32 FFMAs, our warp executes 42 loads: 32 for right, "
    "8 for left, since the machine code takes four numbers with each, and 2 from global memory.",
)
COLUMN = "All 32 words lie in the same bank."
LARGEST = "8 × 8", "16 × 16 needs 256 sums: beyond 255, it spills."
RESULTS = (  # for `reveal`
    "nearly doubles",
    "8.47 TFLOP/s become 16.0. You now know the ideas behind the first five kernels.",
)
CLIMB = "naive", "tiled", "tiled, rows padded", "and four numbers per thread"


def _sector(axes, x, y, used, height=1.0, width=1.0):
    """Draw a sector: amber its eight floats, green those of `used`, a set of 0 to 7."""
    box(axes, x, y, 0.9 * width, height, MOVED)
    for place in used:
        box(axes, x + 0.9 * width * place / FLOATS, y, 0.9 * width / FLOATS, height, GPU)


def sectors(source, cases):
    """Show the sectors that a request touches: `cases` is {what a thread reads: (scale, shift)} of a kernel in CUDA C."""
    import torch

    from practice_gpus import kernels

    code = kernels.compile(source, "read", threads=32)
    x, out = torch.rand(1024), torch.empty(32)
    figure, axes = drawing("", (7.3, 0.45 * len(cases) + 0.7))
    numbers = {}
    for row, (case, (scale, shift)) in enumerate(cases.items()):
        name, result = f"x[{case}]", kernels.run(code, 1, 32, x, out, scale, shift)
        count = numbers[name] = round(result.sectors_per_request("load"))
        places = {scale * lane + shift for lane in range(32)}
        touched = sorted({place // FLOATS for place in places})
        for x_place, sector in enumerate(touched):
            used = {place % FLOATS for place in places if place // FLOATS == sector}
            _sector(axes, x_place, row, used, 0.62)
        axes.text(-0.5, row + 0.31, name, ha="right", va="center", family="monospace", **NOTE)
        share = 100 * result.useful("load") / result.moved("load")
        axes.text(count + 0.3, row + 0.31, f"{count}, {share:.3g}% used", va="center", **NOTE)
    axes.set(xlim=(-5.5, 39.5), ylim=(len(cases), -0.3))
    set_title(
        figure, f"One request touches {min(numbers.values())} to {max(numbers.values())} sectors"
    )
    said = ", ".join(f"{words}: {count}" for words, count in numbers.items())
    show_figure(
        figure,
        f"A row of boxes for each expression that thread t reads: the sectors that a request of a warp touches. {said}.",
    )


def _plain(axes, xlabel):
    axes.set_facecolor("none")
    axes.set_xlabel(xlabel, fontsize=9, color=FAINT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelcolor=INK)


def table(head, rows):
    """Show a table: `head` names of columns, `rows` of cells."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    show.markdown("\n".join(lines), "\n".join("  ".join(map(str, row)) for row in [head, *rows]))


def counters(result):
    """Print what was counted of a transpose, a `Result`."""
    load, store = (result.sectors_per_request(kind) for kind in ("load", "store"))
    print(
        f"{load:.0f} sectors per load, {store:.0f} per store, {result.bank_conflicts:,} bank conflicts"
    )


def climb(naive, tiled, yours):
    """Show the speed of four transposes on an H100, as yencal measured it, with what is counted here of kernels like them.

    Three are sources in CUDA C; the rows of `tiled` are padded here for the one between.
    """
    padded = transposed(tiled.replace("[32][32]", "[32][33]"))
    results = transposed(naive), transposed(tiled), padded, transposed(yours, height=8)
    counted = dict(zip(CLIMB, results, strict=True))
    peak = get_card("H100 SXM").bandwidth
    data = published("transpose_h100")
    speeds = {row["name"]: row["gb_per_s"] for row in data.rows()}
    values = [speeds[name] for name in counted]
    gain, share = values[-1] / values[0], values[-1] / peak
    title = f"Three changes took yencal to {gain:.2g} times the speed, {share:.0%} of the peak"
    unit = "GB/s on an H100, measured by yencal with kernels of this kind (32,768 × 32,768)"
    figure, axes = plots.new_figure(title, unit, size=(7.3, 0.66 * len(counted) + 1.2))
    said = []
    for place, (name, result) in enumerate(counted.items()):
        axes.barh(place + 0.14, speeds[name], height=0.4, color=GPU)
        plots.note(axes, f"{speeds[name]:,.0f}", (speeds[name], place + 0.14))
        axes.text(0, place - 0.22, f"{name}; our count: {_changed(result)}", va="center", **NOTE)
        said.append(f"{name}: {speeds[name]:,.0f}; our count: {_changed(result)}")
    axes.axvline(peak, color=FAINT, linewidth=1.4, linestyle="--")
    plots.note(axes, f"data sheet: {peak:,}", (peak, 0.14), (-6, 0))
    axes.set(yticks=[], xlim=(0, 1.06 * peak), ylim=(len(counted) - 0.5, -0.5))
    axes.grid(False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    plots.sources(figure, data.source)
    show_figure(
        figure,
        f"Bars of four transposes, GB/s on an H100, measured by yencal. {'. '.join(said)}. Peak: {peak:,}.",
    )


NOTE = {"fontsize": 9, "color": INK}


def _changed(result):
    """Say what was counted of a transpose."""
    warps = SIDE**2 // TILE**2 * result.compiled.threads // 32
    each = sum(access.requests for access in result.of("global", "load")) // warps
    conflicts = result.bank_conflicts // (SIDE**2 // 32)
    words = f"{result.sectors_per_request('store'):.0f} sectors per store, "
    words += f"{conflicts} bank conflicts per read" if conflicts else "no bank conflicts"
    return words + (f", {each} loads per thread" if each > 1 else "")


def sectors_per_ffma(result, count):
    """Return the sectors of global memory that loads touch, for each of `count` multiply-adds of warps."""
    return result.moved("load") / SECTOR / count


def products(counted_here):
    """Show what was counted of each product, beside Boehm's speeds: `counted_here` is {name: what `multiplied` returned}."""
    rows, speeds = [], [row["tflop_per_s"] for row in published("matmul_a6000").rows()]
    for (name, found), speed in zip(counted_here.items(), speeds, strict=False):
        counts = (f"{count(*found):.3g}" for count in (sectors_per_ffma, loads_per_ffma))
        rows.append([name, *counts, f"{1000 * speed:,.0f}"])
    table(["kernel", "sectors per FFMA", "loads per FFMA", "Boehm's GFLOP/s"], rows)


def who_loads(counted_here):
    """Return (Figure, sentence): what one warp loads for one multiply-add, and its results, in both ways of a product.

    `counted_here` is {way: what `multiplied` returned}.
    """
    figure, axes = drawing("One warp, one multiply-add: the sectors that it loads", (7.3, 3.9))
    side, k, own, gap = 32, 20, 12, 36
    edge, said = {"edgecolor": FAINT, "linewidth": 0.8}, []
    for left, (way, found) in zip((0, 77), counted_here.items(), strict=True):
        down, every = way == WAYS[0], range(side)
        for x, y, name in ((0, gap, "a"), (gap, 0, "b"), (gap, gap, "out")):
            box(axes, left + x, y, side, side, "none", **edge)
            axes.text(left + x + 0.8, y + 3, name, **NOTE)
        for row in every if down else [own]:
            _sector(axes, left + k - k % FLOATS, gap + row, {k % FLOATS}, 0.8, FLOATS)
        for x in [own - own % FLOATS] if down else range(0, side, FLOATS):
            _sector(axes, left + gap + x, k, {own % FLOATS} if down else range(FLOATS), 1, FLOATS)
        place = (own, 0, 1, side) if down else (0, own, side, 1)
        box(axes, left + gap + place[0], gap + place[1], *place[2:], INK)
        count = f"{sectors_per_ffma(*found):.3g} sectors"
        axes.text(left, -5, f"{way}: {count}", fontsize=10, fontweight="bold", color=INK)
        words = ("32 of a,", "1 of b") if down else ("1 of a,", "4 of b")
        for y, line in zip((10, 15, 25), (*words, "black: its results"), strict=True):
            axes.text(left, y, line, **NOTE)
        said.append(f"{way}: {count}, {' '.join(words)}")
    axes.set(xlim=(-0.5, 146), ylim=(69, -8), aspect="equal")
    return figure, f"Matrices a, b and out, with what a warp loads. {'; '.join(said)}."


def tiles(source, *sizes):
    """Return (Figure, sentence): what the code of a product's loop has per FFMA, by the side of a thread's square of results.

    `source` is in CUDA C, with R for that side; with the smallest, it must compute the right product.
    """
    least = min(sizes)
    multiplied(with_results(source, least), least, height=8)
    counted = {f"{size} × {size}": per_ffma(source, size) for size in sizes}
    rows = {
        name: {"loads": loads, "LDL and STL": spills}
        for name, (loads, spills, _) in counted.items()
    }
    most = max(sum(parts.values()) for parts in rows.values())
    best = min(rows, key=lambda name: sum(rows[name].values()))
    title = f"{best} results per thread take the fewest memory instructions per FFMA"
    colors, size = {"loads": GPU, "LDL and STL": TROUBLE}, (7.3, 0.44 * len(counted) + 1.4)
    words = {name: f"{sum(parts.values()):.3g}" for name, parts in rows.items()}
    figure = plots.bars(rows, title, "", colors=colors, words=words, size=size)
    [axes] = figure.axes
    said = []
    for place, (name, (loads, spills, compiled)) in enumerate(counted.items()):
        share = f"{100 * compiled.occupancy.share:.3g}%"
        plots.note(axes, f"{compiled.registers}", (1.28 * most, place), (-1, 0))
        plots.note(axes, share, (1.55 * most, place), (-1, 0))
        counts = f"{loads:.3g} loads, {spills:.3g} LDL and STL, together {words[name]}"
        said.append(f"{name}: {counts}; {compiled.registers} registers, occupancy {share}")
    heads = (
        (0, "loads", 1),
        (0.13, "LDL and STL", 1),
        (1.28, "registers", -1),
        (1.55, "occupancy", -1),
    )
    for x, head, side in heads:
        look = {"fontweight": "bold", "color": colors.get(head, INK)}
        plots.note(axes, head, (x * most, -0.8), (side, 0), **look)
    axes.set(xlim=(0, 1.56 * most), ylim=(len(counted) - 0.5, -1.1), xticks=[])
    return figure, f"Bars, memory instructions per FFMA by results per thread. {'. '.join(said)}."


def register_tiles():
    """Show four tiles of results per thread, with the numbers that each loads for them in a step of `k`."""
    figure, axes = drawing("R + C loads feed R × C multiply-adds", (7.3, 3.1))
    said = []
    for slot, (rows, columns) in enumerate(((1, 1), (4, 1), (2, 2), (4, 4))):
        left = 6.4 * slot
        grid(axes, left - 1, 0.2, [[GREENS[4]]] * rows)
        grid(axes, left + 0.2, -1, [[GREENS[4]] * columns])
        grid(axes, left + 0.2, 0.2, [[GPU] * columns] * rows)
        axes.text(left - 1.4, 0.65, "a", ha="center", va="center", **NOTE)
        axes.text(left + 0.65, -1.4, "b", ha="center", va="center", **NOTE)
        loads, count = rows + columns, rows * columns
        words = f"{loads} loads, {count} FFMA" + "s" * (count > 1)
        axes.text(left - 1, 5.1, f"{rows} × {columns}", fontsize=10, fontweight="bold", color=INK)
        axes.text(left - 1, 6.0, words, **NOTE)
        axes.text(left - 1, 6.8, f"{loads / count:.3g} per FFMA", **NOTE)
        said.append(f"{rows} × {columns}: {words}, {loads / count:.3g} per FFMA")
    axes.set(xlim=(-2, 23.6), ylim=(7.1, -2), aspect="equal")
    words = (
        "Four tiles of results per thread, with the numbers of a at their left and of b above them"
    )
    show_figure(figure, f"{words}. {'; '.join(said)}.")


def pair(source):
    """Show a product's two lines both ways, and how a block is cut into warps; returns {way: source in CUDA C}.

    In `source`, `row` comes from threadIdx.x and `column` from threadIdx.y.
    """
    swap = {"row": "column", "column": "row"}
    other = re.sub(r"int (row|column) =", lambda found: f"int {swap[found[1]]} =", source)
    sources = dict(zip(WAYS, (source, other), strict=True))
    figure, axes = drawing(
        "Two words are swapped; the block is cut into the same warps", (7.3, 2.9)
    )
    for left, (way, text) in zip((0, 53), sources.items(), strict=True):
        axes.text(left, 0, way, fontsize=10, fontweight="bold", color=INK)
        lines = re.findall(r"int (row|column) = (.*)", text)
        for y, (word, rest) in zip((3.4, 6.4), lines, strict=True):
            code = {"family": "monospace", "fontsize": 9}
            axes.text(left, y, f"int {' ' * len(word)} = {rest}", color=INK, **code)
            axes.text(left, y, f"    {word}", color=GPU, fontweight="bold", **code)
    axes.text(0, 12, "A block of 32 × 32 threads: threadIdx.x runs along a row", **NOTE)
    for y, warp in zip((13, 16, 21), (0, 1, 31), strict=True):
        for lane in range(32):
            box(axes, 21 + 2 * lane, y, 1.8, 2.2, GREENS[3] if warp else GPU)
        for x, words in ((0, f"threadIdx.y = {warp}"), (86.5, f"warp {warp}")):
            axes.text(x, y + 1.2, words, va="center", **NOTE)
    axes.text(53, 19.7, "…", ha="center", va="center", fontsize=12, color=INK)
    axes.set(xlim=(0, 104), ylim=(24, -1.5))
    told = " ".join(
        f"{way}: {' '.join(line.strip() for line in text.splitlines() if 'Idx' in line)}"
        for way, text in sources.items()
    )
    show_figure(
        figure, f"{told} In a block of 32 × 32 threads, warp w is the row where threadIdx.y is w."
    )
    return sources


def sharing():
    """Show what a block shares: bands of a and b, the tiles now in shared memory, its tile of out; and two barriers."""
    figure, axes = drawing(
        "A block fills two tiles, uses each number 32 times, and moves on", (7.3, 3.4)
    )
    tile, edge = 4, {"edgecolor": FAINT, "linewidth": 0.8}
    for x, y, name in ((0, 18, "a"), (18, 0, "b"), (18, 18, "out")):
        box(axes, x, y, 16, 16, "none", **edge)
        axes.text(x + 0.4, y + 1.6, name, **NOTE)
    box(axes, 0, 26, 16, tile, GREENS[4])
    box(axes, 26, 0, tile, 16, GREENS[4])
    for x, y in ((8, 26), (26, 8)):
        box(axes, x, y, tile, tile, GREENS[2])
    box(axes, 26, 26, tile, tile, GREENS[4])
    for place in ((8, 27.2, tile, 0.7), (28.4, 8, 0.7, tile), (28.4, 27.2, 0.7, 0.7)):
        box(axes, *place, INK)
    for start, end in (((1, 31.2), (15.4, 31.2)), ((31.2, 1), (31.2, 15.4))):
        look = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 1.2}
        axes.annotate("", end, start, arrowprops=look)
    key = (
        (GREENS[4], "the block's bands, and its tile of out"),
        (GREENS[2], "left and right: now in shared memory"),
        (INK, "one thread: its row, its column, its result"),
    )
    for y, (color, words) in zip((2, 5.5, 9), key, strict=True):
        box(axes, 38, y, 1.6, 1.6, color)
        axes.text(40.6, y + 0.8, words, va="center", **NOTE)
    x = 38
    for words, width, color in STRIP:
        box(axes, x, 20, width, 4, color, words)
        x += width + 0.7
        if x < 70:
            axes.plot([x - 0.35] * 2, [18.6, 25.4], color=INK, linewidth=2)
    axes.text(38, 17, "time, for every thread of the block", **NOTE)
    for x, left, y, words in (
        (44.35, 38, 28, "every number is in"),
        (54.05, 54.05, 31, "every thread has used them"),
    ):
        axes.plot([x, x], [25.4, y - 1.6], color=FAINT, linewidth=0.8)
        axes.text(left, y, words, **NOTE)
    axes.text(38, 34, "thick lines: __syncthreads()", **NOTE)
    axes.set(xlim=(-0.3, 76), ylim=(34.6, -0.6))
    axes.set_aspect("equal", anchor="NW")
    show_figure(
        figure,
        "A block walks along a band of a and a band of b. Of each, one tile is in shared memory: left and right. One thread multiplies "
        "a row of left by a column of right, for one result in the block's tile of out. In time: fill, a barrier, use, a barrier, fill again.",
    )


STRIP = (("fill", 6, COPY), ("use", 9, GPU), ("fill", 6, COPY), ("use", 9, GPU))


def through_tile():
    """Show how a tile goes into shared memory by rows and comes out by columns, for one warp each."""
    title = "In by rows, out by columns: global memory sees only rows"
    figure, axes = drawing(title, (7.3, 3.1))
    side, row, column = 6, 1, 4
    pale = [GREENS[4]] * side
    loaded = [[GPU] * side if i == row else pale for i in range(side)]
    read = [[COPY if j == column else color for j, color in enumerate(line)] for line in loaded]
    stored = [[COPY] * side if i == column else pale for i in range(side)]
    for left in (0, 39):
        box(axes, left, 0, 2 * side, 2 * side, "none", edgecolor=FAINT, linewidth=1)
    for left, top, colors in (
        (0.05 + side, 0.05, loaded),
        (18.05, 3, read),
        (39.05, side + 0.05, stored),
    ):
        grid(axes, left, top, colors)
    arrows = (
        ((12.3, row + 0.5), (17.7, 3 + row + 0.5), GPU),
        ((24.4, 8), (38.6, side + column + 0.5), COPY),
    )
    for start, end, color in arrows:
        look = {"arrowstyle": "-|>", "color": color, "linewidth": 1.6}
        axes.annotate("", end, start, arrowprops=look)
    notes = (
        (0, -0.7, "x: the tile of block (1, 0)", INK),
        (18, 2.2, "tile", INK),
        (18, 10.2, "in shared memory", FAINT),
        (39, -0.7, "out: the same tile, at (0, 1)", INK),
        (12.6, 0.3, "a warp loads a row", GPU),
        (25.4, 6.8, "a warp reads a column…", COPY),
        (25.4, 11.4, "…and stores it as a row", COPY),
    )
    for x, y, words, color in notes:
        axes.text(x, y, words, fontsize=9, color=color, va="center")
    axes.set(xlim=(-0.3, 53), ylim=(12.5, -1.6), aspect="equal")
    words = "One warp loads a row of x and puts it into a row of the tile; after the barrier, one warp reads a column of the tile"
    show_figure(
        figure, f"{words} and stores it as a row of out, where the tile lies at the mirrored place."
    )


def padding(source):
    """Return draw(padding) for `explore`: in which bank the words of a column lie, and the conflict that a run counted."""

    def draw(padding):
        text = source.replace("tile[32][32]", f"tile[32][{32 + padding}]")
        worst = transposed(text).worst_conflict
        figure = blank_figure((7.0, 3.6))
        way = f"a {worst}-way bank conflict" if worst > 1 else "no conflict"
        set_title(figure, f"Rows of {32 + padding} words: {way} in column 0")
        _draw_banks(figure.subplots(), padding)
        return figure, f"Rows of {32 + padding}: the run counted {way}."

    return draw


@functools.cache
def transposed(text, height=TILE):
    """Run a square transpose in CUDA C, blocks of 32 × `height` threads for tiles of 32 × 32, and return the `Result`.

    With a `height` below 32, the kernel takes rows and columns.
    """
    import torch

    x, out = torch.randn(SIDE, SIDE), puzzle.blank(SIDE, SIDE)
    values = [x, out, SIDE] if height == TILE else [x, out, SIDE, SIDE]
    grid = (SIDE // TILE, SIDE // TILE)
    _, result = puzzle.run(text, puzzle.Problem(values, out, x.T, grid, "", (TILE, height)), "H100")
    torch.testing.assert_close(out, x.T)
    return result


def multiplied(text, size=1, height=TILE):
    """Run a product in CUDA C; returns the `Result`, and how many multiply-adds of a warp it has.

    Each thread of a block, 32 × `height`, makes `size` × `size` results.
    """
    import torch

    rows, columns = height * size, TILE * size
    n = max(TILE, rows, columns)
    a, b, out = torch.randn(n, n), torch.randn(n, n), puzzle.blank(n, n)
    values = [a, b, out, n]
    grid = (n // columns, n // rows)
    _, result = puzzle.run(
        text, puzzle.Problem(values, out, a @ b, grid, "", (TILE, height)), "H100"
    )
    torch.testing.assert_close(out, a @ b, atol=1e-4, rtol=1e-4)
    return result, n**3 / 32


def ladder():
    """Return (Figure, sentence): how fast a product runs on an RTX A6000, kernel by kernel, as Simon Boehm measured it."""
    data = published("matmul_a6000")
    speeds = {row["name"]: row["tflop_per_s"] for row in data.rows()}
    times = speeds["a tile per warp, sizes tuned"] / min(speeds.values())
    colors = dict.fromkeys(speeds, GPU) | {"cuBLAS": WAIT}
    title = f"The same matmul, {times:.0f} times as fast"
    unit = "TFLOP/s (RTX A6000, FP32), measured by Simon Boehm"
    figure = plots.sources(plots.bars(speeds, title, unit, colors=colors), data.source)
    said = ", ".join(f"{name}: {speed:.3g}" for name, speed in speeds.items())
    return figure, f"Bars of eight kernels on an RTX A6000, TFLOP/s. {said}."


def _draw_banks(axes, padding):
    """Draw the 32 banks as columns and the tile's words as cells: padding gray, column 0 of the tile filled."""
    width = 32 + padding
    strong = GPU if len({(row * width) % 32 for row in range(32)}) == 32 else TROUBLE
    line = [strong, *[GREENS[4]] * 31, *[WAIT] * padding]
    for word, color in enumerate(32 * line):
        box(axes, word % 32, word // 32, 0.92, 0.86, color)
    axes.set(xlim=(-0.3, 32.3), ylim=(width + 0.5, -0.5))
    axes.set_xticks([place + 0.46 for place in range(0, 32, 4)], range(0, 32, 4), fontsize=9)
    axes.set_yticks([])
    _plain(axes, "bank of shared memory (strong color: column 0 of the tile; gray: padding)")
    axes.spines[:].set_visible(False)
