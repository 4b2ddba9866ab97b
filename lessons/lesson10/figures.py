"""The figures of lesson 10: memory of four GPUs, who holds what, bytes of a rank, published runs and the explorer."""

from itertools import product

import measurements
from helpers import plots
from helpers.checks.core import CORRECT
from helpers.figures import plain_ticks
from lessons.lesson10.exercises import bytes as bytes_exercise
from lessons.lesson10.exercises import rank_bytes

PARTS = ("weights", "gradients", "optimizer")
SHARES = (4, 4, 8)  # bytes a parameter of the three parts, in float32 with Adam
STAGES = ("DDP: nothing is split", "stage 1", "stage 2", "stage 3")
MACHINE = 8  # GPUs in a machine


def draw_four(losses, peaks, room, parameters):
    """A figure and a sentence: the losses of a training, and the peak MiB of each GPU beside their `room` in MiB.

    A dotted bar shows what weights, gradients and optimizer of so many `parameters` would take on one GPU.
    """
    title = f"It trains: loss {losses[0]:.1f} to {losses[-1]:.1f}, with at most {max(peaks):.0f} MiB on a GPU"
    figure, (left, right) = plots.panels(title, 1, 2, size=(7.2, 2.9))
    left.plot(losses, color=plots.COLORS[0], linewidth=2)
    left.set(xlabel="step", ylabel="loss", ylim=(0, None), xticks=range(0, len(losses) + 1, 16))
    names = [f"GPU {index}" for index in range(len(peaks))]
    right.bar(names, peaks, color=plots.COLORS[2], hatch="//", edgecolor="white")
    needed = rank_bytes(parameters, 1, 0) / 2**20
    right.bar("one", needed, color="#f2f2f2", edgecolor="black", linestyle=":")
    right.axhline(room, color=plots.COLORS[1], linestyle="--")
    right.annotate(
        f"{room} MiB is all there is", (-0.4, room), (0, -3), textcoords="offset points", va="top"
    )
    right.set(ylabel="highest use (MiB)", ylim=(0, 1.1 * needed))
    plots.tidy(left)
    plots.tidy(right)
    return figure, f"{title}, of {room}."


def draw_stages(parameters, ranks=4):
    """A figure and a sentence: which parts of weights, gradients and optimizer each rank holds in each stage."""
    mib = [rank_bytes(parameters, ranks, stage) / 2**20 for stage in range(4)]
    title = f"A rank of {ranks} holds {mib[0]:.0f} MiB with DDP, {mib[3]:.0f} when all is split"
    figure, parts = plots.panels(title, 2, 2, size=(7.6, 3.4))
    for stage, axes in enumerate(parts.flat):
        for rank in range(ranks):
            _draw_rank(axes, stage, rank, ranks)
        _dress_ranks(axes, ranks, f"{STAGES[stage]}: {mib[stage]:.0f} MiB a rank")
        axes.set_xticks([2, 6, 12], PARTS, fontsize=8)
    return figure, f"{title}. Filled: what the rank holds."


def _draw_rank(axes, stage, rank, ranks):
    """One row of cells, `ranks` for each part; in the parts that are split only the rank's own cell is filled."""
    begin = 0
    for part, share in enumerate(SHARES):
        split = stage >= len(SHARES) - part  # stage 1 splits the last part, stage 3 all
        width = share / ranks
        for cell in range(ranks):
            _draw_cell(axes, rank, begin + cell * width, width, part, not split or cell == rank)
        begin += share


def _draw_cell(axes, rank, begin, width, part, held):
    """A cell in the row of a rank, in the look of its part, or empty where another rank holds it."""
    filled = {"color": plots.COLORS[part], "hatch": plots.HATCHES[part]}
    look = filled if held else {"color": "#f2f2f2"}
    axes.barh(rank, width, left=begin, height=0.8, edgecolor="white", **look)


def _dress_ranks(axes, ranks, title):
    """A title, the ranks' names from top to bottom, and no frame."""
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)], fontsize=8)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw_ranks(answer, billions=7, room=80):
    """A figure and a sentence: GB of a rank by their number in four stages, by `answer` once its check passes."""
    function = answer if bytes_exercise.outcome(answer).status == CORRECT else rank_bytes
    ranks = [2**n for n in range(8)]
    lines = {
        name: (ranks, [function(1e9 * billions, n, stage) / 1e9 for n in ranks])
        for stage, name in enumerate(STAGES)
    }
    enough = next(n for n, gb in zip(*lines["stage 2"], strict=True) if gb < room)
    title = f"{billions} billion parameters fit {room} GB from {enough} ranks on, by stage 2 or 3"
    figure = plots.lines(lines, title, "ranks", "GB on each rank", logx=True, logy=True)
    _draw_room(figure.axes[0], room)
    return figure, f"{title}; with DDP {lines[STAGES[0]][1][0]:.0f} GB each."


