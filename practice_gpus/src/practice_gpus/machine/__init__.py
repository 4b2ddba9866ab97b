"""The practice machine: where a tensor is, what memory it fills, what runs on which stream. All of it lives beside PyTorch."""

from practice_gpus.machine import backward, interrupts, snapshot
from practice_gpus.machine.blocks import Block
from practice_gpus.machine.errors import (
    FORKED,
    NO_BACKEND,
    NO_KERNEL,
    OTHER_STORAGE,
    divide_by_zero,
    invalid_device,
    is_asserted,
)
from practice_gpus.machine.interrupts import held_back
from practice_gpus.machine.machine import (
    CPU,
    OTHER_THREAD,
    PARTS,
    Machine,
    Place,
    block_of,
    contents,
    inner,
    refusal,
    storage_of,
)
from practice_gpus.machine.memory import Allocator
from practice_gpus.machine.observers import Observer, everywhere, tell_refused
from practice_gpus.machine.origins import (
    HERE,
    cause,
    framework,
    is_own,
    line,
    origin,
    purpose,
    taker,
    within,
)
from practice_gpus.machine.streams import DeviceEvent, Event, Stream

__all__ = [
    "Allocator",
    "Block",
    "DeviceEvent",
    "CPU",
    "Event",
    "FORKED",
    "HERE",
    "Machine",
    "NO_BACKEND",
    "NO_KERNEL",
    "OTHER_STORAGE",
    "OTHER_THREAD",
    "Observer",
    "PARTS",
    "Place",
    "Stream",
    "backward",
    "block_of",
    "cause",
    "contents",
    "divide_by_zero",
    "invalid_device",
    "everywhere",
    "framework",
    "held_back",
    "inner",
    "interrupts",
    "is_asserted",
    "is_own",
    "line",
    "origin",
    "purpose",
    "taker",
    "refusal",
    "snapshot",
    "storage_of",
    "tell_refused",
    "within",
]
