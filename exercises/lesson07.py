"""Exercises and quiz of lesson 07, Time asynchronous work."""

import random
import statistics
import time
import warnings

import torch

from helpers.checks.core import Exercise, NotYet, Question, Wrong, call
from practice_gpus import practice_gpus


def _nap(ms):
    torch.cuda._sleep(int(ms * 1_000_000))


# --- who waits? ------------------------------------------------------------------------------------------------------
WAITS = {
    "x + 1": False,
    "x.shape": False,
    "x.sum().item()": True,
    "print(x)": True,
    "x.cpu()": True,
    "x.nonzero()": True,
    "x @ x": False,
    "bool((x > 0).all())": True,
}
_WHY_WAITS = {
    "x + 1": "the result stays on the device; Python needs no value.",
    "x.shape": "the shape is known without any value.",
    "x.sum().item()": "item() gives Python a number.",
    "print(x)": "what would it print?",
    "x.cpu()": "when are the values on the CPU?",
    "x.nonzero()": "how long is the result? That depends on the values.",
    "x @ x": "the result stays on the device.",
    "bool((x > 0).all())": "Python needs True or False to go on.",
}


def _check_waits(answer):
    if not isinstance(answer, dict) or set(answer) != set(WAITS):
        raise NotYet(f"expected a dict with the keys {list(WAITS)}, got {answer!r}.")
    for line, waits in WAITS.items():
        if not isinstance(answer[line], bool):
            raise NotYet(f"{line!r}: {answer[line]!r} is neither True nor False.")
        if answer[line] != waits:
            raise NotYet(
                f"{line!r} {'does' if waits else 'does not'} wait for the device: {_WHY_WAITS[line]}"
            )
    return "eight lines sorted into those that need values and those that do not."


waits = Exercise(
    key="07.waits",
    title="who waits?",
    minutes=5,
    lines=6,
    difficulty=2,
    check_answer=_check_waits,
    hints=(
        "A line waits when Python must have a value, not just the name of a result.",
        "Five of the eight wait; one of them because the size of its result is a value.",
    ),
    reference=WAITS,
    source=f"waits = {WAITS!r}",
    explanation="item, print, cpu and bool hand values to Python. nonzero must know how many there are before it can make its "
    "result. The others only put work into the queue, or ask for what is known already.",
    wrong=(
        Wrong({**WAITS, "x.nonzero()": False}, "how long is the result"),
        Wrong({**WAITS, "x @ x": True}, "stays on the device"),
        Wrong({**WAITS, "x.shape": True}, "known without"),
        Wrong({**WAITS, "x.cpu()": 1}, "neither True nor False"),
    ),
)


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
        _nap(100)

    with practice_gpus(1, asynchronous=True):
        _nap(300)  # a real GPU at rest speeds up first
        truth = device_ms(lambda: _nap(100))  # and its clock is not 1 GHz
        _nap(600)  # earlier work, which must not be counted
        found = call(answer, work)
        torch.cuda.synchronize()
    if not isinstance(found, float):
        raise NotYet(
            f"it returned {type(found).__name__}; expected milliseconds as a float, from elapsed_time."
        )
    if len(calls) != 1:
        raise NotYet(
            f"work() was called {len(calls)} times; one call between the two marks is asked for."
        )
    if not found >= truth / 2:
        raise NotYet(
            f"work that takes {truth:.0f} ms was timed as {found:.3g} ms. Is one mark before the work and one "
            "after it, and the unit milliseconds?"
        )
    if not found <= 4 * truth:
        raise NotYet(
            f"work that takes {truth:.0f} ms was timed as {found:.0f} ms: earlier work is in it. "
            "Do the marks stand in the queue, or is this the clock of Python?"
        )
    return f"{truth:.0f} ms of work, behind other work, timed as {found:.0f} ms."


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
    key="07.events",
    title="put the events right",
    minutes=5,
    lines=5,
    difficulty=1,
    check_answer=_check_events,
    hints=(
        "Two events with enable_timing=True: record one before work(), one after it.",
        "Before elapsed_time, wait for the second event: end.synchronize().",
    ),
    reference=device_ms,
    explanation="The marks stand in the queue around the work, so earlier work is left out. elapsed_time needs both marks to "
    "be passed, which end.synchronize() makes sure of.",
    wrong=(
        Wrong(_both_after, "before the work and one after"),
        Wrong(_not_waited, "completed"),
        Wrong(_python_clock, "earlier work"),
        Wrong(_events_unreturned, "returned tuple"),
    ),
)


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
    """A device and a clock that know the truth: three slow calls, then a disturbed and a lucky one in each six."""

    def __init__(self, ms):
        self.ms, self.now, self.pending, self.calls = ms, 0.0, 0.080, 0
        self.log, self.unfinished = [], []

    def clock(self):
        self.log.append("clock")
        self.unfinished.append(self.pending > 0)
        self.now += 1e-8
        return self.now

    def synchronize(self, device=None):
        self.log.append("synchronize")
        self.now, self.pending = self.now + self.pending, 0.0

    def fn(self):
        self.calls += 1
        self.log.append("fn")
        self.now += 1e-5
        slow = 40 if self.calls <= 3 else {1: 8, 4: 0.5}.get(self.calls % 6, 1)
        self.pending += slow * self.ms / 1000

    def between(self):
        """What was called between the first reading and the second, the third and the fourth, and so on."""
        parts = " ".join(self.log).split("clock")[1:]
        return [part.split() for part in parts[::2]]