def _draw_room(axes, room):
    axes.axhline(room, color="black", linewidth=1)
    place = {"xy": (1, room), "xycoords": ("axes fraction", "data"), "xytext": (-2, -3)}
    axes.annotate(
        f"{room} GB", **place, textcoords="offset points", ha="right", va="top", fontsize=8
    )


MOVES = (  # title, and what a rank holds of the block's weights and gradients: "", "own" quarter or "all"
    ("between blocks", "own", ""),
    ("forward: all-gather", "all", ""),
    ("backward: all-gather", "all", "all"),
    ("then reduce-scatter", "own", "own"),
)


def draw_moves(ranks=4):
    """A figure and a sentence: what each rank holds of one block, from its quarter to the gradients added up."""
    title = "One block: all-gather fetches the weights, reduce-scatter adds up the gradients"
    figure, places = plots.panels(title, 1, len(MOVES), size=(8.4, 2.4))
    for axes, (name, *parts) in zip(places, MOVES, strict=True):
        for rank, quarter in product(range(ranks), range(ranks)):
            for part, holds in enumerate(parts):
                held = holds == "all" or (holds == "own" and quarter == rank)
                _draw_cell(axes, rank, part * ranks + quarter, 1, part, held)
        _dress_ranks(axes, ranks, name)
        axes.set_xticks([ranks / 2, 1.5 * ranks], PARTS[:2], fontsize=8)
    sentence = "A quarter of the weights; all of them while the block runs; a quarter of the gradients' mean."
    return figure, sentence


MATRICES = (  # what a GPU has of each: its rows of cells, columns of cells, and along which it is split
    ("x", 3, 4, None),
    ("@  up", 4, 6, "columns"),
    ("=  hidden", 3, 6, "columns"),
    ("@  down", 6, 4, "rows"),
    ("=  a part of the sum", 3, 4, None),
)


