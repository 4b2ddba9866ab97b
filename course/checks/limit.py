"""A time limit for the learner's code: loops that never end are stopped, and so are waits that never end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN = 0.05  # seconds between further tries, where a bare `except:` caught the first
PATIENCE = 5  # seconds after which a call that nothing stops is named
STUCK = (
    "This check is inside one long call that Python cannot stop from here. "
    "Choose Kernel › Interrupt Kernel, or restart the kernel."
)


class TooLong(BaseException):
    """The learner's code ran past the time limit."""


@contextmanager
def limit(
    seconds: float, inside: Callable[[FrameType], bool] = lambda frame: True
) -> Iterator[None]:
    """Raise `TooLong` when the block runs longer than `seconds`, in the main thread of Linux and macOS.

    An import that is under way is never broken off, since half a module would stay behind: it gets as long again, and
    an interrupt waits for its end (a second interrupt does not). Where a bare `except:` catches the first exception,
    others follow, as long as `inside(frame)` is true of the frame that runs (Python 3.10 lets none out). In one long call
    of a compiled function the exception comes when that call returns. Until then, and in other threads and systems, a
    line says what to do (unless the call keeps Python from running at all, as `sum(iter(int, 1))` does).
    """
    note = threading.Timer(seconds + PATIENCE, print, [STUCK])
    note.daemon = True
    note.start()
    try:
        if _signals_reach():
            with _alarm(seconds, inside):
                yield
        else:
            yield
    finally:
        note.cancel()


def _signals_reach():
    main = threading.current_thread() is threading.main_thread()
    return main and hasattr(signal, "setitimer")


def _importing(frame):
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


class _Stops:
    """The handlers of the alarm and of the interrupt."""

    def __init__(self, seconds, inside):
        self.seconds = seconds
        self.inside = inside
        self.raised = False
        self.interrupted = False

    def alarm(self, _, frame):
        if _importing(frame):
            signal.setitimer(signal.ITIMER_REAL, AGAIN if self.interrupted else self.seconds, AGAIN)
        elif self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        elif not self.raised or self.inside(frame):
            self.raised = True
            raise TooLong

    def interrupt(self, _, frame):
        if self.interrupted or not _importing(frame):
            raise KeyboardInterrupt
        self.interrupted = True
        signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)


@contextmanager
def _alarm(seconds, inside):
    stops = _Stops(seconds, inside)
    before = {signal.SIGALRM: signal.signal(signal.SIGALRM, stops.alarm)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stops.interrupt)
    seconds_left, _ = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)

    def end():
        signal.setitimer(signal.ITIMER_REAL, seconds_left)
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        try:
            yield
        finally:
            end()
    finally:
        end()  # again, since the exception may have come in the middle of the first
