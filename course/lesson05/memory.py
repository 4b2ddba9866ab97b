"""What a training step holds over time: by part, in total, and by the line that allocated it."""

import linecache
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from helpers import plots
from helpers.memory import MIB

GROUND = ("parameters", "optimizer", "batch", "gradients", "activations")  # from the ground up
PASSING = "temporary"  # on top of them: gradients of activations, and the optimizer's workspace
PASSING_GRAY = "#B0B6BF"  # seen on white and, its lightness inverted, on black
PLACES = ("forward", "backward", "step")


def by_part(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[Tensor],
    step: Callable[[], object],
) -> tuple[list[str], dict[str, list[float]]]:
    """Run `step()` once and return (moments, {part: [MiB]}), a part of `GROUND` or `PASSING`.

    A moment is the end of a layer's forward, of a parameter's gradient or of the optimizer's step, and counts the most
    that was in use since the moment before. Activations are what autograd has saved beside the parameters and the batch
    (since the moment before, what a layer has just released included); what nobody saved is temporary.
    """
    places: list[str] = []
    sizes_by_part: dict[str, list[float]] = {part: [] for part in (*GROUND, PASSING)}
    device = next(model.parameters()).device
    optimizer.zero_grad()
    counted = sum(_counted_bytes(model, optimizer, batch, device))
    outside = torch.cuda.memory_allocated(device) - counted
    saved: weakref.WeakSet[_Saved] = weakref.WeakSet()
    known = {_storage(tensor) for tensor in (*model.parameters(), *model.buffers(), *batch)}
    held = 0  # bytes of activations at the moment before

    def mark(place: str) -> None:
        nonlocal held
        sizes = _counted_bytes(model, optimizer, batch, device)
        rest = max(0, torch.cuda.max_memory_allocated(device) - outside - sum(sizes))
        torch.cuda.reset_peak_memory_stats(device)
        before, held = held, _saved_bytes(saved, known)
        activations = min(rest, max(before, held))
        places.append(place)
        for part, size in zip(
            sizes_by_part, (*sizes, activations, rest - activations), strict=True
        ):
            sizes_by_part[part].append(size / MIB)

    def pack(tensor: Tensor) -> _Saved:
        kept = _Saved(tensor)
        saved.add(kept)
        return kept

    hooks = _mark_moments(model, optimizer, mark)
    torch.cuda.reset_peak_memory_stats(device)
    mark("start")
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
            step()
    finally:
        for hook in hooks:
            hook.remove()
    mark("end")
    return places, sizes_by_part


class _Saved:
    """A tensor that autograd has saved; it goes when autograd lets go of it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _saved_bytes(saved: Iterable[_Saved], known: set[int]) -> int:
    """Bytes of the storages of `saved`, each counted once, without the `known` ones."""
    storages = {_storage(kept.tensor): kept.tensor.untyped_storage().nbytes() for kept in saved}
    return sum(size for storage, size in storages.items() if storage not in known)


def _counted_bytes(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[Tensor],
    device: torch.device,
) -> list[int]:
    """Bytes on `device` of each of `GROUND` but the activations."""
    parameters = [*model.parameters()]
    state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return [
        sum(tensor.nbytes for tensor in tensors if tensor.device == device)
        for tensors in (parameters, state, batch, gradients)
    ]


def _mark_moments(
    model: nn.Module, optimizer: torch.optim.Optimizer, mark: Callable[[str], None]
) -> list[Any]:
    """Hooks that call `mark` with one of `PLACES` after each layer, each gradient and the optimizer's step."""
    layers = [layer for layer in model.modules() if not [*layer.children()]]
    hooks = [layer.register_forward_hook(lambda *_: mark("forward")) for layer in layers]
    for parameter in model.parameters():
        hooks.append(parameter.register_post_accumulate_grad_hook(lambda _: mark("backward")))
    hooks.append(optimizer.register_step_post_hook(lambda *_: mark("step")))
    return hooks


def in_total(step: Callable[[], object]) -> list[float]:
    """Run `step()` once and return the MiB in use after each allocation and each release."""
    before = torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history(context=None)
    try:
        step()
        events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    signs = {"alloc": 1, "free_completed": -1}
    changes = (signs[e["action"]] * e["size"] for e in events if e["action"] in signs)
    return [size / MIB for size in accumulate(changes, initial=before)]


