"""What the clinic shows: a patient's timeline, the first patient before and after its cure, and the case notes."""

from dataclasses import replace

from helpers import plots, show, timeline
from helpers.checks import progress
from helpers.checks.core import CORRECT
from measurements import traces


def admit(case):
    """Show the timeline of `case` and return its trace."""
    trace = traces.case(case)
    about = trace.about
    title = f"{trace.device}, {about['model'].removeprefix('not recorded, ')}"
    facts = [f"batch: {about['batch']}" if "batch" in about else "", about.get("note", "")]
    caption = " · ".join(fact[0].upper() + fact[1:] for fact in facts if fact)
    timeline.show(replace(trace, memory=[]), title, detail=64, caption=caption)
    return trace


def after_the_cure():
    """Draw a step of the first patient before and after its cure."""
    from lessons.lesson13.figures import strips

    cases = {"before": "1a", "after": "1b"}
    figure = strips(cases, "With four loader workers, the long gap is gone", (7.2, 1.9), same=True)
    words = "The GPU's work in a step: 174 ms and 57% busy before, 127 ms and 80% busy after."
    plots.show(figure, words)


def case_notes(exercises):
    """Show what became of each of the `exercises`: the diagnosis of those that are solved."""
    kept = progress.load()
    rows = []
    for number, exercise in enumerate(exercises, 1):
        solved = kept.get(exercise.key, {}).get("status") == CORRECT
        note = exercise.explanation.split(". ")[0] if solved else "open"
        rows.append((number, exercise.title, note))
    head = f"{sum(note != 'open' for *_, note in rows)} of {len(rows)} patients diagnosed"
    lines = [f"| {number} | {title} | {note} |" for number, title, note in rows]
    table = "\n".join([f"**{head}**", "", "| | patient | diagnosis |", "|---|---|---|", *lines])
    plain = [f"{number:>2}  {title}: {note}" for number, title, note in rows]
    show.markdown(table, "\n".join([head, *plain]))
