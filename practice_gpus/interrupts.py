"""Ctrl-C that comes while a tensor is given back: Python drops what a destructor raises, so it is sent once more."""

import _thread
import time

from .machine import Place

SOON = 0.01  # seconds, in which the main thread leaves the destructor


def passed_on(before):
    """What stands in for the hook ``before`` of ``sys.unraisablehook``, which gets everything else."""

    def hook(unraisable):
        if unraisable.exc_type is KeyboardInterrupt and unraisable.object is Place.__del__:
            finish(unraisable.exc_traceback.tb_frame.f_locals["self"])
            _thread.start_new_thread(interrupt, ())
        else:
            before(unraisable)

    return hook


def finish(place):
    """Do what the interrupt has cut off: give the block of a ``Place`` back."""
    if place.block.given is None:
        place.allocator.release(place.block)


def interrupt():
    """Interrupt the main thread anew, outside of the destructor."""
    time.sleep(SOON)
    _thread.interrupt_main()
