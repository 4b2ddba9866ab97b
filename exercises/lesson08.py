"""Exercises and quiz of lesson 08, Make it fast."""

import math
import random
import time
from statistics import mean, median, stdev

import torch
from torch import nn

from helpers.checks.core import Exercise, NotYet, Question, Wrong, call

# --- read three profiles ---------------------------------------------------------------------------------------------
STEPS = ("images on the device", "CUDA graph", "mixed precision")


def profile(loader, launch, kernel, count, steps=2, label="kernel"):
    """Spans (lane, label, start, end) in ms of a loop, by the model of lesson 07: nothing here was measured.

    Each of `steps` steps loads a batch in `loader` ms, then launches `count` kernels, `launch` ms each in Python and
    `kernel` ms each on the device, and waits for them.
    """
    spans, python = [], 0.0
    for _ in range(steps):
        if loader:
            spans.append(("Python", "loader", python, python + loader))
        python = free = python + loader
        for _ in range(count):
            spans.append(("Python", "launch", python, python + launch))
            python += launch
            begin = max(python, free)
            free = begin + kernel
            spans.append(("device", label, begin, free))
        python = max(python, free)
    return spans


PROFILES = {
    "A": profile(8, 0.01, 0.25, 12),
    "B": profile(0, 0.10, 0.03, 20),
    "C": profile(0, 0.01, 0.9, 8, label="float32 convolution"),
}
_ANSWERS = dict(zip(PROFILES, STEPS, strict=True))
_SHOWS = {
    "A": "the device is idle while Python is in the loader, and its kernels follow each other without gaps.",
    "B": "each kernel is shorter than its launch, so the device waits for the next launch again and again.",
    "C": "the device is busy nearly all the time, with float32 convolutions.",
}


def _check_profiles(answer):
    if not isinstance(answer, dict) or set(answer) != set(PROFILES):
        raise NotYet(f"expected a dict with the keys {list(PROFILES)}, got {answer!r}.")
    for name, step in _ANSWERS.items():
        if not isinstance(answer[name], str) or answer[name] not in STEPS:
            raise NotYet(f"{name}: {answer[name]!r} is none of {list(STEPS)}.")
        if answer[name] != step:
            raise NotYet(
                f"{name}: {answer[name]!r} is not the change that helps most. Look again: {_SHOWS[name]}"
            )
    return "three loops, three different limits: data, launches, arithmetic."


profiles = Exercise(
    key="08.profiles",
    title="choose the next step",
    minutes=5,
    lines=1,
    difficulty=1,
    check_answer=_check_profiles,
    hints=(
        "First look at the device's lane: is it full? If not, what is Python doing during the gaps?",
        "Long gaps in which Python loads; short gaps in which Python launches; no gaps at all.",
    ),
    reference=_ANSWERS,
    source=f"choices = {_ANSWERS!r}",
    explanation="A waits for data, so the data must come sooner. B waits for launches, so many launches must become one. C "
    "waits for nothing: only less work on the device, or the same in a faster format, shortens it.",
    wrong=(
        Wrong({**_ANSWERS, "A": "mixed precision"}, "Python is in the loader"),
        Wrong({**_ANSWERS, "B": "mixed precision"}, "shorter than its launch"),
        Wrong({**_ANSWERS, "C": "CUDA graph"}, "busy nearly all"),
        Wrong({**_ANSWERS, "A": "a faster GPU"}, "is none of"),
    ),
)


# --- what limits? ----------------------------------------------------------------------------------------------------
def bound(flops, moved, peak, bandwidth):
    compute, memory = flops / peak, moved / bandwidth
    return max(compute, memory), "compute" if compute > memory else "memory"


