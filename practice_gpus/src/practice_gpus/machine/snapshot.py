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

if TYPE_CHECKING:
    from practice_gpus.machine.blocks import Block
    from practice_gpus.machine.machine import Machine
    from practice_gpus.machine.memory import Allocator

HERE = __name__.partition(".")[0]


class History:
    """What happens to the memory of one device from now on, and from where it was asked for."""

    def __init__(self, context: str, entries: int, skip: list) -> None:
        self.context = context
        self.events: deque = deque(maxlen=min(entries, 10_000_000))
        self.skip = skip or []

    def note(self, action: str, block: Block) -> None:
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
        self.events.append(event)

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
            if enabled is None:
                allocator.history = None
            elif allocator.history is None or clear:
                length = entries if enabled == "all" else 1
                allocator.history = History(context, length, skip)
                allocator.recorded = allocator.history
            else:
                allocator.history.context = context

    return record


def snapshot(machine: Machine, pool: tuple | None = None) -> dict:
    """What stands in for ``torch._C._cuda_memorySnapshot``: segments, blocks and events of all devices."""
    all_segments = []
    traces: list[list] = []
    for allocator in machine.allocators:
        with allocator.lock:
            all_segments += segments(allocator)
            traces.append(list(allocator.recorded.events) if allocator.recorded else [])
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
