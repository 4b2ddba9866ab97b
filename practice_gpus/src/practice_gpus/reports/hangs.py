"""Where each rank stands when they wait for one another: its last call and line, kept though the process is killed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

from practice_gpus.machine import is_own
from practice_gpus.reports.findings import short

if TYPE_CHECKING:
    from practice_gpus.reports.recorder import Recorder

PERIOD = 0.25  # seconds
STANDS = 1.0  # seconds in the same call, after which it is written down
TOLD = 20.0  # seconds, after which it is said
FILES = {  # of PyTorch, in which ranks wait for others; the first of its functions is named
    "distributed/distributed_c10d.py": "",
    "distributed/rendezvous.py": "init_process_group",
    "nn/parallel/distributed.py": "DistributedDataParallel",
    "autograd/graph.py": "backward",
    "autograd/__init__.py": "backward",
}


class Standing:
    """A thread that looks where the program is, and calls ``leave(where)`` when it stands, ``leave(None)`` when it goes on."""

    def __init__(self, recorder: Recorder, leave: Callable) -> None:
        self.recorder = recorder
        self.leave = leave
        self.program = threading.get_ident()
        self.over = threading.Event()
        self.told = False
        self.latest: tuple | None = None  # where it stood, and how much was taken until then

    def start(self) -> Standing:
        """Start looking."""
        threading.Thread(target=self.look, name="practice stream standing", daemon=True).start()
        return self

    def look(self) -> None:
        """Look until the program ends."""
        last, since, left = None, time.monotonic(), False
        while not self.over.wait(PERIOD):
            where = call_of(frames_of(sys._current_frames().get(self.program)))
            now = where and (where["call"], *where["place"], self.recorder.taken)
            if where is None or now != last:
                if left:
                    self.leave(None)
                last, since, left = now, time.monotonic(), False
            elif not left and time.monotonic() - since >= STANDS:
                self.latest = where, self.recorder.taken
                self.leave(where)
                left = True
            elif left and not self.told and time.monotonic() - since >= TOLD:
                self.told = True
                place = short(*where["place"])
                words = f"rank {rank()} has waited {TOLD:.0f} s for others in {where['call']} at {place}"
                print(f"practice GPUs: {words}", file=sys.stderr, flush=True)

    def at_end(self) -> dict | None:
        """Where a process stood that did nothing afterwards."""
        self.over.set()
        where, taken = self.latest or (None, 0)
        return where if taken == self.recorder.taken else None


def frames_of(frame: FrameType | None) -> Iterable[tuple[Any, int]]:
    """(code, line) of what runs, innermost first."""
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def call_of(frames: Iterable[tuple[Any, int]]) -> dict | None:
    """{"call", "place"} of the innermost line of a person's own, where it waits for other ranks; else None."""
    call = ""
    for code, number in frames:
        if is_own(code.co_filename):
            return {"call": call, "place": [code.co_filename, number]} if call else None
        name = code.co_filename.replace("\\", "/")
        known = next((file for file in FILES if name.endswith(f"torch/{file}")), None)
        if known and code.co_name not in ("wrapper", "__call__"):
            call = FILES[known] or code.co_name
    return None


def rank() -> int | None:
    """The number of this process in its group, or None."""
    import torch

    distributed = torch.distributed
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if ready else None
