"""What the files of the torture lane share: how much they do, and an end for what hangs."""

import contextlib
import signal
import threading

from tools import _notebooks

LESSONS = {path.name[:2]: path for path in _notebooks.find() if not path.name.startswith("92")}
full = False  # conftest.py sets it: whether this is the torture lane, or its quick part in --all


def share(quick, much):
    """Return how much of something this run does: `much` of it in the torture lane, else `quick`."""
    return much if full else quick


@contextlib.contextmanager
def within(seconds):
    """End what hangs: AssertionError when the block takes longer, where the system has such a clock."""

    def late(*_):
        raise AssertionError(f"still running after {seconds} s")

    in_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not in_main:
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