def _check_bound(answer):
    machine = {"peak": 2e11, "bandwidth": 2e10}
    for what, flops, moved in (
        ("a sum of two vectors", 1e6, 12e6),
        ("a product of matrices", 2e9, 12e6),
        ("a product of thin matrices", 4e7, 8e6),
    ):
        found, expected = call(answer, flops, moved, **machine), bound(flops, moved, **machine)
        if not isinstance(found, tuple) or len(found) != 2:
            raise NotYet(
                f"it returned {found!r}; expected two values, the seconds and what limits."
            )
        seconds, limit = found
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise NotYet(f"the first value is {seconds!r}; expected seconds as a number.")
        if not math.isclose(seconds, expected[0], rel_tol=1e-6):
            raise NotYet(
                _why_bound(what, seconds, flops / machine["peak"], moved / machine["bandwidth"])
            )
        if not isinstance(limit, str) or limit != expected[1]:
            raise NotYet(
                f"{what}: the seconds are right, and the limit is {limit!r}; the longer of the two times limits."
            )
    return "two of the three are limited by memory, although one of those is a product."


def _why_bound(what, seconds, compute, memory):
    if math.isclose(seconds, compute + memory, rel_tol=1e-6):
        return (
            f"{what}: {seconds:.3g} s is the sum of both times. A device computes while it moves other data, so the "
            "lower bound is the longer one alone."
        )
    if math.isclose(seconds, min(compute, memory), rel_tol=1e-6):
        return f"{what}: {seconds:.3g} s is the shorter of the two times; the work cannot end before the longer one."
    return (
        f"{what}: {seconds:.3g} s; arithmetic takes {compute:.3g} s and moving {memory:.3g} s. A time is an amount "
        "divided by a rate."
    )


bounds = Exercise(
    key="08.bounds",
    title="what limits?",
    minutes=4,
    lines=2,
    difficulty=1,
    check_answer=_check_bound,
    hints=(
        "Seconds of arithmetic: flops / peak. Seconds of moving: moved / bandwidth.",
        "Both happen at the same time, so the longer one is the bound; its name is the limit.",
    ),
    reference=bound,
    explanation="The roofline model: arithmetic and moving overlap perfectly, each at its highest rate. The longer of both times "
    "is a bound, as long as all counted bytes come from memory and none from a cache.",
    wrong=(
        Wrong(
            lambda flops, moved, peak, bandwidth: (flops / peak + moved / bandwidth, "compute"),
            "is the sum of both",
        ),
        Wrong(
            lambda flops, moved, peak, bandwidth: (min(flops / peak, moved / bandwidth), "memory"),
            "the shorter",
        ),
        Wrong(
            lambda flops, moved, peak, bandwidth: (max(peak / flops, bandwidth / moved), "memory"),
            "divided by",
        ),
        Wrong(
            lambda flops, moved, peak, bandwidth: (
                bound(flops, moved, peak, bandwidth)[0],
                "compute",
            ),
            "the limit is",
        ),
        Wrong(
            lambda flops, moved, peak, bandwidth: max(flops / peak, moved / bandwidth),
            "expected two values",
        ),
    ),
)


# --- is the accuracy kept? -------------------------------------------------------------------------------------------
def verdict(before, after, tolerance=0.005):
    differences = [a - b for a, b in zip(after, before)]
    shift, error = mean(differences), stdev(differences) / len(differences) ** 0.5
    if shift - 2 * error >= -tolerance:
        return "kept"
    return "lost" if shift + 2 * error < -tolerance else "cannot tell"


_RUNS = (  # accuracies before, after, tolerance, the verdict, what a wrong one has overlooked
    (
        [0.90, 0.92, 0.94, 0.96],
        [0.90, 0.92, 0.94, 0.96],
        0.005,
        "kept",
        "each pair agrees; only the seeds differ from each other",
    ),
    (
        [0.95, 0.95, 0.95, 0.95],
        [0.92, 0.93, 0.92, 0.93],
        0.005,
        "lost",
        "every run lost two points or more",
    ),
    (
        [0.90, 0.95, 0.92, 0.93],
        [0.97, 0.89, 0.96, 0.88],
        0.005,
        "cannot tell",
        "the mean hardly moved, but the single differences are far larger than it",
    ),
    (
        [0.950, 0.951, 0.949, 0.950],
        [0.947, 0.948, 0.947, 0.947],
        0.005,
        "kept",
        "a loss of 0.3 points is within the tolerance",
    ),
    (
        [0.950, 0.951, 0.949, 0.950],
        [0.947, 0.948, 0.947, 0.947],
        0.001,
        "lost",
        "a loss of 0.3 points is more than this tolerance of 0.1",
    ),
    (
        [0.90, 0.92, 0.94, 0.96],
        [0.90, 0.92, 0.94, 0.96],
        0.0,
        "kept",
        "nothing was lost, so no tolerance is needed",
    ),
    (
        [0.950, 0.951, 0.949, 0.950],
        [0.942, 0.943, 0.941, 0.942],
        0.005,
        "lost",
        "a loss of 0.8 points is more than the usual tolerance of 0.5",
    ),
)


