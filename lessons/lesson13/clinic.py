"""What the clinic shows: a patient's timeline, where each loses its time, and the starved one before and after its cure."""

from dataclasses import replace

from helpers import plots, timeline
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
    """Draw the starved patient before and after its cure."""
    from lessons.lesson13.figures import recovery

    plots.show(*recovery())
