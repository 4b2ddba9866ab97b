"""What happens on practice GPUs is told to observers: `machine.observers` is the one list, an `Observer` what it may hold.

The clock's log, a report's recorder and the history of the memory are observers. A machine without any tells nobody.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from practice_gpus.machine.blocks import Block
    from practice_gpus.machine.memory import Allocator
    from practice_gpus.machine.streams import DeviceEvent as Event
    from practice_gpus.machine.streams import Stream
    from practice_gpus.pytorch.operators import Call


class Observer:
    """Is told of what happens on a machine, and does nothing; a subclass answers to what it wants to know."""

    prompt = False  # True: the books of memory are brought up to date at each block, since it asks from where

    def operator(self, call: Call, out: Any) -> None:
        """An operator ran, on a GPU or on the CPU."""

    def copied(
        self, direction: str, tensor: torch.Tensor, goal: torch.device | None, pinned: bool
    ) -> None:
        """A tensor was copied: "h2d" to the GPU ``goal``, "d2h" from one, "d2d" between two."""

    def waited(
        self, stream: Stream | None, device: torch.device | None, event: Event | None, reason: str
    ) -> None:
        """The CPU waits for a stream, for an event, or for all of a device; ``reason`` names an operator or a copy."""

    def marked(self, event: Event, stream: Stream) -> None:
        """An event is recorded in a stream."""

    def joined(self, event: Event, stream: Stream) -> None:
        """A stream waits for an event."""

    def slept(self, stream: Stream, seconds: float) -> None:
        """``torch.cuda._sleep`` keeps a stream busy."""

    def taking(self, allocator: Allocator, block: Block) -> None:
        """A block is asked for, by the line that is running; the books take it later."""

    def releasing(self, allocator: Allocator, block: Block) -> None:
        """A block is given back, by the line that is running; the books take it later."""

    def placed(self, allocator: Allocator, block: Block) -> None:
        """A block has its place in the books."""

    def freed(self, allocator: Allocator, block: Block) -> None:
        """A block has left the books."""

    def segment(self, allocator: Allocator, action: str, block: Block) -> None:
        """A segment came ("segment_alloc"), went ("segment_free"), or didn't fit ("oom")."""

    def refused(self, feature: str, ended: bool) -> None:
        """Something was asked for that practice GPUs do not imitate: it ``ended`` with an error, or runs without it."""


EVERYONE: weakref.WeakKeyDictionary[Any, list[Observer]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def everywhere(observer: Observer) -> Iterator[None]:
    """Have an observer of no machine told, as those of all are."""
    EVERYONE[observer] = [observer]
    try:
        yield
    finally:
        del EVERYONE[observer]


def tell_refused(feature: str, ended: bool = False) -> None:
    """Tell all observers of all machines that something was refused; ``ended``: with an error, and not replaced."""
    for observers in list(EVERYONE.values()):
        for observer in observers:
            observer.refused(feature, ended)
