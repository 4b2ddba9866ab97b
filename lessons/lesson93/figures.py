"""The pictures of page 93: the list of par, and for each puzzle one result with what it needs."""

import inspect

import torch

from helpers.figures import GPU, GREENS, SMALL, blank_figure, set_title
from helpers.figures import show as show_figure
from helpers.palette import FAINT, INK, RULE
from lessons.lesson93 import exercises

MOST = 12  # rows and columns that are drawn
ALL = slice(None)
NEEDS = {  # name: (places of out, places of what goes in, the finding)
    "outer": ((3, 6), {"x": 3, "y": 6}, "an element needs one number of x and one of y"),
    "double": ((1, slice(4, 8)), {"x": (1, slice(4, 8))}, "four neighbors fit into one load"),
    "histogram": (5, {"x": lambda x: x == 5}, "out[5] counts the fives in x"),
    "convolve": (5, {"x": slice(3, 8), "w": ALL}, "an element needs five neighbors, five weights"),
    "online": ((1, 4), {"x": 1}, "an element needs its whole row"),
    "quantized": (3, {"x": ALL, "weight": 3, "scale": 3}, "an element needs a row of weights"),
    "attention": (
        (4, 2),
        {"q": 4, "k": ALL, "v": (ALL, 2)},
        "an element needs one query, all keys, a column of v",
    ),
}


def first_picture():
    """Return (figure, alternative text): the puzzles and par, each counted now."""
    figure = blank_figure((7.3, 3.1))
    set_title(figure, "Eight kernels, scored from their compiled code: beat par")
    axes = figure.subplots()
    said = []
    puzzles = [each for each in vars(exercises).values() if isinstance(each, exercises.Exercise)]
    for place, each in enumerate(puzzles):
        number = f"{each.par():.3g}"
        right = {"fontsize": 11, "color": GPU, "ha": "right", "weight": "bold"}
        axes.text(0, -place, each.title, fontsize=10, color=INK, va="center")
        axes.text(47, -place, number, va="center", **right)
        axes.text(49, -place, each.unit, fontsize=9, color=FAINT, va="center")
        said.append(f"{each.title}: {number} {each.unit}")
    axes.set(xlim=(0, 100), ylim=(-len(puzzles) + 0.4, 0.6))
    axes.axis("off")
    return figure, f"A list of the puzzles with par. {'; '.join(said)}."


def task(puzzle):
    """Show a puzzle's smallest problem: its tensors as grids, one result and what it needs in color."""
    torch.manual_seed(1)
    problem = puzzle.problems()[0]
    place, needs, finding = NEEDS[puzzle.name]
    named = dict(zip(_names(puzzle.reference), problem.values, strict=True))
    shown = {name: named[name] for name in needs} | {"out": problem.expected}
    marks = {name: _marked(shown[name], index) for name, index in (needs | {"out": place}).items()}
    cells = sum(mark.shape[1] + 2 for mark in marks.values()) - 2
    size = min(0.3, 6.9 / cells)
    figure = blank_figure((7.3, 0.95 + size * max(len(mark) for mark in marks.values())))
    set_title(figure, f"{puzzle.title.capitalize()}: {finding}")
    axes = figure.subplots()
    left = 0
    for name, mark in marks.items():
        _draw(axes, left, mark, GPU if name == "out" else GREENS[3])
        words = f"{name}, {' × '.join(map(str, shown[name].shape))}"
        axes.text(left, -0.4, words, fontsize=SMALL, color=INK, va="bottom")
        left += mark.shape[1] + 2
    axes.set(xlim=(-0.1, 6.9 / size), ylim=(max(len(mark) for mark in marks.values()) + 0.1, -1.5))
    axes.set_aspect("equal", anchor="NW")
    axes.axis("off")
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


def _draw(axes, left, marks, color):
    from matplotlib.patches import Rectangle

    for row, column in marks.nonzero().tolist() + (~marks).nonzero().tolist():
        look = {"facecolor": color if marks[row, column] else "white", "edgecolor": RULE}
        axes.add_patch(Rectangle((left + column, row), 1, 1, linewidth=0.7, **look))
