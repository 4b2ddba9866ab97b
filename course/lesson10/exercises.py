"""Exercises and quiz of lesson 10, Shard a model."""

import math
import random
import threading

import torch
from torch.nn import functional as F

from course.checks import expect
from course.checks.core import (
    LearnerError,
    NotAttempted,
    NotYet,
    call,
    chosen,
    is_untouched,
)
from course.checks.ranks import PATIENCE, Alone, Collectives
from course.checks.words import exercise, quiz
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
            why = bytes.word(result, parameters, ranks, stage, splits=STAGES[stage])
            raise NotYet(f"{call_text} is {result:,.0f}. {why}")
    return "for one rank and for thousands, in DDP and in all three stages."


bytes = exercise("10.bytes", _check_bytes, rank_bytes, tool="rank_bytes")


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
            raise min(faults, key=lambda fault: isinstance(fault, Alone))
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
        job.join(PATIENCE + 5)
    if any(job.is_alive() for job in jobs):
        raise NotYet(
            f"a rank is still running after {PATIENCE + 5} seconds. Does a loop never end?"
        )
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


fsdp = exercise("10.fsdp", _check_fsdp, fsdp_block, tool="fsdp_block", seconds=40)


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
            raise NotYet(f"job {name}: {_lost(job, splits)}")
    told = [
        f"{plans.forecast(job, *answer[name]).computing:.0%}" for name, job in plans.JOBS.items()
    ]
    return f"all four fit, and their GPUs compute {', '.join(told)} of the time, by this forecast."


def _lost(job, splits):
    """What keeps a plan from working, in words."""
    found = plans.forecast(job, *splits)
    lost = max(found.gathers, found.sums, found.idle)
    state, activations = (held / 1e9 for held in found[:2])
    why = plan.word(found, lost=lost, gb=state + activations, activations=activations)
    if not plans.fits(found):
        return why
    best = f"{found.computing:.0%} of the time, and another split {plans.best(job):.0%}"
    return f"it computes {best}. Most of the loss: {why}"


plan = exercise(
    "10.plan", _check_plan, {"A": (8, 1, 1), "B": (1, 1, 8), "C": (64, 2, 1), "D": (1, 8, 4)}
)


QUIZ = quiz("10")
