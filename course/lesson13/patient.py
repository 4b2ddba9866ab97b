"""What a recorded patient is: a trace, something to find in it, and the remedy that this leaves."""

import math
import re
from dataclasses import dataclass

from course.checks import expect
from course.checks.core import Exercise, NotAttempted, NotYet
from course.lesson13.triage import REMEDIES, saved_ms
from course.measurements import traces
from helpers import plots

TOLERANCE = 0.01
START = re.compile(r"on_cpu|busy_share|launch_delay|exposed|gaps|forecast_card|\w+_us|\.kind")


@dataclass(frozen=True)
class Patient:
    """One recorded case. `source` computes the number `evidence` from `trace`.

    `slips` holds {a wrong number: a word on it}; `wrong` holds what rules out the remedies that look plausible here
    (the others save little, and the check says how much); `cure` is the praise: its first sentence is the diagnosis.
    """

    name: str
    case: str
    title: str
    evidence: float
    source: str
    slips: dict
    right: str
    wrong: dict
    cure: str

    def exercise(self):
        """Return the exercise of the lesson that asks for the evidence and the remedy."""
        start = START.search(self.source)[0].removeprefix(".")
        return Exercise(
            key=f"13.{self.name}",
            title=self.title,
            check_answer=self.check,
            hints=(
                f"Start from `{start}`.",
                f"The evidence: `{self.source}`",
                "Which remedy takes away what your evidence shows? Try one: the check says what rules it out.",
            ),
            reference={"evidence": self.evidence, "remedy": self.right},
            source=f'{self.name} = {{\n    "evidence": {self.source},\n    "remedy": "{self.right}",\n}}',
            explanation=self.cure,
            seconds=30,
        )

    def check(self, answer):
        """Judge {"evidence": number, "remedy": word}; return the praise, or raise what is missing."""
        found, remedy = both(answer)
        self._check_evidence(found)
        if remedy is ...:
            raise NotYet("the evidence is right. Which remedy does it call for?")
        known = sorted({*REMEDIES, *self.wrong, self.right})
        if remedy not in known:
            raise NotYet(f"the remedy is {remedy!r}, expected one of {', '.join(known)}.")
        if remedy != self.right:
            raise NotYet(f"the evidence is right, but {remedy!r}? {self.rules_out(remedy)}")
        return self.cure

    def rules_out(self, remedy):
        """Return why `remedy` isn't the one: this patient's own reason, or how little it can save."""
        if remedy in self.wrong:
            return self.wrong[remedy]
        trace = traces.case(self.case)
        saved = saved_ms(remedy, trace)
        whole = plots.number(trace.length / 1000)
        return f"It takes away {REMEDIES[remedy]}: {plots.number(saved)} of {whole} ms here."

    def _check_evidence(self, found):
        found = expect.number(found, "the evidence")
        if not self.close(found, self.evidence):
            raise NotYet(f"{found:.4g} isn't what was asked for. {self.slip(found)}")

    def slip(self, found):
        """Return a word on the wrong number `found`: the likely slip, or where to look."""
        for number, word in self.slips.items():
            if self.close(found, number):
                return word
        way = "large" if found > self.evidence else "small"
        return f"It's too {way}: `ex.{self.name}.hint()` says where to look."

    def close(self, found, truth):
        """Whether `found` is `truth`, up to the tolerance."""
        return math.isclose(found, truth, rel_tol=TOLERANCE)


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
