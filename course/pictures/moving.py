"""The pictures of the course that one steps through: a ring, FSDP, tiles of attention, and batches."""

from dataclasses import dataclass, field
from typing import NamedTuple

from helpers import plots

PALE = "#D5DAE1"  # a place that is empty
HALF = plots.GREENS[2]
Places = list[list[set[int]]]  # whose numbers, by GPU and chunk


class Box(NamedTuple):
    """A box of a frame: its place in columns and rows of the picture, its color and what stands in it."""

    x: float
    y: float
    width: float
    height: float
    color: str
    label: str = ""


@dataclass
class Picture:
    """Frames of (sentence, boxes) over a grid of `columns` and `rows`. `labels` name the rows; `alt` says it in words.

    `slider` names what the slider counts.
    """

    title: str
    alt: str
    columns: float
    rows: float
    labels: list
    frames: list = field(default_factory=list)
    slider: str = "step"

    def frame(self, sentence: str, boxes: list[Box]) -> None:
        """Add a frame."""
        self.frames.append((sentence, list(boxes)))


def ring_all_reduce(ranks: int = 4) -> Picture:
    """Return the picture of a ring all-reduce: `ranks` GPUs, as many chunks, 2 (ranks - 1) steps.

    A chunk is a row of places, one for each GPU's numbers; between two GPUs stand the chunks on their way.
    """
    steps = 2 * (ranks - 1)
    picture = Picture(
        f"A ring all-reduce: {steps} steps, and every GPU has the sum of all {ranks}",
        "A row for each GPU and a column for each chunk. A chunk has a place for each GPU's numbers, which fills when they "
        "are added; arrows show which chunk each GPU passes on.",
        columns=ranks,
        rows=2 * ranks + 1,
        labels=["", *(words for rank in range(ranks) for words in (f"GPU {rank}", ""))],
    )
    holds: Places = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    nothing: Places = [[set() for _ in range(ranks)] for _ in range(ranks)]
    words = "Each GPU has its own gradient, cut into chunks. Green: whose numbers a chunk holds."
    picture.frame(words, _ring_boxes(holds, nothing))
    for step in range(steps):
        came: Places = [[set() for _ in range(ranks)] for _ in range(ranks)]
        for rank in range(ranks):
            chunk = (rank - step) % ranks
            came[(rank + 1) % ranks][chunk] = holds[rank][chunk]
        holds = [
            [old | new for old, new in zip(*rows, strict=True)]
            for rows in zip(holds, came, strict=True)
        ]
        adds = step < ranks - 1
        half = f"{'first half: add' if adds else 'second half: keep'} what comes"
        sent = f"Each GPU has sent {(step + 1) / ranks:.3g} × its gradients so far."
        picture.frame(f"Step {step + 1}, {half}. {sent}", _ring_boxes(holds, came))
    return picture


def _ring_boxes(holds, came):
    """The boxes of a step: what each GPU holds by chunk, and above it, in violet, what has just come."""
    ranks = len(holds)
    width = 0.88 / ranks
    for rank, row in enumerate(holds):
        for chunk, held in enumerate(row):
            for source in range(ranks):
                x, new = chunk + 0.06 + source * width, source in came[rank][chunk]
                own = plots.GPU if len(held) == ranks else HALF
                color = plots.COMM if new else own if source in held else PALE
                label = str(source) if source in held else ""
                yield Box(x, 2 * rank + 1.04, width, 0.92, color, label)
            if came[rank][chunk]:
                yield from _ring_arrows(rank, chunk, ranks)


def _ring_arrows(rank, chunk, ranks):
    """The arrow into a chunk of `rank`; that of GPU 0 comes from the last one, around the ring."""
    yield Box(chunk + 0.44, 2 * rank + 0.1, 0.12, 0.8, plots.COMM, "↓")
    if rank == 0:
        yield Box(chunk + 0.44, 2 * ranks + 0.1, 0.12, 0.8, plots.COMM, "↓")


