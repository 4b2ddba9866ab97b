"""Wrong answers to the exercises of lesson 06."""

import torch

from exercises.lesson06 import _ANSWERS, _JOIN, DDP_SCRIPT, _efficiency, most_gpus
from helpers.checks.core import Wrong


def _writes(means, sizes):
    for mean, size in zip(means, sizes):
        if torch.is_tensor(mean):
            mean *= size
    return sum(means) / sum(sizes)


def _with(*numbers):
    text = DDP_SCRIPT
    for number, (todo, line) in enumerate(_ANSWERS.items(), 1):
        text = text.replace(todo, line if number in numbers else "")
    return text


def _only_first_joins():
    return _with(1, 2, 3).replace(_JOIN, f"if rank == 0: {_JOIN}")


def _by_time(compute_ms, megabytes, gb_per_s, efficiency, limit):
    def step(n):
        return compute_ms / n + 2 * (n - 1) / n * megabytes / gb_per_s

    return max(n for n in range(1, limit + 1) if step(1) / step(n) >= efficiency)


def _short_of_limit(*args):
    return most_gpus(*args[:4], max(1, args[4] - 1))


def _strictly_more(compute_ms, megabytes, gb_per_s, efficiency, limit):
    passing = [
        n
        for n in range(1, limit + 1)
        if _efficiency(n, compute_ms, megabytes, gb_per_s) > efficiency
    ]
    return max(passing, default=1)


WRONG = {
    "weigh": (
        Wrong(lambda means, sizes: sum(means) / len(means), "counts three times"),
        Wrong(
            lambda means, sizes: sum(m * s for m, s in zip(means, sizes)), "Divide by the number"
        ),
        Wrong(
            lambda means, sizes: torch.stack([torch.as_tensor(m).mean() for m in means]).mean(),
            "not the elements within",
        ),
        Wrong(_writes, "came in changed"),
        Wrong(lambda means, sizes: [m * s for m, s in zip(means, sizes)], "it returned list"),
    ),
    "script": (
        Wrong(lambda: _with(1, 3), "the weights differ"),
        Wrong(lambda: _with(1, 2), "both processes learned"),
        Wrong(lambda: _with(2, 3), "did not reach the end"),
        Wrong(_only_first_joins, "rank 1: "),
        Wrong(lambda: DDP_SCRIPT, "is still there"),
    ),
    "choose": (
        Wrong(_by_time, "multiplied by n"),
        Wrong(_short_of_limit, "limit included"),
        Wrong(lambda *args: 0.5, "no number of GPUs"),
        Wrong(_strictly_more, "exactly that efficiency"),
    ),
}
