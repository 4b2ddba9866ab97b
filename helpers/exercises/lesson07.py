"""Exercises and quiz of lesson 07, Time asynchronous work."""
import random
import statistics
import time

import torch

from helpers.exercises.core import Exercise, NotYet, Question, Wrong, call
from helpers.practice import practice_gpus


def _nap(ms):
    torch.cuda._sleep(int(ms * 1_000_000))


# --- who waits? ------------------------------------------------------------------------------------------------------
WAITS = {"x + 1": False, "x.shape": False, "x.sum().item()": True, "print(x)": True, "x.cpu()": True,
         "x.nonzero()": True, "x @ x": False, "bool((x > 0).all())": True}
_WHY_WAITS = {"x + 1": "the result stays on the device; Python needs no value.", "x.shape": "the shape is known without any value.",
              "x.sum().item()": "item() gives Python a number.", "print(x)": "what would it print?",
              "x.cpu()": "when are the values on the CPU?", "x.nonzero()": "how long is the result? That depends on the values.",
              "x @ x": "the result stays on the device.", "bool((x > 0).all())": "Python needs True or False to go on."}


def _check_waits(answer):
    if not isinstance(answer, dict) or set(answer) != set(WAITS):
        raise NotYet(f"expected a dict with the keys {list(WAITS)}, got {answer!r}.")
    for line, waits in WAITS.items():
        if not isinstance(answer[line], bool):
            raise NotYet(f"{line!r}: {answer[line]!r} is neither True nor False.")
        if answer[line] != waits:
            raise NotYet(f"{line!r} {'does' if waits else 'does not'} wait for the device: {_WHY_WAITS[line]}")
    return "eight lines sorted into those that need values and those that do not."


waits = Exercise(
    key="07.waits", title="who waits?", minutes=5, lines=6, difficulty=2, check_answer=_check_waits,
    hints=("A line waits when Python must have a value, not just the name of a result.",
           "Five of the eight wait; one of them because the size of its result is a value."),
    reference=WAITS, source=f"waits = {WAITS!r}",
    explanation="item, print, cpu and bool hand values to Python. nonzero must know how many there are before it can make its "
                "result. The others only put work into the queue, or ask for what is known already.",
    wrong=(Wrong({**WAITS, "x.nonzero()": False}, "how long is the result"), Wrong({**WAITS, "x @ x": True}, "stays on the device"),
           Wrong({**WAITS, "x.shape": True}, "known without"), Wrong({**WAITS, "x.cpu()": 1}, "neither True nor False")))


