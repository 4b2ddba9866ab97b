"""Wrong answers to the exercises of lesson 13: the usual slips with the number, and each diagnosis that it rules out."""

from answers import edit, given
from lessons.lesson13.patients import PATIENTS
from lessons.lesson13.processes import CURE
from measurements import traces


def slips(patient):
    """Return the wrong answers to one recorded patient: near misses of the number, then the other diagnoses."""
    trace = traces.case(patient.case)
    truth = patient.evidence(trace)
    answers = [
        given(word, {"evidence": slip(trace), "diagnosis": patient.right})
        for slip, word in patient.near
    ]
    answers.append(given("is too large", {"evidence": 7 * truth + 1, "diagnosis": patient.right}))
    answers.append(given("Compute the number", {"evidence": ..., "diagnosis": patient.right}))
    answers.append(given("choose a diagnosis", {"evidence": truth, "diagnosis": ...}))
    answers.append(given("expected one of a", {"evidence": truth, "diagnosis": "loader"}))
    for letter, reason in patient.wrong.items():
        answers.append(given(reason, {"evidence": truth, "diagnosis": letter}))
    return tuple(answers)


def but(name, value):
    """Return the cure of the DDP patient with one setting as it was."""
    return {**CURE, name: value}


WRONG = {patient.name: slips(patient) for patient in PATIENTS} | {
    "hang": (
        given("waits in an all-reduce", {"rank": 0, "line": 24}),
        given("that's the call the others wait in", {"rank": 2, "line": 24}),
        given("doesn't decide that", {"rank": 2, "line": 33}),
    ),
    "recompiles": (
        edit(
            "self.calls == 0",
            'self.register_buffer("calls", torch.zeros(()))',
            "self.calls = 0",
        ),
        edit("gives another result", "self.calls += 1", "pass"),
        edit("no parameter 'layer.", "self.layer", "self.linear"),
    ),
    "overflow": (
        edit("nan first out of", "not output.isfinite().all()", "output.isinf().any()"),
        edit("your hooks are still in", "hook.remove()", "pass"),
        edit("first out of module", "bad[0]", "bad[-1]"),
        edit("finite outputs only", "if bad else None", "if bad else ''"),
    ),
    "agree": (
        given("same samples in the same order", but("sampler", "none")),
        given("average 96", but("batch", "each")),
        given("grows with the ranks", but("lr", "scaled")),
        given("6 of the 24", but("norm", "batch")),
        given("padded or uneven", but("last", "keep")),
    ),
}
