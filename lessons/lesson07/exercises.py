"""Exercises and quiz of lesson 07, Time asynchronous work."""

import random
import statistics
import time
from contextlib import contextmanager
from unittest import mock

import torch

from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call, chosen
from lessons.lesson07 import queue as figures
from lessons.lesson07.queue import (
    draw_call,
    draw_profile,
    draw_v100,
    nap,
    queue,
    training_step,
)
from lessons.watch import count_waits, waits_and_result
from practice_gpus import practice_gpus

# The lesson calls them, too.
__all__ = [
    "count_waits",
    "draw_call",
    "draw_profile",
    "draw_v100",
    "nap",
    "queue",
    "training_step",
]


# --- an honest stopwatch ------------------------------------------------------------------------
def my_time_ms(fn, clock=time.perf_counter, synchronize=torch.cuda.synchronize):
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

    def between(self):
        """Return what was called between the first reading and the second, the third and the fourth, and so on."""
        parts = " ".join(self.log).split("clock")[1:]
        return [part.split() for part in parts[::2]]


def _check_stopwatch(answer):
    for ms in (5.0, random.uniform(1, 3)):
        lab = _Lab(ms)
        reported = call(answer, lab.fn, clock=lab.clock, synchronize=lab.synchronize)
        reported = expect.number(reported)
        _judge_readings(lab)
        truth = ms + 0.01
        if not abs(reported - truth) <= 0.03 * truth:
            reason = _why_stopwatch(reported, truth)
            raise NotYet(f"fn() takes {truth:.3g} ms, and you report {reported:.3g}. {reason}")
    return "right to 3%, although the first calls and some later ones were disturbed."


def _judge_readings(lab):
    readings = lab.log.count("clock")
    if readings == 0:
        raise NotYet(
            "your function never called clock(). Read the time with the clock that it was given."
        )
    if readings < 10:
        raise NotYet(
            f"the clock was read {readings} times; seven samples need a reading before and after each."
        )
    if any(lab.unfinished[1::2]):
        raise NotYet("a sample's second reading of the clock came before the work was done.")
    if any(lab.unfinished[::2]):
        raise NotYet(
            "at a sample's first reading, earlier work was still in the queue; it is charged to the sample."
        )
    if "fn" not in lab.log[: lab.log.index("clock")]:
        raise NotYet(
            "the clock was read before any call of fn(): make the three calls that don't count first, "
            "and don't time them."
        )
    for part in lab.between():
        if part.count("synchronize") != 1 or "fn" not in part:
            raise NotYet(
                f"between two readings of the clock stood {', '.join(part) or 'nothing'}; "
                "only the work and the wait for it belong there."
            )


def _why_stopwatch(reported, truth):
    for in_other_unit in (reported * 1000, reported / 1000):
        if abs(in_other_unit - truth) <= 0.03 * truth:
            return "Which unit does the clock have?"
    if reported < truth:
        return "Some calls are lucky: which summary of the samples do they not move?"
    return (
        "Slow first calls (three of them), or disturbed samples, decide too much: how many calls "
        "go first, and which summary is used?"
    )


stopwatch = Exercise(
    key="07.stopwatch",
    title="an honest stopwatch",
    check_answer=_check_stopwatch,
    hints=(
        "The three rules above are your plan: warm up, wait before each reading, take the median.",
        "First three calls that don't count. Then, seven times: wait, read the clock, call, wait, "
        "read the clock again, and keep the difference.",
        "In the loop: `synchronize()`, `start = clock()`, `fn()`, `synchronize()`, then "
        "`samples.append(1000 * (clock() - start))`. At the end: `statistics.median(samples)`.",
    ),
    reference=my_time_ms,
    explanation="The warm-up takes the slow first calls. Synchronizing before the first reading leaves earlier work out, before "
    "the second it lets yours finish. The median ignores the disturbed samples.",
)


def draw_stopwatch(my_time_ms):
    """Draw growing products by the learner's stopwatch (until it passes, the model answer's); (Figure, sentence)."""
    return figures.draw_stopwatch(chosen(stopwatch, my_time_ms))


# --- three hidden waits -------------------------------------------------------------------------
def flowing(rows):
    return (rows * (rows > 0.5)).sum().item()


