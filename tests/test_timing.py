"""helpers.timing against durations that are known: on a clock that the test winds, and once on the real one."""

import time
import types

import pytest
import torch

from helpers import timing
from helpers.timing import time_ms

pytestmark = pytest.mark.gpu


class Clock:
    """A clock that stands still until work takes time; each reading takes `cost` seconds."""

    def __init__(self):
        self.now, self.cost, self.queued = 0.0, 0.0, 0.0

    def read(self):
        self.now += self.cost
        return self.now

    def work(self, seconds):
        """Return work that takes `seconds`; its list `calls` notes each call."""

        def run():
            run.calls.append(self.now)
            self.now += seconds

        run.calls = []
        return run

    def launch(self, seconds):
        """Return work that the device does later; the call itself takes a microsecond."""

        def run():
            self.now += 1e-6
            self.queued += seconds

        return run

    def synchronize(self, device=None):
        """Wait for the device."""
        self.now += self.queued
        self.queued = 0.0


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=made.read))
    return made


@pytest.fixture
def device(clock, monkeypatch):
    """Give the clock of a GPU that works later."""
    monkeypatch.setattr(timing, "pick_device", lambda prefer: torch.device("cuda:0"))
    monkeypatch.setattr(timing, "synchronize", clock.synchronize)
    return clock


def test_a_real_sleep_takes_at_least_its_time():
    found = time_ms(lambda: time.sleep(0.02), "cpu", repeats=2, warmup=0, seconds=0.01)
    assert found.median_ms >= 20 and found.device == "cpu"


@pytest.mark.parametrize("seconds", [1e-6, 1e-3, 0.5])
def test_known_duration_on_the_cpu(clock, seconds):
    found = time_ms(clock.work(seconds), "cpu")
    assert found.median_ms == pytest.approx(1e3 * seconds) and found.iqr_ms < 1e-6
    assert str(found).startswith(f"{found.median_ms:.3g} ms")


def test_known_duration_of_a_device_that_works_later(device):
    assert time_ms(device.launch(0.1), "cuda").median_ms == pytest.approx(100, rel=1e-3)


def test_a_clock_that_takes_long_to_read_costs_neither_accuracy_nor_patience(clock):
    """Such as one that waits for a GPU at each reading: blocked_autorange would take samples of 0.2 s and more."""
    clock.cost = 50e-6
    work = clock.work(0.002)
    found = time_ms(work, "cpu")
    assert found.median_ms == pytest.approx(2, rel=0.002)
    assert found.calls <= 60 and len(work.calls) < 1000


def test_samples_give_the_median_and_the_spread(clock):
    durations = iter([1, 1, *[1, 2, 3, 4, 5] * 100])

    def work():
        clock.now += next(durations)

    found = time_ms(work, "cpu", repeats=7, warmup=0, seconds=1)
    samples = torch.tensor(found.samples_ms, dtype=torch.float64)
    assert len(samples) == 7 and found.calls == 1
    assert found.median_ms == samples.quantile(0.5)
    assert found.iqr_ms == samples.quantile(0.75) - samples.quantile(0.25)


def test_warm_up_comes_first_and_does_not_count(clock):
    calls = []

    def slow_at_first():
        calls.append(1)
        clock.now += 9.0 if len(calls) <= 2 else 0.002

    assert max(time_ms(slow_at_first, "cpu", warmup=2).samples_ms) == pytest.approx(2)


def test_threads_and_default_device_are_those_of_the_program(clock):
    before, seen, work = torch.get_num_threads(), set(), clock.work(0.001)
    torch.set_num_threads(2)
    torch.set_default_device("meta")  # on which no value can be read
    try:
        time_ms(lambda: (seen.add(torch.get_num_threads()), work()), "cpu", repeats=1)
        assert seen == {2} and torch.get_num_threads() == 2
    finally:
        torch.set_default_device(None)
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"fn": 3}, TypeError, "fn is 3"),
        ({"repeats": 2.5}, ValueError, "repeats is 2.5"),
        ({"warmup": -1}, ValueError, "warmup is -1"),
        ({"seconds": 0}, ValueError, "seconds is 0"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        time_ms(**{"fn": lambda: None, "device": "cpu", **arguments})
