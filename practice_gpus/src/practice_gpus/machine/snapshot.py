"""What ``torch.cuda.memory._record_memory_history`` and ``_snapshot`` give, in the format of PyTorch's viewer.

The format: https://docs.pytorch.org/docs/stable/torch_cuda_memory.html, and the docstring of ``_snapshot``.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from practice_gpus.machine.observers import Observer

if TYPE_CHECKING:
    from practice_gpus.machine.blocks import Block
    from practice_gpus.machine.machine import Machine
    from practice_gpus.machine.memory import Allocator

HERE = __name__.partition(".")[0]


class History(Observer):
    """What happens to the memory of all devices from now on, and from where it was asked for."""

    prompt = True

    def __init__(self, devices: int, context: str, entries: int, skip: list) -> None:
        self.context = context
        self.events: list[deque] = [
            deque(maxlen=min(entries, 10_000_000)) for _ in range(devices)
        ]  # of each device
        self.skip = skip or []

    def releasing(self, allocator: Allocator, block: Block) -> None:
        block.frames = self.stack("free")

    def placed(self, allocator: Allocator, block: Block) -> None:
        self.segment(allocator, "alloc", block)

    def freed(self, allocator: Allocator, block: Block) -> None:
        self.segment(allocator, "free_requested", block)
        self.segment(allocator, "free_completed", block)

    def segment(self, allocator: Allocator, action: str, block: Block) -> None:
        """Add an event: "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom"."""
        frames: Any = block.frames if action.startswith("free") else self.stack(action)
        if action == "alloc":
            block.frames = frames
        if action in self.skip:
            return
        event = {
            "action": action,
            "size": block.requested if "segment" not in action and action != "oom" else block.size,
            "stream": block.stream,
            "time_us": time.time_ns() // 1000,
            "compile_context": "N/A",
            "user_metadata": "",
            "frames": frames,
        }
        event["device_free" if action == "oom" else "addr"] = block.address
        self.events[allocator.index].append(event)

    def stack(self, action: str) -> list:
        """Where an action was asked for, if that is to be recorded."""
        recorded = self.context == "all" or self.context == "alloc" and action == "alloc"
        return stack() if recorded else []


def stack() -> list:
    """The Python frames of the caller, innermost first, without those of practice GPUs."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(HERE):
            code = frame.f_code
            place = {
                "filename": code.co_filename,
                "line": frame.f_lineno or 0,
                "name": code.co_name,
            }
            frames.append(place)
        frame = frame.f_back
    return frames


def recorder(machine: Machine) -> Callable:
    """What stands in for ``torch._C._cuda_record_memory_history``."""

    def record(enabled, context="all", stacks="all", entries=sys.maxsize, clear=False, *rest):
        if enabled not in (None, "state", "all"):
            raise RuntimeError("expected state to be 'state', 'all', or None")
        if context not in (None, "state", "alloc", "all"):
            raise RuntimeError("expected context to be 'state', 'alloc', 'all', or None")
        skip = next((option for option in rest if isinstance(option, (list, tuple))), None)
        for allocator in machine.allocators:
            allocator.settle()
        now = [each for each in machine.observers if isinstance(each, History)]
        if enabled is not None and now and not clear:
            now[0].context = context
            return
        machine.observers[:] = [each for each in machine.observers if each not in now]
        if enabled is not None:
            length = entries if enabled == "all" else 1
            machine.recorded = History(machine.n, context, length, skip)
            machine.observers.append(machine.recorded)

    return record


def snapshot(machine: Machine, pool: tuple | None = None) -> dict:
    """What stands in for ``torch._C._cuda_memorySnapshot``: segments, blocks and events of all devices."""
    all_segments = []
    traces: list[list] = []
    for allocator in machine.allocators:
        with allocator.lock:
            all_segments += segments(allocator)
            recorded = machine.recorded
            traces.append(list(recorded.events[allocator.index]) if recorded else [])
    return {
        "segments": all_segments,
        "device_traces": traces,
        "allocator_settings": {"max_split_size": -1, "expandable_segments": False},
        "external_annotations": [],
    }


def segments(allocator: Allocator) -> list:
    """The segments of one device."""
    allocator.settle()
    return [segment(allocator, first) for first in allocator.segments.values()]


def segment(allocator: Allocator, first: Block) -> dict:
    """One segment of a device with its blocks, in order of their addresses."""
    blocks = [first]
    while blocks[-1].after is not None:
        blocks.append(blocks[-1].after)
    used = [block for block in blocks if not block.free]
    used_bytes = sum(block.size for block in used)
    return {
        "device": allocator.index,
        "address": first.address,
        "total_size": sum(block.size for block in blocks),
        "allocated_size": used_bytes,
        "active_size": used_bytes,
        "requested_size": sum(block.requested for block in used),
        "stream": first.stream,
        "segment_type": first.pool.removesuffix("_pool"),
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": 0 if block.free else block.requested,
                "state": "inactive" if block.free else "active_allocated",
                "frames": [] if block.free else list(block.frames),
            }
            for block in blocks
        ],
    }
