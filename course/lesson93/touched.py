"""What a learner's kernel touched: a cell for each element of its tensors, and how often."""

import itertools
from typing import Any

import torch

from course.checks.puzzle import Puzzle, parameters, run
from course.pictures.cells import box
from course.show import figures
from helpers.plots import GPU, GREENS, INK, RULE, SMALL, TROUBLE, drawing

MOST = 12  # rows and columns that are drawn
VERBS = {"load": "loaded", "store": "stored", "atomic": "added to"}


def touched(puzzle: Puzzle, answer: Any) -> None:
    """Show what `answer` touched in the puzzle's smallest problem, and how often: a cell for each element."""
    problem, result, counts = counted(puzzle, answer)
    corners = {name: torch.atleast_2d(each)[:MOST, :MOST] for name, each in counts.items()}
    cells = sum(max(each.shape[1], 9) + 2 for each in corners.values()) - 2
    size, rows = min(0.3, 6.9 / cells), max(len(each) for each in corners.values())
    title = f"What the kernel touched, with {problem.words}"
    figure, axes = drawing(title, (7.3, 1.15 + size * rows))
    left, said = 0, []
    for name, corner in corners.items():
        written = any(each.name == name and each.kind != "load" for each in result.touches)
        for row, column in itertools.product(*map(range, corner.shape)):
            times = int(corner[row, column])
            words = str(times) if times > 1 else ""
            look = {
                "edgecolor": "white" if times else RULE,
                "linewidth": 0.7,
                "fontsize": 9 if size > 0.25 else 7,
            }
            box(axes, left + column, row, 1, 1, _shade(times, written), words, **look)
        kinds = {each.kind for each in result.touches if each.name == name} or {"load"}
        told = _often(counts[name], VERBS[max(kinds, key=list(VERBS).index)])
        ink = TROUBLE if written and not counts[name].all() else INK
        axes.text(left, -0.4, f"{name}: {told}", fontsize=SMALL, color=ink, va="bottom")
        said.append(f"{name} {told}")
        left += max(corner.shape[1], 9) + 2
    axes.set(xlim=(-0.1, 6.9 / size + 0.2), ylim=(rows + 0.1, -1.5))
    axes.set_aspect("equal", anchor="NW")
    figures.show(figure, f"{title}: {'; '.join(said)}.")


def counted(puzzle: Puzzle, answer: Any) -> tuple[Any, Any, dict]:
    """Run `answer` on the puzzle's smallest problem; returns (problem, result, how often it touched each element, by tensor)."""
    torch.manual_seed(1)
    problem = puzzle.problems()[0]
    _, result = run(answer, problem, touches=True)
    tensors = dict(zip(parameters(answer), problem.values, strict=True))
    tensors = {name: each for name, each in tensors.items() if isinstance(each, torch.Tensor)}
    return (
        problem,
        result,
        {name: _times(result.touches, name, each) for name, each in tensors.items()},
    )


def _times(touches, name, tensor):
    """Return how often each element was touched: loads, or stores where there are any."""
    own = [each for each in touches if each.name == name]
    stores = [each for each in own if each.kind != "load"]
    places = torch.tensor([place for each in stores or own for place in each.places])
    return torch.bincount(places.long(), minlength=tensor.numel()).view(tensor.shape)


def _shade(times, written):
    return "white" if not times else GPU if written else GREENS[max(2, 5 - times)]


def _often(counts, verb):
    low, high = counts.min().item(), counts.max().item()
    if not low and high:
        return f"{(counts == 0).sum().item()} never {verb}"
    often = str(low) if low == high else f"{low} to {high}"
    return f"{verb} {'once' if often == '1' else f'{often} times'}"
