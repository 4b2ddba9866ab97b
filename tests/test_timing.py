"""helpers.timing against durations that are known: a busy loop, a queue that sleeps, a practice stream that sleeps."""

import queue
import statistics
import subprocess
import sys
import threading
import time

import pytest
import torch

from helpers import timing
from helpers.timing import time_ms


def busy(seconds):
    """A function that returns when `seconds` have passed: it sleeps, and is busy for the last millisecond.

    Its list `took` gets the milliseconds of each call: more than `seconds` where another program had the core."""

    def run():
        start = now = time.perf_counter()
        time.sleep(max(0.0, seconds - 0.001))
        while now < start + seconds:
            now = time.perf_counter()
        run.took.append(1e3 * (now - start))

    run.took = []
    return run


def median_that_was(work, found):
    """The median of the samples in `found` by what `work` wrote down of its calls, the last of which they are."""
    calls = work.took[-found.calls * len(found.samples_ms) :]
    return statistics.median(
        statistics.mean(calls[at : at + found.calls]) for at in range(0, len(calls), found.calls)
    )


def near(measure, attempts=10):
    """The first of a few pairs (measured, true) of `measure` within 2 %, else the last: other programs run, too."""
    for attempt in range(attempts):
        time.sleep(attempt / 4)  # a busy moment passes
        found, true = measure()
        if abs(found / true - 1) <= 0.02:
            break
    return found, true


class SleepingDevice:
    """A device with one queue, worked off by a thread: each piece of work takes `seconds`, the call returns at once.

    Its list `took` gets the milliseconds of each, from the end of the one before it or, where it was idle, the call."""

    def __init__(self, seconds):
        self.seconds, self.work, self.end, self.took = seconds, queue.Queue(), 0.0, []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        done = 0.0
        while True:
            begun = max(done, self.work.get())
            self.end = (
                max(self.end, time.perf_counter()) + self.seconds
            )  # a late wake-up does not add up
            time.sleep(max(0.0, self.end - time.perf_counter()))
            done = time.perf_counter()
            self.took.append(1e3 * (done - begun))
            self.work.task_done()

    def launch(self):
        self.work.put(time.perf_counter())

    def synchronize(self, device=None):
        self.work.join()


@pytest.fixture
def sleeping_device(monkeypatch):
    device = SleepingDevice(0.1)
    monkeypatch.setattr(timing, "pick_device", lambda prefer: torch.device("cuda:0"))
    monkeypatch.setattr(timing, "synchronize", device.synchronize)
    return device


def test_known_duration_on_the_cpu():
    def measure():
        work = busy(0.02)
        found = time_ms(work, "cpu")
        return found.median_ms, median_that_was(work, found)

    found, true = near(measure)
    assert found == pytest.approx(true, rel=0.02)


def test_known_duration_of_a_device_that_works_later(sleeping_device):
    def measure():
        found = time_ms(sleeping_device.launch, "cuda")
        return found.median_ms, median_that_was(sleeping_device, found)

    found, true = near(measure)
    assert found == pytest.approx(true, rel=0.02) and found > 99


def test_a_forgotten_synchronization_shows(sleeping_device, monkeypatch):
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    found = time_ms(sleeping_device.launch, "cuda", repeats=1, warmup=0, seconds=1e-4)
    assert found.median_ms < 50, "without waiting, only the launch can have been measured"


def test_practice_stream_of_known_duration(imitated):
    marks = []

    def work():
        marks.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])
        marks[-1][0].record()
        torch.cuda._sleep(
            100_000_000
        )  # a practice GPU counts a billion a second; how late it woke up, the marks tell
        marks[-1][1].record()

    def measure():
        found = time_ms(work, "cuda:0")
        work.took = [first.elapsed_time(last) for first, last in marks]
        return found.median_ms, median_that_was(work, found)

    with imitated(asynchronous=True):
        found, true = near(measure)
    assert found == pytest.approx(true, rel=0.02) and found > 99


def test_overhead_is_under_a_microsecond():
    assert time_ms(lambda: None, "cpu").median_ms < 1e-3


def test_agrees_with_the_timer_of_pytorch():
    from torch.utils.benchmark import Timer

    timer = Timer("work()", globals={"work": busy(0.002)})

    def measure():  # the least disturbed sample of each
        ours = time_ms(busy(0.002), "cpu", seconds=0.1).samples_ms
        return min(ours), min(1e3 * timer.timeit(1).median for _ in ours)

    ours, theirs = near(measure)
    assert ours == pytest.approx(theirs, rel=0.02)


