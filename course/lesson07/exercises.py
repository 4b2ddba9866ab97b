"""Exercises and quiz of lesson 07, Time asynchronous work."""

import copy
import linecache
import random
import statistics
import time
import warnings

import torch

from course.checks import expect
from course.checks.core import NotAttempted, NotYet, call, same_code
from course.checks.watch import GPU, Watched, count_waits, waits_and_result
from course.checks.words import exercise, quiz
from course.lesson07.limits import examine
from course.lesson07.limits import exercise as limit
from helpers.training import train_step
from practice_gpus import practice_gpus

# The lesson calls them, too.
__all__ = ["count_waits", "examine", "limit"]


def nap(ms):
    """Keep the current stream busy without computing, for `ms` milliseconds at a clock of 1 GHz (half of it at 2)."""
    torch.cuda._sleep(int(1e6 * ms))


WAITS_FOR = {  # line of the lesson: what Python needs from the GPU there
    "x.max().item()": "a value",
    "x.cpu()": "a copy",
    "x[x > 0.5]": "the size of its result",
    "host.to('cuda')": "a copy",
}


# --- an honest stopwatch ------------------------------------------------------------------------
def finish():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def lying(fn, clock=time.perf_counter, synchronize=finish):
    samples = []
    for _ in range(7):
        start = clock()
        fn()
        samples.append(1000 * (clock() - start))
    return samples[0]


def time_ms(fn, clock=time.perf_counter, synchronize=finish):
    for _ in range(3):
        fn()
    samples = []
    for _ in range(7):
        synchronize()
        start = clock()
        fn()
        synchronize()
        samples.append(1000 * (clock() - start))
    return statistics.median(samples)


class _Lab:
    """A device and a clock that know the truth: three slow calls, then a disturbed and a lucky one in each six."""

    def __init__(self, ms):
        self.ms = ms
        self.now = 0.0
        self.pending = 0.080
        self.calls = 0
        self.log = []
        self.unfinished = []

    def clock(self):
        self.log.append("clock")
        self.unfinished.append(self.pending > 0)
        self.now += 1e-8
        return self.now

    def synchronize(self, device=None):
        self.log.append("synchronize")
        self.now += self.pending
        self.pending = 0.0

    def fn(self):
        self.calls += 1
        self.log.append("fn")
        self.now += 1e-5
        slow = {1: 8, 4: 0.5}.get(self.calls % 6, 1)
        if self.calls <= 3:
            slow = 40
        self.pending += slow * self.ms / 1000


def _check_stopwatch(answer):
    if same_code(answer, lying):
        raise NotAttempted("Mend the function above, then run this cell again.")
    for ms in (5.0, random.uniform(1, 3)):
        lab = _Lab(ms)
        reported = call(answer, lab.fn, clock=lab.clock, synchronize=lab.synchronize)
        reported = expect.number(reported)
        _judge_readings(lab)
        truth = ms + 0.01
        if not abs(reported - truth) <= 0.03 * truth:
            reason = stopwatch.word(reported, truth=truth)
            raise NotYet(f"fn() takes {truth:.3g} ms, and you report {reported:.3g}. {reason}")
    return "your time is right to 3%, although the first calls and some later ones were disturbed."


def _judge_readings(lab):
    readings = lab.log.count("clock")
    if readings < 10:
        raise NotYet(
            f"clock() was read {readings} times; seven samples need a reading before and after each."
        )
    if any(lab.unfinished[1::2]):
        raise NotYet(
            "a sample's second reading of the clock came before the work was done. What has to come between?"
        )
    if any(lab.unfinished[::2]):
        raise NotYet(
            "at a sample's first reading, earlier work was still in the queue, so the sample includes it."
        )
    if "fn" not in lab.log[: lab.log.index("clock")]:
        raise NotYet(
            "the clock was read before any call of fn(): make the three warm-up calls first, "
            "and don't time them."
        )


stopwatch = exercise("07.stopwatch", _check_stopwatch, time_ms, tool="time_ms")


