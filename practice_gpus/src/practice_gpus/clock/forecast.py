"""What a step would take on a card: `forecast` runs it once on practice GPUs, a `Forecast` says how long, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from practice_gpus.cards import CARDS, GIB, Card, get_card
from practice_gpus.clock import change, trace
from practice_gpus.clock.kernel_times import ISSUES, WATTS
from practice_gpus.clock.log import Copy, Entry, Launch, Wait, recording
from practice_gpus.clock.parts import Kernel, Stop, kernel_of, total
from practice_gpus.clock.queue import Queue, Span, play

if TYPE_CHECKING:
    from practice_gpus.session import Session

CLOSE = 1.5  # limits within this factor are "mixed"
SPREAD = 1.5  # a forecast's range when the GPU decides: inference
WIDE = 1.73  # training, and cards that their power limits
CHANGES: dict[str, dict] = {  # the easiest to make first, as arguments of `play`
    "waits": {"waits": False},
    "unpinned copies": {"pin": True},
    "cpu work": {"host": False},
    "launches": {"issue": 0.0, "shortest": 0.0},
}
NEARLY = 2 / 3  # of the largest gain
PROMISE = (
    "A forecast, not a measurement: from data sheets and one set of rules for all cards. GPU-bound inference is usually "
    "within 1.5 times, training and cards under a power limit within 2 times. Where the CPU decides there is a range, "
    "5 to 60 µs an operator: Python, loader and model code decide. Data loading is not in it."
)


@dataclass(frozen=True)
class Forecast:
    """What ``repeat`` steps would take on ``gpus`` ``card``s. Times are milliseconds of one step."""

    card: Card
    entries: list[Entry] = field(repr=False)
    repeat: int = 1
    peak_bytes: int = 0
    gpus: int = 1
    graph: bool = False

    def play(self, **what_if: Any) -> Queue:
        """The queues of the machine after the step; `queue.Queue` says what may be changed."""
        if self.graph:
            what_if |= {"issue": 0.0}
        return play(self.entries, self.card, **what_if)

    def _ms(self, **what_if) -> float:
        return 1e3 * self.play(**what_if).finish() / self.repeat

    @cached_property
    def queue(self) -> Queue:
        """The queues, as forecast."""
        return self.play()

    @property
    def spans(self) -> list[Span]:
        """What the CPU and the streams do, and when."""
        return self.queue.spans or []

    @cached_property
    def ms(self) -> float:
        """Milliseconds of one step."""
        return 1e3 * self.queue.finish() / self.repeat

    @cached_property
    def range(self) -> tuple[float, float]:
        """(low_ms, high_ms): no wider than three times where the GPU decides."""
        training = any(isinstance(entry, Launch) and entry.backward for entry in self.entries)
        factor = WIDE if training or self.card.watts <= WATTS else SPREAD
        low = self._ms(issue=ISSUES[0], slow=1 / factor)
        high = self._ms(issue=ISSUES[1], slow=factor)
        if self.limits["overhead"] * CLOSE < self.limits["compute"] + self.limits["memory"]:
            high = min(high, 3 * low)
        return low, high

    low_ms = property(lambda self: self.range[0], doc="The least that is likely.")
    high_ms = property(lambda self: self.range[1], doc="The most that is likely.")

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Every kernel of all repetitions, in the order of their starts."""
        spans = [span for span in self.spans if isinstance(span.entry, Launch) and span.bound]
        return sorted(map(kernel_of, spans), key=lambda kernel: kernel.start)

    @cached_property
    def busy(self) -> dict[int, float]:
        """Device → milliseconds of one step in which a kernel runs there."""
        return {
            device: total([(k.start, k.start + k.ms) for k in self.kernels if k.device == device])
            / self.repeat
            for device in sorted({kernel.device for kernel in self.kernels})
        }

    @property
    def idle(self) -> float:
        """The share of the time in which no kernel runs (on the busiest GPU)."""
        return max(0.0, 1 - max(self.busy.values()) / self.ms)

    @property
    def overlap(self) -> float | None:
        """The share of the time of copies that is hidden behind kernels; None without copies."""
        copies = [(1e3 * s.start, 1e3 * s.end) for s in self.spans if s.bound == "copy"]
        if not copies:
            return None
        kernels = [(kernel.start, kernel.start + kernel.ms) for kernel in self.kernels]
        both = total(copies) + total(kernels) - total(copies + kernels)
        return max(0.0, both / total(copies))

    @property
    def flops(self) -> int:
        """Floating-point operations of one step's products and convolutions."""
        return sum(kernel.flops for kernel in self.kernels) // self.repeat

    @property
    def bytes(self) -> int:
        """Bytes that one step's kernels read and write."""
        return sum(kernel.bytes for kernel in self.kernels) // self.repeat

    @property
    def mfu(self) -> float:
        """Floating-point operations a second, as a share of what the card's peak is for their types."""
        works = [entry.work for entry in self.entries if isinstance(entry, Launch)]
        ideal = sum(work.flops / self.card.peak(work.unit) for work in works if work.flops)
        return 1e3 * ideal / self.repeat / self.ms / max(1, len(self.busy))

    @cached_property
    def limits(self) -> dict[str, float]:
        """Milliseconds of one step that each limit accounts for: "compute", "memory", "overhead".

        Kernels by what bounds them, copies with memory; overhead is what the CPU takes to issue everything, or, if that is
        more, the shortest kernels and the gaps in which the GPU waits.
        """
        parts: dict[str, float] = defaultdict(float)
        for kernel in self.kernels:
            parts[kernel.bound] += kernel.ms / self.repeat / len(self.busy)
        issue = self.queue.issue * sum(isinstance(e, (Launch, Copy)) for e in self.entries)
        gaps = self.ms - self._ms(issue=0.0, waits=False, pin=True, host=False)
        overhead = max(1e3 * issue / self.repeat, parts["launch"] + max(0.0, gaps))
        exposed = self.ms * self.idle - max(0.0, gaps)
        copies = max(0.0, exposed) if any(isinstance(e, Copy) for e in self.entries) else 0.0
        return {
            "compute": parts["compute"],
            "memory": parts["memory"] + copies,
            "overhead": overhead,
        }

    @property
    def bound(self) -> str:
        """What decides: "compute", "memory" or "overhead"; "mixed" where two limits are within 1.5 times."""
        compute, memory, overhead = self.limits.values()
        if overhead > CLOSE * (compute + memory):
            return "overhead"
        if overhead * CLOSE >= compute + memory or max(compute, memory) <= CLOSE * min(
            compute, memory
        ):
            return "mixed"
        return "compute" if compute > memory else "memory"

    @cached_property
    def gains(self) -> dict[str, float]:
        """What would be gained, in ms of one step, by each of `CHANGES` alone, the largest gain first.

        "waits": the CPU never waits; "unpinned copies": all copies pinned and non_blocking; "cpu work": operators on the CPU's
        tensors cost nothing; "launches": operators cost the CPU nothing, and kernels have no shortest time.
        """
        gains = {name: self.ms - self._ms(**what_if) for name, what_if in CHANGES.items()}
        return dict(sorted(gains.items(), key=lambda gain: -gain[1]))

    @property
    def cause(self) -> str:
        """The change that gains most, if it gains a tenth: a name in `gains`; else what bounds the kernels.

        Changes overlap, as a wait shows the launches that follow it: of those that gain nearly as much as the best, the one
        that is easiest to make is named, in the order of `CHANGES`.
        """
        best = max(self.gains.values())
        if best >= 0.1 * self.ms:
            return next(name for name in CHANGES if self.gains[name] >= NEARLY * best)
        return max(self.limits, key=lambda limit: self.limits[limit])

    @cached_property
    def waits(self) -> list[Stop]:
        """Where the CPU waits, by line, the largest gain first; copies it waits for, too."""
        found: dict = {}
        for span in self.spans:
            entry = span.entry
            if span.row == "cpu" and (isinstance(entry, Wait) or "pageable" in span.name):
                found.setdefault(entry.place, []).append(span)
        stops = []
        for place, spans in found.items():
            waited = 1e3 * sum(span.end - span.start for span in spans) / self.repeat
            gain = self.ms - self._ms(skip=place)
            stops.append(Stop(place, len(spans), waited, gain))
        return sorted(stops, key=lambda stop: -stop.gain_ms)

    @property
    def unknown(self) -> list[str]:
        """Operators without a rule: they are counted by the bytes of their arguments and results."""
        works = [entry.work for entry in self.entries if isinstance(entry, Launch)]
        return sorted({work.name for work in works if not work.known})

    @property
    def fused(self) -> Forecast:
        """The same step with its pointwise chains fused, as a compiler does."""
        return self._with(entries=change.fused(self.entries))

    @property
    def graphed(self) -> Forecast:
        """The same step as a CUDA graph: the CPU issues it once. ValueError names a line that waits or is not pinned."""
        for entry in self.entries:
            stops = isinstance(entry, Wait) or isinstance(entry, Copy) and not entry.pinned
            if stops:
                raise ValueError(
                    f"graphed: {entry.place or 'a line'} makes the CPU wait, and a CUDA graph cannot hold that"
                )
        return self._with(graph=True)

    def on(
        self, card: str | None = None, gpus: int = 1, gradients: torch.nn.Module | None = None
    ) -> Forecast:
        """The same step on another card, or on ``gpus`` of them, each with a batch of its own, by data parallelism.

        ``gradients``: bytes that are reduced in each backward pass, or the module whose parameters' gradients they are.
        """
        sheet = self.card if card is None else get_card(card)
        if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1:
            raise ValueError(f"gpus={gpus!r}: give the number of GPUs, 1 or more")
        if gpus > 1 and gradients is None:
            raise ValueError(f"gpus={gpus}: say what they reduce, gradients=model, or bytes")
        entries = change.reduced(self.entries, _gradient_bytes(gradients), gpus)
        return self._with(card=sheet, entries=entries, gpus=gpus)

    def on_cards(
        self, cards: list | None = None, prices: dict | None = None, steps: int = 1
    ) -> list[dict]:
        """The same step on ``cards`` (names; None: all): one dict a card, for an explorer, fastest first.

        Keys: card, fits, ms, low_ms, high_ms, bound, memory_gib, share (of the memory), minutes of ``steps`` steps and, where
        ``prices`` has dollars an hour for the card's name, usd.
        """
        rows = []
        for name in cards if cards is not None else CARDS:
            there = self.on(name)
            share = self.peak_bytes / (there.card.memory * GIB) if there.card.memory else None
            minutes = there.ms * steps / 60e3
            price = (prices or {}).get(there.card.name, (prices or {}).get(name))
            rows.append(
                {
                    "card": there.card.name,
                    "fits": share is None or share <= 1,
                    "ms": there.ms,
                    "low_ms": there.low_ms,
                    "high_ms": there.high_ms,
                    "bound": there.bound,
                    "memory_gib": there.card.memory,
                    "share": share,
                    "minutes": minutes,
                    "usd": None if price is None else price * minutes / 60,
                }
            )
        return sorted(rows, key=lambda row: row["ms"])

    def _with(self, **changes) -> Forecast:
        names = ("card", "entries", "repeat", "peak_bytes", "gpus", "graph")
        return Forecast(**{name: getattr(self, name) for name in names} | changes)

    def trace(self, path: Any) -> Path:
        """Write a Chrome trace (Perfetto, chrome://tracing) to ``path``, and return it."""
        return trace.write(self, path)

    def __str__(self) -> str:
        several = f"{self.gpus} × " if self.gpus > 1 else ""
        text = (
            f"forecast: {self.ms:.3g} ms on {several}{self.card.name} ({self.low_ms:.3g} to {self.high_ms:.3g}), "
            f"{self.bound}"
        )
        stop = next(iter(self.waits), None)
        if stop is not None and stop.gain_ms > 0.05 * self.ms:
            text += f"; {stop.gain_ms / self.ms:.0%} of it waits at {stop.line}"
        return text

    __repr__ = __str__


