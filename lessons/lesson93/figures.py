"""The pictures of page 93: what goes into a kernel and what has to come out, as small grids of real numbers."""

import inspect

import torch

from helpers.figures import GPU, SMALL, blank_figure, set_title
from helpers.figures import show as show_figure
from helpers.palette import FAINT, INK
from lessons.lesson93 import exercises

MOST = 12  # rows and columns that are drawn


def first_picture():
    """Return (figure, alternative text): the puzzles and par, each counted now."""
    chosen = [each for each in vars(exercises).values() if isinstance(each, exercises.base.Puzzle)]
    figure = blank_figure((7.3, 3.1))
    set_title(figure, "Eight kernels, scored from their compiled code: beat par")
    axes = figure.subplots()
    pars = {each.title: (each.par(), each.unit) for each in chosen}
    mine, _ = exercises.product_score(exercises.TILES["TILE"], exercises.TILES["num_warps"])
    pars["a tiled product"] = (mine, "bytes requested per 1,000 operations")
    for place, (title, (par, unit)) in enumerate(pars.items()):
        axes.text(0, -place, title, fontsize=10, color=INK, va="center")
        axes.text(
            47, -place, f"{par:.3g}", fontsize=11, color=GPU, va="center", ha="right", weight="bold"
        )
        axes.text(49, -place, unit, fontsize=9, color=FAINT, va="center")
    axes.set(xlim=(0, 100), ylim=(-len(pars) + 0.4, 0.6))
    axes.axis("off")
    said = "; ".join(f"{title}: {par:.3g} {unit}" for title, (par, unit) in pars.items())
    return figure, f"A list of the puzzles with par. {said}."


def task(puzzle):
    """Show a puzzle's smallest problem: its tensors as grids, and at the right what belongs into out."""
    torch.manual_seed(1)
    problem = puzzle.problems()[0]
    names = _names(puzzle.reference)
    tensors = {
        name: value
        for name, value in zip(names, problem.values, strict=True)
        if isinstance(value, torch.Tensor) and value is not problem.out
    }
    shown = {**tensors, "out": problem.expected}
    figure = blank_figure((7.3, 2.3))
    set_title(figure, f"{puzzle.title}: {', '.join(tensors)} → out")
    widths = [1 + min(MOST, _grid(each).shape[1]) for each in shown.values()]
    panels = figure.subplots(1, len(shown), gridspec_kw={"width_ratios": widths})
    for axes, (name, tensor) in zip(panels, shown.items(), strict=True):
        _draw(axes, name, tensor, name == "out")
    sizes = ", ".join(f"{name} {' × '.join(map(str, each.shape))}" for name, each in shown.items())
    show_figure(figure, f"Tensors as grids of cells, darker for larger numbers: {sizes}.")


def _names(reference):
    if isinstance(reference, str):
        inside = reference.partition("(")[2].partition(")")[0]
        return [each.split()[-1].lstrip("*") for each in inside.split(",")]
    return list(inspect.signature(reference).parameters)


def _grid(tensor):
    grid = tensor.float()
    return grid[None] if grid.ndim == 1 else grid


def _draw(axes, name, tensor, result):
    grid = _grid(tensor)[:MOST, :MOST]
    axes.imshow(
        grid, cmap="Greens" if result else "Greys", vmin=grid.min() - 0.3 * grid.std(), alpha=0.9
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(GPU if result else FAINT)
    size = " × ".join(map(str, tensor.shape))
    axes.set_title(f"{name}\n{size}", fontsize=SMALL, color=GPU if result else INK)
