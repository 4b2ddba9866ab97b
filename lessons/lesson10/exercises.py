"""Exercises and quiz of lesson 10, Shard a model."""

import random

import torch
from torch.nn import functional as F

from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call
from practice_gpus import practice_gpus

STAGES = ("nothing", "the optimizer", "optimizer and gradients", "all three")


# --- bytes of a rank ------------------------------------------------------------------------------
def rank_bytes(parameters, ranks, stage):
    weights = 4 * parameters
    gradients = 4 * parameters
    optimizer = 8 * parameters
    if stage >= 1:
        optimizer = optimizer / ranks
    if stage >= 2:
        gradients = gradients / ranks
    if stage >= 3:
        weights = weights / ranks
    return weights + gradients + optimizer


def _check_bytes(answer):
    cases = [(1000, 4, stage) for stage in range(4)]
    cases += [(7_000_000_000, 1, 3), (4_206_602, 3, 1)]
    cases += [(random.randint(1, 10**9), random.randint(2, 4096), stage) for stage in range(4)]
    for parameters, ranks, stage in cases:
        call_text = f"rank_bytes({parameters}, {ranks}, {stage})"
        result = expect.number(call(answer, parameters, ranks, stage), call_text)
        expected = rank_bytes(parameters, ranks, stage)
        if not abs(result - expected) <= 1 + 1e-9 * expected:  # a byte for rounding; nan fails
            raise NotYet(
                f"{call_text} is {result:,.0f}. {_why_bytes(result, parameters, ranks, stage)}"
            )
    return "for one rank and thousands, in all four stages."


def _why_bytes(result, parameters, ranks, stage):
    if abs(result - rank_bytes(parameters, 1, 0)) <= 1:
        return f"That is what one GPU alone needs. Stage {stage} splits {STAGES[stage]}."
    if abs(result - rank_bytes(parameters, ranks, 3)) <= 1:
        return f"Here everything is split, but stage {stage} splits {STAGES[stage]}."
    if stage == 0:
        return "Nothing is split in stage 0: add the bytes of weights, gradients and Adam."
    return f"Stage {stage} splits {STAGES[stage]} over the ranks; the rest stays on each of them."


bytes = Exercise(
    key="10.bytes",
    title="bytes of a rank",
    check_answer=_check_bytes,
    hints=(
        "The picture above: in each row, which of the three parts are whole on every rank?",
        "Write down three numbers, 4, 4 and 8 bytes a parameter. Each stage divides one more of them.",
        "`optimizer = 8 * parameters`; `if stage >= 1: optimizer = optimizer / ranks`; and so on.",
    ),
    reference=rank_bytes,
    explanation="Weights and gradients take 4 bytes a parameter each, Adam's two averages 8. Stage 1 "
    "divides the 8, stage 2 the gradients' 4 too, stage 3 the weights' 4 as well.",
)


# --- a sharded product ----------------------------------------------------------------------------
def sharded_block(x, ups, downs):
    total = torch.zeros_like(x)
    for up, down in zip(ups, downs):
        part = F.relu(x.to(up.device) @ up) @ down
        total = total + part.to(x.device)
    return total


def _check_product(answer):
    for widths in ([6, 6], [8], [5, 3, 1]):
        with practice_gpus(3) as gpus:
            x, ups, downs = _pieces(widths)
            copies = [piece.cpu().clone() for piece in (x, *ups, *downs)]
            idle = _watch(len(widths))
            before = None if gpus.real else gpus.transfers["d2d"]
            result = call(answer, x, list(ups), list(downs))
            expect.tensor(result, what="what sharded_block returns")
            moved = None if gpus.real else gpus.transfers["d2d"] - before
            current = [piece.cpu() for piece in (x, *ups, *downs)]
            if not all(torch.equal(piece, copy) for piece, copy in zip(current, copies)):
                raise NotYet("x or the weights changed. Does an operator such as += write into x?")
            _compare_product(result, x, ups, downs)
            _check_work(idle(), moved, len(widths))
    return "the same as on one GPU, with even and uneven pieces, and no weight moved."


def _watch(n):
    """A function that lists the GPUs among n which took no memory since now, so computed nothing."""
    before = [torch.cuda.memory_allocated(index) for index in range(n)]
    for index in range(n):
        torch.cuda.reset_peak_memory_stats(index)
    return lambda: [i for i in range(n) if torch.cuda.max_memory_allocated(i) == before[i]]


def _check_work(idle, moved, n):
    if idle:
        raise NotYet(
            f"cuda:{idle[0]} computed nothing. Its pieces stay there, and x comes to them."
        )
    if moved is not None and moved > 2 * (n - 1):
        raise NotYet(
            f"with {n} GPUs it copied {moved} tensors between GPUs. x goes out to each other GPU, "
            "and one result comes back; weights and hidden values stay."
        )


def _pieces(widths):
    """x on cuda:0, and for each GPU its columns of the first matrix and its rows of the second."""
    x = torch.randn(4, 3, dtype=torch.float64, device="cuda:0")
    places = [torch.device("cuda", index) for index in range(len(widths))]
    ups = [torch.randn(3, n, dtype=x.dtype, device=d) for n, d in zip(widths, places)]
    downs = [torch.randn(n, 3, dtype=x.dtype, device=d) for n, d in zip(widths, places)]
    return x, ups, downs