def _check_flowing(answer):
    with practice_gpus(1, asynchronous=True):
        for shape in ((20, 50), (1, 7), (33, 3), (0, 4)):
            host = torch.randint(-4, 9, shape[::-1]).t() / 8.0  # negative numbers, and 0.5 itself
            expected = host[host > 0.5].sum().item()
            rows = host.to("cuda")
            waits, total = waits_and_result(call, answer, rows)
            total = expect.number(total)
            if not abs(total - expected) <= 1e-4 * max(1.0, expected):
                raise NotYet(
                    f"for shape {shape} it returned {total:.4f}, expected {expected:.4f}: the sum of the "
                    "elements above 0.5."
                )
            if not torch.equal(rows.cpu(), host):
                raise NotYet(
                    "the sum is right, but `rows` came back changed. Whoever called flowing may still need it."
                )
            if waits > 1:
                raise NotYet(
                    f"for shape {shape} it waited {waits} times. Reading with a mask as an index waits, since "
                    "the size of the result is a value; a mask as a factor doesn't."
                )
    return "the same sum, and one wait."


sums = Exercise(
    key="07.sums",
    title="three hidden waits",
    check_answer=_check_flowing,
    hints=(
        "The list in *Who waits?* marks the three lines of `halting` that wait; it has a neighbor of "
        "one of them that goes on.",
        "A row without elements above 0.5 adds nothing, so nobody needs to ask. Multiply by the mask "
        "instead of indexing with it, and read one number at the end.",
        "`(rows * (rows > 0.5))` keeps its shape and holds a zero wherever the number is too small. "
        "What's left is `.sum()` and one `.item()`.",
    ),
    reference=flowing,
    explanation="The mask as a factor keeps the shape, so no value is needed until the end; a row without large elements adds "
    "zero by itself; one item() reads the sum.",
)


# --- a copy beside the work ---------------------------------------------------------------------
def copy_beside(host, work, side):
    main = torch.cuda.current_stream()
    with torch.cuda.stream(side):
        copy = host.to("cuda", non_blocking=True)
    result = work()
    main.wait_stream(side)
    copy.record_stream(main)
    return copy, result


def _check_streams(answer):
    with practice_gpus(1, asynchronous=True):
        side = torch.cuda.Stream()
        zeros = torch.zeros(4, device="cuda")
        used = []
        ended = []

        def work():
            used.append(torch.cuda.current_stream())
            result = zeros + 7
            ended.append(torch.cuda.current_stream().record_event())
            return result

        nap(1)
        work().clone()  # loads the kernels
        with torch.cuda.stream(side):
            torch.empty(1000, device="cuda")  # a GPU that fetches memory may wait for a nap
        used.clear()
        ended.clear()
        _judge_side_busy(answer, work, side, used, ended)
        _judge_current_busy(answer, work, side)
    return "the copy ran beside the work, the GPU waited for it, and Python didn't."


def _judge_side_busy(answer, work, side, used, ended):
    """Before the copy the side stream naps: Python must not wait for it, the current stream must."""
    host = torch.rand(1000).pin_memory()
    main = torch.cuda.current_stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        nap(600)
        napped = side.record_event()
    with _recorded_streams() as recorded:
        returned = call(answer, host, work, side)
    python_waited = napped.query()
    reached = main.record_event()
    copy, result = _pair(returned)
    _judge_work(used, main)
    if python_waited:
        raise NotYet(
            "Python itself waited until the side stream was done. Is the copy asked for without blocking, "
            "and does a stream wait instead of Python?"
        )
    _judge_order(ended[-1], reached, napped)
    expect.tensor(copy, shape=host.shape, device="cuda:0", what="the copy")
    if not torch.equal(copy.cpu(), host) or result.tolist() != [7.0] * 4:
        raise NotYet(
            "the values are wrong: expected the copy of `host`, then what work() returned."
        )
    if not any(tensor is copy and stream == main for tensor, stream in recorded):
        raise NotYet(
            "the copy's memory belongs to `side`. Once Python drops the copy, `side` may fill that memory "
            "again while the current stream still reads it. Which call says who else uses the copy?"
        )


def _judge_work(used, main):
    """The work ran once, on the stream `main`; `used` lists the streams on which it ran."""
    if len(used) != 1:
        raise NotYet(f"work() was called {len(used)} times; once is asked for.")
    if used[0] != main:
        raise NotYet(
            "work() ran on the side stream. Only the copy belongs inside `with torch.cuda.stream(side)`."
        )


