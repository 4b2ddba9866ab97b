"""How long a data-parallel step takes, by forecast: a GPT's step by the clock, all-reduces by published bandwidths."""

import functools
from typing import Any

import numpy
import torch
from torch.nn import functional as F

from course import measurements
from course.gpt import TinyGPT, course_words
from practice_gpus import practice_gpus

Span = tuple[float, float]  # start and end in ms
MIB = 1.048576  # MB
# GB/s of large all-reduces without NVLink: four RTX 4090 with a modified driver, 512 MiB,
# https://github.com/tinygrad/open-gpu-kernel-modules/issues/36.
PCIE = {"PCIe (direct)": 25.8}
LATENCY = 0.042  # ms: 8 bytes between eight RTX 4090, https://github.com/NVIDIA/nccl/issues/1530
LINKS = {"NVLink": "8 × H200", "network": "32 × B200, four machines", **PCIE}  # or GB/s


@functools.cache
def gpt_step(batch: int) -> tuple[Any, torch.nn.Module]:
    """Return (forecast, model) of a training step of a GPT of GPT-2's size, for `batch` sequences of 1,024 tokens."""
    with practice_gpus(1, card="A100 80", values=False) as gpu:
        model = TinyGPT(course_words(), width=768, heads=12, layers=12, context=1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.zeros(batch, 1024, dtype=torch.long, device="cuda")

        def step():
            F.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

        return gpu.forecast(step), model


def backward_ms(forecast: Any) -> Span:
    """Return when the backward pass of a step begins and ends, in ms."""
    passes = [s for s in forecast.spans if s.bound and getattr(s.entry, "backward", False)]
    return 1e3 * passes[0].start, 1e3 * passes[-1].end


@functools.cache
def rates(device: str) -> tuple[list[float], list[float]]:
    """Return ([MiB], [GB/s]): published bus bandwidths of all-reduces by size; those of 0.1 GB/s are too rounded."""
    rows = measurements.published("all_reduce_nodes").rows(device=device)
    rows = [row for row in rows if row["gb_per_s"] > 0.1]
    return [row["bytes"] / 2**20 for row in rows], [row["gb_per_s"] for row in rows]


def all_reduce_ms(size: float, gpus: int, link: str) -> float:
    """Return the ms of an all-reduce of `size` MB between `gpus` over one of `LINKS`.

    Between published sizes the bandwidth is interpolated; what is smaller takes as long as the smallest one.
    """
    sent = 2 * (gpus - 1) / gpus * size
    if link in PCIE:
        return LATENCY + sent / PCIE[link]
    sizes, found = rates(LINKS[link])
    least = 2 * (gpus - 1) / gpus * sizes[0] * MIB / found[0]
    rate = numpy.exp(numpy.interp(numpy.log(size / MIB), numpy.log(sizes), numpy.log(found)))
    return max(least, sent / float(rate))


def all_reduces(
    model: torch.nn.Module, begin: float, end: float, size: float, gpus: int, link: str
) -> list[Span]:
    """Return [(start, end)] in ms of the all-reduces of a backward pass that runs from `begin` to `end` ms.

    A gradient is ready when the pass has done its share of the bytes; MB are sent from `size` on, one after the other.
    """
    megabytes = [4e-6 * p.numel() for p in model.parameters()][::-1]
    sent: list[Span] = []
    done, waiting = 0.0, 0.0
    for number, each in enumerate(megabytes, 1):
        done, waiting = done + each, waiting + each
        if waiting >= size or number == len(megabytes):
            ready = begin + (end - begin) * done / sum(megabytes)
            start = max([ready, *(stop for _, stop in sent[-1:])])
            sent.append((start, start + all_reduce_ms(waiting, gpus, link)))
            waiting = 0.0
    return sent


def cut(spans: list[Span], at: float) -> list[Span]:
    """Return `spans`, (start, end) each, with the one that lasts over time `at` in two: what is hidden, what exposed."""
    before = [(start, min(end, at)) for start, end in spans if start < at]
    return before + [(max(start, at), end) for start, end in spans if end > at]