# --- find the waits -----------------------------------------------------------------------------
def find_waits(step):
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step()
    torch.cuda.set_sync_debug_mode("default")
    return [
        linecache.getline(w.filename, w.lineno).strip()
        for w in caught
        if "synchronizing" in str(w.message)
    ]


def _three_waits():
    x = torch.arange(4.0, device="cuda")
    for _ in range(2):
        warnings.warn("an unrelated warning", stacklevel=1)
        total = x.sum().item()
    if x.max() > total:
        x = x * 2


LINES = ["total = x.sum().item()"] * 2 + ["if x.max() > total:"]


def _check_find_waits(answer):
    with practice_gpus(1, asynchronous=True), warnings.catch_warnings():
        before = torch.cuda.get_sync_debug_mode()
        try:
            found = call(answer, _three_waits)
            _judge_lines(found)
            if torch.cuda.get_sync_debug_mode() != before:
                raise NotYet(
                    "the lines are right, but the debug mode stays on, so every later wait will warn. "
                    'Set it back to "default" at the end.'
                )
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return "three waits found, each by its line, and nothing else."


def _judge_lines(found):
    if found is None:
        raise NotYet("it returned None, expected a list of lines: is there a `return`?")
    if not isinstance(found, list):
        raise NotYet(f"it returned {type(found).__name__}, expected a list of lines of code.")
    if any("warnings.warn" in str(line) for line in found):
        raise NotYet(
            "the list holds a line whose warning has another cause. Which word is in every message about a wait?"
        )
    if len(found) == 2:
        raise NotYet(
            "the step waits twice at one line and once at another, and you found two. Python shows a warning "
            'once per line: `warnings.simplefilter("always")` inside the block shows each.'
        )
    if len(found) != 3:
        raise NotYet(f"the step waits three times, and you found {len(found)} waits.")
    if found != LINES:
        raise NotYet(
            f"the first of three entries is {str(found[0])[:60]!r}, expected the line of code that waits, "
            "without spaces around it."
        )


waits = exercise("07.waits", _check_find_waits, find_waits, tool="find_waits", letter="b")


# --- keep the stream full -----------------------------------------------------------------------
def halting(model, batches, optimizer):
    total = 0.0
    for x, y in batches:
        loss = train_step(model, x, y, optimizer)
        total += loss.item()
    return total / len(batches)


def flowing(model, batches, optimizer):
    total = 0.0
    for x, y in batches:
        loss = train_step(model, x, y, optimizer)
        total += loss
    return total.item() / len(batches)


def _check_flowing(answer):
    if same_code(answer, halting):
        raise NotAttempted("Change the function above, then run this cell again.")
    with practice_gpus(1, asynchronous=True):
        model = Watched()
        data = torch.randn(24, 3, 2, 2).cuda(), torch.randint(5, (24,)).cuda()
        expected, _, weights = _run(flowing, model, *data)
        loss, count, trained = _run(lambda *epoch: call(answer, *epoch), model, *data)
        loss = expect.number(loss)
        if not abs(loss - expected) <= 1e-4:
            raise NotYet(
                f"it returned {loss:.4f}, expected {expected:.4f}: the mean of the batches' losses."
            )
        if not torch.allclose(trained, weights, atol=1e-4):
            raise NotYet("the loss is right, but the model's weights aren't: one step per batch.")
        if count > 1:
            raise NotYet(
                f"for six batches it synchronized {count} times; one is enough, after the loop. "
                "Which of its lines read a value from the GPU?"
            )
    return "the same loss, the same weights, and Python waits once instead of six times."


def _run(epoch, model, images, labels):
    """Return (what `epoch` returned, waits, weights) of six batches, with a copy of `model`."""
    model = copy.deepcopy(model).to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = list(zip(images.split(4), labels.split(4), strict=True))
    count, loss = waits_and_result(epoch, model, batches, optimizer)
    return loss, count, model.linear.weight.detach().cpu()


epoch = exercise("07.epoch", _check_flowing, flowing)


QUIZ = quiz("07")
