"""One change after another to the training loop of lesson 04, and what each of them gives. Lesson 08 explains them.

`ladder(device, quick)` is a generator of rows for its section of the schema, as in `helpers.measurements.measure`. Each
rung trains the same network from the same seeds on as many images, so that rates and accuracies can be compared.
"""

import gc
import itertools
import math
import time
import warnings
from dataclasses import dataclass, replace

import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset

from helpers.data import shapes
from helpers.devices import synchronize
from helpers.measurements.loops import (
    Setup,
    batches,
    compile_problem,
    half_format,
    has_tf32,
    precisions,
    training_step,
)
from helpers.measurements.measure import digits, stopwatch
from helpers.measurements.networks import allocated_on_cpu, networks, take_workspaces
from helpers.memory import tensor_bytes
from helpers.training import evaluate

SEEDS = (0, 1, 2)
SIDE = "no TF32"  # a step aside, never kept: what convolutions would take without PyTorch's default
LOSS = 0.005  # a rung whose median accuracy is lower by more is not kept; another order alone has taken 0.004
PAIRS, WINS = (
    11,
    9,
)  # a kept rung beats the last kept one in at least 9 of 11 short runs in turn (by chance: 1 in 30)
ROUNDS = 20  # of all rungs in turn
SLOW = 4  # times slower than the best before: not worth training to the end


@dataclass(frozen=True)
class Plan:
    """How much a rung trains: images to learn from (a multiple of every batch), to test on, epochs, larger batch."""

    images: int
    test: int
    epochs: int
    batch: int


def plan(device, quick):
    """The Plan for `device`: a GPU needs more images, to be measured for longer than it takes to start."""
    if quick:
        return Plan(512, 256, 2, 128)
    return Plan(8192, 4000, 6, 128) if device.type == "cpu" else Plan(24576, 10000, 6, 256)


def rungs(device, batch):
    """Changes in their order: (name, fields of Setup). A device that has no use for a change lacks the rung."""
    found = [
        ("loop of lesson 04", {}),
        ("larger batch", {"batch": batch}),
        ("no loader", {"resident": True}),
    ]
    if has_tf32(device):
        found += [(SIDE, {"convolutions_tf32": False}), ("TF32", {"products_tf32": True})]
    found += [
        ("mixed precision", {"dtype": half_format(device)}),
        ("channels_last", {"channels_last": True}),
        ("fused Adam", {"fused": True}),
    ]
    if (problem := compile_problem(device)) is None:
        found.append(("torch.compile", {"compiled": True}))
    else:
        warnings.warn(
            f"torch.compile does not run on {device}, so the ladder lacks it: {problem}",
            stacklevel=2,
        )
    return found + [("CUDA graph", {"graphed": True})] * (device.type == "cuda")


def ladder(device, quick):
    """Rates, peak memory, accuracy by rung. Kept: faster than the last kept one, and about as accurate as the first.

    Which of two loops is faster is decided by short runs in turn, and so are the times of all rungs measured at the end
    (loader included, over the steps): a busy minute of the machine then slows all of them, and the ratios stay.
    `setup_s` is the first step's time.
    """
    take_workspaces(device)
    plans = plan(device, quick)
    data, test = (
        shapes(plans.images, seed=0),
        DataLoader(TensorDataset(*shapes(plans.test, seed=1)), 500),
    )
    changes, seeds = rungs(device, plans.batch), SEEDS[:1] if quick else SEEDS
    for network, build in networks(device).items():
        if network == "MLP":
            continue  # the loop of lesson 04 trains convolutions
        best, setup, first, kept_part, rows, parts = 0.0, Setup(), None, None, [], []
        for rung, (name, change) in enumerate(changes):
            trial = replace(setup, **change)
            slow = SLOW * trial.batch / best if best else math.inf
            runs, part = [], None
            for seed in seeds:
                run, part = _run(
                    trial, build, data, test, device, seed, plans.epochs, slow, fresh=not runs
                )
                runs.append(run)
            row = _row(trial.batch, runs)
            first = first if rung else row["accuracy"]
            accurate = row["accuracy"] is not None and row["accuracy"] >= first - LOSS
            kept = accurate and name != SIDE and (not rung or _faster(part, kept_part))
            precision = str(trial.dtype or torch.float32).removeprefix("torch.")
            rows.append(
                {
                    "rung": rung,
                    "name": name,
                    "network": network,
                    "batch": trial.batch,
                    "precision": precision,
                    **row,
                    "kept": kept,
                }
            )
            parts.append(part)
            if kept:
                best, setup, kept_part = (
                    max(best, trial.batch / row["time_ms"]),
                    trial,
                    part,
                )  # images per ms
        yield from _in_turn(rows, parts, 3 if quick else ROUNDS)


def _in_turn(rows, parts, rounds):
    """The rows with the times of their parts, run in turn; one that was too slow to be trained keeps its own."""
    trained = [place for place, row in enumerate(rows) if row["accuracy"] is not None]
    seconds = [[parts[place]() for place in trained] for _ in range(rounds + 1)][
        1:
    ]  # the first round warms up
    for place, samples in zip(trained, zip(*seconds, strict=True), strict=True):
        rows[place] |= _times(
            rows[place]["batch"], [1e3 * rows[place]["batch"] * each for each in samples]
        )
    return rows


