"""What a snapshot of GPU memory remembers: which line allocated what, how long it stayed, and what is still there."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from course.checks.core import same_code
from course.lesson05.memory import source_line
from course.show import vega
from helpers import plots
from helpers.memory import MIB, format_bytes

EARLIER = "no stack: allocated before recording began"
SMALLEST = 2**16  # bytes: what is smaller can't be seen
COLORS = [
    plots.GREENS[n] for n in (0, 2, 1, 3)
]  # the line with the most bands stands out in both themes


@dataclass
class Block:
    """One allocation: its bytes, the line that made it, (moment, MiB below it) wherever that changed, and its release."""

    size: int
    line: str
    bottoms: list[tuple[int, float]]
    freed: bool = False


def blocks(snapshot: dict) -> list[Block]:
    """Return the allocations recorded in `snapshot`, in order; a moment is an allocation or a release.

    Blocks stand on those that are older, as in PyTorch's memory_viz; each ends with its release or the last moment.
    """
    alive: dict[int, Block] = {}
    found = []
    moment = 0
    for moment, event in enumerate(_events(snapshot), 1):
        if event["action"] == "alloc":
            block = Block(event["size"], source_line(event["frames"]), [])
            alive[event["addr"]] = block
            found.append(block)
        else:
            ended = alive.pop(event["addr"])
            ended.freed = True
            ended.bottoms.append((moment, ended.bottoms[-1][1]))
        bottom = 0.0
        for block in alive.values():
            if not block.bottoms or block.bottoms[-1][1] != bottom:
                block.bottoms.append((moment, bottom))
            bottom += block.size / MIB
    for block in alive.values():
        block.bottoms.append((moment + 1, block.bottoms[-1][1]))
    return found


def _events(snapshot: dict) -> Iterator[dict]:
    """The allocations of `snapshot` that can be seen, and their releases."""
    known = set()
    for event in snapshot["device_traces"][torch.cuda.current_device()]:
        if event["action"] == "alloc" and event["size"] >= SMALLEST:
            known.add(event["addr"])
            yield event
        elif event["action"] == "free_completed" and event["addr"] in known:
            known.remove(event["addr"])
            yield event


def held(snapshot: dict) -> list[tuple[str, int]]:
    """Return the three lines that allocated most of what is in use in `snapshot`, each with its bytes, most first.

    A snapshot has segments, a segment blocks; a block in use has its size and its stack of calls, the frames.
    """
    found: Counter[str] = Counter()
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[source_line(block["frames"]) or EARLIER] += block["size"]
    return found.most_common(3)


def told(snapshot: dict) -> list[str]:
    """Return what is `held`, a line of text for each line of the program."""
    return [f"{format_bytes(size):>9}  {line}" for line, size in held(snapshot)]


def chart(snapshot: dict) -> vega.Chart:
    """Return the memory that `snapshot` saw over time, a band for each allocation, in the color of its line."""
    found = blocks(snapshot)
    lines = Counter(block.line for block in found)
    colors = dict(zip((line for line, _ in lines.most_common(4)), COLORS, strict=False))
    end = sum(block.size for block in found if not block.freed) / MIB
    peak = max(bottom + block.size / MIB for block in found for _, bottom in block.bottoms)
    title = f"{peak:.0f} MiB on top of the model at the peak, {end:.0f} MiB at the end"
    alt = f"{title}, since the recording began: {len(found)} bands, each as long as its memory was in use."
    return vega.Chart(_spec(found, colors, title), _drawn(found, colors, title), alt)


def watch(
    evaluate: Callable, make_model: Callable[[], nn.Module], before: Callable | None = None
) -> None:
    """Show the memory of `evaluate(model, batches)` over eight batches of 256 rows of 1,024 numbers, in 10 classes.

    Nothing is shown while `evaluate` does what `before` did.
    """
    if before and same_code(evaluate, before):
        return
    model = make_model()
    batches = [(torch.rand(256, 1024), torch.randint(10, (256,))) for _ in range(8)]
    torch.cuda.memory._record_memory_history(stacks="python")
    try:
        results = evaluate(model, batches)  # still held when the snapshot is taken
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    del results
    chart(snapshot).show()


def _spec(found: list[Block], colors: dict[str, str], title: str) -> dict[str, Any]:
    texts = vega.Texts()
    table = [
        (number, moment, round(low, 2), round(low + block.size / MIB, 2), texts.index(block.line))
        for number, block in enumerate(found)
        for moment, low in block.bottoms
    ]
    line = {"field": "line", "type": "nominal", "title": None}
    scale = {"domain": [*colors], "range": [*colors.values()]}
    legend = {"columns": 1, "labelLimit": 600, "labelFont": "monospace"}
    return {
        **vega.csv("block,moment,low,high,text", table),
        "title": title,
        "height": 260,
        "transform": vega.calculate(
            line=f"{texts.list}[datum.text]",
            size="format(datum.high - datum.low, '.3~r') + ' MiB'",
        ),
        "mark": {
            "type": "area",
            "interpolate": "step-after",
            "stroke": plots.CARD,
            "strokeWidth": 0.6,
        },
        "encoding": {
            "x": {
                "field": "moment",
                "type": "quantitative",
                "title": "allocations and releases, in their order",
                "axis": {"grid": False, "labels": False},
            },
            "y": {"field": "low", "type": "quantitative", "title": "MiB", "stack": None},
            "y2": {"field": "high"},
            "detail": {"field": "block"},
            "color": {**line, "scale": scale, "legend": legend},
            "tooltip": [
                {"field": "size", "title": "size"},
                {"field": "line", "title": "allocated by"},
            ],
        },
    }


def _drawn(found: list[Block], colors: dict[str, str], title: str) -> Figure:
    """The same bands as a picture."""
    size = (7.3, 3.4)
    figure, axes = plots.new_figure(title, "allocations and releases, in their order", "MiB", size)
    for block in found:
        moments, bottoms = zip(*block.bottoms, strict=True)
        tops = [bottom + block.size / MIB for bottom in bottoms]
        color = colors.get(block.line, plots.RULE)
        axes.fill_between(
            moments, bottoms, tops, step="post", color=color, ec=plots.CARD, linewidth=0.5
        )
    for line, color in colors.items():
        axes.fill_between([], [], color=color, label=line)
    look = {
        "frameon": False,
        "fontsize": 9,
        "labelcolor": plots.INK,
        "prop": {"family": "monospace"},
    }
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), borderaxespad=0.2, **look)
    axes.set_xticks([])
    axes.set(xlim=(0, None), ylim=(0, None))
    return figure
