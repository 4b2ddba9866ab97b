"""What costs most in a trace, and the change to make first: one sentence, one number, and the evidence.

`rules.RULES` is all there is to it: what each thing must cost at least to be named, and why so much.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from practice_gpus.traces.costs import WORK, blocks, calls, collectives, costs, delay, lateness
from practice_gpus.traces.reading import COPIES, alone, busy_share, exposed, on_cpu
from practice_gpus.traces.rules import FEWEST, LOST, NOTHING, RULES, TINY, UNCLEAR, Rule
from practice_gpus.traces.trace import Trace
from practice_gpus.traces.waits import Wait, waits


@dataclass(frozen=True)
class Verdict:
    """`share` of the time from 0 to 1; `costs` and the `facts`' length in µs. `kind` is one of the rules', "nothing" or "unclear"."""

    kind: str
    share: float
    says: str
    change: str
    evidence: list[str] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.says} {self.change}".strip(), *(f"  {line}" for line in self.evidence)]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def verdict(trace: Trace) -> Verdict:
    """Return what costs most in `trace`, and the change to make first, by `RULES`; "unclear" where it can't tell."""
    unclear = _cannot_tell(trace)
    if unclear:
        return unclear
    ranks = {number: trace.rank(number) for number in trace.ranks}
    gaps = {number: waits(part) for number, part in ranks.items()}
    spent = _mean([costs(part, gaps[number]) for number, part in ranks.items()])
    spent["late"], last = lateness(ranks)
    rule = _worst(spent, trace.length)
    facts = _Facts(trace, ranks, gaps, spent, last)
    if rule is None:
        return facts.nothing()
    return facts.told(rule)


def _cannot_tell(trace: Trace) -> Verdict | None:
    asked, lost = trace.about.get("launches", 0), trace.about.get("launches_without_work", 0)
    if asked and lost > LOST * asked:
        says = f"Can't tell: {lost:,} of {asked:,} launches have no kernel in this trace, so the GPU looks idler than it was."
        change = "Record again, steps that replay a graph and not those that capture it."
        return Verdict(UNCLEAR, lost / asked, says, change, [], {})
    if len(trace.gpu) < FEWEST:
        says = f"Can't tell: the trace holds only {len(trace.gpu)} GPU event{'s'[: len(trace.gpu) - 1]}."
        return Verdict(UNCLEAR, busy_share(trace), says, "Record a few steps.", [], {})
    return None


def _mean(parts: list[dict[str, float]]) -> dict[str, float]:
    return {
        key: statistics.mean(p.get(key, 0.0) for p in parts)
        for key in {k for p in parts for k in p}
    }


def _worst(spent: dict[str, float], length: float) -> Rule | None:
    """Return the rule whose change saves most at best; a late rank goes first."""
    over = [rule for rule in RULES if spent.get(rule.cost, 0.0) >= rule.least * length]
    return max(over, key=lambda r: (r.cost == "late", spent[r.cost] * r.saves), default=None)


