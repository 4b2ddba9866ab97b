"""Runs a program on practice GPUs and reports what it did there: ``python -m practice_gpus``, and `report` for notebooks."""

from __future__ import annotations

import atexit
import contextlib
import glob
import json
import linecache
import os
import runpy
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from practice_gpus.clock import steps as clock_steps
from practice_gpus.machine import HERE, is_own, line
from practice_gpus.pytorch import processes
from practice_gpus.reports import findings, hangs, screen, shards, statements
from practice_gpus.reports.failures import failed
from practice_gpus.reports.recorder import Recorder
from practice_gpus.reports.step_limit import Enough
from practice_gpus.session import practice_gpus

if TYPE_CHECKING:
    from practice_gpus.clock import Forecast
    from practice_gpus.reports.recorder import Memory

RUNNING = ".on"  # the end of the name of a file that is there while a child runs
PATIENCE = 5  # seconds for which a report waits for children
TABLES = ("copies", "waits", "refusals", "again")  # of a recorder
REAL = "These GPUs are real: the program runs on them, and there is no report. CUDA_VISIBLE_DEVICES= hides them."


class Report:
    """What a program did: ``facts`` and ``findings`` for programs, its text for people, ``status`` for a shell.

    ``names``: the program's variables at its end, or None; ``error``: what ended it, or None; ``step``: the
    `clock.Forecast` of its latest training step where a card was given, or None.
    """

    def __init__(
        self,
        title: str,
        facts: dict,
        outcome: str,
        names: dict | None = None,
        error: Any = None,
        step: Forecast | None = None,
    ) -> None:
        self.title = title
        self.facts = facts
        self.outcome = outcome
        self.names = names
        self.error = error
        self.step = step
        self.findings = findings.find(facts)

    def __repr__(self):
        return screen.show(self)

    def status(self, strict: Any = False) -> Any:
        """0: fine, 1: the program failed, 2: findings, if ``strict``, 130: interrupted."""
        code = {"done": 0, "enough": 0, "interrupted": 130}.get(self.outcome, 1)
        return 2 if strict and not code and self.findings else code

    def content(self) -> dict:
        """Everything as lists and dictionaries."""
        own = {"program": self.title, "outcome": self.outcome, "findings": self.findings}
        return own | self.facts

    def save(self, path: Any) -> None:
        """Write everything as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.content(), file, indent=1)

    def page(self, path: Any, before: Any = None) -> Any:
        """Write it as one HTML page to keep or print; ``before``: the path of an earlier report's JSON, drawn beside it."""
        from practice_gpus.reports import page

        return page.write(self, path, page.earlier(before) if before else None)


def report(
    program: str | os.PathLike,
    *arguments: str,
    n: int = 1,
    memory: int | str | None = None,
    asynchronous: bool = False,
    steps: int | None = None,
    module: bool = False,
    shapes: bool = False,
    card: str | None = None,
    real: Literal["use", "hide", "skip"] = "use",
) -> Report | None:
    """Run a script (or, with ``module``, a module) as Python would, on ``n`` practice GPUs; returns a `Report`.

    ``memory``: of each GPU; None: the card's, or 16 GiB. ``steps``: end it after so many training steps. ``shapes``: on
    shapes alone; each number that it reads is 1. ``card``: the card they stand for, and for which a step is forecast.
    None is returned where PyTorch has ``n`` real GPUs: the program runs on them, unless ``real="hide"``. Raises TypeError or ValueError for arguments that do not fit, FileNotFoundError where there is no such file.
    """
    program = os.fspath(program)
    if not module and not os.path.isfile(program):
        raise FileNotFoundError(f"there is no file {program}")
    alone: dict[str, Any] = {"values": False, "stand_in": 1.0} if shapes else {}
    memory = memory or (None if card else "16 GiB")
    gpus = practice_gpus(n, memory, card=card, asynchronous=asynchronous, real=real, **alone)
    forget_sources()
    with gpus, tempfile.TemporaryDirectory() as folder:
        if gpus.real:
            print(REAL, file=sys.stderr)
            with command_line(program, arguments, module):
                execute(program, module)
            return None
        with processes.handed_on(gpus.settings), set_variable(folder, steps):
            with (
                Recorder(gpus.machine, steps) as recorder,
                command_line(program, arguments, module),
            ):
                ending = execute(program, module)
                own_facts = facts(recorder, ending)
                if ending["outcome"] in ("done", "enough"):
                    await_children(folder)
        reserved = max(memory.reserved for memory in recorder.memory)
        step = clock_steps.forecast(recorder.pace.steps, card, reserved) if card else None
        shown = clock_steps.summary(step) if step else None
        everything = merged([own_facts, *read(folder)]) | {"step": shown}
        if ending["outcome"] in ("done", "enough"):  # who waited, did so for a while
            everything["standing"] = []
        return Report(
            program, everything, ending["outcome"], ending["names"], ending["error"], step
        )


