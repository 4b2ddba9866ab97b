"""A step on several GPUs: data parallelism, its state sharded (ZeRO, FSDP), or each layer split (tensor parallelism).

Each GPU has a batch of its own, but for "tp", whose GPUs share one. Only shapes are asked; nothing is sent.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from practice_gpus.clock.log import Entry, Join, Launch, Reduce
from practice_gpus.clock.queue import REDUCED
from practice_gpus.machine import storage_of

BUCKET = 25 << 20  # bytes: bucket_cap_mb of DistributedDataParallel
UNITS = 32  # parts that FSDP gathers one after the other, where the model has no list of blocks
# name → what each rank holds a share of
SHARDED = {
    "ddp": (),
    "zero1": ("optimizer",),
    "zero2": ("optimizer", "gradients"),
    "fsdp": ("optimizer", "gradients", "parameters"),
    "tp": ("optimizer", "gradients", "parameters", "activations"),
}


@dataclass(frozen=True)
class State:
    """Bytes that a training step keeps on one GPU; ``numbers`` are those of the parameters.

    ``temporary``: what only the optimizer's update holds, where that makes the peak; ``passes``: the peak until then;
    ``forward``: the peak until gradients come, 0 where those of the step before are still there.
    ``blocks``: those that FSDP gathers one after the other, ``block`` the bytes of the largest one's parameters, and
    ``root`` of the parameters beside them, which FSDP2's root keeps whole until the backward pass ends.
    """

    numbers: int = 0
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    passes: int = 0
    temporary: int = 0
    forward: int = 0
    blocks: int = UNITS
    block: int = 0
    root: int = 0

    @classmethod
    def seen(cls, entries: list[Entry], held: int, forward: int = 0) -> State:
        """Of the parameters that a training step read, the bytes held before or after it, and the peak of its forward pass."""
        if not any(map(is_backward, entries)):
            return cls()
        read = {mark for e in entries if isinstance(e, Launch) for mark, _ in e.work.reads}
        objects = gc.get_objects()
        found = (each for each in objects if issubclass(type(each), torch.nn.Parameter))
        parameters = [p for p in found if getattr(storage_of(p), "clock_number", None) in read]
        trained = [p for p in parameters if p.requires_grad]
        weights = sum(p.nbytes for p in parameters)
        gradients = sum(p.nbytes for p in trained)
        kept = gradients if any(p.grad is not None for p in trained) else 0
        # what is more than four numbers for each of them is the batch
        optimizer = min(max(0, held - weights - kept), 3 * gradients)
        numbers = sum(p.numel() for p in parameters)
        forward = 0 if kept else forward
        return cls(
            numbers, weights, gradients, optimizer, forward=forward, **shares(parameters, objects)
        )


def shares(parameters: list[torch.nn.Parameter], objects: Iterable[object]) -> dict[str, int]:
    """{"blocks": how many FSDP gathers, "block": bytes of the largest one, "root": bytes of what is in none}."""
    weights = sum(each.nbytes for each in parameters)
    sizes = blocks(parameters, objects)
    if not sizes:
        return {"blocks": UNITS, "block": weights // UNITS, "root": 0}
    return {"blocks": len(sizes), "block": max(sizes), "root": max(0, weights - sum(sizes))}


def blocks(parameters: list[torch.nn.Parameter], objects: Iterable[object]) -> list[int]:
    """The bytes of each block that `fully_shard` is called on by its documentation: the modules of one kind, in lists
    among ``objects``, that hold most of the parameters; none where no list has two of a kind.
    """
    own = {id(each) for each in parameters}
    kinds: dict[type, dict[int, int]] = {}
    for each in objects:
        if issubclass(type(each), (torch.nn.ModuleList, torch.nn.Sequential)):
            for child in each.children():  # type: ignore[attr-defined]
                inside = list(child.parameters())
                if inside and all(id(one) in own for one in inside):
                    sizes = kinds.setdefault(type(child), {})
                    sizes[id(child)] = sum(one.nbytes for one in inside)
    several = [list(sizes.values()) for sizes in kinds.values() if len(sizes) > 1]
    return max(several, key=sum, default=[])


@dataclass(frozen=True)
class Plan:
    """How ``gpus``, ``per_node`` of them in a machine with a network of ``nic`` GB/s each, share a step."""

    name: str
    gpus: int
    per_node: int
    nic: float
    state: State

    def bytes(self, peak: int) -> int:
        """The most that one of them holds, of a step with that peak on one GPU."""
        state = self.state
        parts = {name: getattr(state, name) for name in ("parameters", "gradients", "optimizer")}
        parts["activations"] = max(0, peak - sum(parts.values()))
        shared = {name: parts[name] - parts[name] // self.gpus for name in SHARDED[self.name]}
        saved = sum(shared.values())
        if self.name in ("ddp", "tp"):  # DDP copies gradients to its buckets
            return peak - saved + state.gradients * (self.name == "ddp")
        whole = 0
        if self.name == "fsdp":  # two blocks' parameters, one's gradients and their copy to reduce
            trained = state.gradients / max(1, state.parameters)
            whole = state.root + int((2 + 2 * trained) * state.block)
        before = state.forward - saved + shared.get("gradients", 0)  # there are none to share yet
        backward = (state.passes or peak) - saved
        update = peak - saved - (state.temporary - state.temporary // self.gpus)
        return max(before + whole, backward + whole, update)

    def entries(self, entries: list[Entry]) -> list[Entry]:
        """What one of them does."""
        ways = {"ddp": self._reduced, "zero1": self._reduced, "zero2": self._reduced}
        return ways.get(self.name, self._gathered if self.name == "fsdp" else self._split)(entries)

    def _send(self, near: Entry, size: float, times: int) -> Reduce:
        place = near.place, near.stream, near.device
        return Reduce(*place, int(size), self.gpus, times, self.per_node, self.nic)

    def _reduced(self, entries: list[Entry]) -> list[Entry]:
        """Gradients reduced in buckets while the backward pass runs; with ZeRO, new parameters gathered at the end."""
        size = self.state.gradients
        count = max(1, round(size / BUCKET))
        result: list[Entry] = []
        for passed, backward in passes(self._updated(entries)):
            if not backward:
                result += passed
                continue
            for piece in pieces(passed, count):
                result += [*piece, self._send(piece[-1], size / count, 1 + (self.name == "ddp"))]
            result.append(_wait(passed[-1]))
        if self.name != "ddp":
            result += [self._send(entries[-1], self.state.parameters, 1), _wait(entries[-1])]
        return result

    def _gathered(self, entries: list[Entry]) -> list[Entry]:
        """FSDP: each part's parameters gathered before it runs, while the one before does, its gradients scattered after."""
        half = any(isinstance(e, Launch) and e.work.unit in ("fp16", "bf16") for e in entries)
        count = self.state.blocks
        size = self.state.numbers * (2 if half else 4) / count
        result: list[Entry] = []
        for passed, backward in passes(self._updated(entries)):
            update = not backward and result and any(is_backward(each) for each in result)
            if update:
                result += passed
                continue
            result.append(self._send(passed[0], size, 1))
            for piece in pieces(passed, count):
                result += [_wait(piece[0]), self._send(piece[0], size, 1), *piece]
                if backward:
                    result.append(self._send(piece[-1], self.state.gradients / count, 1))
            result.append(_wait(passed[-1]))
        return result

    def _split(self, entries: list[Entry]) -> list[Entry]:
        """Tensor and sequence parallelism: each kernel has its share, each block is summed twice in each pass (Megatron-LM)."""
        result: list[Entry] = []
        for entry in entries:
            result.append(_share(entry, self.gpus))
            if isinstance(entry, Launch) and "attention" in entry.work.name:
                _, hidden = entry.work.writes[0]  # the others are what the backward pass needs
                result += 2 * [self._send(entry, hidden, 2), _wait(entry)]
        if len(result) == len(entries):
            raise ValueError(
                "plan='tp': it splits blocks at scaled_dot_product_attention, and this step has none"
            )
        return result

    def _updated(self, entries: list[Entry]) -> list[Entry]:
        """``entries`` whose optimizer updates its share alone."""
        if self.name == "ddp":
            return entries
        return [_share(e, self.gpus) if _is_update(e) else e for e in entries]


