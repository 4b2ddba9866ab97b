"""The CPU's side of a Chrome trace: which spans tell something, and which Python line each belongs to.

Events are dicts with name, cat, ts, dur, args and thread, as `chrome` makes them.
"""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from practice_gpus.traces.trace import Span

Thread = tuple[str, str]  # process and thread
SHORTEST = 100  # µs that a span takes beside the spans inside it
OPERATORS = {"cpu_op", "operator"}
_VENDORS = ("cuda", "hip", "xpu", "musa", "privateuse1")
CALLS = {f"{each}_{part}" for each in _VENDORS for part in ("runtime", "driver")}
CALLS |= {"runtime", "driver"}
KEPT = OPERATORS | CALLS | {"python_function", "user_annotation"}
LAUNCHES = re.compile(r"Launch|Memcpy|Memset|MemoryCopy|MemoryFill|USM(?:Memcpy|Fill)")
_KERNEL = re.compile(r"Launch\w*Kernel|KernelLaunch|GraphLaunch")  # each leaves a kernel
_FRAME = re.compile(r"^(.*\.py)\((\d+)\): (.*)$")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LIBRARY = re.compile(r"^.*(?:site-packages|dist-packages|lib/python\d[\d.]*)/")


@functools.lru_cache(1 << 16)
def python_line(frame: str) -> str:
    """Return `frame`, such as "/usr/…/site-packages/torch/nn/x.py(3): f", as "torch/nn/x.py(3): f"; "" for no line.

    Outside of libraries only the file's own name stays: folders tell who somebody is.
    """
    found = _FRAME.match(frame)
    if not found:
        return ""
    path, number, function = found.groups()
    path = re.sub(r"^[A-Za-z]:", "", path.replace("\\", "/"))  # Windows
    inside, libraries = _LIBRARY.subn("", path)
    if not (libraries or path.startswith("torch/")):
        inside = "/".join(path.split("/")[-1 if path.startswith("/") else -2 :])
    return f"{inside}({number}): {function}"


def nearest(frames: Iterable[str]) -> str:
    """Return the innermost of `frames` (innermost first) outside of PyTorch, or the innermost one."""
    first = ""
    for line in filter(None, map(python_line, frames)):
        if not line.startswith("torch/"):
            return line
        first = first or line
    return first


def launches(spans: Sequence[dict]) -> dict[str, tuple[float, str, str, str]]:
    """Return {correlation: (ts, operator, shapes, Python line)} of the calls in `spans` that ask for GPU work."""
    found = {}
    for events in _by_thread(spans, OPERATORS | CALLS | {"python_function"}).values():
        around = _around(events)
        for place, event in enumerate(events):
            correlation = event["args"].get("correlation")
            if correlation is not None and event["cat"] in CALLS:
                found[str(correlation)] = (event["ts"], *_operator(events, around, place))
    return found


def recorded(spans: Sequence[dict], gpu: Sequence[dict]) -> tuple[int, int]:
    """Return how many launches `spans` hold, and of how many no kernel was recorded in `gpu`."""
    kept = {str(event["args"].get("correlation")) for event in gpu}
    calls = [e for e in spans if e["cat"] in CALLS and _KERNEL.search(e["name"])]
    asked = [str(e["args"]["correlation"]) for e in calls if "correlation" in e["args"]]
    return len(asked), sum(correlation not in kept for correlation in asked)


def _operator(events, around, place):
    """Return (name, shapes, Python line) of the innermost operator around the event at `place`."""
    for outer in _above(around, place):
        operator = events[outer]
        if operator["cat"] in OPERATORS:
            return operator["name"], _shapes(operator["args"]), _line(events, around, outer)
    return "", "", nearest(events[outer]["name"] for outer in _above(around, place))


def launch_threads(spans: Sequence[dict]) -> dict[Thread, str]:
    """Return {thread: name} of the threads that ask for GPU work or run operators: Python, autograd, thread 3 …"""
    count = Counter(e["thread"] for e in spans if e["cat"] in KEPT and _asks(e))
    steps = Counter(e["thread"] for e in spans if _runs_python(e))
    backward = Counter(e["thread"] for e in spans if "Backward" in e["name"])
    order = sorted(count, key=lambda thread: (-steps[thread], -count[thread]))
    names: dict[Thread, str] = {}
    for place, thread in enumerate(order):
        name = f"thread {place + 1}" if place else "Python"
        if place and backward[thread] and "autograd" not in names.values():
            name = "autograd"
        names[thread] = name
    return names


def _runs_python(event):
    return event["name"].startswith("ProfilerStep") or event["cat"] == "python_function"


def cpu_spans(
    spans: Sequence[dict], begin: float, end: float, rank: int, threads: dict[Thread, str]
) -> list[Span]:
    """Return `Span`s between `begin` and `end` that take 100 µs or more beside the spans inside them."""
    kept = []
    for thread, events in _by_thread(spans, KEPT).items():
        if thread not in threads:
            continue
        around = _around(events)
        own = _own_time(events, around)
        for place, event in enumerate(events):
            start, length = event["ts"], event["dur"]
            outside = start + length <= begin or start >= end
            step = event["cat"] == "user_annotation" and length >= SHORTEST
            if outside or not (step or own[place] >= SHORTEST):
                continue
            name = python_line(event["name"]) or _ADDRESS.sub("", event["name"])
            line = "" if name != event["name"] else _line(events, around, place)
            kept.append(Span(name[:90], start - begin, length, rank, threads[thread], line[:90]))
    return sorted(kept, key=lambda span: (span.start, -span.length))


def _own_time(events, around):
    """Return the µs of each of `events` outside of the inner ones that are kept themselves."""
    own = [event["dur"] for event in events]
    for place in reversed(range(len(events))):
        if around[place] >= 0:
            length = events[place]["dur"]
            own[around[place]] -= length if own[place] >= SHORTEST else length - own[place]
    return own


def _around(events):
    """Return for each of `events`, in the order of start, the place of the one directly around it, -1 without one."""
    ends = [event["ts"] + event["dur"] for event in events]
    found: list[int] = []
    inner = -1
    for place, event in enumerate(events):
        while inner >= 0 and ends[inner] <= event["ts"]:
            inner = found[inner]
        found.append(inner)
        inner = place
    return found


def _above(around: list[int], place: int) -> Iterator[int]:
    """Yield the places of the events around the one at `place`, innermost first."""
    while (place := around[place]) >= 0:
        yield place


def _line(events, around, place):
    stack = events[place]["args"].get("Call stack")
    if isinstance(stack, str):
        return nearest(stack.split(";"))
    return nearest(events[outer]["name"] for outer in _above(around, place))


def _shapes(arguments):
    shapes = arguments.get("Input Dims", arguments.get("Input dims"))
    shapes = [shape for shape in shapes if shape] if isinstance(shapes, list) else []
    return str(shapes) if shapes else ""


def _by_thread(spans, categories):
    """Return {thread: its events of `categories`, in the order of start, outer ones first}."""
    threads = defaultdict(list)
    for event in spans:
        if event["cat"] in categories:
            threads[event["thread"]].append(event)
    for events in threads.values():
        events.sort(key=lambda e: (e["ts"], -e["dur"]))
    return threads


def _asks(event):
    return event["cat"] in OPERATORS or LAUNCHES.search(event["name"])
