"""What a step would take on a card: `forecast` runs it once on practice GPUs, a `Forecast` says how long, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from practice_gpus.cards import Card, get_card
from practice_gpus.clock import change, questions, trace
from practice_gpus.clock.cpu import Cpu, own
from practice_gpus.clock.kernel_times import TOGETHER, WATTS
from practice_gpus.clock.log import Copy, Entry, Launch, Wait, recording
from practice_gpus.clock.parts import Kernel, Stop, kernel_of, total
from practice_gpus.clock.plans import Plan, State, plan_of, state_of
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
    "within 1.5 times, training and cards under a power limit within 2 times. Where the CPU decides, the range is up to 8 "
    "times wide, 10 to 80 µs an operator: Python and model code decide. Data loading is not in it."
)


@dataclass(frozen=True)
class Forecast:
    """What ``repeat`` steps would take on a ``card``, or on several by a ``plan``. Times are milliseconds of one step.

    ``peak_bytes`` is the most that the step holds on one GPU, ``rank_bytes`` what each GPU of the plan holds.
    """

    card: Card
    entries: list[Entry] = field(repr=False)
    repeat: int = 1
    peak_bytes: int = 0
    graph: bool = False
    state: State = State()
    plan: Plan | None = None
    host: Cpu = field(default_factory=own)

    def play(self, **what_if: Any) -> Queue:
        """The queues of the machine after the step; `queue.Queue` says what may be changed."""
        what_if.setdefault("issue", self.host.issue)
        if self.graph:
            what_if["issue"] = 0.0
        if self.plan:
            what_if["slow"] = what_if.get("slow", 1.0) * TOGETHER
        return play(self.planned, self.card, **what_if)

    @cached_property
    def planned(self) -> list[Entry]:
        """What one GPU does, by the plan."""
        return self.plan.entries(self.entries) if self.plan else self.entries

    @property
    def gpus(self) -> int:
        """How many GPUs share the step."""
        return self.plan.gpus if self.plan else 1

    @property
    def rank_bytes(self) -> int:
        """The most memory that one of the GPUs holds."""
        return self.plan.bytes(self.peak_bytes) if self.plan else self.peak_bytes

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
        """(low_ms, high_ms): up to three times wide where the GPU decides, up to eight where the CPU does."""
        training = any(isinstance(entry, Launch) and entry.backward for entry in self.entries)
        factor = WIDE if training or self.card.watts <= WATTS else SPREAD
        low = self._ms(issue=self.host.least, slow=1 / factor)
        return low, self._ms(issue=self.host.most, slow=factor)

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
        works = [entry.work for entry in self.planned if isinstance(entry, Launch)]
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
        issue = self.queue.issue * sum(isinstance(e, (Launch, Copy)) for e in self.planned)
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
        self,
        card: str | None = None,
        gpus: int | None = None,
        gradients: torch.nn.Module | int | None = None,
        plan: str = "ddp",
        per_node: int = 8,
        nic: float = 50.0,
    ) -> Forecast:
        """The same step on another card, or on ``gpus`` of them by ``plan``: "ddp", "zero1", "zero2", "fsdp" or "tp".

        ``per_node`` GPUs are in a machine, each with a network card of ``nic`` GB/s. Without ``gpus`` those of before stay.
        ``gradients``: the module that is trained, or the bytes that are reduced, where the step itself does not tell.
        """
        sheet = self.card if card is None else get_card(card)
        if gpus is None:
            return self._with(card=sheet)
        found = plan_of(plan, gpus, per_node, nic, state_of(gradients, self.state))
        return self._with(card=sheet, plan=found if gpus > 1 else None)

    def on_cards(
        self, cards: list | None = None, prices: dict | None = None, steps: int = 1
    ) -> list[questions.Offer]:
        """The same step on ``cards`` (names; None: all): one dict a card, for an explorer, fastest first.

        Keys: card, fits, ms, low_ms, high_ms, bound, memory_gib, share (of the memory), minutes of ``steps`` steps and, where
        ``prices`` has dollars an hour for the card, by any of its names, usd. Raises ValueError for a name of no card.
        """
        return questions.rows(self, cards, prices, steps)

    def within(self, usd: float, prices: dict, steps: int = 1) -> questions.Offer | None:
        """Of the cards in ``prices``, the fastest that holds the step and does ``steps`` for ``usd``, as `on_cards` has it."""
        return questions.within(self, usd, prices, steps)

    def per_second(self, count: float) -> questions.Span:
        """(low, middle, high) samples or tokens a second of all GPUs, of ``count`` in the batch of each."""
        return questions.per_second(self, count)

    def job(self, samples: float, batch: float, usd_per_hour: float | None = None) -> questions.Job:
        """Hours for ``samples`` in batches of ``batch`` on each GPU, with range; dollars at a GPU's price an hour."""
        return questions.job(self, samples, batch, usd_per_hour)

    def _with(self, **changes) -> Forecast:
        names = ("card", "entries", "repeat", "peak_bytes", "graph", "state", "plan", "host")
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
        if self.high_ms > 3.2 * self.low_ms:
            least, most = 1e6 * self.host.least, 1e6 * self.host.most
            text += f"; the CPU decides, at {least:.0f} to {most:.0f} µs an operator"
        return text + (f"; by {self.host.words}" if self.host.words else "")

    __repr__ = __str__


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
    held = torch.cuda.memory_allocated()
    with recording(machine) as log, updating() as update:
        for _ in range(repeat):
            step()
    entries = log.entries
    peak = max(torch.cuda.max_memory_allocated(device) for device in machine.devices)
    state = State.seen(entries, max(held, torch.cuda.memory_allocated()), log.forward)
    if "after" in update and peak > update["passes"]:
        passes = update["passes"] + max(0, update["after"] - update["before"])  # a state made now
        temporary = peak - update["after"]
        state = replace(state, passes=min(passes, peak), temporary=temporary)
    if not any(isinstance(entry, Launch) for entry in entries):
        raise ValueError(
            f"step={step!r}: it used no practice GPU; move the model and its input there, .to('cuda')"
        )
    found = Forecast(sheet, entries, repeat, peak, state=state)
    return found.fused if fused else found


@contextmanager
def updating() -> Iterator[dict[str, int]]:
    """What is held on the current GPU around the first update of an optimizer: its peak until then, before and after."""
    seen: dict[str, int] = {}

    def before(*_: Any) -> None:
        seen.setdefault("passes", torch.cuda.max_memory_allocated())
        seen.setdefault("before", torch.cuda.memory_allocated())

    def after(*_: Any) -> None:
        seen.setdefault("after", torch.cuda.memory_allocated())

    hooks = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


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
