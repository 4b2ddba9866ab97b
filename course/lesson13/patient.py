"""What a recorded patient is: a trace, something to find in it, and the remedy that this leaves."""

import math
import re
from dataclasses import dataclass

from course.checks import expect
from course.checks.core import Exercise, NotAttempted, NotYet
from course.checks.slips import Slip
from course.lesson13.triage import REMEDIES, saved_ms
from course.measurements import traces
from helpers import plots

TOLERANCE = 0.01
START = re.compile(r"on_cpu|busy_share|launch_delay|exposed|gaps|forecast_card|\w+_us|\.kind")


@dataclass(frozen=True)
class Patient:
    """One recorded case. `source` computes the number `evidence` from `trace`.

    `near` holds {a wrong number: a word on it}; `wrong` holds what rules out the remedies that look plausible here
    (the others save little, and the check says how much); `cure` is the praise: its first sentence is the diagnosis.
    """

    name: str
    case: str
    title: str
    evidence: float
    source: str
    near: dict
    right: str
    wrong: dict
    cure: str

    def exercise(self):
        """Return the exercise of the lesson that asks for the evidence and the remedy."""

        def check(answer):
            return self.judge(answer, made.word)

        start = START.search(self.source)[0].removeprefix(".")
        made = Exercise(
            key=f"13.{self.name}",
            title=self.title,
            check_answer=check,
            hints=(
                f"Start from `{start}`.",
                f"The evidence: `{self.source}`",
                "Which remedy takes away what your evidence shows? Try one: the check says what rules it out.",
            ),
            reference={"evidence": self.evidence, "remedy": self.right},
            source=f'{self.name} = {{\n    "evidence": {self.source},\n    "remedy": "{self.right}",\n}}',
            explanation=self.cure,
            seconds=30,
            slips=tuple(self.slips()),
        )
        return made

    def slips(self):
        """The known mistakes: the numbers and the remedies that have words of their own, then those the check names."""
        for number, word in self.near.items():
            yield Slip(word, [_given(evidence=number)], f"close(found, {number})")
        for remedy, word in self.wrong.items():
            yield Slip(word, [_given(remedy=remedy)], f"found == {remedy!r}")
        yield Slip("Compute that first", [_given(evidence=...)], own=True)
        yield Slip("Which remedy", [_given(remedy=...)], own=True)
        yield Slip("expected one of allocator", [_given(remedy="loader")], own=True)
        yield Slip("It's too large", [_given(evidence=7 * self.evidence + 1)], own=True)
        yield Slip("It's too small", [_given(evidence=-self.evidence)], own=True)

    def judge(self, answer, word):
        """Judge {"evidence": number, "remedy": word}; return the praise, or raise what is missing."""
        found, remedy = both(answer)
        self._check_evidence(found, word)
        if remedy is ...:
            raise NotYet("the evidence is right. Which remedy does it call for?")
        known = sorted({*REMEDIES, *self.wrong, self.right})
        if remedy not in known:
            raise NotYet(f"the remedy is {remedy!r}, expected one of {', '.join(known)}.")
        if remedy != self.right:
            raise NotYet(
                f"the evidence is right, but {remedy!r}? {word(remedy, close=self.close) or self.saves(remedy)}"
            )
        return self.cure

    def saves(self, remedy):
        """Return how little `remedy` can save."""
        trace = traces.case(self.case)
        saved = saved_ms(remedy, trace)
        whole = plots.number(trace.length / 1000)
        return f"It takes away {REMEDIES[remedy]}: {plots.number(saved)} of {whole} ms here."

    def _check_evidence(self, found, word):
        found = expect.number(found, "the evidence")
        if not self.close(found, self.evidence):
            way = "large" if found > self.evidence else "small"
            look = f"It's too {way}: `ex.{self.name}.hint()` says where to look."
            why = word(found, close=self.close) or look
            raise NotYet(f"{found:.4g} isn't what was asked for. {why}")

    def close(self, found, truth):
        """Whether `found` is `truth`, up to the tolerance."""
        return isinstance(found, float) and math.isclose(found, truth, rel_tol=TOLERANCE)


def _given(**changed):
    """The Python of an answer that differs from the right one in what is `changed`."""
    return f"right | {changed!r}"


def both(answer):
    """Return (evidence, remedy) of a learner's answer; NotAttempted where neither is filled in."""
    if not isinstance(answer, dict) or set(answer) != {"evidence", "remedy"}:
        raise NotYet('expected a dict with "evidence" and "remedy", as in the cell above.')
    found, remedy = answer["evidence"], answer["remedy"]
    if found is ... and remedy is ...:
        raise NotAttempted
    if found is ...:
        raise NotYet("a remedy without evidence. Compute that first.")
    return found, remedy
