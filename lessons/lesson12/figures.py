"""The figures of lesson 12, Look inside a kernel: sectors, banks, one multiprocessor, and what compilers answered."""

from helpers import show
from helpers.figures import COPY, GPU, GREENS, SMALL, TROUBLE, WAIT, blank_figure, set_title
from helpers.figures import show as show_figure
from helpers.palette import FAINT, INK, RULE
from lessons.lesson93 import puzzle

FLOATS = 8  # in a sector of 32 bytes


def first_picture():
    """Return (figure, alternative text): the memory that one request of a warp moves, by neighbors and by a column."""
    figure = blank_figure((7.3, 3.0))
    set_title(figure, "32 numbers for one warp: 4 sectors moved, or 32")
    axes = figure.subplots(2, 1, gridspec_kw={"hspace": 0.25})
    _memory(axes[0], [(thread,) for thread in range(32)], "a row: thread t reads x[t]", 4)
    _memory(
        axes[1],
        [(thread * FLOATS,) for thread in range(32)],
        "a column: thread t reads x[t * n]",
        32,
    )
    alt = (
        "Memory drawn as 32 sectors of 32 bytes. A warp that reads a row touches 4 sectors and uses all of their bytes; "
        "a warp that reads a column touches 32 and uses 4 of the 32 bytes of each."
    )
    return figure, alt