def draw_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[Tensor],
    step: Callable[[], object],
    highest: float = 0,
) -> tuple[Any, str]:
    """Return (Figure, sentence): a step's memory over time, by what it is for. The axis ends at `highest` or above."""
    places, sizes = by_part(model, optimizer, batch, step)
    totals = [sum(each) for each in zip(*sizes.values(), strict=True)]
    peak, parameters = max(totals), max(sizes["parameters"])
    title = f"{_mib(parameters)} MiB of parameters, {_mib(peak)} MiB at the peak (forecast)"
    figure, axes = plots.new_figure(title, "", "MiB in use", (7.4, 3.4))
    colors = [plots.MEMORY[part] for part in GROUND]
    moments = range(len(places))  # each with the most since the moment before
    colors.append(PASSING_GRAY)
    look = {"edgecolor": plots.CARD, "linewidth": 0.6}  # tells the bands apart in a dark theme, too
    axes.stackplot(moments, *sizes.values(), colors=colors, step="pre", **look)
    axes.step(moments, totals, color=plots.INK, linewidth=1)
    axes.set_xlim(0, len(places) - 1)
    axes.set_ylim(0, max(highest, 1.25 * peak))
    axes.yaxis.set_major_formatter(lambda y, _: plots.number(y))
    firsts = [places.index(place) - 1 for place in PLACES]
    axes.set_xticks(firsts, [*PLACES[:-1], "optimizer.step()"], ha="left")
    heights = [totals[first] for first in firsts]  # no higher: words stand above the mountain
    axes.vlines(firsts, 0, heights, color=plots.INK, linewidth=0.8, linestyle=(0, (2, 2)))
    _name_bands(axes, sizes, firsts[1])
    top = totals.index(peak)
    words = _sum_at(sizes, top)
    axes.set_xlabel(f"at the peak: {words}", loc="left")
    point_at(axes, f"peak: {_mib(peak)} MiB", (top - 0.5, peak), (6, 14), "center")
    if sizes[PASSING][1] > 0.02 * axes.get_ylim()[1]:
        point_at(axes, PASSING, (0.5, totals[1] - sizes[PASSING][1] / 2), (0, 52), "left")
    return figure, f"{title}. In {places[top]}: {words}."


def _mib(size: float) -> str:
    return f"{size:,.0f}"


def _sum_at(sizes: dict[str, list[float]], moment: int) -> str:
    """The parts in use at that moment, with their MiB, and their sum; what is temporary takes up the rounding."""
    counted = {part: round(sizes[part][moment]) for part in GROUND}
    total = round(sum(size[moment] for size in sizes.values()))
    counted[PASSING] = total - sum(counted.values())
    terms = (f"{part} {_mib(size)}" for part, size in counted.items() if size > 0)
    return f"{' + '.join(terms)} = {_mib(total)} MiB"


def point_at(axes: Any, words: str, place: tuple[float, float], offset: Any, side: str) -> None:
    """Write `words` beside `place`, `offset` points away, with a line to it."""
    arrow = {"arrowstyle": "-", "color": plots.INK, "linewidth": 0.8}
    plots.note(axes, words, place, offset, ha=side, va="baseline", arrowprops=arrow)


def _name_bands(axes: Any, sizes: dict[str, list[float]], backward: int) -> None:
    """Write the parts' names at the right end of bands that are thick enough; activations in their hill, before `backward`."""
    bottom = 0.0
    for part in GROUND[:-1]:
        size = sizes[part][-1]
        if size > 0.03 * axes.get_ylim()[1]:
            plots.note(axes, part, (1, bottom + size / 2), xycoords=("axes fraction", "data"))
        bottom += size
    hill = sizes["activations"]
    top = hill.index(max(hill))
    below = sum(sizes[part][top] for part in GROUND[:-1])
    place = (min(top, backward), below + 0.4 * hill[top])
    if hill[top] > 0.06 * axes.get_ylim()[1]:
        look = {"ha": "right", "va": "baseline", "path_effects": []}
        plots.note(axes, "activations", place, (-6, 0), **look)


def source_line(frames: Sequence[dict[str, Any]]) -> str:
    """The text of the notebook's line among a block's `frames`, innermost first; else of any; "" without one."""
    lines = [linecache.getline(frame["filename"], frame["line"]).strip() for frame in frames]
    own = [
        line for line, frame in zip(lines, frames, strict=True) if "ipykernel" in frame["filename"]
    ]
    return next((line for line in [*own, *lines] if line), "")
