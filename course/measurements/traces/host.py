"""The CPU's side of a Chrome trace: which spans tell something, and which Python line each belongs to."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from course.measurements.traces import Span

Thread = tuple[str, str]  # process and thread
SHORTEST = 100  # µs that a span takes beside the spans inside it
OPERATORS = {"cpu_op", "operator"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime"}
KEPT = OPERATORS | CALLS | {"python_function", "user_annotation"}
LAUNCHES = re.compile(r"Launch|Memcpy|Memset")
_FRAME = re.compile(r"^(.*\.py)\((\d+)\): (.*)$")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LIBRARY = re.compile(r"^.*(?:site-packages|dist-packages|lib/python\d[\d.]*)/")


def python_line(frame: str) -> str:
    """Return `frame`, such as "/usr/…/site-packages/torch/nn/x.py(3): f", as "torch/nn/x.py(3): f"; "" for no line.

    Outside of libraries only the file's own name stays: folders tell who somebody is.
    """
    found = _FRAME.match(frame)
    if not found:
        return ""
    path, number, function = found.groups()
    inside, libraries = _LIBRARY.subn("", path)
    if not (libraries or path.startswith("torch/")):
        inside = "/".join(path.split("/")[-1 if path.startswith("/") else -2 :])
    return f"{inside}({number}): {function}"


def nearest(frames: Iterable[str]) -> str:
    """Return the innermost of `frames` (innermost first) outside of PyTorch, or the innermost one."""
    lines = [line for line in map(python_line, frames) if line]
    own = [line for line in lines if not line.startswith("torch/")]
    return (own or lines or [""])[0]


def launches(spans: Sequence[dict]) -> dict[int, tuple[float, str, str, str]]:
    """Return {correlation: (ts, operator, shapes, Python line)} of the calls in `spans` that ask for GPU work."""
    found = {}
    for events in _by_thread(spans, OPERATORS | CALLS | {"python_function"}).values():
        for event, above in _nested(events):
            correlation = event.get("args", {}).get("correlation")
            if correlation is not None and category_of(event) in CALLS:
                found[correlation] = (float(event["ts"]), *_operator(above))
    return found


def _operator(above):
    """Return (name, shapes, Python line) of the innermost operator of `above`, which holds events, outermost first."""
    place = len(above) - 1
    while place >= 0 and category_of(above[place]) not in OPERATORS:
        place -= 1
    if place < 0:
        return "", "", nearest([event["name"] for event in reversed(above)])
    operator = above[place]
    return operator["name"], _shapes(operator.get("args", {})), _line(operator, above[:place])


def launch_threads(spans: Sequence[dict]) -> dict[Thread, str]:
    """Return {thread: name} of the threads that ask for GPU work or run operators: Python, autograd, thread 3 …"""
    count = Counter(_thread(e) for e in spans if category_of(e) in KEPT and _asks(e))
    steps = Counter(_thread(e) for e in spans if _runs_python(e))
    backward = Counter(_thread(e) for e in spans if "Backward" in e["name"])
    order = sorted(count, key=lambda thread: (-steps[thread], -count[thread]))
    names: dict[Thread, str] = {}
    for place, thread in enumerate(order):
        name = f"thread {place + 1}" if place else "Python"
        if place and backward[thread] and "autograd" not in names.values():
            name = "autograd"
        names[thread] = name
    return names


def _runs_python(event):
    return event["name"].startswith("ProfilerStep") or category_of(event) == "python_function"


def cpu_spans(
    spans: Sequence[dict], begin: float, end: float, rank: int, threads: dict[Thread, str]
) -> list[Span]:
    """Return `Span`s between `begin` and `end` that take 100 µs or more beside the spans inside them."""
    kept = []
    for thread, events in _by_thread(spans, KEPT).items():
        if thread not in threads:
            continue
        own = _own_time(events)
        for event, above in _nested(events):
            start, length = float(event["ts"]), float(event["dur"])
            outside = start + length <= begin or start >= end
            step = category_of(event) == "user_annotation" and length >= SHORTEST
            if outside or not (step or own[id(event)] >= SHORTEST):
                continue
            name = python_line(event["name"]) or _ADDRESS.sub("", event["name"])
            line = "" if name != event["name"] else _line(event, above)
            kept.append(Span(name[:90], start - begin, length, rank, threads[thread], line[:90]))
    return sorted(kept, key=lambda span: (span.start, -span.length))


def _own_time(events):
    """Return {id of event: µs outside of the inner events that are kept themselves}."""
    own = {id(event): float(event["dur"]) for event in events}
    order = [(event, above[-1] if above else None) for event, above in _nested(events)]
    for event, parent in reversed(order):
        if parent is not None:
            kept = own[id(event)] >= SHORTEST
            own[id(parent)] -= float(event["dur"]) * kept or float(event["dur"]) - own[id(event)]
    return own


def _nested(events):
    """Yield (event, list of the events around it, outermost first, valid until the next) in the order of start."""
    around = []
    for event in sorted(events, key=lambda e: (float(e["ts"]), -float(e["dur"]))):
        start = float(event["ts"])
        while around and float(around[-1]["ts"]) + float(around[-1]["dur"]) <= start:
            around.pop()
        yield event, around
        around.append(event)


def _line(event, above):
    stack = event.get("args", {}).get("Call stack")
    frames = stack.split(";") if stack else [e["name"] for e in reversed(above)]
    return nearest(frames)


def _shapes(arguments):
    shapes = arguments.get("Input Dims", arguments.get("Input dims", []))
    shapes = [shape for shape in shapes if shape]
    return str(shapes) if shapes else ""


def _by_thread(spans, categories):
    threads = defaultdict(list)
    for event in spans:
        if category_of(event) in categories:
            threads[_thread(event)].append(event)
    return threads


def _thread(event):
    return str(event.get("pid")), str(event.get("tid"))


def _asks(event):
    return category_of(event) in OPERATORS or LAUNCHES.search(event["name"])


def category_of(event: dict) -> str:
    """The category of an event, in small letters; profilers differ in their capitals."""
    return str(event.get("cat", "")).lower()
