"""A time limit for the learner's code: loops that never end are stopped, and so are waits that never end."""

import ctypes
import signal
import sys
import threading
from contextlib import contextmanager

AGAIN = 0.05  # seconds between further tries, where a bare `except:` caught the first
PATIENCE = 5  # seconds after which a call that nothing stops is named
STUCK = (
    "This check is inside one long call that Python cannot stop from here. "
    "Choose Kernel › Interrupt Kernel, or restart the kernel."
)


class TooLong(BaseException):
    """The learner's code ran past the time limit."""


@contextmanager
def limit(seconds, inside=lambda frame: True):
    """Raise `TooLong` in this thread when the block runs longer than `seconds`.

    An import that is under way is never broken off, since half a module would stay behind: it gets as long again.
    Where a bare `except:` catches the first one, others follow, as long as `inside(frame)` is true of the frame that
    runs. In the main thread of Linux and macOS waits end, too: `time.sleep`, `join`, a lock. Elsewhere, and in one
    long call of a compiled function, the exception comes when that call returns; until then a line says what to do
    (unless the call keeps Python from running at all, as `sum(iter(int, 1))` does).
    """
    main = threading.current_thread() is threading.main_thread()
    note = threading.Timer(seconds + PATIENCE, print, [STUCK])
    note.daemon = True
    note.start()
    try:
        with (_by_signal if main and hasattr(signal, "setitimer") else _by_thread)(seconds, inside):
            yield
    finally:
        note.cancel()


def _importing(frame):
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


@contextmanager
def _by_signal(seconds, inside):
    raised = []

    def stop(_, frame):
        if _importing(frame):
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        elif not raised or inside(frame):
            raised.append(True)
            raise TooLong

    def end():
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)

    before = signal.signal(signal.SIGALRM, stop)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        try:
            yield
        finally:
            end()
    finally:
        end()  # again, since the exception may have come in the middle of the first


@contextmanager
def _by_thread(seconds, inside):
    thread, ended, door = threading.get_ident(), threading.Event(), threading.Lock()

    def watch():
        pause, raised = seconds, False
        while not ended.wait(pause):
            with door:
                frame = sys._current_frames()[thread]
                if _importing(frame):
                    pause = seconds
                elif not ended.is_set() and (not raised or inside(frame)):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(TooLong)
                    )
                    pause, raised = AGAIN, True
                del frame

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        try:
            with door:  # what was raised before arrives here at the latest
                ended.set()
        finally:
            ended.set()
