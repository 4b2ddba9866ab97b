"""What the files of the torture lane share: how long it is, its table, and an end for what hangs."""

import contextlib
import signal
import sys
import threading

from helpers.commands import _notebooks
from helpers.commands.report import markdown

FULL = "--torture" in sys.argv
LESSONS = {path.name[:2]: path for path in _notebooks.find()}


def share(fast, full):
    """Return how much of something this run does: `full` of it in the whole lane, else `fast`."""
    return full if FULL else fast


def table(rows):
    """Return the table of (scenario, lesson, count, outcome): passed of all for each lesson, then the sums."""
    scenarios = list(dict.fromkeys(row[0] for row in rows))
    lines = [
        [scenario, *(counted(rows, scenario, lesson) for lesson in (*LESSONS, ""))]
        for scenario in scenarios
    ]
    pairs = {row[:2] for row in rows if row[1]}
    failed = {row[:2] for row in rows if row[1] and row[3] == "failed"}
    last = f"{'Whole' if FULL else 'Fast'} lane: {len(pairs) - len(failed)} of {len(pairs)} scenarios × lessons pass"
    others = [
        f"{sum(row[2] for row in rows if row[0].startswith(word)):,} {what}"
        for word, what in (("fuzz", "fuzzed inputs"), ("kill", "kills"))
    ]
    return markdown(["scenario", *LESSONS, "count"], lines) + "\n\n" + ", ".join([last, *others])


def counted(rows, scenario, lesson):
    """Return a cell of the table: how often this was seen, with a mark where it failed."""
    found = [row for row in rows if row[:2] == (scenario, lesson)]
    text = f"{sum(row[2] for row in found):,}" if found else ""
    return f"**{text} failed**" if any(row[3] == "failed" for row in found) else text


@contextlib.contextmanager
def within(seconds):
    """End what hangs: AssertionError when the block takes longer, where the system has such a clock."""

    def late(*_):
        raise AssertionError(f"still running after {seconds} s")

    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
