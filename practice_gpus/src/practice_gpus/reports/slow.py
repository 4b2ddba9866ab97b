"""Says early that a step takes long on the CPU, and which line of the program it takes it in."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from practice_gpus.machine import is_own
from practice_gpus.reports.findings import short, source

if TYPE_CHECKING:
    from practice_gpus.reports.recorder import Recorder

PATIENCE = 20  # seconds
PERIOD = 0.25
WARNING = (
    "practice GPUs: {seconds} s without {what}, {share:.0%} of it in {place}  {text}\n"
    "  the CPU computes all of it: take a smaller batch or model, --steps 1, or --shapes, which computes nothing"
)


class Watch:
    """A thread that looks, now and then, at the line that the program is in."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.program = threading.get_ident()
        self.over = threading.Event()
        self.lines: Counter = Counter()

    def start(self) -> Watch:
        """Start looking; ends with the first warning."""
        threading.Thread(target=self.look, name="practice stream watch", daemon=True).start()
        return self

    def stop(self) -> None:
        """End looking."""
        self.over.set()

    def stepped(self) -> None:
        """A step has come to its end in time."""
        self.lines.clear()

    def look(self) -> None:
        """Look until it has taken too long."""
        while not self.over.wait(PERIOD):
            place = self.place()  # not the frame: that would keep what the program has given up
            if place is not None:
                self.lines[place] += 1
            if self.lines.total() * PERIOD >= PATIENCE:
                self.warn()
                break

    def place(self) -> Any:
        """(file, line) of the person's own code that an operator of a practice GPU is being computed for, or None."""
        frame = sys._current_frames().get(self.program)
        computes = False
        while frame is not None and not is_own(frame.f_code.co_filename):
            computes = computes or frame.f_code.co_name == "__torch_dispatch__"
            frame = frame.f_back
        return (frame.f_code.co_filename, frame.f_lineno) if computes and frame else None

    def warn(self) -> None:
        """Say it."""
        [(place, count)] = self.lines.most_common(1)
        what = "a step" if self.recorder.steps else "the first step"
        numbers = {"seconds": PATIENCE, "what": what, "share": count / self.lines.total()}
        text = WARNING.format(**numbers, place=short(*place), text=source(*place))
        print(text, file=sys.stderr, flush=True)