@dataclass(frozen=True)
class _Facts:
    """What the words of a verdict are made of."""

    trace: Trace
    ranks: dict[int, Trace]
    gaps: dict[int, list[Wait]]
    spent: dict[str, float]
    last: int | None

    @functools.cached_property
    def busy(self) -> float:
        """The share of the time in which the GPU runs anything."""
        return busy_share(self.trace)

    @functools.cached_property
    def exposed(self) -> float:
        """The share of the time in which it only communicates."""
        return exposed(self.trace)

    def told(self, rule: Rule) -> Verdict:
        """Return the verdict by `rule`."""
        share = self.spent[rule.cost] / self.trace.length
        names = {
            name: make()
            for name, make in self._words(rule).items()
            if f"{{{name}}}" in rule.says + rule.change
        }
        says = f"{share:.0%} of the time, {rule.says.format_map(names)}."
        if rule.kind == UNCLEAR:
            says = f"Can't tell why: {says}"
        change = f"First change: {rule.change.format_map(names)}."
        return Verdict(
            rule.kind, share, says, change, self.evidence(rule), self.spent, self.facts()
        )

    def nothing(self) -> Verdict:
        """Return the verdict on a trace in which no rule finds anything."""
        most = max(WORK, key=lambda kind: self.spent.get(kind, 0.0))
        says = f"Nothing stands out: the GPU works {self.busy:.0%} of the time, most of it in {most} kernels."
        change = "Whether those could be faster, a trace doesn't say: compare them with a forecast."
        return Verdict(
            NOTHING, self.busy, says, change, self.evidence(None), self.spent, self.facts()
        )

    def facts(self) -> dict[str, Any]:
        """Return what a program wants to know of the trace beside the verdict."""
        trace = self.trace
        shares = {"busy": self.busy, "exposed": self.exposed}
        return {"device": trace.device, "length": trace.length, "ranks": trace.ranks} | shares

    def evidence(self, rule: Rule | None) -> list[str]:
        """Return lines of numbers: the time that the rule found, its calls, and the whole."""
        lines = self._evidence_of(rule) if rule else []
        ahead = delay(self.trace)
        if ahead is not None:
            lines.append(f"from a launch to its kernel: {_ms(max(0.0, ahead))} (median)")
        work = sorted(((self.spent.get(kind, 0.0), kind) for kind in WORK), reverse=True)
        told = [f"{kind} {time / self.trace.length:.0%}" for time, kind in work if time]
        told.append(f"communication alone {self.exposed:.0%}")
        lines.append(f"{self.trace.device}, busy {self.busy:.0%} of the time: {', '.join(told)}")
        return lines

    def _evidence_of(self, rule: Rule) -> list[str]:
        lines = [f"{_ms(self.spent[rule.cost])} of {_ms(self.trace.length)}"]
        own = {n: [gap for gap in gaps if gap.cause == rule.cost] for n, gaps in self.gaps.items()}
        found = [gap for gaps in own.values() for gap in gaps]
        if found:
            longest, rank = max(
                ((gaps[0], n) for n, gaps in own.items() if gaps), key=lambda p: p[0].length
            )
            lines[0] += (
                f" in {len(found):,} gap{'s'[: len(found) - 1]}, the longest {_ms(longest.length)}"
            )
            doing = on_cpu(self.ranks[rank], longest.start, longest.start + longest.length)
            lines += [
                f"in that one, the CPU was longest in {name}: {_ms(t)}"
                for name, t in [*doing.items()][:1]
            ]
        lines += [f"{call}: {_ms(time)}" for call, time in calls(found, rule.cost)[:3]]
        if rule.cost == "late" and self.last is not None:
            idle = 1 - busy_share(self.ranks[self.last])
            lines.append(
                f"the GPU of rank {self.last} is idle {idle:.0%} of the time: its own trace says why"
            )
        return [*lines, f"why it is named: from {rule.least:.0%} on; {rule.why}"]

    def _words(self, rule: Rule) -> dict[str, Callable[[], Any]]:
        """Return what stands for each name in the braces of a rule's sentences."""
        gaps = [gap for own in self.gaps.values() for gap in own]
        return {
            "last": lambda: self.last,
            "call": lambda: next((call for call, _ in calls(gaps, rule.cost)), "a call"),
            "overlap": self._overlap,
            "copies": self._copies,
        }

    def _overlap(self) -> str:
        talk = [event.length for event in collectives(self.trace)]
        work = self.busy - self.exposed
        if len(talk) > 20 and statistics.median(talk) < TINY:
            return f"join the {len(talk):,} small collectives, as DDP's buckets do"
        if work >= self.exposed:
            return "overlap the communication with other work, such as the next batch's"
        if len(self.ranks) > 1:
            return (
                "a larger batch or fewer bytes, because there is too little work to hide it behind"
            )
        return (
            "record every rank: one rank can't tell a slow link from another rank that comes late"
        )

    def _copies(self) -> str:
        """Return what to do about the copies that cost most: those that block the CPU, or those that fill the time."""
        copies = [event for event in self.trace.gpu if event.kind == "copy"]
        if self.spent["copies"] > 2 * alone(self.trace, COPIES):
            copies = [event for event in copies if blocks(event)]
        way = {
            word: sum(e.length for e in copies if word in e.name)
            for word in ("HtoD", "DtoH", "DtoD")
        }
        most = max(way, key=way.__getitem__)
        if most == "HtoD" and any(blocks(event) for event in copies if most in event.name):
            return "pin_memory=True in the DataLoader, and .to(device, non_blocking=True)"
        return {
            "HtoD": "copy the next batch on a stream of its own while this one computes, or fewer bytes",
            "DtoH": "read results of the GPU less often, and together",
            "DtoD": "find who copies inside the GPU: cat, contiguous, a change of layout",
        }[most]


def _ms(microseconds: float) -> str:
    return (
        f"{microseconds / 1000:,.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:,.3g} s"
    )