def _gradient_bytes(gradients) -> int:
    if gradients is None or isinstance(gradients, int):
        return gradients or 0
    parameters = [p for p in gradients.parameters() if p.requires_grad]
    return sum(p.numel() * p.element_size() for p in parameters)


def forecast(
    session: Session,
    step: Callable,
    repeat: int = 1,
    card: Any = None,
    fused: bool = False,
) -> Forecast:
    """The `Forecast` of ``step()``, run ``repeat`` times on the practice GPUs of ``session``.

    ``card``: the card, if not the session's. ``fused``: as a compiler would run it. Raises RuntimeError after ``stop()``,
    TypeError or ValueError for arguments that do not fit, or a step that uses no GPU.
    """
    machine = _checked(session, step, repeat)
    name = card if card is not None else session.settings.card
    if name is None:
        raise ValueError("card=None: give practice_gpus or forecast a card, such as card='T4'")
    sheet = get_card(name)
    for device in machine.devices:
        torch.cuda.reset_peak_memory_stats(device)
    with recording(machine) as entries:
        for _ in range(repeat):
            step()
    peak = max(torch.cuda.max_memory_allocated(device) for device in machine.devices)
    if not any(isinstance(entry, Launch) for entry in entries):
        raise ValueError(
            f"step={step!r}: it used no practice GPU; move the model and its input there, .to('cuda')"
        )
    found = Forecast(sheet, entries, repeat, peak)
    return found.fused if fused else found


def _checked(session, step, repeat):
    if session.real:
        raise NotImplementedError("forecast: these GPUs are real; time the step with events")
    if session.depth == 0:
        raise RuntimeError("forecast: these practice GPUs are off; turn them on, with or start()")
    if not callable(step):
        raise TypeError(f"step={step!r}: give a function without arguments, lambda: model(x)")
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
        raise ValueError(f"repeat={repeat!r}: give how often to run the step, 1 or more")
    return session.machine