def _near_the_limits():
    """Random runs like those of _RUNS whose mean lies just inside or outside two standard errors of the tolerance."""
    for errors, expected in (
        (2.2, "kept"),
        (1.8, "cannot tell"),
        (-1.8, "cannot tell"),
        (-2.2, "lost"),
    ):
        spread = [random.gauss(0, 1) for _ in range(random.randint(4, 6))]
        tolerance, error = random.uniform(0.01, 0.02), random.uniform(0.001, 0.003)
        scale = error * math.sqrt(len(spread)) / stdev(spread)
        before = [random.uniform(0.7, 0.9) for _ in spread]
        after = [
            b + errors * error - tolerance + scale * (s - mean(spread))
            for b, s in zip(before, spread)
        ]
        yield (
            before,
            after,
            tolerance,
            expected,
            f"the mean difference is {abs(errors)} standard errors "
            f"{'above' if errors > 0 else 'below'} -tolerance",
        )


def _check_verdict(answer):
    for before, after, tolerance, expected, why in (*_RUNS, *_near_the_limits()):
        usual = () if tolerance == 0.005 else (tolerance,)  # which may be left out
        found = call(answer, list(before), list(after), *usual)
        if not isinstance(found, str) or found not in ("kept", "lost", "cannot tell"):
            raise NotYet(f"it returned {found!r}; expected 'kept', 'lost' or 'cannot tell'.")
        if found != expected:
            raise NotYet(
                f"before {before}, after {after}, tolerance {tolerance}: you say {found!r}, but {why}."
            )
    return "eleven pairs of runs judged, and three of them honestly left open."


def _mean_only(before, after, tolerance=0.005):
    return "kept" if mean(after) >= mean(before) - tolerance else "lost"


def _unpaired(before, after, tolerance=0.005):
    shift = mean(after) - mean(before)
    error = math.hypot(stdev(before), stdev(after)) / math.sqrt(len(before))
    return (
        "kept"
        if shift - 2 * error >= -tolerance
        else "lost"
        if shift + 2 * error < -tolerance
        else "cannot tell"
    )


def _no_tolerance(before, after, tolerance=0.005):
    return verdict(before, after, 0.0)


def _fixed_tolerance(before, after, tolerance=0.005):
    return verdict(before, after, 0.005)


accuracy = Exercise(
    key="08.accuracy",
    title="is the accuracy kept?",
    minutes=8,
    lines=6,
    difficulty=2,
    check_answer=_check_verdict,
    hints=(
        "Differences first, one a seed: after minus before. Then their mean and standard error, "
        "stdev / sqrt(number of seeds).",
        "Kept: mean - 2 * error is at least -tolerance. Lost: mean + 2 * error is below -tolerance. Else open.",
    ),
    reference=verdict,
    explanation="Runs of one seed share what the seed decides, here the order of the images, so their difference cancels what "
    "that does to both. The verdict must hold two standard errors to either side. With many runs that is a rough "
    "95 % range; with three runs it is only about 82 % (Student's t), so 'kept' from three seeds is weak.",
    wrong=(
        Wrong(_mean_only, "the mean hardly moved"),
        Wrong(_unpaired, "each pair agrees"),
        Wrong(_no_tolerance, "within the tolerance"),
        Wrong(_fixed_tolerance, "more than this tolerance"),
        Wrong(lambda before, after, tolerance=0: after[0] >= before[0], "returned True"),
    ),
)