def _memory(axes, threads, words, count):
    """Draw sectors: green what a thread reads, amber what moves with it unused, white what stays."""
    from matplotlib.patches import Rectangle

    wanted = {place for places in threads for place in places}
    for sector in range(32):
        moved = any(place // FLOATS == sector for place in wanted)
        for place in range(FLOATS):
            here = sector * FLOATS + place in wanted
            color = GPU if here else COPY if moved else "white"
            box = Rectangle(
                (sector + place / FLOATS, 0),
                1 / FLOATS,
                1,
                facecolor=color,
                alpha=1 if here else 0.45,
            )
            axes.add_patch(box)
        axes.add_patch(
            Rectangle(
                (sector, 0), 1, 1, fill=False, edgecolor=INK if moved else RULE, linewidth=0.9
            )
        )
    used = 32 / count / FLOATS
    axes.text(0, 1.3, words, fontsize=10, color=INK)
    axes.text(
        32,
        1.3,
        f"{count} sectors, {32 * count:,} bytes, {100 * used:.3g}% used",
        fontsize=10,
        color=INK,
        ha="right",
    )
    axes.set(xlim=(0, 32), ylim=(-0.1, 2.0))
    axes.axis("off")


def sectors(counted):
    """Show sectors per request for some ways to read: `counted` is {what a thread reads: a `Result`}."""
    figure = blank_figure((7.0, 0.5 * len(counted) + 1.1))
    numbers = {words: result.sectors_per_request("load") for words, result in counted.items()}
    set_title(
        figure,
        f"From {min(numbers.values()):.0f} to {max(numbers.values()):.0f} sectors for the same 32 floats",
    )
    axes = figure.subplots()
    for place, (words, count) in enumerate(numbers.items()):
        used = counted[words].useful("load") / counted[words].moved("load")
        axes.barh(place, count, color=GPU if count <= 4 else COPY, height=0.62)
        axes.text(
            count + 0.4,
            place,
            f"{count:.3g}, {100 * used:.3g}% used",
            va="center",
            fontsize=9,
            color=INK,
        )
    axes.set_yticks(range(len(numbers)), numbers, fontsize=9, family="monospace")
    _plain(axes, "sectors of 32 bytes per request of a warp")
    axes.set_xlim(0, 40)
    said = ", ".join(f"{words}: {count:.3g}" for words, count in numbers.items())
    what = "that a request of a warp touches, with the share of their bytes that is used"
    show_figure(
        figure,
        f"Horizontal bars, one for each expression that thread t reads: sectors of 32 bytes {what}. {said}.",
    )


def _plain(axes, xlabel):
    axes.invert_yaxis()
    axes.set_facecolor("none")
    axes.set_xlabel(xlabel, fontsize=9, color=FAINT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)


def table(head, rows):
    """Show a table: `head` names of columns, `rows` of cells."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    show.markdown("\n".join(lines), "\n".join("  ".join(map(str, row)) for row in [head, *rows]))


def answers(compiled):
    """Show what compilers answered: a row for each `Compiled`."""
    head = (
        "card",
        "registers",
        "stack (bytes)",
        "shared (bytes)",
        "occupancy",
        "limited by",
        "tensor cores",
    )
    rows = []
    for each in compiled:
        cores = ", ".join(f"{count} {name}" for name, count in each.tensor_cores.items())
        full = each.occupancy
        sizes = (each.registers, f"{each.stack:,}", f"{each.shared:,}")
        rows.append((each.card, *sizes, f"{full.share:.0%}", full.limiter, cores or "none"))
    table(head, rows)


def multiprocessor():
    """Show one SM of an H100: four schedulers with their warps, lanes and registers; shared memory with its banks."""
    from matplotlib.patches import Rectangle

    figure = blank_figure((7.3, 3.7))
    set_title(figure, "One SM of an H100 SXM, which has 132 of them")
    axes = figure.subplots()

    def box(x, y, width, height, text, color, size=9):
        axes.add_patch(
            Rectangle((x, y), width, height, facecolor=color, edgecolor=INK, linewidth=0.8)
        )
        ink = "white" if color in (GPU, GREENS[0]) else INK
        axes.text(
            x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size, color=ink
        )

    for part in range(4):
        x = part * 25
        box(x + 0.5, 66, 24, 15, "scheduler: picks one\nof up to 16 warps", "white")
        box(x + 0.5, 50, 24, 15, "registers: 16,384\nof 32 bits", GREENS[4])
        box(x + 0.5, 37, 24, 12, "32 FP32 lanes", GPU)
        box(x + 0.5, 27, 24, 9, "tensor core", GREENS[0])
    for bank in range(32):
        box(bank * 3.115 + 0.5, 14, 2.9, 9, str(bank), GREENS[3], SMALL)
    axes.text(
        0.5,
        8.2,
        "shared memory and L1 cache, 256 KB: 32 banks, one 4-byte word each per cycle",
        fontsize=9,
        color=INK,
    )
    axes.text(
        0.5,
        1.8,
        "below it: L2 cache (50 MB), then HBM; data moves in sectors of 32 bytes",
        fontsize=9,
        color=FAINT,
    )
    axes.set(xlim=(0, 100), ylim=(0, 83))
    axes.axis("off")
    words = (
        "One SM: four parts, each with a scheduler for up to 16 warps, 16,384 registers, 32 lanes and a tensor core; "
        "below them shared memory with 32 banks, then the L2 cache and HBM."
    )
    figure.sources = ["NVIDIA, H100 Tensor Core GPU Architecture (whitepaper)"]
    show_figure(figure, words)


def padding(source):
    """Return draw(padding) for `explore`: in which bank the words of a column lie, and the conflict that a run counted."""

    def draw(padding):
        text = source.replace("tile[32][32]", f"tile[32][{32 + padding}]")
        worst = transposed(text).worst_conflict
        figure = blank_figure((7.0, 3.6))
        way = f"a {worst}-way bank conflict" if worst > 1 else "no conflict"
        set_title(figure, f"Rows of {32 + padding} words: column 0 is {way}")
        _draw_banks(figure.subplots(), padding)
        return figure, f"Rows of {32 + padding}: the run counted {way}."

    return draw


def transposed(text, n=64):
    """Run a square transpose in CUDA C on n × n numbers in tiles of 32, and return the `Result`."""
    import torch

    x, out = torch.randn(n, n), puzzle.blank(n, n)
    _, result = puzzle.run(
        text, puzzle.Problem([x, out, n], out, x.T, (n // 32, n // 32), "", (32, 8)), "H100"
    )
    torch.testing.assert_close(out, x.T)
    return result


def _draw_banks(axes, padding):
    """Draw the 32 banks as columns and the tile's words as cells; column 0 of the tile is filled."""
    from matplotlib.patches import Rectangle

    width = 32 + padding
    for row in range(32):
        line, bank = divmod(row * width, 32)
        crowd = sum((other * width) % 32 == bank for other in range(32))
        color = TROUBLE if crowd > 1 else GPU
        axes.add_patch(Rectangle((bank, line), 0.92, 0.92, facecolor=color))
    lines = 31 * width // 32 + 1
    axes.set(xlim=(-0.3, 32.3), ylim=(lines + 0.5, -0.5))
    axes.set_xticks([place + 0.46 for place in range(0, 32, 4)], range(0, 32, 4), fontsize=9)
    axes.set_yticks([])
    axes.set_xlabel(
        "bank of shared memory (filled: a word of the tile's column 0)", fontsize=9, color=FAINT
    )
    axes.tick_params(length=0)
    axes.set_facecolor("none")
    axes.spines[:].set_visible(False)
    axes.vlines(range(33), -0.5, lines + 0.5, color=RULE, linewidth=0.6)


def trap(compiled):
    """Show occupancy and stack by warps: `compiled` is {words: a `Compiled`}."""
    figure = blank_figure((7.3, 0.5 * len(compiled) + 1.2))
    set_title(figure, "The highest occupancy comes with the row spilled to memory")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, each in enumerate(compiled.values()):
        share = 100 * each.occupancy.share
        left.barh(place, share, color=WAIT, height=0.62)
        left.text(share + 2, place, f"{share:.3g}%", va="center", fontsize=9, color=INK)
        right.barh(place, each.stack, color=TROUBLE, height=0.62)
        right.text(each.stack + 60, place, f"{each.stack:,}", va="center", fontsize=9, color=INK)
    left.set_yticks(range(len(compiled)), compiled, fontsize=9)
    left.set_xlim(0, 120)
    right.set_xlim(0, 1.25 * max(1, *(each.stack for each in compiled.values())))
    for axes, words in ((left, "occupancy (%)"), (right, "stack of each thread (bytes)")):
        axes.set_xlabel(words, fontsize=9, color=FAINT)
        axes.set_facecolor("none")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0)
    left.invert_yaxis()
    said = "; ".join(
        f"{words}: {each.occupancy.share:.0%}, {each.stack:,} bytes"
        for words, each in compiled.items()
    )
    what = "on the left the occupancy of an SM, on the right the bytes of stack of each thread"
    show_figure(
        figure, f"Two panels of bars for a row of 32,768 numbers in 4 to 32 warps: {what}. {said}."
    )