def forget_sources() -> None:
    """A program may have changed since the report before."""
    linecache.checkcache()
    statements.tree.cache_clear()


@contextlib.contextmanager
def set_variable(folder: str, steps: Any) -> Iterator[None]:
    """Processes that start in here put their facts into ``folder``."""
    os.environ[processes.REPORT] = f"{steps or 0} {folder}"
    try:
        yield
    finally:
        os.environ.pop(processes.REPORT, None)


@contextlib.contextmanager
def command_line(program: str, arguments: tuple, module: bool) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as a program finds them."""
    before = sys.argv, list(sys.path)
    folder = os.getcwd() if module else os.path.dirname(os.path.abspath(program))
    sys.argv = [program, *map(str, arguments)]
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def execute(program: str, module: bool) -> dict:
    """Run a program as Python would. Returns {"outcome", "error", "names": its variables, "before": modules}."""
    end: dict[str, Any] = {
        "outcome": "done",
        "error": None,
        "names": None,
        "before": set(sys.modules),
    }
    try:
        if module:
            end["names"] = runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            end["names"] = runpy.run_path(program, run_name="__main__")
        join_threads()
    except Enough:
        end["outcome"] = "enough"
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        end["outcome"] = "failed" if stop.code else "done"
    except KeyboardInterrupt as error:
        end |= {"outcome": "interrupted", "error": error}
    except BaseException as error:
        end |= {"outcome": "failed", "error": error}
        print_error(error)
    return end


def join_threads() -> None:
    """Wait for a program's threads, as Python does at its end."""
    for thread in threading.enumerate():
        ours = thread.name.startswith("practice stream")
        if thread is not threading.current_thread() and not (thread.daemon or ours):
            if thread is not threading.main_thread():
                thread.join()


def print_error(error: Any) -> None:
    """The traceback of a program, without the frames of practice GPUs."""
    trace = traceback.TracebackException.from_exception(error)
    cause: traceback.TracebackException | None = trace
    while cause is not None:
        frames = [f for f in cause.stack if not f.filename.startswith((HERE, "<frozen runpy"))]
        cause.stack = traceback.StackSummary.from_list(frames)
        cause = cause.__cause__
    print("".join(trace.format()), end="", file=sys.stderr)