def _judge_order(worked, reached, napped):
    """The work ended before the side stream's nap (`worked`, `napped`), and what comes after it ran later."""
    if not _is_first(worked, napped):
        raise NotYet(
            "the work waited for the copy, so the two took turns. When does the current stream have to wait: "
            "before work(), or after it?"
        )
    if _is_first(reached, napped):
        raise NotYet(
            "the current stream went on while the side stream was still busy: it didn't wait for the copy, "
            "so whatever uses the copy next may read it too early."
        )


def _pair(returned):
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise NotYet(
            f"it returned {type(returned).__name__}; expected the copy and the result of work(), in this order."
        )
    copy, result = returned
    return expect.tensor(copy, what="the copy"), expect.tensor(result, what="the result")


@contextmanager
def _recorded_streams():
    """Give a list of each (tensor, stream) that `record_stream` is called with in the block."""
    record = torch.Tensor.record_stream
    calls = []

    def record_stream(tensor, stream):
        calls.append((tensor, stream))
        return record(tensor, stream)

    with mock.patch.object(torch.Tensor, "record_stream", record_stream):
        yield calls


def _is_first(event, other):
    """Return whether the device passes `event` before `other`; does not wait longer than until `other`."""
    while not event.query():
        if other.query():
            return False
    return not other.query()


def _judge_current_busy(answer, work, side):
    """Before the copy the current stream naps: the copy must be there long before it wakes."""
    host = torch.rand(1000).pin_memory()
    torch.cuda.synchronize()
    nap(600)
    awake = torch.cuda.current_stream().record_event()
    copy, _ = call(answer, host, work, side)
    with torch.cuda.stream(side):
        content = copy.clone()
    side.synchronize()
    if awake.query() or not torch.equal(content.cpu(), host):
        raise NotYet(
            "while the current stream was busy, the copy did not run: it waited for the current stream. "
            "Was it put into the side stream, and is nothing waited for before it?"
        )


streams = Exercise(
    key="07.streams",
    title="a copy beside the work",
    check_answer=_check_streams,
    hints=(
        "*Let the GPU wait* in *Two queues* shows `with torch.cuda.stream(side):` and the wait; "
        "`in_turn` is the function to change.",
        "The copy goes into the side stream without blocking, `work()` stays outside. Afterwards the "
        "current stream waits for the side stream, and the copy is told who else uses it.",
        "After `work()`: `main.wait_stream(side)`, then `copy.record_stream(main)`, where `main` is "
        "`torch.cuda.current_stream()`.",
    ),
    reference=copy_beside,
    explanation="The copy enters a queue of its own, so it runs beside the work. wait_stream puts a wait into the current queue: "
    "the device waits, Python does not. record_stream keeps the copy's memory, which belongs to side, from the next "
    "copy until the current stream has read it.",
)


def draw_overlap(copy_and_work):
    """Draw when copy and work ran (with the model answer, if untouched); (Figure, sentence)."""
    return figures.draw_overlap(copy_and_work, streams.reference)


QUIZ = (
    Question(
        "07.naive",
        "A report says a GPU is 24,000 times faster than a CPU. What do you check first?",
        {
            "The GPU's model": "The model may explain some of it; first see what the clock measured.",
            "The CPU's temperature": "That may cost some percent.",
            "Whether it synchronized before reading the clock": "Yes: without it, the clock measured how long it takes to ask.",
        },
        right=2,
    ),
    Question(
        "07.nonzero",
        "Why does x.nonzero() wait for the device?",
        {
            "The size of its result depends on values": "Yes: Python needs the shape of every result, and this one has to be counted first.",
            "It is slow": "A slow kernel can wait in the queue while Python goes on.",
            "It copies to the CPU": "The result stays on the device.",
        },
        right=0,
    ),
    Question(
        "07.early",
        "target is pinned. target.copy_(gpu_tensor, non_blocking=True), then print(target). What may you see?",
        {
            "Always the right numbers": "Only if the copy happens to be done.",
            "Old numbers": "Yes: the copy may not have happened yet, and nothing warns you.",
            "An error": "Nothing is raised, which is the danger.",
        },
        right=1,
    ),
)
