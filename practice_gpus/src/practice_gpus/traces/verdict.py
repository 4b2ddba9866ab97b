"""What costs most in a trace, and the change to make first: one sentence, one number, and the evidence.

`RULES` is all there is to it: what each thing must cost at least to be named, and why so much.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from practice_gpus.traces.costs import WORK, blocks, calls, collectives, costs, lateness
from practice_gpus.traces.reading import COPIES, alone, busy_share, exposed, on_cpu
from practice_gpus.traces.trace import Trace
from practice_gpus.traces.waits import Wait, waits

NOTHING, UNCLEAR = "nothing", "unclear"
LOST = 0.1  # of the launches without a kernel: whole recordings lose none, those of graph captures four of five
FEWEST = 3  # GPU events: of two, one can't tell a habit
TINY = 200.0  # µs: a collective that is shorter moves so little that its latency decides


class Rule(NamedTuple):
    """`cost` must take the share `least` of the time. `saves` is how much of it the change saves at best."""

    cost: str
    kind: str  # of the verdict
    least: float
    saves: float
    says: str
    change: str
    why: str  # least and saves


RULES = (
    Rule("late", "communication", 0.1, 1, "the ranks wait for rank {last}, whose collectives are the shortest",
         "find out what makes rank {last} late", "a late rank stretches everyone's step, so it is looked for first"),
    Rule("start", "waits", 0.1, 1, "the GPU waits for what happens only once, in {call}: CUDA starts, or code is loaded or compiled",
         "leave the first steps out, by profile(schedule=schedule(wait=1, warmup=2, active=3)), and record again",
         "what happens once says nothing of a step; on an idle GPU, a launch of 1 ms loads code first"),
    Rule("loader", "loader", 0.1, 1, "the GPU waits for the DataLoader",
         "give the DataLoader workers: num_workers=4, or more if it has some", "a tenth is worth a change of one line"),
    Rule("allocator", "waits", 0.1, 1, "the GPU waits while the CPU is in {call}",
         "let the caching allocator keep its memory: no empty_cache() in the loop, no *_NO_*_MEMORY_CACHING, and room",
         "a caching allocator asks the driver in the first steps only"),
    Rule("sync", "waits", 0.1, 1, "the GPU runs dry, because the CPU waits for {call}",
         "read values of the GPU later or less often: .item(), .cpu(), print", "a tenth, as for the loader"),
    Rule("missing", UNCLEAR, 0.1, 1, "the GPU looks idle while the CPU waits for it in {call}",
         "record again, fewer steps: some work of the GPU isn't in this trace, or its two clocks disagree",
         "who waits for an idle GPU comes back at once, so 1 ms is too long"),
    Rule("host", "waits", 0.1, 1, "the GPU waits while the CPU is in {call}",
         "prepare that ahead of time in another process, or do it on the GPU", "a tenth, as for the loader"),
    Rule("unrecorded", UNCLEAR, 0.1, 1, "the GPU is idle, and the CPU, which knows why, isn't recorded",
         "record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]", "a tenth, as for the loader"),
    Rule("launches", "launches", 0.1, 1, "the GPU waits for the CPU to launch the next kernel",
         "make fewer and larger kernels: a larger batch, torch.compile, or a CUDA graph",
         "profiling makes launches slower, so less than a tenth may not be there without it"),
    Rule("communication", "communication", 0.1, 1, "the GPU only communicates, or waits for the next collective",
         "{overlap}", "overlap can hide all of what is exposed, if there is work to hide it behind"),
    Rule("copies", "copies", 0.1, 1, "the GPU copies, or waits for launches after copies that block the CPU",
         "{copies}", "a tenth, as for the loader"),
    Rule("softmax", "kernels", 0.1, 0.75, "softmax runs as a kernel of its own, so attention is written by hand",
         "F.scaled_dot_product_attention, which keeps the scores on the chip",
         "fused, attention takes about a quarter; the softmax of a loss is left out"),
    Rule("unfused", "kernels", 1 / 3, 0.5, "elementwise kernels run one after another",
         "torch.compile, which fuses them", "fused, two kernels read and write once; a CNN in training spends a fifth on them"),
    Rule("normalization", "kernels", 1 / 3, 0.5, "kernels of normalization run",
         "torch.compile or a fused norm, and channels_last for convolutions", "as for elementwise kernels"),
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """`share` of the time from 0 to 1; `costs` in µs. `kind` is one of the rules' kinds, "nothing" or "unclear"."""

    kind: str
    share: float
    says: str
    change: str
    evidence: list[str] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)

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
        return Verdict(rule.kind, share, says, change, self.evidence(rule), self.spent)

    def nothing(self) -> Verdict:
        """Return the verdict on a trace in which no rule finds anything."""
        busy = busy_share(self.trace)
        most = max(WORK, key=lambda kind: self.spent.get(kind, 0.0))
        says = f"Nothing stands out: the GPU works {busy:.0%} of the time, most of it in {most} kernels."
        change = "Whether those could be faster, a trace doesn't say: compare them with a forecast."
        return Verdict(NOTHING, busy, says, change, self.evidence(None), self.spent)

    def evidence(self, rule: Rule | None) -> list[str]:
        """Return lines of numbers: the time that the rule found, its calls, and the whole."""
        delays = [
            e.start - e.launch
            for e in self.trace.gpu
            if e.launch is not None and e.kind not in COPIES
        ]
        lines = self._evidence_of(rule) if rule else []
        if delays:
            lines.append(
                f"from a launch to its kernel: {_ms(max(0.0, statistics.median(delays)))} (median)"
            )
        work = sorted(((self.spent.get(kind, 0.0), kind) for kind in WORK), reverse=True)
        told = [f"{kind} {time / self.trace.length:.0%}" for time, kind in work if time]
        told.append(f"communication alone {exposed(self.trace):.0%}")
        lines.append(
            f"{self.trace.device}, busy {busy_share(self.trace):.0%} of the time: {', '.join(told)}"
        )
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
        work = busy_share(self.trace) - exposed(self.trace)
        if len(talk) > 20 and statistics.median(talk) < TINY:
            return f"join the {len(talk):,} small collectives, as DDP's buckets do"
        if work >= exposed(self.trace):
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