def facts(recorder: Recorder, ending: dict) -> dict:
    """What was collected, as plain lists and dictionaries."""
    recorder.finish()
    failure = failed(ending["error"])
    tables = {name: getattr(recorder, name) for name in TABLES}
    notes = recorder.notes
    return {
        "steps": recorder.steps,
        "ranks": 1,
        "devices": [device(memory) for memory in recorder.memory],
        **{name: [row(*each) for each in t.items()] for name, t in tables.items()},
        "habits": [[habit.value, *place, count] for (habit, *place), count in notes.items()],
        "rank": hangs.rank(),
        "samples": recorder.shards.facts(),
        "standing": None,
        "stood_in": line(recorder.read) if recorder.read and not recorder.machine.values else None,
        "leaks": [recorder.leak] if recorder.leak else [],
        "failures": [failure] if failure else [],
        "files": sorted(files(ending["before"])),
        "pace": recorder.pace.facts(max(memory.peak for memory in recorder.memory)),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def row(key: tuple, entry: list) -> list:
    """[event, file, line, count, bytes, in how many steps, [framework, its function], how many were idle, ranks]."""
    return [*key[:3], *entry[:3], list(key[3]), entry[4], entry[5] if len(entry) > 5 else 1]


def device(memory: Memory) -> dict:
    """The facts of one device."""
    allocator = memory.allocator
    return {
        "name": f"cuda:{allocator.index}",
        "capacity": allocator.capacity,
        "process": os.getpid(),
        "peak": memory.peak,
        "reserved": memory.reserved,
        "at": line(memory.highest.origin if memory.highest else None),
        "parts": memory.parts(),
        "tensors": len(memory.live),
        "bytes": allocator.used.now,
    }


def files(before: set) -> set:
    """The files of the program: the script, and the modules of its own that it imported."""
    modules = [module for name, module in list(sys.modules.items()) if name not in before]
    paths = {sys.argv[0], *(getattr(module, "__file__", None) or "" for module in modules)}
    return {os.path.abspath(path) for path in paths if path.endswith(".py") and is_own(path)}


def in_child(gpus: Any) -> None:
    """Collect in a child process, whose parent reports, and leave the facts in the parent's folder."""
    steps, folder = os.environ[processes.REPORT].split(" ", 1)
    recorder = Recorder(gpus.machine, int(steps) or None).__enter__()
    ending: dict = {"error": None, "before": set()}
    hook = sys.excepthook

    def note(kind, error, trace):
        ending["error"] = error
        hook(kind, error, trace)

    process = os.getpid()
    path = os.path.join(folder, f"{process}.json")
    with open(f"{path}{RUNNING}", "w"):
        pass

    def leave(standing=None):
        if os.getpid() == process and os.path.isdir(folder):
            found = facts(recorder, ending)
            found["standing"] = standing
            with contextlib.suppress(FileNotFoundError):  # the parent has ended meanwhile
                with open(f"{path}.part", "w", encoding="utf-8") as file:
                    json.dump(found, file)
                os.replace(f"{path}.part", path)

    def stands(where):
        if where:
            leave(where)
        else:
            with contextlib.suppress(OSError):
                os.remove(path)

    def ended():
        leave(watch.at_end())
        if os.getpid() == process:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{path}{RUNNING}")

    watch = hangs.Standing(recorder, stands).start()
    sys.excepthook = note
    atexit.register(ended)


def await_children(folder: str) -> None:
    """Let processes that a program leaves behind, such as Lightning's other ranks, come to their end."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        left = glob.glob(os.path.join(folder, f"*{RUNNING}"))
        if not any(lives(int(os.path.basename(path).partition(".")[0])) for path in left):
            break
        time.sleep(0.05)


def lives(process: int) -> bool:
    """Whether there is such a process."""
    if os.name == "nt":  # where this signal would end it
        return True
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def read(folder: str) -> Iterator[Any]:
    """The facts that child processes left."""
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with contextlib.suppress(ValueError), open(path, encoding="utf-8") as file:
            yield json.load(file)


def merged(all_facts: list) -> dict:
    """The facts of several processes as those of one; only those that did something on a GPU count as ranks."""
    active = [one for one in all_facts if any(device["peak"] for device in one["devices"])]
    first = (active or all_facts)[0]
    result = dict(first)
    result["shared"] = shards.common([one["samples"] for one in active])
    result["standing"] = standing(all_facts)
    others = [one for one in all_facts if one is not first]
    if others:
        result["ranks"] = len(active) or 1
    for other in others:
        result["steps"] = max(result["steps"], other["steps"])
        if other in active:
            result["devices"] = result["devices"] + other["devices"]
        for key in TABLES:
            result[key] = summed([*result[key], *other[key]])
        for key in ("leaks", "failures", "habits"):
            result[key] = result[key] + [entry for entry in other[key] if entry not in result[key]]
        result["files"] = sorted({*result["files"], *other["files"]})
    result.pop("samples")
    result.pop("rank")
    return result


def standing(all_facts: list) -> list:
    """[{"rank", "call", "place"}] of the ranks, where one waits for others; a rank that has ended has no call."""
    ranks = [one for one in all_facts if one["rank"] is not None]
    if not any(one["standing"] for one in ranks):
        return []
    ended = {"call": "", "place": ["", 0]}
    found = [{"rank": one["rank"]} | (one["standing"] or ended) for one in ranks]
    return sorted(found, key=lambda each: each["rank"])


def summed(rows: Any) -> Any:
    """Rows of the same place as one."""
    table: dict = {}
    for event, file, number, count, size, moments, inside, idle, ranks in rows:
        entry = table.setdefault((event, file, number, tuple(inside)), [0] * 6)
        amounts = (count, size, moments, 0, idle, ranks)
        for place, amount in enumerate(amounts):
            entry[place] += amount
    return [row(*each) for each in table.items()]
