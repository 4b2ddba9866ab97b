"""Ends a program after so many training steps, with the last line of the last one."""

from __future__ import annotations

import sys
from typing import Any

from practice_gpus.machine import is_own

HERE = __name__.partition(".")[0]


class Enough(SystemExit):
    """Ends a program after so many optimizer steps, as ``sys.exit()`` would."""


def end_with_loop(frame: Any) -> None:
    """End the program when a line above the one that is running comes again, or a function above it returns there."""
    while frame is not None and not is_own(frame.f_code.co_filename):
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("torch", HERE):
            raise Enough(0)  # another package has the loop
        frame = frame.f_back
    if frame is None:
        raise Enough(0)
    start = frame.f_lineno

    def trace(frame, event, argument):
        if event == "line" and frame.f_lineno < start:
            sys.settrace(None)
            raise Enough(0)
        if event == "return":
            end_with_loop(frame.f_back)
        return trace

    frame.f_trace = trace
    sys.settrace(lambda *event: None)
