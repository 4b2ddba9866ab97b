"""Exercises and quiz of lesson 05, Manage GPU memory."""

import gc
import math
import random
import sys
from numbers import Integral

import torch
from torch import nn
from torch.nn import functional as F

from course.checks.core import LearnerError, NotAttempted, NotYet, call, same_code
from course.checks.words import exercise, quiz
from helpers.memory import MIB
from practice_gpus import practice_gpus


# --- which line holds it? ---------------------------------------------------------------------------
@torch.inference_mode()
def tidy_evaluate(model, batches):
    losses, samples = [], []
    for rows, labels in batches:
        rows, labels = rows.to("cuda"), labels.to("cuda")
        loss = nn.functional.cross_entropy(model(rows), labels)
        losses.append(loss.item())
        samples.append(rows[0].clone())
    return sum(losses) / len(losses), samples


def leaky_evaluate(model, batches):
    losses, samples = [], []
    for rows, labels in batches:
        rows, labels = rows.to("cuda"), labels.to("cuda")
        loss = nn.functional.cross_entropy(model(rows), labels)
        losses.append(loss)
        samples.append(rows[0])
    return sum(losses) / len(losses), samples


def _check_leak(answer):
    if same_code(answer, leaky_evaluate):
        raise NotAttempted("Change one line, then run this cell and look at the ground.")
    peaks = []
    with practice_gpus(1):
        for number in (2, 8):
            model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4)).to("cuda")
            batches = [(torch.randn(256, 1024), torch.randint(4, (256,))) for _ in range(number)]
            losses = [F.cross_entropy(model(x.cuda()), y.cuda()).item() for x, y in batches]
            gc.collect()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            result = call(answer, model, batches)
            peaks.append(torch.cuda.max_memory_allocated() - before)
            _judge_results(result, sum(losses) / number, [x[0] for x, _ in batches])
            del model, result
    grown = (peaks[1] - peaks[0]) / MIB
    if grown > 1:
        raise NotYet(
            f"the results are right, and six batches more take {grown:.0f} MiB more. "
            "The samples take 4 KiB each: what else does a sample, or a loss, keep alive?"
        )
    return "the same mean, the same samples, and no batch held behind them."


def _judge_results(result, mean, samples):
    if not isinstance(result, tuple) or len(result) != 2:
        what = "None" if result is None else f"a {type(result).__name__}"
        raise NotYet(f"it returned {what}; expected the mean loss and the samples.")
    if not isinstance(result[0], float) or not abs(result[0] - mean) <= 1e-3:
        raise NotYet(f"the mean loss is {result[0]!r}, expected the float {mean:.4f}.")
    same = [torch.equal(torch.as_tensor(a).cpu(), b) for a, b in zip(result[1], samples)]
    if len(result[1]) != len(samples) or not all(same):
        raise NotYet("the samples aren't the first row of each batch.")


leak = exercise("05.leak", _check_leak, tidy_evaluate, seconds=30)


# --- the largest batch -----------------------------------------------------------------------------------------------
def largest_batch(try_batch, limit):
    fits, too_large = 0, limit + 1
    while too_large - fits > 1:
        batch = (fits + too_large) // 2
        try:
            try_batch(batch)
            fits = batch
        except torch.OutOfMemoryError:
            too_large = batch
    return fits


def _check_largest(answer):
    devices = ((37, 64), (0, 16), (64, 64), (100, 64), (1, 1), (random.randint(1, 900), 1000))
    for capacity, limit in devices:
        tried, handled = [], []
        batch = call(answer, _pretend(capacity, tried, handled), limit)
        problem = _largest_problem(batch, min(capacity, limit), limit, tried, handled)
        if problem:
            raise NotYet(f"With room for {capacity} and limit {limit}, {problem}")
    for error in (ValueError("labels are missing"), RuntimeError("mat1 and mat2 don't fit")):
        _check_other_error(answer, error)
    return "six devices, few trials, and other errors pass through."


