"""The pictures of page 93: from first kernels to par, and for each puzzle one result with what it needs."""

import inspect

import torch

from course.checks.puzzle import digits
from course.lesson93 import exercises, touched
from course.pictures.cells import box, grid
from course.show.figures import show as show_figure
from helpers.plots import (
    FAINT,
    GPU,
    GREENS,
    INK,
    RULE,
    SMALL,
    drawing,
)

MOST = 12  # rows and columns that are drawn
ALL = slice(None)
NEEDS = {  # name: (places of the result, places of what goes in, the finding)
    "add_ten": (5, {"x": 5}, "out[5] takes x[5]"),
    "add_two": (
        slice(4, 8),
        {"x": slice(4, 8), "y": slice(4, 8)},
        "program 1 of three adds four pairs",
    ),
    "guard": (
        slice(8, 10),
        {"x": slice(8, 10)},
        "program 1 has places 8 to 15, and x ends at 9",
    ),
    "row_sums": (2, {"x": 2}, "an element needs its whole row"),
    "double": ((1, slice(4, 8)), {"x": (1, slice(4, 8))}, "four neighbors fit into one load"),
    "histogram": (5, {"x": lambda x: x == 5}, "out[5] counts the fives in x"),
    "convolve": (5, {"x": slice(3, 8), "w": ALL}, "an element needs five neighbors, five weights"),
    "online": ((1, 4), {"x": 1}, "an element needs its row's maximum and sum"),
    "product": (
        (slice(4, 8), slice(4, 8)),
        {"a": slice(4, 8), "b": (ALL, slice(4, 8))},
        "a tile of c needs a band of a and a band of b",
    ),
    "quantized": (3, {"x": ALL, "weight": 3, "scale": 3}, "an element needs a row of weights"),
    "attention": (
        (4, 2),
        {"q": 4, "k": slice(5), "v": (slice(5), 2)},
        "word 4 needs the keys and values of words 0 to 4",
    ),
}
OBVIOUS = """
extern "C" __global__ void convolve(const float* x, const float* w, float* out, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  float total = 0;
  for (int k = 0; k < 5; k++)
    if (i + k >= 2 && i + k - 2 < n && i < n) total += w[k] * x[i + k - 2];
  if (i < n) out[i] = total;
}
"""


def first_picture():
    """Return (figure, alternative text): how often two kernels with the same result load each number, and their scores."""
    each, said = exercises.convolve, []
    figure, axes = drawing("One convolution, two kernels: how often each loads x[i]", (7.3, 2.2))
    kernels = {"the obvious way": OBVIOUS, "par": each.reference}
    for row, (name, answer) in enumerate(kernels.items()):
        _, _, counts = touched.counted(each, answer)
        times, score, top = counts["x"][:MOST].tolist(), each.scored(answer), 2.1 * row
        axes.text(-0.4, top + 0.5, name, fontsize=10, color=INK, ha="right", va="center")
        for place, count in enumerate(times):
            color = GREENS[max(1, 4 - count)]
            box(axes, place, top, 1, 1, color, str(count), edgecolor=RULE, linewidth=0.7)
        axes.text(MOST + 0.6, top + 0.5, "…", **_beside("center"))
        axes.barh(top + 0.5, 7 * score / 33, 0.9, MOST + 1.6, color=GPU)
        words = f"{digits(score)} bytes per result"
        axes.text(MOST + 1.7, top + 1.4, words, fontsize=10, color=INK, va="center")
        said.append(f"{name}: loads {', '.join(map(str, times))}, {words}")
    axes.set(xlim=(-5.6, 21.5), ylim=(4.1, -0.2))
    return (
        figure,
        f"How often two kernels for a convolution load each of the first {MOST} numbers. {'; '.join(said)}.",
    )


def _beside(side):
    return {"ha": side, "va": "center", "fontsize": 9, "color": INK if side == "right" else FAINT}


