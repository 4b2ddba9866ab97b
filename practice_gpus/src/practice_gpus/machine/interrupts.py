"""Ctrl-C on practice GPUs: it waits until the books of an allocator are whole, and none is lost in a destructor."""

from __future__ import annotations

import _signal as signal  # without the enums of `signal`: blocks are counted often
import _thread
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from practice_gpus.machine.machine import Place

SOON = 0.01  # seconds, in which the main thread leaves the destructor
RAISING = [getattr(signal, name) for name in ("SIGINT", "SIGALRM") if hasattr(signal, name)]


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt, or the end of a time limit, wait for the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return
    before = {number: signal.getsignal(number) for number in RAISING}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    came: list = []
    over: list = []  # not empty: the block has ended

    def wait(number, frame):
        handlers[number](number, frame) if over else came.append(number)

    try:
        for number in handlers:
            signal.signal(number, wait)
        yield
    finally:
        over.append(True)  # first: an interrupt among the next lines leaves a `wait` that passes on
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came[:1]:
            handlers[number](number, sys._getframe())


def passed_on(before: Any, destructor: Callable) -> Callable:
    """What stands in for the hook ``before`` of ``sys.unraisablehook``: Python drops what a ``destructor`` raises.

    An interrupt that came in it is sent once more. Everything else goes to ``before``.
    """

    def hook(unraisable):
        if unraisable.exc_type is KeyboardInterrupt and unraisable.object is destructor:
            finish(unraisable.exc_traceback.tb_frame.f_locals["self"])
            _thread.start_new_thread(interrupt, ())
        else:
            before(unraisable)

    return hook


def finish(place: Place) -> None:
    """Do what the interrupt has cut off: give the block of a ``Place`` back."""
    if place.block and place.allocator and place.allocator.holds(place.block):
        place.allocator.release(place.block)


def interrupt() -> None:
    """Interrupt the main thread anew, outside of the destructor."""
    time.sleep(SOON)
    _thread.interrupt_main()