# --- put the events right --------------------------------------------------------------------------------------------
def device_ms(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def _check_events(answer):
    calls = []

    def work():
        calls.append(1)
        _nap(40)

    with practice_gpus(1, asynchronous=True):
        torch.cuda.synchronize()
        _nap(300)  # earlier work, which must not be counted
        found = call(answer, work)
        torch.cuda.synchronize()
    if not isinstance(found, float):
        raise NotYet(f"it returned {type(found).__name__}; expected milliseconds as a float, from elapsed_time.")
    if len(calls) != 1:
        raise NotYet(f"work() was called {len(calls)} times; one call between the two marks is asked for.")
    if found < 30:
        raise NotYet(f"work that takes 40 ms was timed as {found:.3g} ms. Is one mark before the work and one after it, "
                     "and the unit milliseconds?")
    if found > 250:
        raise NotYet(f"work that takes 40 ms was timed as {found:.0f} ms: earlier work of 300 ms is in it. "
                     "Do the marks stand in the queue, or is this the clock of Python?")
    return f"40 ms of work behind 300 ms of other work, timed as {found:.0f} ms."


def _both_after(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    work()
    begin.record()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def _not_waited(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    return begin.elapsed_time(end)


def _python_clock(work):
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def _events_unreturned(work):
    return (device_ms(work), "ms")


events = Exercise(
    key="07.events", title="put the events right", minutes=5, lines=5, difficulty=1, check_answer=_check_events,
    hints=("Two events with enable_timing=True: record one before work(), one after it.",
           "Before elapsed_time, wait for the second event: end.synchronize()."),
    reference=device_ms,
    explanation="The marks stand in the queue around the work, so earlier work is left out. elapsed_time needs both marks to "
                "be passed, which end.synchronize() makes sure of.",
    wrong=(Wrong(_both_after, "before the work and one after"), Wrong(_not_waited, "completed"),
           Wrong(_python_clock, "earlier work"), Wrong(_events_unreturned, "returned tuple")))


# --- an honest stopwatch ---------------------------------------------------------------------------------------------
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
    """A device and a clock that know the truth: the first call is slow, one later call is disturbed."""

    def __init__(self, ms):
        self.ms, self.now, self.pending, self.calls = ms, 0.0, 0.080, 0
        self.log, self.timed = [], []

    def clock(self):
        self.log.append("clock")
        self.now += 1e-8
        return self.now

    def synchronize(self, device=None):
        self.log.append("synchronize")
        self.now, self.pending = self.now + self.pending, 0.0

    def fn(self):
        self.calls += 1
        self.log.append("fn")
        self.now += 1e-5
        slow = 40 if self.calls == 1 else 8 if self.calls in (5, 6) else 1
        self.pending += slow * self.ms / 1000


def _check_stopwatch(answer):
    for ms in (5.0, random.uniform(1, 3)):
        lab = _Lab(ms)
        found = call(answer, lab.fn, clock=lab.clock, synchronize=lab.synchronize)
        truth = ms + 0.01
        if not isinstance(found, (int, float)):
            raise NotYet(f"it returned {type(found).__name__}; expected milliseconds as a number.")
        if lab.calls < 6:
            raise NotYet(f"fn() ran {lab.calls} times: too few for a warm-up and five samples.")
        if lab.log.count("clock") < 10:
            raise NotYet(f"the clock was read {lab.log.count('clock')} times; five samples need a reading before and after each.")
        if not abs(found - truth) <= 0.03 * truth:
            raise NotYet(f"fn() takes {truth:.3g} ms, and you report {found:.3g}.{_why_stopwatch(found, truth, lab.log)}")
    return "right to 3 %, although the first call and two others were disturbed."


def _why_stopwatch(found, truth, log):
    if abs(found * 1000 - truth) <= 0.03 * truth or abs(found / 1000 - truth) <= 0.03 * truth:
        return " Which unit does the clock have?"
    if found < truth / 10:
        return " The clock was read before the work was done."
    if "synchronize" not in log[:log.index("clock")]:
        return " Work from before your first reading was still in the queue, or the slow first call is among the samples."
    if log.index("fn") > log.index("clock"):
        return " The slow first call is among the samples: call fn() before you begin to measure."
    return " Two disturbed samples decide too much: which summary of the samples do they not move?"


def _variant(warm=3, before=True, after=True, summary=statistics.median, scale=1000, samples=7):
    def my_time_ms(fn, clock=time.perf_counter, synchronize=torch.cuda.synchronize):
        for _ in range(warm):
            fn()
        found = []
        for _ in range(samples):
            if before:
                synchronize()
            start = clock()
            fn()
            if after:
                synchronize()
            found.append(scale * (clock() - start))
        return summary(found)
    return my_time_ms


stopwatch = Exercise(
    key="07.stopwatch", title="an honest stopwatch", minutes=10, lines=10, difficulty=3, check_answer=_check_stopwatch,
    hints=("Order: a few calls that do not count; then per sample synchronize, clock, fn, synchronize, clock.",
           "statistics.median of at least five samples; the clock gives seconds, so multiply by 1000."),
    reference=my_time_ms,
    explanation="The warm-up takes the slow first call. Synchronizing before the first reading leaves earlier work out, before "
                "the second it lets yours finish. The median ignores the disturbed samples.",
    wrong=(Wrong(_variant(after=False), "before the work was done"), Wrong(_variant(summary=statistics.mean), "disturbed samples"),
           Wrong(_variant(scale=1), "Which unit"), Wrong(_variant(samples=1, warm=1), "too few"),
           Wrong(_variant(warm=0, summary=max), "slow first call is among"),
           Wrong(_variant(warm=3, before=False, summary=max), "still in the queue")))


# --- three hidden synchronizations -----------------------------------------------------------------------------------
def flowing(rows):
    return (rows * (rows > 0.5)).sum().item()


def _check_flowing(answer):
    with practice_gpus(1, asynchronous=True) as gpu:
        for shape in ((20, 50), (1, 7), (33, 3)):
            rows = torch.rand(shape, device="cuda")
            expected = rows.cpu()[rows.cpu() > 0.5].double().sum().item()
            before = gpu.synchronizations
            found = call(answer, rows)
            waited = gpu.synchronizations - before
            if not isinstance(found, float):
                raise NotYet(f"it returned {type(found).__name__}; expected a Python float, read once at the end.")
            if not abs(found - expected) <= 1e-3 * max(1.0, expected):
                raise NotYet(f"for shape {shape} it returned {found:.4f}, expected {expected:.4f}: the sum of the "
                             "elements above 0.5.")
            if not gpu.real and waited > 1:
                raise NotYet(f"for shape {shape} it waited {waited} times. A mask as an index waits, since the size of its "
                             "result is a value; a mask as a factor does not.")
    return "the same sum, one synchronization."


def _halting(rows):
    total = 0.0
    for row in rows:
        if row.max() > 0.5:
            total += row[row > 0.5].sum().item()
    return total


def _masked(rows):
    return rows[rows > 0.5].sum().item()


def _unread(rows):
    return (rows * (rows > 0.5)).sum()


def _all_of_them(rows):
    return rows.sum().item()


sums = Exercise(
    key="07.sums", title="find three hidden synchronizations", minutes=8, lines=5, difficulty=2,
    check_answer=_check_flowing,
    hints=("A row without elements above 0.5 adds nothing, so the if is not needed.",
           "Multiply by the mask instead of indexing with it, sum everything on the device, and call item() once."),
    reference=flowing,
    explanation="The mask as a factor keeps the shape, so no value is needed until the end; a row without large elements adds "
                "zero by itself; one item() reads the sum.",
    wrong=(Wrong(_masked, "A mask as an index"), Wrong(_unread, "read once at the end"), Wrong(_all_of_them, "above 0.5"),
           Wrong(lambda rows: _halting(rows), "it waited")))


# --- two streams -----------------------------------------------------------------------------------------------------
def side_by_side(first, second):
    streams, results = [torch.cuda.Stream(), torch.cuda.Stream()], []
    for stream, function in zip(streams, (first, second)):
        with torch.cuda.stream(stream):
            results.append(function())
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    return tuple(results)


def _check_streams(answer):
    with practice_gpus(1, asynchronous=True) as gpu:
        used, home = [], torch.cuda.current_stream()

        def make(value):
            zeros = torch.zeros(4, device="cuda")

            def function():
                used.append(torch.cuda.current_stream())
                _nap(120)
                return zeros + value
            return function

        first, second = make(1.0), make(2.0)
        torch.cuda.synchronize()
        before = gpu.synchronizations
        found = call(answer, first, second)
        waited = gpu.synchronizations - before
        mark = torch.cuda.Event()
        mark.record()
        time.sleep(0.03)  # the naps go on; a queue without a wait has passed the mark by now
        ahead = mark.query() and not all(stream.query() for stream in used)
        _judge_streams(found, used, home, waited and not gpu.real, ahead)
    return "two streams, no waiting on the CPU, and results that arrive in time."


def _judge_streams(found, used, home, waited, ahead):
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise NotYet(f"it returned {type(found).__name__}; expected the two results, in order.")
    if len(used) != 2:
        raise NotYet(f"the functions were called {len(used)} times in all; call each of them once.")
    if home in used:
        raise NotYet("a function ran on the current stream. Call each inside `with torch.cuda.stream(…)`.")
    if used[0] == used[1]:
        raise NotYet("both functions ran on one stream, so one after the other. Make two.")
    if waited:
        raise NotYet("Python itself waited. Let the current stream wait for the others instead: wait_stream.")
    if ahead:
        raise NotYet("the current stream went on while the two were still at work: it did not wait for both, so whatever "
                     "uses the results next may read them too early.")
    total = (found[0] + found[1]).sum().item()
    if total != 12.0:
        raise NotYet(f"the results, added up, gave {total} instead of 12.0. Are both returned, as they are?")


def _no_wait(first, second):
    results = []
    for function in (first, second):
        with torch.cuda.stream(torch.cuda.Stream()):
            results.append(function())
    return tuple(results)


def _one_stream(first, second):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        results = first(), second()
    torch.cuda.current_stream().wait_stream(stream)
    return results


def _synchronized(first, second):
    results = _no_wait(first, second)
    torch.cuda.synchronize()
    return results


streams = Exercise(
    key="07.streams", title="two streams", minutes=8, lines=7, difficulty=3, check_answer=_check_streams,
    hints=("torch.cuda.Stream() makes a stream; `with torch.cuda.stream(s):` sends what follows to it.",
           "At the end, torch.cuda.current_stream().wait_stream(s) for both streams; then return both results."),
    reference=side_by_side,
    explanation="Each function's work enters a queue of its own, so both may run at once. wait_stream puts a wait into the "
                "current queue: the device waits, Python does not.",
    wrong=(Wrong(_no_wait, "did not wait for both"), Wrong(_one_stream, "Make two"), Wrong(_synchronized, "Python itself"),
           Wrong(lambda first, second: (first(), second()), "current stream. Call")))


QUIZ = (
    Question("07.naive", "A tutorial reports a GPU 24,000 times faster than a CPU. What do you check first?",
             ("The GPU's model", "Whether it synchronized before reading the clock", "The CPU's temperature"),
             ("No card is that much faster at the same work.", "Yes: the time of a call is the time to ask.",
              "That may cost some percent."), 1),
    Question("07.median", "Why the median of several samples?",
             ("It is always smaller than the mean", "One disturbed sample does not move it", "It is faster to compute"),
             ("Often, not always.", "Yes: a disturbance moves one sample, not the middle.", "That does not matter."), 1),
    Question("07.early", "target.copy_(gpu_tensor, non_blocking=True), then print(target). What may you see?",
             ("Always the right numbers", "Old numbers", "An error"),
             ("Only if the copy happens to be done.", "Yes: the copy may not have happened yet, and nothing warns.",
              "Nothing is raised, which is the danger."), 1),
    Question("07.nonzero", "Why does nonzero() wait for the device?",
             ("It is slow", "The size of its result depends on values", "It copies to the CPU"),
             ("A slow kernel can wait in the queue.", "Yes: Python needs the shape of every result.",
              "The result stays on the device."), 1),
)