# --- reach a speed-up ------------------------------------------------------------------------------------------------
TARGET = 3.0  # times as fast; the model answer reaches several times that


def slow_labels(model, images):
    """The classes that `model` gives the `images`, as a list of ints: one image at a time."""
    found = []
    for image in images:
        logits = model(image.unsqueeze(0))
        found.append(logits.argmax(1).item())
    return found


def quick_labels(model, images):
    found = []
    with torch.inference_mode():
        for part in images.split(64):
            found.append(model(part).argmax(1))
    return torch.cat(found).tolist()


def _check_speed(answer):
    from helpers.devices import pick_device

    device = pick_device()
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 32), nn.ReLU(), nn.Linear(32, 10)).to(
        device
    )
    for count in (1, 200):
        images = torch.randn(
            count, 3, 32, 32, device=device
        )  # of both signs, so that the labels vary
        _judge_labels(call(answer, model, images), slow_labels(model, images), count)
    for _ in range(3):  # a busy machine gets more than one chance
        factor = _alternating(
            lambda: slow_labels(model, images), lambda: call(answer, model, images)
        )
        if factor >= TARGET:
            break
    else:
        raise NotYet(
            f"the same labels, {factor:.2g} times as fast on {device}; {TARGET:g} times is asked for. Do many images "
            "share a call, is nothing recorded for backward, and are the values read once?"
        )
    return f"the same labels, {factor:.2g} times as fast on {device}."


def _judge_labels(found, expected, count):
    if not isinstance(found, list) or not all(type(label) is int for label in found):
        raise NotYet(
            f"it returned {type(found).__name__}; expected a list of Python ints, as slow_labels returns."
        )
    if len(found) != count:
        raise NotYet(
            f"for {count} images it returned {len(found)} labels. Is the last, shorter batch in it?"
        )
    if (
        sum(a != b for a, b in zip(found, expected, strict=True)) > count // 50
    ):  # rounding may turn a close decision
        raise NotYet(
            f"for {count} images the labels differ from those of slow_labels; speed counts only for the same answer."
        )


def _alternating(slow, fast, pairs=5):
    """How many times as fast: the median over pairs timed in turn, so that a busy moment hits both. Both read values.

    One thread: beside another program, threads wait for each other much longer than such small work takes.
    """
    threads, ratios = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for _ in range(pairs + 1):
            slow_s, fast_s = (_seconds(work) for work in (slow, fast))
            ratios.append(slow_s / fast_s)
    finally:
        torch.set_num_threads(threads)
    return median(ratios[1:])


