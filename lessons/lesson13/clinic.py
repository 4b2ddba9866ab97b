"""What the clinic shows: a patient's timeline, and the scorecard."""

from helpers import show, timeline
from helpers.checks import progress
from lessons.lesson13.patients import PATIENTS
from measurements import traces

DETAIL = 110
RUNNING = {
    "hang": "three processes that hang",
    "recompiles": "a model that compiles again and again",
    "overflow": "a loss of NaN",
    "agree": "DDP that isn't one GPU",
}


def admit(case):
    """Show the timeline of `case` and return its trace."""
    trace = traces.case(case)
    about = trace.about
    parts = [
        trace.device if trace.device != "not recorded" else "",
        about.get("model", "").removeprefix("not recorded, "),
    ]
    title = ", ".join(part for part in parts if part)
    facts = [f"Batch: {about['batch']}" if "batch" in about else "", about.get("note", "")]
    caption = " · ".join(fact[0].upper() + fact[1:] for fact in facts if fact)
    timeline.show(trace, title, detail=DETAIL, caption=caption)
    return trace


def scorecard():
    """Show how far you are with each of the sixteen patients."""
    kept = progress.load()
    titles = {patient.name: patient.title for patient in PATIENTS} | RUNNING
    rows = [
        (title, kept.get(f"13.{name}", {}).get("status", "open")) for name, title in titles.items()
    ]
    solved = sum(status == "correct" for _, status in rows)
    head = f"{solved} of {len(rows)} patients diagnosed"
    lines = [f"| {title} | {status} |" for title, status in rows]
    table = "\n".join([f"**{head}**", "", "| patient | diagnosis |", "|---|---|", *lines])
    show.markdown(table, "\n".join([head, *(f"{status:>10}  {title}" for title, status in rows)]))
