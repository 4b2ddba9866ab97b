"""What a recorded patient is: a trace, a number to find in it, and a diagnosis among four."""

import re
from dataclasses import dataclass

from helpers.checks import expect
from helpers.checks.core import Exercise, NotAttempted, NotYet

TOLERANCE = 0.03
TRY = (
    "Try the letter that you find most plausible: if the evidence rules it out, the check says why."
)
START = re.compile(
    r"gaps|on_cpu|busy_share|launch_delay|exposed|\w+_kind|2 \*.* 3137|\w+_us|\.kind"
)


@dataclass(frozen=True)
class Patient:
    """One recorded case. `source` computes the evidence from `trace`, and `number` is what it gives.

    `slips` holds {a wrong number: a word on it}; `wrong` holds, for each letter but `right`, what rules it out; `cure`
    is the praise, whose first sentence is the diagnosis.
    """

    name: str
    case: str
    title: str
    number: float
    source: str
    slips: dict
    right: str
    wrong: dict
    cure: str

    def exercise(self):
        """Return the exercise of the lesson that asks for the number and the letter."""
        start = START.search(self.source)[0].removeprefix(".")
        return Exercise(
            key=f"13.{self.name}",
            title=self.title,
            check_answer=self.check,
            hints=(f"Start from `{start}`.", f"The evidence: `{self.source}`", TRY),
            reference={"evidence": self.number, "diagnosis": self.right},
            source=f'{self.name} = {{\n    "evidence": {self.source},\n    "diagnosis": "{self.right}",\n}}',
            explanation=self.cure,
        )

    def check(self, answer):
        """Judge {"evidence": number, "diagnosis": letter}; return the praise, or raise what is missing."""
        found, letter = both(answer)
        if not self.close(found, self.number):
            raise NotYet(f"{found:.4g} isn't what was asked for. {self.slip(found)}")
        if letter != self.right:
            raise NotYet(f"the evidence is right, but it rules out {letter}. {self.wrong[letter]}")
        return self.cure

    def slip(self, found):
        """Return a word on the wrong number `found`: the likely slip, or where to look."""
        for number, word in self.slips.items():
            if self.close(found, number):
                return word
        way = "large" if found > self.number else "small"
        return f"It's too {way}: `ex.{self.name}.hint()` says where to look."

    def close(self, found, truth):
        """Whether `found` is `truth`: a count exactly, anything else up to the tolerance."""
        slack = 0 if isinstance(self.number, int) else TOLERANCE
        return abs(found - truth) <= slack * abs(truth)


def both(answer):
    """Return (number, letter) of a learner's answer; NotAttempted where neither is filled in."""
    if not isinstance(answer, dict) or set(answer) != {"evidence", "diagnosis"}:
        raise NotYet('expected a dict with "evidence" and "diagnosis", as in the cell above.')
    number, letter = answer["evidence"], answer["diagnosis"]
    if number is ... and letter is ...:
        raise NotAttempted
    if number is ...:
        raise NotYet("a diagnosis without evidence. Compute the number first.")
    found = expect.number(number, "the evidence")
    if letter is ...:
        raise NotYet(f"evidence: {found:.4g}. Now choose a diagnosis: a, b, c or d.")
    if not isinstance(letter, str) or letter not in ("a", "b", "c", "d"):
        raise NotYet(f"the diagnosis is {letter!r}, expected one of a, b, c and d.")
    return found, letter