def _check_stopwatch(answer):
    for ms in (5.0, random.uniform(1, 3)):
        lab = _Lab(ms)
        found = call(answer, lab.fn, clock=lab.clock, synchronize=lab.synchronize)
        if not isinstance(found, (int, float)):
            raise NotYet(f"it returned {type(found).__name__}; expected milliseconds as a number.")
        if lab.log.count("clock") < 10:
            raise NotYet(
                f"the clock was read {lab.log.count('clock')} times; five samples need a reading before and after each."
            )
        _judge_readings(lab)
        truth = ms + 0.01
        if not abs(found - truth) <= 0.03 * truth:
            raise NotYet(
                f"fn() takes {truth:.3g} ms, and you report {found:.3g}.{_why_stopwatch(found, truth)}"
            )
    return "right to 3 %, although the first calls and some later ones were disturbed."


def _judge_readings(lab):
    if any(lab.unfinished[1::2]):
        raise NotYet("a sample's second reading of the clock came before the work was done.")
    if any(lab.unfinished[::2]):
        raise NotYet(
            "at a sample's first reading, earlier work was still in the queue; it is charged to the sample."
        )
    if "fn" not in lab.log[: lab.log.index("clock")]:
        raise NotYet(
            "the slow first call is among the samples: call fn() before the clock is first read."
        )
    if any(part.count("synchronize") != 1 or "fn" not in part for part in lab.between()):
        raise NotYet(
            f"between two readings of the clock stood {', '.join(lab.between()[0]) or 'nothing'}; "
            "only the work and the wait for it belong there."
        )


def _why_stopwatch(found, truth):
    if abs(found * 1000 - truth) <= 0.03 * truth or abs(found / 1000 - truth) <= 0.03 * truth:
        return " Which unit does the clock have?"
    if found < truth:
        return " Some calls are lucky: which summary of the samples do they not move?"
    return " Slow first calls (three of them), or disturbed samples, decide too much: how many calls go first, and which summary is used?"


def _variant(
    warm=3, before=True, inside=False, after=True, summary=statistics.median, scale=1000, samples=7
):
    def my_time_ms(fn, clock=time.perf_counter, synchronize=torch.cuda.synchronize):
        for _ in range(warm):
            fn()
        found = []
        for _ in range(samples):
            if before:
                synchronize()
            start = clock()
            if inside:
                synchronize()
            fn()
            if after:
                synchronize()
            found.append(scale * (clock() - start))
        return summary(found)

    return my_time_ms


stopwatch = Exercise(
    key="07.stopwatch",
    title="an honest stopwatch",
    minutes=10,
    lines=10,
    difficulty=3,
    check_answer=_check_stopwatch,
    hints=(
        "Order: three calls that do not count; then per sample synchronize, clock, fn, synchronize, clock.",
        "statistics.median of at least five samples; the clock gives seconds, so multiply by 1000.",
    ),
    reference=my_time_ms,
    explanation="The warm-up takes the slow first calls. Synchronizing before the first reading leaves earlier work out, before "
    "the second it lets yours finish. The median ignores the disturbed samples.",
    wrong=(
        Wrong(_variant(after=False), "before the work was done"),
        Wrong(_variant(summary=statistics.mean), "decide too much"),
        Wrong(_variant(scale=1), "Which unit"),
        Wrong(_variant(samples=1), "read 2 times"),
        Wrong(_variant(warm=0), "slow first call is among"),
        Wrong(_variant(summary=min), "lucky"),
        Wrong(_variant(before=False), "still in the queue"),
        Wrong(_variant(inside=True), "only the work and the wait"),
    ),
)


