"""What the clinic shows: a patient's timeline, where each loses its time, and the starved one before and after its cure."""

from dataclasses import replace

from course import timeline
from course.lesson13.patients import PATIENTS, STRANGER
from course.measurements import traces
from course.show import figures
from practice_gpus.traces import verdict

RECORDED = dict(enumerate(PATIENTS, 1)) | {7: STRANGER}
GUESSED = 3, 7  # whose chart doesn't say what the CPU did most: that would give the remedy away
BLOCKS = 48  # drawn in each row of a timeline; closer ones are joined


def admit(patient):
    """Show the timeline of `patient`, a number or the path of a trace of your own, and return its trace.

    Below your own stands what costs most in it, by the rules of `practice_gpus.traces`.
    """
    if not isinstance(patient, int):
        trace = traces.load(patient)
        found = verdict(trace)
        title = f"Your own trace, on {trace.device}"
        timeline.show(trace, title, detail=BLOCKS, caption=f"{found.says} {found.change}")
        return trace
    if patient not in RECORDED:
        raise ValueError(f"patients 1 to 7 were recorded, got {patient!r}")
    trace = traces.case(RECORDED[patient].case)
    about = trace.about
    title = f"{trace.device}, {about['model'].removeprefix('not recorded, ')}"
    facts = [f"batch: {about['batch']}" if "batch" in about else "", about.get("note", "")]
    caption = " · ".join(fact[0].upper() + fact[1:] for fact in facts if fact)
    chart = replace(trace, memory=[])
    timeline.show(chart, title, "", None, BLOCKS, caption, names=patient not in GUESSED)
    return trace


def ward(triage):
    """Draw where each patient loses its time, by the learner's `triage`."""
    from course.lesson13.figures import ward

    figures.show(*ward(triage))


def recovery():
    """Draw the starved patient before and after its cure."""
    from course.lesson13.figures import recovery

    figures.show(*recovery())
