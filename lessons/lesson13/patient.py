"""What a patient of the clinic is: a recorded trace, a number to find in it, and a diagnosis among four."""

from dataclasses import dataclass

from helpers.checks import expect
from helpers.checks.core import Exercise, NotAttempted, NotYet
from measurements import traces

LETTERS = "abcd"
TOLERANCE = 0.03


@dataclass(frozen=True)
class Patient:
    """One recorded case. `evidence` computes the number from a trace; `near` has what a slip would give, and a word on it.

    `wrong` holds, for each letter but the right one, why the evidence rules it out. `praise` names the cure.
    """

    name: str
    case: str
    title: str
    number: float  # what evidence(trace) gives, to four digits
    evidence: object
    source: str
    near: tuple
    right: str
    wrong: dict
    hints: tuple
    praise: str
    exact: bool = False

    def exercise(self):
        """Return the exercise of the lesson that asks for the number and the letter."""
        return Exercise(
            key=f"13.{self.name}",
            title=self.title,
            check_answer=self.check,
            hints=self.hints,
            reference={"evidence": self.number, "diagnosis": self.right},
            source=f'{self.name} = {{\n    "evidence": {self.source},\n    "diagnosis": "{self.right}",\n}}',
            explanation=self.praise,
        )

    def check(self, answer):
        """Judge {"evidence": number, "diagnosis": letter}; return the praise, or raise what is missing."""
        found, letter = both(answer)
        self.judge_evidence(found)
        if letter != self.right:
            raise NotYet(f"the evidence is right, but it rules out {letter}. {self.wrong[letter]}")
        return self.praise

    def judge_evidence(self, found):
        """Raise `NotYet` with the likely slip where `found` is not the number that was asked for."""
        trace = traces.case(self.case)
        truth = self.evidence(trace)
        if self.close(found, truth):
            return
        for slip, word in self.near:
            if self.close(found, slip(trace)):
                raise NotYet(f"{found:.4g} isn't what was asked for. {word}")
        way = "too large" if found > truth else "too small"
        raise NotYet(f"{found:.4g} is {way}. `ex.{self.name}.hint()` says where to look.")

    def close(self, found, truth):
        """Whether `found` is `truth`, up to the tolerance."""
        return abs(found - truth) <= (0 if self.exact else TOLERANCE * abs(truth))


def both(answer):
    """Return (number, letter) of a learner's answer; NotAttempted where neither is filled in."""
    if not isinstance(answer, dict) or set(answer) != {"evidence", "diagnosis"}:
        raise NotYet('expected a dict with "evidence" and "diagnosis", as in the cell above.')
    if answer["evidence"] is ... and answer["diagnosis"] is ...:
        raise NotAttempted
    if answer["evidence"] is ...:
        raise NotYet("a diagnosis without evidence. Compute the number first.")
    found = expect.number(answer["evidence"], "the evidence")
    if answer["diagnosis"] is ...:
        raise NotYet(f"evidence: {found:.4g}. Now choose a diagnosis: a, b, c or d.")
    if not isinstance(answer["diagnosis"], str) or answer["diagnosis"] not in tuple(LETTERS):
        raise NotYet(f"the diagnosis is {answer['diagnosis']!r}, expected one of a, b, c and d.")
    return found, answer["diagnosis"]