def fsdp(blocks: int = 4, ranks: int = 4) -> Picture:
    """Return the picture of a training step under FSDP: each of `ranks` keeps its part of each of `blocks`."""
    picture = Picture(
        "FSDP gathers a block before it runs and frees it after",
        "A row for each GPU, a column for each block: a shard is kept always, and of Adam's moments, too. One block is whole while "
        "the next arrives; after its backward pass, its gradients' shard stays.",
        columns=blocks,
        rows=ranks + 1,
        labels=["", *(f"GPU {rank}" for rank in range(ranks))],
    )
    picture.frame(f"At rest, each GPU has 1/{ranks} of every block.", _fsdp_boxes(blocks, ranks))
    for block in range(blocks):
        words = f"Forward, block {block + 1}: gathered; compute, then drop."
        picture.frame(words, _fsdp_boxes(blocks, ranks, block, block + 1))
    for block in reversed(range(blocks)):
        words = f"Backward, block {block + 1}: compute, reduce-scatter, drop."
        picture.frame(words, _fsdp_boxes(blocks, ranks, block, block - 1, range(block + 1, blocks)))
    words = f"Then each GPU has 1/{ranks} of the gradients, too."
    picture.frame(words, _fsdp_boxes(blocks, ranks, done=range(blocks)))
    return picture


def _fsdp_boxes(blocks, ranks, whole=None, coming=None, done=()):
    for block in range(blocks):
        yield Box(block, 0.2, 0.96, 0.8, plots.CARD, f"block {block + 1}")
    for rank in range(ranks):
        for block in range(blocks):
            width = 0.96 / ranks
            shard = block + rank * width
            if block == whole:
                yield Box(block, rank + 1.1, 0.96, 0.5, plots.GPU, "whole")
            elif block == coming:
                yield Box(block, rank + 1.1, 0.96, 0.5, plots.COMM, "all-gather")
            else:
                yield Box(block, rank + 1.1, 0.96, 0.5, PALE)
                yield Box(shard, rank + 1.1, width, 0.5, plots.GREENS[0])
            yield Box(shard, rank + 1.63, width, 0.14, plots.MEMORY["optimizer"])
            if block in done:
                yield Box(shard, rank + 1.8, width, 0.14, plots.MEMORY["gradients"])


def _grid(tiles):
    return [(row, column) for row in range(tiles) for column in range(tiles)]


def attention_tiles(tiles: int = 4) -> Picture:
    """Return the picture of fused attention: tiles of scores live for one step; only the output is kept."""
    picture = Picture(
        "Fused attention: each tile of scores is used immediately, then discarded",
        "A grid of scores, rows of queries and columns of keys: one tile at a time exists; the output beside it grows row by row.",
        columns=tiles + 2,
        rows=tiles,
        labels=[f"queries {row + 1}" for row in range(tiles)],
    )
    for row in range(tiles):
        for column in range(tiles):
            boxes = []
            for r, c in _grid(tiles):
                here = (r, c) == (row, column)
                boxes.append(
                    Box(c, r, 0.95, 0.92, plots.GPU if here else PALE, "Q Kᵀ" if here else "")
                )
            for r in range(tiles):
                color = plots.GREENS[0] if r < row else HALF if r == row else PALE
                boxes.append(Box(tiles + 1, r, 0.95, 0.92, color, "output" if r <= row else ""))
            words = f"Queries {row + 1}, keys {column + 1}: score this tile, mix its values into the output, drop it."
            picture.frame(words, boxes)
    return picture


FREE = "#ECEFF3"  # a place for a warp, without one


def latency_hiding(load: int = 400, work: int = 40, places: int = 16) -> Picture:
    """Return the picture of a scheduler: frame n has n warps, each of which computes `work` cycles and loads for `load`."""
    end = 2 * (load + work)
    picture = Picture(
        "While one warp waits, the scheduler runs another",
        f"A scheduler and its {places} places for warps over {end:,} cycles. Each warp computes {work} cycles, then waits {load} "
        "for a load; with each additional warp, the scheduler has work for a larger share of the time.",
        columns=end,
        rows=8.75,
        labels=["scheduler", "warp 1", *[""] * 6, f"warp {places}"],
        slider="warps",
    )
    for warps in range(places + 1):
        busy = min(1, warps * work / (load + work))
        name = "warp" if warps == 1 else "warps"
        boxes = [Box(0, 0, end, 1, PALE)]
        for place in range(places):
            boxes.append(Box(0, _warp_row(place), end, 0.42, PALE if place < warps else FREE))
        for warp in range(warps):
            for begin in range(warp * work, end, max(load + work, warps * work)):
                cycles = min(work, end - begin)
                boxes.append(Box(begin, _warp_row(warp), cycles, 0.42, plots.GPU))
                boxes.append(Box(begin, 0, cycles, 1, plots.GPU))
        picture.frame(f"{warps} {name}: the scheduler has work {busy:.0%} of the time.", boxes)
    return picture


def _warp_row(warp):
    return round(1.25 + 7 * warp / 15, 2)
