"""Memory snapshots of anyone: what `torch.cuda.memory._dump_snapshot` wrote, read without running what a pickle may hold.

The format: https://docs.pytorch.org/docs/stable/torch_cuda_memory.html, and the docstring of `_snapshot`.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from practice_gpus.traces.host import nearest

MARKS = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))  # how a pickle begins
NO_FRAMES = "allocated where no stack was recorded"
MIB = 2**20
SPARE = 0.2  # of the reserved memory: the allocator rounds up to 2 or 20 MiB, so a tenth is usual


class _Plain(pickle.Unpickler):
    """Reads containers, texts and numbers: no class and no function, so nothing of the file runs."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(
            f"asks to import {module}.{name}, which no memory snapshot does; it was not opened"
        )


def load(data: bytes, name: str) -> dict[str, Any]:
    """Return the snapshot in a pickle; ValueError, one sentence, for any other pickle."""
    try:
        found = _Plain(io.BytesIO(data)).load()
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        MemoryError,
    ):
        raise ValueError(f"{name} is a pickle that is cut off or damaged. Copy it again.") from None
    found = {"segments": found} if isinstance(found, list) else found
    if not is_snapshot(found):
        raise ValueError(
            f"{name} is a pickle, but no memory snapshot: it has no segments with blocks."
        )
    return found


def is_snapshot(found: Any) -> bool:
    """Whether `found` has a snapshot's segments, each with its blocks."""
    segments = found.get("segments") if isinstance(found, dict) else None
    return isinstance(segments, list) and all(
        isinstance(one, dict) and isinstance(one.get("blocks"), list) for one in segments
    )


def held(snapshot: dict[str, Any]) -> Counter[str]:
    """Return {line of Python that allocated it: bytes in use}. What has no stack counts as `NO_FRAMES`.

    A line is "train.py(12): step", the innermost outside of PyTorch.
    """
    found: Counter[str] = Counter()
    for block in _blocks(snapshot):
        if block.get("state") != "inactive":
            found[line(frames_of(block)) or NO_FRAMES] += block["size"]
    return found


def frames_of(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stack that allocated `block`, innermost first; snapshots of 2022 keep it in a history."""
    history = block.get("history") or [{}]
    return block.get("frames") or history[-1].get("frames") or []


def line(frames: list[dict[str, Any]]) -> str:
    """Return the innermost of `frames` outside of PyTorch as "train.py(12): step"; "" where none is Python's."""
    return nearest(f"{f.get('filename')}({f.get('line')}): {f.get('name')}" for f in frames)


@dataclass(frozen=True)
class Memory:
    """What a snapshot says, in bytes. `held` by line, the largest first; `peak` of what was recorded over time."""

    used: int
    reserved: int
    largest_free: int
    peak: int
    refused: list[int]
    says: str
    change: str
    held: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.says} {self.change}"]
        lines += [f"  {size / MIB:>9,.1f} MiB  {place}" for place, size in [*self.held.items()][:5]]
        free = self.reserved - self.used
        lines.append(
            f"  reserved but free: {free / MIB:,.1f} MiB, the largest piece {self.largest_free / MIB:,.1f}"
        )
        lines.append(f"  most in use while it was recorded: {self.peak / MIB:,.1f} MiB")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def memory(snapshot: dict[str, Any]) -> Memory:
    """Return what `snapshot` says: who holds the memory, what is free in it, and the change to make first."""
    by_line = dict(held(snapshot).most_common())
    used = sum(by_line.values())
    reserved = sum(segment.get("total_size", 0) for segment in snapshot["segments"])
    free = [block["size"] for block in _blocks(snapshot) if block.get("state") == "inactive"]
    events = [
        e for trace in snapshot.get("device_traces") or [] for e in trace if isinstance(e, dict)
    ]
    refused = [event.get("size", 0) for event in events if event.get("action") == "oom"]
    place, most = next(iter(by_line.items()), ("", 0))
    says = f"{used / MIB:,.0f} MiB are in use, of {reserved / MIB:,.0f} reserved"
    says += f"; {most / used:.0%} of them were {_where(place)}." if used else "."
    change = _change(place, most, used, reserved, refused)
    return Memory(
        used, reserved, max(free, default=0), _peak(events, used), refused, says, change, by_line
    )


def _where(place: str) -> str:
    return place if place == NO_FRAMES else f"allocated at {place}"


def _change(place, most, used, reserved, refused):
    """Return the change to make first, in a sentence."""
    spare = reserved - used
    if refused and spare >= max(refused):
        return (
            "First change: PYTORCH_ALLOC_CONF=expandable_segments:True, because a request was refused though "
            f"{spare / MIB:,.0f} MiB were free in pieces."
        )
    if place == NO_FRAMES:
        return "First change: call _record_memory_history() before the model is made, and record again."
    if reserved and spare >= max(SPARE * reserved, used):
        return "First change: take the snapshot at the peak, because most of the memory is free by now."
    return f"First change: make what {place} allocates smaller, or free it earlier." if used else ""


def _peak(events, used):
    """Return the most bytes in use at once while `events` were recorded, after which `used` are."""
    level = most = used
    for event in reversed(events):
        size = event.get("size", 0)
        if event.get("action") == "alloc":
            level -= size
        elif event.get("action") == "free_completed":
            level += size
        most = max(most, level)
    return most


def _blocks(snapshot):
    for segment in snapshot["segments"]:
        yield from (
            b for b in segment["blocks"] if isinstance(b, dict) and isinstance(b.get("size"), int)
        )
