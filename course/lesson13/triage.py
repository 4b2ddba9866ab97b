"""Where the time of a step is lost, and how much of it each remedy takes away at best."""

from course.checks import expect, words
from course.checks.core import NotYet, call
from course.measurements import traces
from practice_gpus.traces import COPIES, alone, exposed, gaps, merged, on_cpu, total

REMEDIES = {
    "workers": "the GPU's waits for the loader",
    "pin": "the time in which the GPU does nothing but copy",
    "launches": "gaps between kernels",
    "allocator": "the CPU's time in cudaMalloc and cudaFree",
    "overlap": "exposed communication",
    "fuse": "elementwise kernels",
}


def longest_call(trace, begin, end):
    """Return the name of the CPU's longest call between two times in µs, "" where it makes none."""
    return next(iter(on_cpu(trace, begin, end)), "")


def triage(trace):
    lost = {"loader": 0, "cpu": 0}
    for start, length in gaps(trace):
        doing = longest_call(trace, start, start + length)
        lost["loader" if "DataLoader" in doing else "cpu"] += length
    return lost | {"communication": exposed(trace) * trace.length}


def communication_and_work(trace):
    """Return the ms in which the GPU communicates, and those in which it does other work; they may overlap."""
    talk = [event for event in trace.gpu if event.kind == "communication"]
    work = [event for event in trace.gpu if event.kind != "communication"]
    ms = [round(total(merged(events, trace.length)) / 1000, 1) for events in (talk, work)]
    return dict(zip(("communication", "other work"), ms, strict=True))


def saved_ms(remedy, trace):
    """Return the ms that `remedy`, one of REMEDIES, takes away from the window at best."""
    if remedy in ("workers", "launches", "overlap"):
        where = {"workers": "loader", "launches": "cpu", "overlap": "communication"}[remedy]
        return triage(trace)[where] / 1000
    if remedy == "fuse":
        return sum(e.length for e in trace.gpu if e.kind == "elementwise") / 1000
    if remedy == "pin":
        return alone(trace, COPIES) / 1000
    return sum(span.length for span in trace.cpu if "Free" in span.name) / 1000


def _check(answer):
    for case in ("1a", "5a", "9"):
        trace = traces.case(case)
        found, right = call(answer, trace), triage(trace)
        if not isinstance(found, dict) or set(found) != set(right):
            raise NotYet(f"expected a dict with the keys {', '.join(right)}, got {found!r}.")
        for key, truth in right.items():
            told = expect.number(found[key], key)
            if abs(told - truth) > 0.01 * trace.length:
                why = exercise.word(found, key=key, told=told, truth=truth)
                what = f"on a {trace.device}, {key} is {told / 1000:,.3g} ms"
                raise NotYet(f"{what}, expected {truth / 1000:,.3g}. {why}")
    return exercise.explanation


exercise = words.exercise("13.triage", _check, triage, seconds=30, tool="triage")
