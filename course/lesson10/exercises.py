"""Exercises and quiz of lesson 10, Shard a model."""

import math
import random
import threading

import torch
from torch.nn import functional as F

from course.checks import expect
from course.checks.core import (
    Exercise,
    LearnerError,
    NotAttempted,
    NotYet,
    Question,
    call,
    chosen,
    is_untouched,
)
from course.checks.ranks import Collectives
from course.lesson06.exercises import to_ddp
from course.lesson10 import plans

__all__ = ["chosen", "to_ddp"]  # the lesson calls them, too
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
            raise NotYet(f"{call_text} is {result:,.0f}. " + _why(result, parameters, ranks, stage))
    return "for one rank and for thousands, in DDP and in all three stages."


def _why(result, parameters, ranks, stage):
    if abs(result - rank_bytes(parameters, 1, 0)) <= 1:
        return f"That is what one GPU alone needs. Stage {stage} splits {STAGES[stage]}."
    if abs(result - rank_bytes(parameters, ranks, 3)) <= 1:
        return f"Here everything is split, but stage {stage} splits {STAGES[stage]}."
    if stage == 0:
        return "Nothing is split in stage 0: add the bytes of parameters, gradients and Adam."
    return f"Stage {stage} splits {STAGES[stage]} over the ranks; the rest stays on each of them."


bytes = Exercise(
    key="10.bytes",
    title="bytes of a rank",
    check_answer=_check_bytes,
    hints=(
        "Look at the table above: in each stage, which of the three parts are still whole on every rank?",
        "Write down three numbers, 4, 4 and 8 bytes per parameter. Each stage divides one more of them.",
        "`optimizer = 8 * parameters`; `if stage >= 1: optimizer = optimizer / ranks`; and so on.",
    ),
    reference=rank_bytes,
    explanation="Parameters and gradients take 4 bytes each, Adam's two averages 8. Stage 1 divides "
    "the 8, stage 2 the gradients' 4 as well, stage 3 the parameters' 4, too.",
    unlocked="You can now say how many GPUs a model needs before you rent one.",
    tool="rank_bytes",
)


# --- FSDP of one block ----------------------------------------------------------------------------
def fsdp_block(comm, block, shard, x, rest):
    with torch.no_grad():
        output = block(comm.all_gather(shard), x)
    grad = rest(output)

    weights = comm.all_gather(shard).requires_grad_()
    x = x.detach().requires_grad_()
    block(weights, x).backward(grad)
    return x.grad, comm.reduce_scatter(weights.grad) / comm.ranks


def mlp(weights, x):
    """Return the output of the check's block: two linear layers and a shortcut; `weights` is flat."""
    up, down = weights.view(2, -1, x.shape[-1])
    return x + F.relu(x @ up.T) @ down


def _check_fsdp(answer):
    for ranks in (2, 4):
        weights = torch.randn(2 * 8 * 4, dtype=torch.float64)
        inputs = torch.randn(ranks, 3, 4, dtype=torch.float64)
        results = _on_ranks(answer, weights, inputs)
        faults = [result for result in results if isinstance(result, Exception)]
        if faults:  # what a rank did wrong comes before what the others miss for that reason
            raise min(faults, key=lambda fault: "not all others come" in str(fault))
        _compare_gradients(results, weights, inputs)
    return "two ranks and four, and between the passes no rank held the whole block."


def _on_ranks(answer, weights, inputs):
    """What `answer` returned on each rank, or the exception that it raised there."""
    ranks = len(inputs)
    meeting, brought, results = threading.Barrier(ranks), [None] * ranks, [None] * ranks

    def work(rank):
        shard = weights.chunk(ranks)[rank].clone()
        comm = Collectives(rank, meeting, brought, len(shard))
        try:
            results[rank] = _one_rank(answer, comm, shard, weights, inputs[rank].clone())
        except (NotYet, LearnerError) as error:
            results[rank] = error
            meeting.abort()

    jobs = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(ranks)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(8)
    if any(job.is_alive() for job in jobs):
        raise NotYet("a rank is still running after 8 seconds. Does a loop never end?")
    return results


def _one_rank(answer, comm, shard, weights, x):
    seen = []

    def rest(output):
        seen.append(output)
        expect.tensor(output, x.shape, what="what rest gets")
        if not torch.allclose(output, mlp(weights, x)):
            raise NotYet("rest got another output than the block's. Did it get the whole weights?")
        if comm.holds_weights():
            held = "while the rest of the network runs, this rank still holds the whole weights."
            keeper = "Does a variable keep them, or autograd's graph of the first pass?"
            raise NotYet(f"{held} {keeper}")
        return output.detach().cos()

    result = call(answer, comm, mlp, shard, x, rest)
    if not seen:
        raise NotYet("rest was never called. It takes the block's output and returns its gradient.")
    if not isinstance(result, tuple) or len(result) != 2:
        raise NotYet(f"expected two gradients, of x and of the shard; got {type(result).__name__}.")
    expect.tensor(result[0], x.shape, what="the gradient of x")
    expect.tensor(result[1], shard.shape, what="the gradient of the shard")
    return result


def _compare_gradients(results, weights, inputs):
    weights, inputs = weights.clone().requires_grad_(), inputs.clone().requires_grad_()
    outputs = mlp(weights, inputs.flatten(0, 1))
    outputs.backward(outputs.detach().cos())
    total = weights.grad.chunk(len(results))
    for rank, (grad_x, grad_shard) in enumerate(results):
        if not torch.allclose(grad_x, inputs.grad[rank]):
            raise NotYet("the gradient of x is wrong. Which gradient goes into .backward(…)?")
        if torch.allclose(grad_shard, total[rank]):
            raise NotYet("the shard's gradient is the sum over the ranks; training takes the mean.")
        if not torch.allclose(grad_shard, total[rank] / len(results)):
            raise NotYet(
                "the shard's gradient misses the other ranks: which collective adds them up?"
            )