def _times(batch, samples):
    """Fields of a row from milliseconds a step."""
    low, middle, high = (numpy.quantile(samples, q) for q in (0.25, 0.5, 0.75))
    return {
        "time_ms": digits(middle),
        "time_iqr_ms": digits(high - low),
        "images_per_s": digits(1e3 * batch / middle),
    }


def _row(batch, runs):
    accuracies = [digits(run["accuracy"]) for run in runs if run["accuracy"] is not None]
    peaks = [run["peak_bytes"] for run in runs if run["peak_bytes"] is not None]
    usual = (
        digits(numpy.median(accuracies)) if accuracies else None
    )  # one seed in many hardly learns
    return {
        **_times(batch, [ms for run in runs for ms in run["samples_ms"]]),
        "setup_s": digits(runs[0]["setup_s"]),
        "peak_bytes": max(peaks, default=None),
        "accuracy": usual,
        "accuracies": accuracies,
    }


def _run(setup, build, data, test, device, seed, epochs, slow, fresh=True):
    """Train from `seed`, as `setup` says: (what it took and gave, a function that trains a part of an epoch more).

    Above `slow` ms a step it stops, without accuracy. `fresh`: compile without what is compiled already.
    """
    if setup.compiled:
        torch.compiler.reset()
    gc.collect()
    before = _start_counting(device)
    torch.manual_seed(seed)
    with precisions(setup, device):
        model = build().to(
            device,
            memory_format=torch.channels_last if setup.channels_last else torch.preserve_format,
        )
        data = tuple(part.to(device) for part in data) if setup.resident else data
        first = next(batches(setup, data, device))
        setup_s, (step, set_rate, state) = _first_step(setup, model, first, device, fresh)
        samples = [min(stopwatch(lambda: step(*first), device) for _ in range(3))]
        if trained := samples[0] < slow:
            samples = [
                _epoch(step, setup, data, device, set_rate, epoch / epochs)
                for epoch in range(epochs)
            ][1:]
        peak = _cuda_peak(device, before)  # before the test, which would add its own
        accuracy = evaluate(model, test, device) if trained else None
        if device.type == "cpu":  # after the test, since it trains one step more
            peak = _cpu_peak(lambda: step(*first), [*state(), *first])
        return {
            "samples_ms": samples,
            "setup_s": setup_s,
            "accuracy": accuracy,
            "peak_bytes": peak,
        }, _part(step, setup, data, device)


def _part(step, setup, data, device):
    """A function that trains on a sixteenth of `data` (on a GPU a quarter) and returns the seconds an image took."""
    steps = max(1, len(data[0]) // (16 if device.type == "cpu" else 4) // setup.batch)

    def seconds():
        with precisions(setup, device):
            start = time.perf_counter()
            for x, y in itertools.islice(batches(setup, data, device), steps):
                loss = step(x, y)
            loss.item()
            return (time.perf_counter() - start) / (steps * setup.batch)

    return seconds


def _faster(part, other):
    """Whether `part` took less time than `other` in WINS of PAIRS runs in turn; a pair before them warms up."""
    pairs = [(part(), other()) for _ in range(PAIRS + 1)][1:]
    return sum(mine < its for mine, its in pairs) >= WINS


def _first_step(setup, model, first, device, fresh):
    """(seconds, what `training_step` gives) of the first batch: compiling and capturing happen here.

    If `fresh`, nothing that was compiled before is used (torch.compiler.config.force_disable_caches); Inductor leaves
    the files of each such compile in its cache folder.
    """
    with torch.compiler.config.patch(force_disable_caches=fresh), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*force_disable_caches")
        synchronize(device)
        start = time.perf_counter()
        made = training_step(setup, model, device)
        made[0](*first)
        synchronize(device)
        return time.perf_counter() - start, made


def _epoch(step, setup, data, device, set_rate, done):
    """Milliseconds a step, of one pass over the images; the rate falls in a cosine over the `done` part (0 to 1)."""
    set_rate(setup.rate * (1 + math.cos(math.pi * done)) / 2)
    start, total, steps = time.perf_counter(), torch.zeros((), device=device), 0
    for x, y in batches(setup, data, device):
        total += step(x, y)
        steps += 1
    total.item()
    return 1e3 * (time.perf_counter() - start) / steps


def _start_counting(device):
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _cuda_peak(device, before):
    """Most bytes at once, beyond `before`: all that the rung took, images too. None but on CUDA."""
    return torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None


def _cpu_peak(step, tensors):
    """Most bytes at once: `tensors` and what a step takes."""
    for tensor in tensors:
        tensor.grad = (
            None  # the step makes gradients anew, and its profile then sees them come and go
        )
    return sum(map(tensor_bytes, tensors)) + allocated_on_cpu(step)