def _largest_problem(batch, expected, limit, tried, handled):
    """What is wrong with the answer `batch`, or with the batches tried for it; None where nothing is."""
    if not isinstance(batch, Integral) or isinstance(batch, bool):
        return f"it returned {batch!r}, expected a whole number. Is one returned in every case?"
    if batch != expected:
        why = "Is the last batch that fits also tried and kept?"
        if batch == 0 or expected == 0:
            why = "Is 0 returned exactly when even a batch of 1 fails?"
        return f"it returned {batch!r}, expected {expected}. {why}"
    outside = [batch for batch in tried if not 1 <= batch <= limit]
    if outside:
        return f"it tried a batch outside 1 to {limit}: {outside[0]}."
    if len(tried) > 2 * math.log2(limit + 1) + 3:
        return f"it needed {len(tried)} trials. Halve the range each time instead of stepping."
    if handled:
        return (
            f"a batch of {handled[0]} was tried inside an except block. There the error still holds the "
            "tensors of the failed trial; what can wait until the block has ended?"
        )
    return None


def _pretend(capacity, tried, handled):
    """A try_batch with room for `capacity`; notes the batches tried, and those tried while an error was handled."""

    def try_batch(batch):
        tried.append(batch)
        if isinstance(sys.exc_info()[1], torch.OutOfMemoryError):
            handled.append(batch)
        if batch > capacity:
            raise torch.OutOfMemoryError(f"CUDA out of memory (pretended, for a batch of {batch}).")

    return try_batch


def _check_other_error(answer, error):
    def broken(batch):
        raise error

    try:
        outcome = repr(call(answer, broken, 8))
    except LearnerError as raised:
        if raised.cause is error:
            return
        outcome = f"another error, {type(raised.cause).__name__}"
    raise NotYet(
        f"try_batch raised {type(error).__name__} ({error}), and the answer was {outcome}. "
        "Catch torch.OutOfMemoryError only: another error is a bug, not a full device."
    )


largest = exercise("05.largest", _check_largest, largest_batch, tool="largest_batch", letter="b")


# --- accumulate ------------------------------------------------------------------------------------------------------
def accumulate(model, x, y, size):
    model.zero_grad()
    for images, labels in zip(x.split(size), y.split(size)):
        loss = nn.functional.cross_entropy(model(images), labels) * len(labels) / len(y)
        loss.backward()


def _check_accumulate(answer):
    for n, size in ((12, 4), (10, 4), (5, 8), (3, 1)):
        model = nn.Linear(6, 3).double()
        x, y = torch.randn(n, 6, dtype=torch.float64), torch.randint(3, (n,))
        expected = torch.autograd.grad(F.cross_entropy(model(x), y), [*model.parameters()])
        for p in model.parameters():
            p.grad = torch.ones_like(p)  # left over from an earlier step
        seen, waiting = [], []
        model.register_forward_hook(_watch(seen, waiting))
        call(answer, model, x, y, size)
        problem = _sizes_problem(seen, n, size) or _gradients_problem(model, expected, x, y, size)
        if not problem and len(seen) > 1 and max(waiting) == len(seen):
            problem = "all pieces waited for one backward. When could each one's activations go?"
        if problem:
            raise NotYet(f"{n} samples in pieces of {size}: {problem}")
    return "gradients of the large batch, even and uneven pieces."


def _watch(seen, waiting):
    """A forward hook that notes the samples it saw, and at each output how many had no backward yet."""
    open_outputs = []

    def hook(module, inputs, output):
        seen.append(len(inputs[0]))
        open_outputs.append(output.shape)
        waiting.append(len(open_outputs))
        output.register_hook(lambda gradient: open_outputs.clear())

    return hook


def _sizes_problem(seen, n, size):
    if max(seen, default=0) > size:
        return (
            f"the model saw {max(seen)} samples at once. Split x and y first; "
            "does your way of splitting take the length of a piece, or the number of pieces?"
        )
    if sum(seen) < n:
        return f"the model saw {sum(seen)} samples in all. What about the last piece?"
    return None


def _gradients_problem(model, expected, x, y, size):
    found = [p.grad for p in model.parameters()]
    if any(g is None for g in found):
        return "a gradient is None. Is backward called for each piece?"
    if _equal(found, expected):
        return None
    return accumulation.word(found, model, x, y, size, expected=expected)


def _equal(found, expected):
    return all(torch.allclose(a, b, rtol=1e-7, atol=1e-10) for a, b in zip(found, expected))


accumulation = exercise("05.accumulation", _check_accumulate, accumulate, letter="b")


QUIZ = quiz("05")
