"""Exercises and quiz of lesson 05, Manage GPU memory."""

import gc
import math
import random
import sys
from numbers import Integral

import torch
from torch import nn
from torch.nn import functional as F

from helpers.checks.core import Exercise, LearnerError, NotYet, Question, Wrong, call
from practice_gpus import practice_gpus

MIB = 2**20


# --- count what is taken ---------------------------------------------------------------------------------------------
def counted_bytes(shape, dtype):
    size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    return -(-size // 512) * 512


def _check_count(answer):
    cases = [
        ((), torch.float32),
        ((0, 5), torch.float32),
        ((128,), torch.float32),
        ((129,), torch.float32),
        ((7, 11, 13), torch.float64),
        ((3, random.randint(90, 999)), torch.float16),
        ((513,), torch.bool),
        ((random.randint(1, 300), random.randint(1, 300)), torch.int64),
    ]
    with practice_gpus(1):
        for shape, dtype in cases:
            tensor = None  # the one before must be gone
            before = torch.cuda.memory_allocated()
            tensor = torch.zeros(shape, dtype=dtype, device="cuda")
            expected = torch.cuda.memory_allocated() - before
            found = call(answer, shape, dtype)
            if not isinstance(found, Integral) or isinstance(found, bool):
                raise NotYet(
                    f"counted_bytes({shape}, {dtype}) returned {found!r}; expected a whole number of bytes."
                )
            if found != expected:
                raise NotYet(
                    f"counted_bytes({shape}, {dtype}) is {found}, and the allocator counted {expected}."
                    f"{_why_count(found, expected, tensor)}"
                )
    return "eight tensors, counted as the allocator counts them."


def _why_count(found, expected, tensor):
    if not tensor.nelement():
        return " An empty tensor takes nothing."
    if found == tensor.nbytes:
        return " Those are the data's bytes; what does the allocator round them to?"
    if tensor.nelement() == 1:
        return " Even one number takes a whole block; how large is the smallest?"
    if found == expected + 512:
        return " A size that is a multiple already stays as it is."
    return " How many bytes has one element of this type?"


def _one_too_many(shape, dtype):
    return (
        (math.prod(shape) * torch.empty(0, dtype=dtype).element_size() // 512 + 1)
        * 512
        * (math.prod(shape) > 0)
    )


def _always_four(shape, dtype):
    return -(-4 * math.prod(shape) // 512) * 512


count = Exercise(
    key="05.count",
    title="count what is taken",
    minutes=4,
    lines=3,
    difficulty=1,
    check_answer=_check_count,
    seconds=30,
    hints=(
        "Bytes of the data first: math.prod(shape) elements, each of element_size() bytes.",
        "Round up to a multiple of 512: -(-size // 512) * 512.",
    ),
    reference=counted_bytes,
    explanation="The data needs elements times bytes per element; the allocator hands out multiples of 512 bytes, and nothing "
    "for no data. Dividing the negative number rounds up.",
    wrong=(
        Wrong(
            lambda shape, dtype: math.prod(shape) * torch.empty(0, dtype=dtype).element_size(),
            "the data's bytes",
        ),
        Wrong(_one_too_many, "multiple already"),
        Wrong(_always_four, "one element of this type"),
        Wrong(lambda shape, dtype: max(512, counted_bytes(shape, dtype)), "takes nothing"),
        Wrong(
            lambda shape, dtype: -(-counted_bytes(shape, dtype) // 1024) * 1024,
            "how large is the smallest",
        ),
        Wrong(lambda shape, dtype: float(counted_bytes(shape, dtype)), "whole number"),
    ),
)


# --- what is freed? --------------------------------------------------------------------------------------------------
FREED = {
    "del x": True,
    "torch.cuda.empty_cache()": False,
    "x = None": True,
    "y = x.view(-1); del x": False,
    "y = x + 1; del x": True,
    "x = x.cpu()": True,
}
_WHY_FREED = {
    "del x": "the only name goes.",
    "torch.cuda.empty_cache()": "x still refers to its block, so it is not unused.",
    "x = None": "the name refers to something else now.",
    "y = x.view(-1); del x": "who else uses that memory?",
    "y = x + 1; del x": "does y use the memory of x, or its own?",
    "x = x.cpu()": "does the name still refer to the GPU's tensor?",
}


def _measure(line):
    with practice_gpus(1):
        names = {"torch": torch, "x": torch.zeros(MIB, device="cuda")}
        pointer = names["x"].untyped_storage()._cdata
        before = torch.cuda.memory_allocated()
        exec(line, names)  # noqa: S102 - lines of this module
        grown = names["y"].nbytes if line.startswith("y = x + 1") else 0
        return pointer is not None and torch.cuda.memory_allocated() - grown < before


def _check_freed(answer):
    if not isinstance(answer, dict) or set(answer) != set(FREED):
        raise NotYet(f"expected a dict with the keys {list(FREED)}, got {answer!r}.")
    for line in FREED:
        if answer[line] is ...:
            raise NotYet(f"{line!r} has no answer yet. Replace its ... by True or False.")
        if not isinstance(answer[line], bool):
            raise NotYet(f"{line!r}: {answer[line]!r} is neither True nor False.")
        if answer[line] != _measure(line):
            raise NotYet(
                f"{line!r}, just run on a tensor of 4 MiB, does not agree with {answer[line]}: {_WHY_FREED[line]}"
            )
    return "all six agree with what was measured just now."


freed = Exercise(
    key="05.freed",
    title="what is freed?",
    minutes=4,
    lines=4,
    difficulty=1,
    check_answer=_check_freed,
    hints=(
        "Ask of each line: does anything still refer to the memory of x?",
        "A view uses the memory of its source; a sum makes a tensor of its own.",
    ),
    reference=FREED,
    source=f"is_freed = {FREED!r}",
    explanation="Memory goes with the last reference. del x, x = None and x = x.cpu() remove it; a view is another reference; "
    "x + 1 has memory of its own. empty_cache touches only unused memory.",
    wrong=(
        Wrong({**FREED, "torch.cuda.empty_cache()": True}, "not unused"),
        Wrong({**FREED, "y = x.view(-1); del x": True}, "who else"),
        Wrong({**FREED, "y = x + 1; del x": False}, "or its own"),
        Wrong({**FREED, "x = x.cpu()": False}, "still refer to the GPU's"),
        Wrong({"del x": True}, "expected a dict"),
        Wrong({**FREED, "x = None": ...}, "no answer yet"),
    ),
)


# --- find the leak ---------------------------------------------------------------------------------------------------
def mean_loss(model, batches):
    losses = []
    for images, labels in batches:
        losses.append(F.cross_entropy(model(images), labels).detach())
    return torch.stack(losses).mean().item()


class _Watched(nn.Module):
    """A model with large activations that notes the bytes in use whenever a batch comes in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 4096), nn.ReLU(), nn.Linear(4096, 4))
        self.seen = []

    def forward(self, x):
        self.seen.append(torch.cuda.memory_allocated())
        return self.layers(x)


def _check_leak(answer):
    with practice_gpus(1):
        for number in (1, 5):
            model = _Watched().to("cuda")
            batches = [
                (torch.randn(64, 16, device="cuda"), torch.randint(4, (64,), device="cuda"))
                for _ in range(number)
            ]
            expected = sum(F.cross_entropy(model.layers(x), y).item() for x, y in batches) / number
            gc.collect()
            before = torch.cuda.memory_allocated()
            found = call(answer, model, batches)
            if not isinstance(found, float):
                raise NotYet(f"it returned {_described(found)}; expected a Python float.")
            if not abs(found - expected) <= 1e-4:
                raise NotYet(
                    f"for {number} batches it returned {found:.4f}, expected their mean loss {expected:.4f}."
                )
            grown = max(model.seen[-1] - before, torch.cuda.memory_allocated() - before)
            if grown > 1.75 * MIB:  # the last batch's graph, 1 MiB, may live as long as its name
                raise NotYet(
                    f"when batch {number} came in, {grown / MIB:.0f} MiB of earlier batches were still held. "
                    "What does a loss with a graph keep alive?"
                )
    return "the same mean, and nothing of earlier batches held."


def _described(value):
    return f"a {type(value).__name__}" if value is not None else "None"


def _still_leaky(model, batches):
    losses = [F.cross_entropy(model(images), labels) for images, labels in batches]
    return torch.stack(losses).mean().item()


def _running_sum(model, batches):
    total = 0
    for images, labels in batches:
        total = total + F.cross_entropy(model(images), labels)
    return (total / len(batches)).item()


def _sum(model, batches):
    return sum(F.cross_entropy(model(images), labels).item() for images, labels in batches)


def _first_leaks(model, batches):
    losses = []
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        losses.append(loss.detach() if losses else loss)
    return torch.stack(losses).mean().item()


leak = Exercise(
    key="05.leak",
    title="find the leak",
    minutes=6,
    lines=5,
    difficulty=2,
    check_answer=_check_leak,
    seconds=30,
    hints=(
        "A loss tensor refers to its graph, and the graph to all activations of its batch.",
        "Keep loss.detach() or loss.item(), or let no graph be made: torch.inference_mode().",
    ),
    reference=mean_loss,
    explanation="detach() gives the number without its graph, so each batch's activations go before the next batch comes. One "
    "item() at the end waits for the GPU once.",
    wrong=(
        Wrong(_still_leaky, "keep alive"),
        Wrong(_sum, "expected their mean"),
        Wrong(lambda m, b: torch.tensor(mean_loss(m, b)), "a Tensor"),
        Wrong(lambda m, b: (_running_sum(m, b), None)[1], "returned None"),
        Wrong(_first_leaks, "2 MiB of earlier"),
    ),
)


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
    for capacity, limit in (
        (37, 64),
        (0, 16),
        (64, 64),
        (100, 64),
        (1, 1),
        (random.randint(1, 900), 1000),
    ):
        tried, handled = [], []
        found, expected = (
            call(answer, _pretend(capacity, tried, handled), limit),
            min(capacity, limit),
        )
        case = f"With room for {capacity} and limit {limit}"
        if not isinstance(found, Integral) or isinstance(found, bool):
            raise NotYet(
                f"{case}, it returned {found!r}, expected a whole number. Is one returned in every case?"
            )
        if found != expected:
            raise NotYet(
                f"{case}, it returned {found!r}, expected {expected}.{_why_largest(found, expected)}"
            )
        if any(not 1 <= batch <= limit for batch in tried):
            raise NotYet(
                f"{case}, it tried a batch outside 1 to {limit}: {[b for b in tried if not 1 <= b <= limit][0]}."
            )
        if len(tried) > 2 * math.log2(limit + 1) + 3:
            raise NotYet(
                f"{case}, it needed {len(tried)} trials. Halve the range each time instead of stepping."
            )
        if handled:
            raise NotYet(
                f"{case}, a batch of {handled[0]} was tried inside an except block. There the error still holds the "
                "tensors of the failed trial; what can wait until the block has ended?"
            )
    _check_other_errors(answer)
    return "six devices, few trials, and other errors pass through."


def _pretend(capacity, tried, handled):
    """A try_batch with room for `capacity`; notes the batches tried, and those tried while an error was handled."""

    def try_batch(batch):
        tried.append(batch)
        if isinstance(sys.exc_info()[1], torch.OutOfMemoryError):
            handled.append(batch)
        if batch > capacity:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory (pretended by the check, for a batch of {batch})."
            )

    return try_batch


def _check_other_errors(answer):
    for error in (
        ValueError("labels are missing"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    ):

        def broken(batch, error=error):
            raise error

        try:
            found = repr(call(answer, broken, 8))
        except LearnerError as told:
            if told.cause is error:
                continue
            found = f"another error, {type(told.cause).__name__}"
        raise NotYet(
            f"try_batch raised {type(error).__name__} ({error}), and the answer was {found}. "
            "Catch torch.OutOfMemoryError only: another error is a bug, not a full device."
        )


def _why_largest(found, expected):
    if found == 0 or expected == 0:
        return " Is 0 returned exactly when even a batch of 1 fails?"
    return " Is the last batch that fits also tried and kept?"


def _power_of_two(try_batch, limit):
    batch = 1
    while batch <= limit:
        try:
            try_batch(batch)
        except torch.OutOfMemoryError:
            break
        batch *= 2
    return batch // 2


def _stepping(try_batch, limit):
    for batch in range(limit, 0, -1):
        try:
            try_batch(batch)
            return batch
        except torch.OutOfMemoryError:
            continue
    return 0


def _catches_all(try_batch, limit):
    fits, too_large = 0, limit + 1
    while too_large - fits > 1:
        batch = (fits + too_large) // 2
        try:
            try_batch(batch)
            fits = batch
        except Exception:  # noqa: BLE001 - the mistake this answer shows
            too_large = batch
    return fits


def _catches_runtime_errors(try_batch, limit):
    fits, too_large = 0, limit + 1
    while too_large - fits > 1:
        batch = (fits + too_large) // 2
        try:
            try_batch(batch)
            fits = batch
        except RuntimeError:
            too_large = batch
    return fits


def _inside_except(try_batch, limit, fits=0, too_large=0):
    too_large = too_large or limit + 1
    if too_large - fits <= 1:
        return fits
    batch = (fits + too_large) // 2
    try:
        try_batch(batch)
    except torch.OutOfMemoryError:
        return _inside_except(try_batch, limit, fits, batch)
    return _inside_except(try_batch, limit, batch, too_large)


def _never_zero(try_batch, limit):
    return max(1, largest_batch(try_batch, limit))


largest = Exercise(
    key="05.largest",
    title="find the largest batch",
    minutes=8,
    lines=9,
    difficulty=3,
    check_answer=_check_largest,
    hints=(
        "Keep two numbers: the largest batch known to fit (0 at first), the smallest known not to (limit + 1).",
        "Try the middle; success raises the first number, torch.OutOfMemoryError lowers the second; stop when they touch.",
    ),
    reference=largest_batch,
    explanation="Bisection: the range between fits and too_large halves with each trial, so ten trials serve for 1,000 "
    "batches. Only OutOfMemoryError is caught, so that bugs stay visible.",
    wrong=(
        Wrong(_power_of_two, "also tried and kept"),
        Wrong(_stepping, "Halve the range"),
        Wrong(_catches_all, "OutOfMemoryError only"),
        Wrong(_never_zero, "exactly when even"),
        Wrong(_catches_runtime_errors, "mat1 and mat2"),
        Wrong(_inside_except, "inside an except block"),
        Wrong(lambda try_batch, limit: float(largest_batch(try_batch, limit)), "whole number"),
    ),
)


# --- accumulate ------------------------------------------------------------------------------------------------------
def accumulate(model, x, y, size):
    model.zero_grad()
    for images, labels in zip(x.split(size), y.split(size)):
        loss = F.cross_entropy(model(images), labels) * len(labels) / len(y)
        loss.backward()


def _check_accumulate(answer):
    for n, size in ((12, 4), (10, 4), (5, 8), (3, 1)):
        model, seen = nn.Linear(6, 3).double(), []
        x, y = torch.randn(n, 6, dtype=torch.float64), torch.randint(3, (n,))
        F.cross_entropy(model(x), y).backward()
        expected = [p.grad.clone() for p in model.parameters()]
        for p in model.parameters():
            p.grad = torch.ones_like(p)  # left over from an earlier step
        waiting, most = [], []
        model.register_forward_hook(_watch(seen, waiting, most))
        weights = [p.detach().clone() for p in model.parameters()]
        call(answer, model, x, y, size)
        case = f"{n} samples in pieces of {size}"
        _judge(model, expected, weights, seen, case)
        if max(most, default=0) > 1:
            raise NotYet(
                f"{case}: {max(most)} pieces waited for one backward, so their activations were held together. "
                "When could each piece's activations go?"
            )
    return "gradients of the large batch, even and uneven pieces."


def _watch(seen, waiting, most):
    """A forward hook that notes the samples it saw, and how many outputs had no backward yet."""

    def hook(module, inputs, output):
        seen.append(len(inputs[0]))
        if output.requires_grad:
            waiting.append(len(seen))
            most.append(len(waiting))
            output.register_hook(lambda gradient: waiting.clear())

    return hook


def _judge(model, expected, weights, seen, case):
    if any(not torch.equal(p, w) for p, w in zip(model.parameters(), weights)):
        raise NotYet(
            f"{case}: the weights changed. Only the gradients are wanted; the optimizer steps later."
        )
    limit = int(case.rsplit(" ", 1)[1])
    if not seen:
        raise NotYet(f"{case}: the model was never called. Give it each piece of x.")
    if max(seen) > limit:
        raise NotYet(
            f"{case}: the model saw {max(seen)} samples at once. Split x and y first; "
            "does your way of splitting take the length of a piece, or the number of pieces?"
        )
    if sum(seen) < int(case.split()[0]):
        raise NotYet(
            f"{case}: the model saw {sum(seen)} samples in all. What about the last piece?"
        )
    grads = [p.grad for p in model.parameters()]
    if any(g is None for g in grads):
        raise NotYet(f"{case}: a gradient is None. Is backward called for each piece?")
    if not all(torch.allclose(g, e, rtol=1e-7, atol=1e-10) for g, e in zip(grads, expected)):
        raise NotYet(
            f"{case}: gradients differ from the large batch's, by a factor of "
            f"{(grads[1].norm() / expected[1].norm()).item():.3g} in length.{_why_grads(grads, expected, case)}"
        )


def _why_grads(grads, expected, case):
    if all(torch.allclose(g - 1, e, rtol=1e-7, atol=1e-10) for g, e in zip(grads, expected)):
        return " Gradients of an earlier step are still in there."
    n, size = int(case.split()[0]), int(case.rsplit(" ", 1)[1])
    if n % size and n > size:
        return " The pieces are uneven: which share of all samples does each piece have?"
    return (
        " Each piece's loss is a mean over the piece; what turns it into its part of the whole mean? "
        "(And zero_grad inside the loop would throw away the pieces before.)"
    )


def _not_divided(model, x, y, size):
    model.zero_grad()
    for images, labels in zip(x.split(size), y.split(size)):
        F.cross_entropy(model(images), labels).backward()


def _equal_weights(model, x, y, size):
    model.zero_grad()
    pieces = list(zip(x.split(size), y.split(size)))
    for images, labels in pieces:
        (F.cross_entropy(model(images), labels) / len(pieces)).backward()


def _no_zero(model, x, y, size):
    for images, labels in zip(x.split(size), y.split(size)):
        (F.cross_entropy(model(images), labels) * len(labels) / len(y)).backward()


def _one_backward(model, x, y, size):
    model.zero_grad()
    loss = 0
    for images, labels in zip(x.split(size), y.split(size)):
        loss = loss + F.cross_entropy(model(images), labels, reduction="sum") / len(y)
    loss.backward()


def _drops_last(model, x, y, size):
    model.zero_grad()
    n = len(x) - len(x) % size if len(x) > size else len(x)
    for images, labels in zip(x[:n].split(size), y[:n].split(size)):
        (F.cross_entropy(model(images), labels) * len(labels) / n).backward()


def _zero_inside(model, x, y, size):
    for images, labels in zip(x.split(size), y.split(size)):
        model.zero_grad()
        (F.cross_entropy(model(images), labels) * len(labels) / len(y)).backward()


def _whole(model, x, y, size):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()


accumulation = Exercise(
    key="05.accumulation",
    title="accumulate",
    minutes=8,
    lines=5,
    difficulty=2,
    check_answer=_check_accumulate,
    hints=(
        "x.split(size) gives the pieces; backward adds to the gradients, so set them to zero once, at the start.",
        "Weigh each piece's loss by its share of the samples: len(labels) / len(y).",
    ),
    reference=accumulate,
    explanation="The mean over all samples is the sum of the pieces' means, each weighted by its share. backward after each "
    "piece adds the gradients and frees that piece's activations.",
    wrong=(
        Wrong(_not_divided, "part of the whole mean"),
        Wrong(_equal_weights, "uneven"),
        Wrong(_no_zero, "earlier step"),
        Wrong(_whole, "samples at once"),
        Wrong(_one_backward, "waited for one backward"),
        Wrong(_drops_last, "What about the last piece"),
        Wrong(lambda model, x, y, size: model.zero_grad(), "never called"),
        Wrong(_zero_inside, "zero_grad inside the loop"),
    ),
)


QUIZ = (
    Question(
        "05.cache",
        "nvidia-smi shows 6 GB for your process, memory_allocated() 2 GB. Why?",
        (
            "A leak of 4 GB",
            "Cached segments and the CUDA context",
            "nvidia-smi counts other processes",
        ),
        (
            "Freed blocks are kept for reuse; that is no leak.",
            "Yes: reserved memory and the context come on top.",
            "It lists each process by itself.",
        ),
        1,
    ),
    Question(
        "05.empty",
        "When does empty_cache() help?",
        (
            "When PyTorch runs out of memory",
            "When another process needs the GPU's memory",
            "After every step",
        ),
        (
            "PyTorch returns unused segments by itself before it gives up.",
            "Yes: it returns unused segments to the driver.",
            "It only makes the next allocations slower.",
        ),
        1,
    ),
    Question(
        "05.activations",
        "You double the batch. What doubles?",
        ("Parameters", "Optimizer state", "Activations"),
        (
            "They do not know the batch.",
            "It belongs to the parameters.",
            "Yes: each sample brings its own.",
        ),
        2,
    ),
    Question(
        "05.checkpoint",
        "What does activation checkpointing cost?",
        ("Accuracy", "Time: parts of the forward pass run twice", "Disk space"),
        ("The gradients are the same.", "Yes: memory is traded for time.", "Nothing is written."),
        1,
    ),
)