def broadcast():
    """Show the first puzzle: x stands beside `out` and y above it; one element on the left, one program's tile on the right."""
    title = "Broadcast: an element needs one x and one y, a tile of 8 × 8 only 16 numbers"
    figure, axes = drawing(title, (7.3, 3.2))
    for left, rows, columns, words in (
        (0, slice(3, 4), slice(6, 7), "one element"),
        (17, slice(0, 8), slice(0, 8), "one tile: program (0, 0)"),
    ):
        x, y, out = (torch.zeros(size, dtype=torch.bool) for size in ((10, 1), (1, 10), (10, 10)))
        x[rows], y[:, columns], out[rows, columns] = True, True, True
        for name, marks, column, row in (("x", x, 0, 2), ("y", y, 2, 0), ("out", out, 2, 2)):
            _draw(axes, left + column, marks, GPU if name == "out" else GREENS[3], row)
        axes.text(left + 0.5, 1.7, "x", **_beside("center"))
        axes.text(left + 1.7, 0.5, "y", **_beside("right"))
        axes.text(left + 12.4, 7, f"out\n{words}", **_beside("left"))
    axes.set(xlim=(-0.2, 37), ylim=(12.2, -0.2))
    axes.set_aspect("equal", anchor="NW")
    show_figure(
        figure,
        "x as a column beside out, y as a row above it: out[3, 6] needs x[3] and y[6]; "
        "the tile of program (0, 0) needs eight of each.",
    )


def task(puzzle):
    """Show a puzzle's smallest problem: its tensors as grids, one result and what it needs in color."""
    torch.manual_seed(1)
    problem = puzzle.problems()[0]
    place, needs, finding = NEEDS[puzzle.name]
    named = dict(
        zip(_names(getattr(puzzle, "kernel", puzzle.reference)), problem.values, strict=True)
    )
    result = "out" if "out" in named else "c"
    shown = {name: named[name] for name in needs} | {result: problem.expected}
    marks = {name: _marked(shown[name], index) for name, index in (needs | {result: place}).items()}
    cells = sum(mark.shape[1] + 2 for mark in marks.values()) - 2
    size = min(0.3, 6.9 / cells)
    rows = max(len(mark) for mark in marks.values())
    figure, axes = drawing(
        f"{puzzle.title.capitalize()}: {finding}", (7.3, 0.95 + size * (rows + 0.9))
    )
    left = 0
    for name, mark in marks.items():
        _draw(axes, left, mark, GPU if name == result else GREENS[3])
        _tell(axes, left, shown[name], mark)
        words = f"{name}, {' × '.join(map(str, shown[name].shape))}"
        axes.text(left, -0.4, words, fontsize=SMALL, color=INK, va="bottom")
        left += mark.shape[1] + 2
    axes.set(xlim=(-0.1, 6.9 / size + 0.2), ylim=(rows + 1, -1.5))
    axes.set_aspect("equal", anchor="NW")
    sizes = ", ".join(f"{name} {' × '.join(map(str, each.shape))}" for name, each in shown.items())
    show_figure(figure, f"Tensors as grids of cells, {sizes}: {finding}.")


def _names(reference):
    if isinstance(reference, str):
        inside = reference.partition("(")[2].partition(")")[0]
        return [each.split()[-1].lstrip("*") for each in inside.split(",")]
    return list(inspect.signature(reference).parameters)


def _marked(tensor, index):
    """Return which cells of a tensor's corner are marked, as a grid; `index` may be a function of the tensor."""
    marks = torch.zeros(tensor.shape, dtype=torch.bool)
    marks[index(tensor) if callable(index) else index] = True
    return torch.atleast_2d(marks)[:MOST, :MOST]


def _tell(axes, left, tensor, marks):
    """Write counts into their cells, and "…" where the tensor goes on beyond what is drawn."""
    look = {"ha": "center", "va": "center", "fontsize": 9}
    if tensor.dtype == torch.int32:
        for place, value in enumerate(tensor.tolist()[:MOST]):
            ink = "white" if marks[0, place] and tensor.numel() < MOST else INK
            axes.text(left + place + 0.5, 0.5, str(value), color=ink, **look)
    rows, columns = marks.shape
    whole = torch.atleast_2d(tensor).shape
    if whole[1] > columns:
        axes.text(left + columns + 0.6, rows / 2, "…", color=FAINT, **look)
    if whole[0] > rows:
        axes.text(left + columns / 2, rows + 0.5, "⋮", color=FAINT, **look)


def _draw(axes, left, marks, color, top=0):
    colors = [[color if on else "white" for on in row] for row in marks.tolist()]
    grid(axes, left, top, colors, 1, edgecolor=RULE, linewidth=0.7)