def _compare_product(result, x, ups, downs):
    x = x.cpu()
    up = torch.cat([piece.cpu() for piece in ups], 1)
    down = torch.cat([piece.cpu() for piece in downs])
    hidden = F.relu(x @ up)
    expected = hidden @ down
    n = len(ups)
    if result.shape == (x.shape[0], n * x.shape[1]) and n > 1:
        raise NotYet(
            "the results stand side by side. A split by rows gives whole-sized parts: what joins them?"
        )
    expect.tensor(result, shape=expected.shape, dtype=x.dtype, device="cuda:0", what="the result")
    result = result.cpu()
    if torch.allclose(result, expected, rtol=1e-9, atol=1e-12):
        return
    if torch.allclose(result * n, expected, rtol=1e-9, atol=1e-12):
        raise NotYet(f"it is 1/{n} of the right result. Parts of a sum are added, not averaged.")
    if torch.allclose(result, x @ up @ down, rtol=1e-9, atol=1e-12):
        raise NotYet("the ReLU between the two products is missing.")
    if torch.allclose(result, F.relu(x @ up @ down), rtol=1e-9, atol=1e-12):
        raise NotYet("the ReLU belongs between the two products, not behind them.")
    raise NotYet(
        f"with {n} GPUs the numbers differ from those of one. Did every GPU's part arrive?"
    )


product = Exercise(
    key="10.product",
    title="a sharded block",
    check_answer=_check_product,
    hints=(
        "The two cells above: columns first, rows second, and one sum at the end.",
        "Loop over `zip(ups, downs)`: move `x` to the GPU of the pair, two products with a ReLU between, "
        "and bring the result home.",
        "`part = F.relu(x.to(up.device) @ up) @ down`, then `total = total + part.to(x.device)`",
    ),
    reference=sharded_block,
    explanation="A GPU's columns of the first matrix give its columns of the hidden values, and those are "
    "what its rows of the second matrix need. So nothing is exchanged between the two products; the sum at "
    "the end is the block's only exchange.",
)


# --- choose the parallelism -----------------------------------------------------------------------
WAYS = (
    "one GPU",
    "DDP",
    "fully_shard",
    "fully_shard in a machine, copies across",
    "split products",
)
PLAN = {
    "A": "DDP",
    "B": "fully_shard",
    "C": "fully_shard in a machine, copies across",
    "D": "split products",
}
_SIXTEEN = "16 bytes a parameter come first: do they fit one of these GPUs? "
_WHY_PLAN = {
    "A": _SIXTEEN + "What fits needs no shards, and eight GPUs are there to be used.",
    "B": _SIXTEEN + "If not, do they fit all eight together, over a fast link?",
    "C": "which way keeps the fetching of weights inside a machine, where the links are fast?",
    "D": "no gradients here, and one sequence can't be shared out. What makes a single token faster?",
}


def _check_choose(answer):
    expect.choices(answer, PLAN, _WHY_PLAN, among=WAYS)
    return "four jobs, each with the simplest way that does it."


choose = Exercise(
    key="10.choose",
    title="choose the parallelism",
    check_answer=_check_choose,
    hints=(
        "Work out 16 bytes times the parameters for each job, and compare with one GPU.",
        "Fits one GPU: copies (DDP). Doesn't fit: shards. Slow links between machines: keep the shards "
        "inside. A single answer that must come sooner: split the products.",
        "One of the jobs needs no shards at all, and in one nothing is trained.",
    ),
    reference=PLAN,
    source="""plan = {
    "A": "DDP",
    "B": "fully_shard",
    "C": "fully_shard in a machine, copies across",
    "D": "split products",
}""",
    explanation="A takes 16 GB and fits, so copies are simplest and send least. B takes 208 GB: 26 for each "
    "of eight. C is B with slow links between machines, so weights are fetched inside each machine and only "
    "gradients cross. D reads all weights for each token; eight GPUs read an eighth each.",
)


QUIZ = (
    Question(
        "10.sixteen",
        "Training in float32 with Adam: what takes most of the 16 bytes a parameter?",
        {
            "The weights": "4 bytes.",
            "The gradients": "4 bytes.",
            "Adam's two averages": "Yes: 8 bytes, as much as weights and gradients together.",
        },
        right=2,
    ),
    Question(
        "10.whole",
        "fully_shard over four ranks. While a block runs, whose weights does a rank hold?",
        {
            "Its quarter of everything, nothing else": "A product needs the whole matrix, so the block is fetched first.",
            "Its quarter of everything, and this block whole (perhaps the next, too)": "Yes: fetched before the block runs, dropped after it.",
            "All blocks whole": "That would be DDP again.",
        },
        right=1,
    ),
    Question(
        "10.pair",
        "First matrix by columns, second by rows. How many exchanges does the pair's forward pass need?",
        {
            "One sum at the end": "Yes: the hidden values stay where they were made.",
            "None": "Each GPU has only a part of the sum.",
            "One after each product": "The columns' results are what the rows need.",
        },
        right=0,
    ),
)