def test_a_clock_that_takes_long_to_read_costs_neither_accuracy_nor_patience(monkeypatch):
    """Such as one that waits for a GPU at each reading: blocked_autorange would take samples of 0.2 s and more."""

    def read():
        busy(50e-6)()
        return time.perf_counter()

    monkeypatch.setattr(timing, "wall_clock", lambda device: read)

    def measure():
        work = busy(0.002)
        found = time_ms(work, "cpu")
        assert (
            found.calls <= 60 and found.calls * max(found.samples_ms) > 39
        )  # blocked_autorange: 100 calls a sample
        assert len(work.took) < 1000  # which at 2 ms each are two seconds
        return found.median_ms, median_that_was(work, found)

    found, true = near(measure)
    assert found == pytest.approx(true, rel=0.02)


def test_the_default_device_of_the_learner_does_not_matter():
    torch.set_default_device(
        "meta"
    )  # on which no value can be read, as on others no float64 can be made
    try:
        found = time_ms(busy(0.001), "cpu", seconds=0.01)
    finally:
        torch.set_default_device(None)
    ordered = sorted(found.samples_ms)
    assert (
        ordered[0] <= found.median_ms <= ordered[-1]
        and 0 <= found.iqr_ms <= ordered[-1] - ordered[0]
    )


def test_one_slow_call_does_not_decide_how_many_make_a_sample():
    def calls_a_sample():
        first = [True]

        def work():
            if first and first.pop():
                time.sleep(0.1)

        return time_ms(work, "cpu", warmup=0, seconds=0.05).calls

    assert max(calls_a_sample() for _ in range(3)) > 10  # three, since other programs disturb, too


def test_samples_give_the_median_and_the_spread():
    found = time_ms(busy(0.001), "cpu", repeats=9, seconds=0.01)
    samples = sorted(found.samples_ms)
    assert len(samples) >= 9
    assert found.median_ms == pytest.approx(
        torch.tensor(samples, dtype=torch.float64).quantile(0.5).item()
    )
    assert (
        samples[0] <= found.median_ms <= samples[-1]
        and 0 <= found.iqr_ms <= samples[-1] - samples[0]
    )
    assert str(found).startswith(f"{found.median_ms:.3g} ms")


def test_slow_work_is_not_repeated_more_than_needed():
    calls = []
    found = time_ms(
        lambda: (calls.append(1), time.sleep(0.03)), "cpu", repeats=3, warmup=2, seconds=0.01
    )
    assert len(found.samples_ms) == 3 and found.calls == 1
    assert len(calls) <= 2 + 2 * 1 + 3


def test_warm_up_comes_first_and_does_not_count():
    calls = []

    def slow_at_first():
        calls.append(1)
        time.sleep(0.2 if len(calls) <= 2 else 0.002)

    assert max(time_ms(slow_at_first, "cpu", warmup=2, seconds=0.02).samples_ms) < 100


def test_threads_are_those_of_the_program():
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(2)
    try:
        time_ms(
            lambda: (seen.add(torch.get_num_threads()), time.sleep(0.001)),
            "cpu",
            repeats=1,
            seconds=0.01,
        )
        assert seen == {2} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


class ClockworkEvent:
    """Stands for torch.cuda.Event: reads milliseconds from a counter that the test advances."""

    now_ms = 0.0

    def __init__(self, enable_timing=False):
        assert enable_timing

    def record(self, stream=None):
        self.at = ClockworkEvent.now_ms

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at - self.at


def test_events_clock_reads_the_devices_own_time(monkeypatch):
    monkeypatch.setattr(timing, "pick_device", lambda prefer: torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "Event", ClockworkEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: None)

    def work():
        ClockworkEvent.now_ms += 7.0

    found = time_ms(work, "cuda", clock="events")
    assert found.median_ms == pytest.approx(7.0, rel=1e-6) and found.clock == "events"


def test_troubleshooting_of_the_function_pass_through():
    with pytest.raises(ZeroDivisionError):
        time_ms(lambda: 1 / 0, "cpu")


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"fn": 3}, TypeError, "fn is 3"),
        ({"repeats": 0}, ValueError, "repeats is 0"),
        ({"repeats": 2.5}, ValueError, "repeats is 2.5"),
        ({"repeats": True}, ValueError, "repeats is True"),
        ({"warmup": -1}, ValueError, "warmup is -1"),
        ({"seconds": 0}, ValueError, "seconds is 0"),
        ({"seconds": float("nan")}, ValueError, "seconds is nan"),
        ({"clock": "sun"}, ValueError, "clock is 'sun'"),
        ({"clock": "events"}, ValueError, "events need a CUDA device"),
        ({"device": "cuda:99"}, ValueError, "cuda:99"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        time_ms(**{"fn": lambda: None, "device": "cpu", **arguments})


def test_import_and_first_use_print_nothing():
    code = (
        "from helpers.timing import time_ms; time_ms(lambda: None, 'cpu', seconds=0.001); "
        "import torch.utils.benchmark"
    )  # warns on machines with a CUDA compiler and no GPU
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