def _seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _cut(model, images):
    return quick_labels(model, images[: len(images) // 64 * 64] if len(images) > 64 else images)


def _still_single(model, images):
    with torch.inference_mode():
        return [int(model(image[None]).argmax(1)) for image in images]


def _tensor(model, images):
    return model(images).argmax(1)


def _wrong_axis(model, images):
    with torch.inference_mode():
        return model(images.flip(0)).argmax(1).tolist()


speedup = Exercise(
    key="08.speedup",
    title="three times as fast on this machine",
    minutes=6,
    lines=5,
    difficulty=2,
    check_answer=_check_speed,
    seconds=60,
    hints=(
        "images.split(64) gives batches; the model takes each of them in one call.",
        "torch.inference_mode() around the loop; keep the labels as tensors, then torch.cat(...).tolist() at the end.",
    ),
    reference=quick_labels,
    explanation="64 images share the fixed price of each call, nothing is kept for a backward pass, and the labels are read "
    "once at the end instead of once an image.",
    wrong=(
        Wrong(_cut, "shorter batch"),
        Wrong(_still_single, "is asked for"),
        Wrong(_tensor, "returned Tensor"),
        Wrong(_wrong_axis, "labels differ"),
    ),
)


# --- one shape for all batches ---------------------------------------------------------------------------------------
def fixed_batches(images, size):
    for part in images.split(size):
        batch = images.new_zeros(size, *images.shape[1:])
        batch[: len(part)] = part
        yield batch, len(part)


def _check_fixed(answer):
    for count, size in ((10, 4), (8, 4), (3, 5)):
        images = torch.arange(1.0, count * 2 + 1).reshape(count, 2)
        batches = list(call(lambda images=images, size=size: list(answer(images, size))))
        if not all(
            isinstance(b, tuple) and len(b) == 2 and isinstance(b[0], torch.Tensor) for b in batches
        ):
            raise NotYet(
                "expected pairs (batch, number of real images) from a generator or a list."
            )
        shapes = {tuple(batch.shape) for batch, _ in batches}
        if shapes != {(size, 2)}:
            raise NotYet(
                f"{count} images, size {size}: the batches have the shapes {sorted(shapes)}; expected {(size, 2)} only. "
                "A compiled or captured step is made for one shape."
            )
        real = torch.cat([batch[: int(n)] for batch, n in batches])
        if len(real) != count:
            raise NotYet(
                f"{count} images, size {size}: the batches count {len(real)} real images. Is the last batch missing, or "
                "is its padding counted?"
            )
        if not torch.equal(real, images):
            raise NotYet("the real images are not the given ones in their order.")
    return "one shape, every image once, and the padding told apart."


def _short_last(images, size):
    for part in images.split(size):
        yield part, len(part)


def _dropped(images, size):
    for part in images.split(size):
        if len(part) == size:
            yield part, size
    if len(images) < size:
        yield images.new_zeros(size, *images.shape[1:]), 0


def _all_counted(images, size):
    for batch, _ in fixed_batches(images, size):
        yield batch, size


def _at_the_front(images, size):
    for batch, n in fixed_batches(images, size):
        yield batch.roll(size - n, 0), n


fixed = Exercise(
    key="08.fixed",
    title="one shape for all batches",
    minutes=6,
    lines=4,
    difficulty=2,
    check_answer=_check_fixed,
    hints=(
        "images.new_zeros(size, *images.shape[1:]) makes a full batch; the real images go into its first rows.",
        "images.split(size) gives the parts; yield the filled batch and len(part).",
    ),
    reference=fixed_batches,
    explanation="The last batch is filled up with zeros, so that every batch has one shape and a compiled or captured step fits "
    "them all. The count says which rows of the result are real.",
    wrong=(
        Wrong(_short_last, "have the shapes"),
        Wrong(_dropped, "Is the last batch missing"),
        Wrong(_all_counted, "count 12 real images"),
        Wrong(_at_the_front, "in their order"),
    ),
)


QUIZ = (
    Question(
        "08.order",
        "A loop is too slow. What comes first?",
        ("torch.compile", "A measurement of where the time goes", "A larger batch"),
        (
            "Perhaps later: it helps where memory traffic or the calls of small operations are the limit.",
            "Yes: each change helps against one limit only.",
            "That may help, or lose accuracy, or overflow a cache.",
        ),
        1,
    ),
    Question(
        "08.batch",
        "A batch four times larger doubles the images per second. What else changes?",
        (
            "Nothing",
            "A pass has a quarter of the steps, so the accuracy after it may fall",
            "The loss doubles",
        ),
        (
            "Count the steps of a pass.",
            "Yes: compare accuracies, not only rates.",
            "The mean loss does not depend on the batch.",
        ),
        1,
    ),
    Question(
        "08.roof",
        "An addition of two large tensors reaches 1 % of the FLOP/s of a product. Why?",
        (
            "Additions are slow",
            "It moves 12 bytes for one operation, so memory limits it",
            "It runs on one core",
        ),
        (
            "The units would add far faster than memory delivers.",
            "Yes: low arithmetic intensity; fusing it with its neighbors helps.",
            "Even with all of them, memory is the limit.",
        ),
        1,
    ),
    Question(
        "08.first",
        "The first call of a compiled function takes 20 s. What do you report?",
        ("20 s", "The median of later calls, and the 20 s beside it", "The mean of all calls"),
        (
            "Nobody calls it only once.",
            "Yes: both are true, and which one matters depends on how often you call.",
            "The mean depends on how many calls you made.",
        ),
        1,
    ),
)