fsdp = Exercise(
    key="10.fsdp",
    title="FSDP of one block",
    check_answer=_check_fsdp,
    hints=(
        "Step through the figure above. What does a rank do before and after a block's two passes?",
        "`grad` is the gradient of the block's output, so the block's backward pass starts there: `.backward(grad)`. Before it, "
        "the gathered weights and a detached `x` have to require gradients.",
        "`weights = comm.all_gather(shard).requires_grad_()`, then `block(weights, x).backward(grad)`, and "
        "`comm.reduce_scatter(weights.grad) / comm.ranks`",
    ),
    reference=fsdp_block,
    explanation="Before each pass an all-gather completes the weights. The first pass keeps no graph and no "
    "variable with them. fully_shard keeps the activations instead of running the block twice, and gathers "
    "the next block while this one computes.",
    unlocked="You can now read any FSDP code: you've written the heart of it.",
    tool="fsdp_block",
)


# --- plan -----------------------------------------------------------------------------------------
def _check_plan(answer):
    if not isinstance(answer, dict):
        raise NotYet(f"expected a dict of four plans, got {type(answer).__name__}.")
    if is_untouched([answer.get(name) for name in "CD"]):
        raise NotAttempted  # A and B have plans from the start
    for name, job in plans.JOBS.items():
        splits = answer.get(name)
        if splits is None or splits is ...:
            raise NotYet(f"job {name} has no plan yet.")
        if not plans.is_plan(splits):
            raise NotYet(f"job {name}: a plan is (FSDP, tensor, pipeline), three whole numbers.")
        if math.prod(splits) != job.gpus:
            found = f"{' × '.join(map(str, splits))} = {math.prod(splits)}"
            raise NotYet(f"job {name} has {job.gpus} GPUs; yours is for {found}.")
        if not plans.works(job, splits):
            raise NotYet(f"job {name}: {_why_plan(job, splits)}")
    told = [
        f"{plans.forecast(job, *answer[name]).computing:.0%}" for name, job in plans.JOBS.items()
    ]
    return f"all four fit, and their GPUs compute {', '.join(told)} of the time, by this forecast."


def _why_plan(job, splits):
    found = plans.forecast(job, *splits)
    if not plans.fits(found):
        held = f"{sum(found[:2]) / 1e9:.0f} GB don't fit, and {found.activations / 1e9:.0f} of them are activations."
        return f"{held} Which of the three divides those, too?"
    lost = {
        found.gathers: "FSDP waits for weights: how many tokens does each gather serve, over which link?",
        found.sums: "tensor parallelism waits for its all-reduces: over which link, and between how many GPUs?",
        found.idle: "GPUs are idle: in a pipeline's bubble, or because there are fewer texts than FSDP ranks.",
    }
    best = (
        f"it computes {found.computing:.0%} of the time, and another split {plans.best(job):.0%}."
    )
    return f"{best} Most of the loss: {lost[max(lost)]}"


plan = Exercise(
    key="10.plan",
    title="plan two runs",
    check_answer=_check_plan,
    hints=(
        "With FSDP alone: how many texts are there for C's 128 ranks? How many GB of activations does one text of D take?",
        "Take as small a factor from FSDP as you can, and give it to a method that suits the link: tensor needs NVLink; a "
        "pipeline sends little, but needs many texts per FSDP rank.",
        "C is one factor of 2 away. In D, only tensor divides a text, inside "
        "a machine, and what travels between machines should send least.",
    ),
    reference={"A": (8, 1, 1), "B": (1, 1, 8), "C": (64, 2, 1), "D": (1, 8, 4)},
    source='plans = {"A": (8, 1, 1), "B": (1, 1, 8), "C": (64, 2, 1), "D": (1, 8, 4)}',
    explanation="With FSDP alone, a gather in B serves 4,096 tokens, and PCIe needs 11,542; a pipeline hardly sends, and 32 "
    "texts keep its bubble at 18%. C: 64 texts feed 64 ranks, and two GPUs in a machine share each text. A text of D takes "
    "91 GB, so eight GPUs share it; the pipeline crosses the slow network, because it sends least.",
    unlocked="You can now say how to split a run before you rent the cluster.",
)


QUIZ = (
    Question(
        "10.whole",
        "fully_shard over four ranks. While a block runs, which weights does a rank hold?",
        {
            "Its quarter of everything, nothing else": "A matmul needs the whole matrix, so the block is gathered first.",
            "Its quarter, and at least this block whole": "Yes: gathered before the block runs, freed after it. Perhaps the next one is there already.",
            "All blocks whole, and its quarter of Adam's moments": "That's stage 1. fully_shard is stage 3.",
        },
        right=1,
    ),
    Question(
        "10.hidden",
        "Your FSDP run is communication-bound. Which change helps?",
        {
            "More GPUs, the same tokens on each": "Each GPU still gathers all weights per step, for the same compute.",
            "A wider model, the same tokens": "More weights mean more compute and more to gather, in the same ratio.",
            "More tokens per GPU": "Yes: compute grows with the tokens, the traffic doesn't.",
        },
        right=2,
    ),
    Question(
        "10.text",
        "A pipeline is kept full, but the activations of its long texts don't fit. Which change helps?",
        {
            "FSDP over more GPUs": "A rank computes its texts alone, and FSDP shards no activations.",
            "More stages, again kept full": "A stage has fewer blocks then, but keeps as many more texts.",
            "Tensor over more GPUs": "Yes: with sequence parallelism, each keeps its part of every text.",
        },
        right=2,
    ),
)