# --- three hidden synchronizations -----------------------------------------------------------------------------------
def flowing(rows):
    return (rows * (rows > 0.5)).sum().item()


def _check_flowing(answer):
    with practice_gpus(1, asynchronous=True):
        for shape in ((20, 50), (1, 7), (33, 3), (0, 4)):
            host = torch.randint(-4, 9, shape[::-1]).t() / 8.0  # negative numbers, and 0.5 itself
            rows = host.to("cuda")
            expected = host[host > 0.5].sum().item()
            waited, found = _count_waits(answer, rows)
            if not isinstance(found, float):
                raise NotYet(
                    f"it returned {type(found).__name__}; expected a Python float, read once at the end."
                )
            if not abs(found - expected) <= 1e-4 * max(1.0, expected):
                raise NotYet(
                    f"for shape {shape} it returned {found:.4f}, expected {expected:.4f}: the sum of the "
                    "elements above 0.5."
                )
            if waited > 1:
                raise NotYet(
                    f"for shape {shape} it waited {waited} times. A mask as an index waits, since the size of its "
                    "result is a value; a mask as a factor does not."
                )
    return "the same sum, one synchronization."


def _count_waits(answer, rows):
    """(how often PyTorch reported a wait during `answer(rows)`, its result): on practice and on real GPUs alike."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            found = call(answer, rows)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(w.message) for w in caught), found


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
    key="07.sums",
    title="find three hidden synchronizations",
    minutes=8,
    lines=5,
    difficulty=2,
    check_answer=_check_flowing,
    hints=(
        "A row without elements above 0.5 adds nothing, so the if is not needed.",
        "Multiply by the mask instead of indexing with it, sum everything on the device, and call item() once.",
    ),
    reference=flowing,
    explanation="The mask as a factor keeps the shape, so no value is needed until the end; a row without large elements adds "
    "zero by itself; one item() reads the sum.",
    wrong=(
        Wrong(_masked, "A mask as an index"),
        Wrong(_unread, "read once at the end"),
        Wrong(_all_of_them, "above 0.5"),
        Wrong(lambda rows: _halting(rows), "it waited"),
    ),
)


# --- a copy beside the work ------------------------------------------------------------------------------------------
def copy_beside(host, work, side):
    with torch.cuda.stream(side):
        copy = host.to("cuda", non_blocking=True)
    result = work()
    torch.cuda.current_stream().wait_stream(side)
    copy.record_stream(torch.cuda.current_stream())
    return copy, result


def _check_streams(answer):
    with practice_gpus(1, asynchronous=True):
        side, used, zeros = torch.cuda.Stream(), [], torch.zeros(4, device="cuda")

        def work():
            used.append(torch.cuda.current_stream())
            return zeros + 7

        work().clone()  # loads the kernels
        with torch.cuda.stream(side):
            torch.empty(
                1000, device="cuda"
            )  # a real GPU may wait for a nap to fetch memory, so it does so now
        used.clear()
        _judge_side_busy(answer, work, side, used)
        _judge_current_busy(answer, work, side)
    return "the copy ran beside the work, Python did not wait, and the current stream did."


def _judge_side_busy(answer, work, side, used):
    """Before the copy the side stream naps: Python must not wait for it, the current stream must."""
    host, home = torch.rand(1000).pin_memory(), torch.cuda.current_stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        _nap(600)
        napped = side.record_event()
    found = call(answer, host, work, side)
    waited, mark = napped.query(), home.record_event()
    if (
        not isinstance(found, (tuple, list))
        or len(found) != 2
        or not all(isinstance(f, torch.Tensor) for f in found)
    ):
        raise NotYet(
            f"it returned {type(found).__name__}; expected the copy and the result of work(), in this order."
        )
    if len(used) != 1:
        raise NotYet(f"work() was called {len(used)} times; once is asked for.")
    if used[0] != home:
        raise NotYet(
            "work() ran on the side stream. Only the copy belongs inside `with torch.cuda.stream(side)`."
        )
    if waited:
        raise NotYet(
            "Python itself waited until the side stream was done. Is the copy asked for without blocking, and does "
            "a stream wait instead of Python?"
        )
    time.sleep(0.25)  # without a wait in it, the current stream is done by now
    if mark.query() and not napped.query():
        raise NotYet(
            "the current stream went on while the side stream was still busy: it did not wait for the copy, so "
            "whatever uses the copy next may read it too early."
        )
    if (
        found[0].device.type != "cuda"
        or not torch.equal(found[0].cpu(), host)
        or found[1].tolist() != [7.0] * 4
    ):
        raise NotYet(
            "the values are wrong: expected the copy of `host` on the GPU, then what work() returned."
        )


def _judge_current_busy(answer, work, side):
    """Before the copy the current stream naps: the copy must be there long before it wakes."""
    host = torch.rand(1000).pin_memory()
    torch.cuda.synchronize()
    _nap(600)
    awake = torch.cuda.current_stream().record_event()
    copy, _ = call(answer, host, work, side)
    with torch.cuda.stream(side):
        seen = copy.clone()
    side.synchronize()
    if awake.query() or not torch.equal(seen.cpu(), host):
        raise NotYet(
            "while the current stream was busy, the copy did not run: it waited for the current stream. Was it put "
            "into the side stream, and is nothing waited for before it?"
        )


def _no_wait(host, work, side):
    with torch.cuda.stream(side):
        copy = host.to("cuda", non_blocking=True)
    return copy, work()


def _blocking(host, work, side):
    with torch.cuda.stream(side):
        copy = host.to("cuda")
    result = work()
    torch.cuda.current_stream().wait_stream(side)
    return copy, result


def _same_stream(host, work, side):
    copy = host.to("cuda", non_blocking=True)
    result = work()
    torch.cuda.current_stream().wait_stream(side)
    return copy, result


def _all_aside(host, work, side):
    with torch.cuda.stream(side):
        copy, result = host.to("cuda", non_blocking=True), work()
    torch.cuda.current_stream().wait_stream(side)
    return copy, result


streams = Exercise(
    key="07.streams",
    title="a copy beside the work",
    minutes=8,
    lines=5,
    difficulty=3,
    check_answer=_check_streams,
    hints=(
        "`with torch.cuda.stream(side):` sends what follows to `side`; the copy needs non_blocking=True.",
        "After work(), torch.cuda.current_stream().wait_stream(side); then return both.",
    ),
    reference=copy_beside,
    explanation="The copy enters a queue of its own, so it runs beside the work. wait_stream puts a wait into the current queue: "
    "the device waits, Python does not. record_stream, which the check does not ask for, is for loops: the copy's "
    "memory belongs to side, and must not go to the next copy while the current stream still reads it.",
    wrong=(
        Wrong(_no_wait, "did not wait for the copy"),
        Wrong(_blocking, "Python itself"),
        Wrong(_same_stream, "the copy did not run"),
        Wrong(_all_aside, "Only the copy belongs"),
    ),
)


QUIZ = (
    Question(
        "07.naive",
        "A report says a GPU is 24,000 times faster than a CPU. What do you check first?",
        (
            "The GPU's model",
            "Whether it synchronized before reading the clock",
            "The CPU's temperature",
        ),
        (
            "The model may explain some of it; first see what the clock measured.",
            "Yes: the time of a call is the time to ask.",
            "That may cost some percent.",
        ),
        1,
    ),
    Question(
        "07.median",
        "Why the median of several samples?",
        (
            "It is always smaller than the mean",
            "One disturbed sample does not move it",
            "It is faster to compute",
        ),
        (
            "Not always: a lucky sample pulls the mean down.",
            "Yes: a disturbance moves one sample, not the middle.",
            "That does not matter.",
        ),
        1,
    ),
    Question(
        "07.early",
        "target is pinned. target.copy_(gpu_tensor, non_blocking=True), then print(target). What may you see?",
        ("Always the right numbers", "Old numbers", "An error"),
        (
            "Only if the copy happens to be done.",
            "Yes: the copy may not have happened yet, and nothing warns.",
            "Nothing is raised, which is the danger.",
        ),
        1,
    ),
    Question(
        "07.nonzero",
        "Why does nonzero() wait for the device?",
        ("It is slow", "The size of its result depends on values", "It copies to the CPU"),
        (
            "A slow kernel can wait in the queue.",
            "Yes: Python needs the shape of every result.",
            "The result stays on the device.",
        ),
        1,
    ),
)