def plan_of(name: str, gpus: int, per_node: int, nic: float, state: State) -> Plan:
    """A checked `Plan`. Raises ValueError."""
    for word, value in (("gpus", gpus), ("per_node", per_node)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{word}={value!r}: give a number of GPUs, 1 or more")
    if name not in SHARDED:
        raise ValueError(f"plan={name!r}: give one of {', '.join(SHARDED)}")
    if gpus > 1 and name != "tp" and not state.gradients:
        raise ValueError(
            f"gpus={gpus}: the step trains no parameters; say what is reduced, gradients=model, or bytes"
        )
    if nic <= 0:
        raise ValueError(f"nic={nic!r}: give the GB/s of one GPU's network card, above 0")
    return Plan(name, gpus, per_node, nic, state)


def state_of(gradients: torch.nn.Module | int | None, seen: State) -> State:
    """The state with what a person says of it: the module that is trained, or the bytes that are reduced."""
    if gradients is None:
        return seen
    if isinstance(gradients, int):
        return dataclasses.replace(seen, gradients=gradients)
    parameters = list(gradients.parameters())
    return dataclasses.replace(
        seen,
        numbers=sum(p.numel() for p in parameters),
        parameters=sum(p.nbytes for p in parameters),
        gradients=sum(p.nbytes for p in parameters if p.requires_grad),
        **shares(parameters, gradients.modules()),
    )


def is_backward(entry: Entry) -> bool:
    """Whether an entry is a kernel of a backward pass."""
    return isinstance(entry, Launch) and entry.backward


def passes(entries: list[Entry]) -> Iterator[tuple[list[Entry], bool]]:
    """[(entries, whether they are a backward pass's)], in their order."""
    run: list[Entry] = []
    for entry in entries:
        if run and is_backward(entry) != is_backward(run[0]):
            yield run, is_backward(run[0])
            run = []
        run.append(entry)
    if run:
        yield run, is_backward(run[0])


def pieces(entries: list[Entry], count: int) -> Iterator[list[Entry]]:
    """``entries`` in ``count`` pieces of about the same length, empty ones left out."""
    edges = [round(each * len(entries) / count) for each in range(count + 1)]
    for start, end in zip(edges, edges[1:], strict=False):
        if start < end:
            yield entries[start:end]


def _wait(near: Entry) -> Join:
    return Join(near.place, near.stream, near.device, REDUCED)


def _is_update(entry: Entry) -> bool:
    if not isinstance(entry, Launch) or entry.backward:
        return False
    return entry.work.name.startswith(("_foreach_", "_fused_"))


def _share(entry: Entry, gpus: int) -> Entry:
    """A kernel with its share of the bytes and operations."""
    if not isinstance(entry, Launch):
        return entry
    work = entry.work
    moved = ([(mark, size // gpus) for mark, size in each] for each in (work.reads, work.writes))
    reads, writes = moved
    part = dataclasses.replace(work, reads=reads, writes=writes, flops=work.flops // gpus)
    return dataclasses.replace(entry, work=part)
