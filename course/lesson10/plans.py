"""Lesson 10: four jobs, and a forecast of each split into FSDP, tensor and pipeline parallelism."""

import math
from itertools import product
from typing import NamedTuple

RATE = 277e12  # an H100's FLOP/s by 6 × parameters × tokens, of whole steps of torchtitan: compute alone is at least as fast
ROOM = 80e9  # bytes of an H100
MACHINE = 8  # GPUs


class Job(NamedTuple):
    """A model, its batch and a cluster: bytes/s of a GPU `inside` a machine and `between` machines."""

    parameters: float
    width: int
    layers: int
    texts: int
    tokens: int  # of a text
    gpus: int
    inside: float
    between: float = 0


JOBS = {
    "A": Job(8e9, 4096, 32, 8, 8192, 8, 370e9),
    "B": Job(8e9, 4096, 32, 32, 1024, 8, 24e9),
    "C": Job(8e9, 4096, 32, 64, 8192, 128, 370e9, 50e9),
    "D": Job(70e9, 8192, 80, 32, 4096, 32, 370e9, 6.25e9),
}


class Forecast(NamedTuple):
    """Bytes on a GPU, and shares of its time: it computes, waits for FSDP's or tensor's traffic, or is idle."""

    state: float
    activations: float
    computing: float
    gathers: float
    sums: float
    idle: float


def forecast(job, fsdp, tensor, pipeline):
    """Return the `Forecast` of a split, by the rules that the page states.

    The 34 bytes are those of https://arxiv.org/abs/2205.05198 without attention scores, split by tensor and sequence
    parallelism; four all-reduces for each block: https://arxiv.org/abs/1909.08053.
    """
    texts = math.ceil(job.texts / fsdp)  # of a rank
    rounds = texts if pipeline > 1 else 1  # microbatches
    tokens = job.tokens * texts / rounds  # of one
    kept = 34 * tokens * job.width * job.layers / tensor * min(rounds, pipeline) / pipeline

    part = tensor * pipeline
    compute = 6 * job.parameters * tokens / part / RATE
    gather = 6 * job.parameters / part / _link(job, fsdp, tensor) if fsdp > 1 else 0
    sent = 16 * (1 - 1 / tensor) * tokens * job.width * job.layers / pipeline
    sums = sent / _link(job, tensor, 1)

    whole = (max(compute, gather) + sums) * (rounds + pipeline - 1)
    used = rounds / whole * job.texts / (fsdp * texts)  # a rank without a text is idle, too
    shares = compute * used, max(0, gather - compute) * used, sums * used
    return Forecast(16 * job.parameters / job.gpus, kept, *shares, 1 - sum(shares))


def _link(job, ranks, neighbors):
    """Bytes/s of a ring of `ranks`, each `neighbors` GPUs from the next, with one GPU's link where it leaves a machine."""
    return job.inside if ranks * neighbors <= MACHINE else job.between


def is_plan(plan):
    """True for three whole numbers above 0."""
    whole = isinstance(plan, (tuple, list)) and all(type(number) is int for number in plan)
    return whole and len(plan) == 3 and min(plan) > 0


def fits(found):
    """True where an H100 holds what is forecast."""
    return found.state + found.activations <= ROOM


def best(job):
    """Return the largest share of the time that GPUs compute, of all splits that fit."""
    plans = product(range(1, job.gpus + 1), repeat=2)
    found = [forecast(job, f, t, job.gpus // f // t) for f, t in plans if job.gpus % (f * t) == 0]
    return max(each.computing for each in found if fits(each))


def works(job, plan):
    """True where a plan fits and computes at least 90% as much as the best one."""
    found = forecast(job, *plan)
    return fits(found) and found.computing >= 0.9 * best(job)