def draw_splits(gpus=2):
    """A figure and a sentence: what each GPU holds of two products, split by columns first and by rows second."""
    title = "Columns first, rows second: nothing to send until the sum"
    figure, places = plots.panels(title, gpus, 1, size=(7.2, 3.4))
    for gpu, axes in enumerate(places):
        left = 0
        for name, rows, columns, split in MATRICES:
            axes.text(left, -0.8, name, fontsize=9)
            for row, column in product(range(rows), range(columns)):
                place = {"rows": row * gpus // rows, "columns": column * gpus // columns}
                _draw_cell(axes, row, left + column, 1, gpu, place.get(split, gpu) == gpu)
            left += columns + 2
        axes.set_ylabel(f"GPU {gpu}")
        axes.set(xticks=[], yticks=[], ylim=(6, -2))
        axes.spines[:].set_visible(False)
    return figure, f"{title}. Filled: what the GPU holds."


def exchange_s(way, billions, n):
    """Seconds in which each of n GPUs sends and receives what a step needs, in bfloat16, over one link or two."""
    machines = max(1, n // MACHINE)
    inside = min(n, MACHINE)
    if way == "sharded in a machine":
        across = _ring(machines) * 2 * 2 * billions / inside / between_gb_per_s(machines)
        return _ring(inside) * 3 * 2 * billions / inside_gb_per_s() + across
    return sent_gb(way, billions, n) / (inside_gb_per_s() if n <= MACHINE else between_gb_per_s(2))


def sent_gb(way, billions, n):
    """GB that each of n GPUs sends in a step, in bfloat16: gradients twice, or weights twice and gradients once."""
    weights = 2 * billions
    if way == "sharded in a machine":
        across = _ring(max(1, n // MACHINE)) * 2 * weights / min(n, MACHINE)
        return _ring(min(n, MACHINE)) * 3 * weights + across
    return _ring(n) * {"DDP": 2, "fully_shard": 3}[way] * weights


def _ring(n):
    """The share of a tensor that each of n GPUs passes on, once around."""
    return (n - 1) / n


def hops_s(way, n, blocks=32, hop_s=3e-6):
    """Seconds of passing on itself: three rounds a block over the ring that fetches weights; DDP fetches none."""
    ring = {"DDP": 1, "fully_shard": n, "sharded in a machine": min(n, MACHINE)}[way]
    return 3 * blocks * (ring - 1) * hop_s


def inside_gb_per_s():
    """What an all-reduce of 1 GiB carries between eight H200 of one machine, GB/s; published."""
    [row] = measurements.published("all_reduce_nodes").rows(device="8 × H200", bytes=2**30)
    return row["gb_per_s"]


def between_gb_per_s(machines):
    """GB/s of a GPU's cable to other machines, 400 Gb/s as in the published run; one machine needs none."""
    return 50 if machines > 1 else float("inf")


def draw_scale(step_s, billions, tokens, gpus):
    """A figure and a sentence: memory and efficiency from 1 to 4,096 GPUs; `step_s(way, billions, tokens, n)` in s."""
    ways = ("DDP", "fully_shard", "sharded in a machine")
    numbers = [2**k for k in range(13)]
    held = memory_gb("fully_shard", billions, gpus)
    share = efficiency(step_s, "fully_shard", billions, tokens, gpus)
    title = f"fully_shard, {billions:g} billion, {gpus:,} GPUs: {held:.3g} GB each, {share:.0%} of the speed of one alone"
    figure, (left, right) = plots.panels(title, 1, 2, size=(8.6, 3.7))
    for place, way in enumerate(ways):
        width = 4 if way == "DDP" else 2  # wide: another line may lie on it
        look = {"color": plots.COLORS[place], "linestyle": plots.STYLES[place], "linewidth": width}
        left.plot(numbers, [memory_gb(way, billions, n) for n in numbers], label=way, **look)
        shares = [efficiency(step_s, way, billions, tokens, n) for n in numbers]
        right.plot(numbers, [100 * share for share in shares], label=way, **look)
    _draw_published(right)
    _dress(left, right, gpus)
    names = ("fsdp_llama_h100", "fsdp_mpt_a100")
    sources = [f"published: {measurements.published(name).source}" for name in names]
    sent = sent_gb("fully_shard", billions, gpus)
    return plots.sources(figure, *sources), f"{title}; each sends {sent:.3g} GB a step."


def memory_gb(way, billions, n):
    """GB of weights, gradients and Adam on each of n GPUs."""
    over = {"DDP": 1, "fully_shard": n, "sharded in a machine": min(n, MACHINE)}[way]
    return 16 * billions / over


def efficiency(step_s, way, billions, tokens, n):
    """The time of one GPU that has nothing to send, by the time of n GPUs with as many tokens each."""
    return step_s(way, billions, tokens, 1) / step_s(way, billions, tokens, n)


def _draw_published(axes):
    """Tokens a second of each GPU, by that of the smallest published run."""
    llama = measurements.published("fsdp_llama_h100").rows(model="8B", way="FSDP")
    mpt = measurements.published("fsdp_mpt_a100").rows(model="7B")
    runs = {"Llama 8B, FSDP": llama, "MPT 7B, FSDP": mpt}
    for place, (name, rows) in enumerate(runs.items(), 3):
        numbers = [row["gpus"] for row in rows]
        shares = [100 * row["tokens_per_s"] / rows[0]["tokens_per_s"] for row in rows]
        look = {"color": plots.COLORS[place], "marker": plots.MARKERS[place], "markersize": 7}
        label = f"{name} (published; {numbers[0]} GPUs: 100)"
        axes.plot(numbers, shares, linestyle="none", fillstyle="none", label=label, **look)


def _dress(left, right, gpus):
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 8, 64, 512, 4096], ["1", "8", "64", "512", "4,096"])
        axes.set_xlabel("GPUs")
        axes.axvline(gpus, color="#808080", linewidth=1)
        axes.annotate(
            f"{gpus:,}", (gpus, 1), (3, -9), ("data", "axes fraction"), "offset points", fontsize=8
        )
        plots.tidy(axes)
    left.set_yscale("log")
    left.set_ylim(top=3 * left.get_ylim()[1])  # room for a label
    plain_ticks(left.yaxis)
    left.set_ylabel("GB on each GPU")
    _draw_room(left, 80)
    left.legend(frameon=False, fontsize=8)
    right.set_ylabel("speed of each GPU (one alone: 100)")
    right.set_ylim(0, 109)
    right.legend(frameon=False, fontsize=8, loc="lower left")
