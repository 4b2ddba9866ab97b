"""Wrong answers to the exercises of lesson 13: the usual slips with the number, and each remedy that it rules out."""

from answers import edit, given, instead
from course.lesson13.patients import ASKED


def slips(patient):
    """Return the wrong answers to one recorded patient: near misses of the evidence, then other remedies."""
    truth = patient.evidence
    answers = [
        given(word, {"evidence": number, "remedy": patient.right})
        for number, word in patient.slips.items()
    ]
    answers.append(given("Compute that first", {"evidence": ..., "remedy": patient.right}))
    answers.append(given("Which remedy", {"evidence": truth, "remedy": ...}))
    answers.append(given("expected one of allocator", {"evidence": truth, "remedy": "loader"}))
    for remedy, reason in patient.wrong.items():
        answers.append(given(reason, {"evidence": truth, "remedy": remedy}))
    answers.append(given("It's too large", {"evidence": 7 * truth + 1, "remedy": patient.right}))
    answers.append(given("It's too small", {"evidence": -truth, "remedy": patient.right}))
    return tuple(answers)


WRONG = {patient.name: slips(patient) for patient in ASKED} | {
    "triage": (
        edit("in µs?", "exposed(trace) * trace.length", "exposed(trace)"),
        edit("every gap count", "gaps(trace)", "gaps(trace)[:1]"),
        edit("for what the CPU did longest", '"DataLoader" in doing', "True"),
        edit("the keys loader", '"cpu": 0', '"other": 0', 'else "cpu"', 'else "other"'),
    ),
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
        edit("modules with a `layer`", "self.layer", "self.linear"),
    ),
    "overflow": (
        edit("nan first out of", "not output.isfinite().all()", "output.isinf().any()"),
        edit("your hooks are still in", "hook.remove()", "pass"),
        edit("first out of module", "bad[0]", "bad[-1]"),
        edit("finite outputs only", "if bad else None", "if bad else ''"),
    ),
    "agree": (
        instead("same samples in the same order", sampler="none"),
        instead("average 96", batch="each"),
        instead("grows with the ranks", lr="scaled"),
        instead("6 of the 24", norm="batch"),
        instead("repeats two of them", last="keep"),
    ),
}
