"""What the clinic shows: a patient's timeline, the first patient before and after its cure, and the case notes."""

from dataclasses import replace

from helpers import plots, show, timeline
from helpers.checks import progress
from helpers.checks.core import CORRECT
from lessons.lesson13.patients import PATIENTS
from measurements import traces


def admit(number):
    """Show the timeline of patient `number` and return its trace."""
    if number not in range(1, len(PATIENTS) + 1):
        raise ValueError(f"patients 1 to {len(PATIENTS)} were recorded, got {number!r}")
    patient = PATIENTS[number - 1]
    trace = traces.case(patient.case)
    about = trace.about
    title = f"{trace.device}, {about['model'].removeprefix('not recorded, ')}"
    facts = [f"batch: {about['batch']}" if "batch" in about else "", about.get("note", "")]
    caption = " · ".join(fact[0].upper() + fact[1:] for fact in facts if fact)
    timeline.show(replace(trace, memory=[]), title, "", None, 48, caption)
    return trace


def ward(triage):
    """Draw where each patient loses its time, by the learner's `triage`."""
    from lessons.lesson13.figures import ward

    plots.show(*ward(triage))


def recovery():
    """Draw patient 1 before and after its cure."""
    from lessons.lesson13.figures import recovery

    plots.show(*recovery())


def case_notes(cases):
    """Show what became of `cases`, {patient's number: exercise}: the diagnosis of those that are solved."""
    kept = progress.load()
    rows = []
    for number, exercise in cases.items():
        solved = kept.get(exercise.key, {}).get("status") == CORRECT
        note = exercise.explanation.split(". ")[0] if solved else "open"
        rows.append((number, exercise.title, note))
    solved = sum(note != "open" for *_, note in rows)
    head = f"You've diagnosed {solved} of your {len(rows)} patients"
    lines = [f"| {number} | {title} | {note} |" for number, title, note in rows]
    table = "\n".join([f"**{head}**", "", "| | patient | diagnosis |", "|---|---|---|", *lines])
    plain = [f"{number:>2}  {title}: {note}" for number, title, note in rows]
    show.markdown(table, "\n".join([head, *plain]))
