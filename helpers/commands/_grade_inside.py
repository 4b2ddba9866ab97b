"""Inside the sandbox: run a notebook and note what each check sees, as lines of JSON in the file of events."""

import ast
import importlib
import json
import os
import re
import shutil
import sys
from contextlib import suppress

import nbformat
from nbclient import NotebookClient

from exercises import all_keys
from helpers.checks import core
from helpers.commands._environment import ROOT

EVENTS = os.environ.get("GRADE_EVENTS", "")
CHECK = re.compile(r"\b(\w+)\.check\(")  # the exercise's name in ex.NAME.check(
JUDGES = ("exercises", "helpers.checks", "builtins")
THREADS = 128  # of all processes together; beyond that, a run is ended
KERNEL = "__import__('helpers.commands._grade_inside', fromlist=['*'])."
unchanged = {}  # in the kernel: the functions of the checks before any cell


def note(**event):
    """Add an event to the file of events."""
    with open(EVENTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def events(path):
    """Return the events in a file, a list of dicts; whatever else stands there is left out."""
    found = []
    with open(path, "rb") as file:
        for line in file.read(2**24).splitlines():
            with suppress(ValueError, RecursionError):
                found.append(json.loads(line))
    return [event for event in found if isinstance(event, dict)]


def passed():
    """Return the events of checks that said correct."""
    return [event for event in events(EVENTS) if event.get("status") == core.CORRECT]


def record():
    """In the kernel, where learners' code could forge it: note every outcome from now on, and plain answers."""
    original = core.Exercise.outcome

    def outcome(exercise, answer=None):
        result = original(exercise, answer)
        plain = type(answer) in (dict, list, tuple, str, int, float)
        value = repr(answer)[:10_000] if plain else ""
        note(key=exercise.key, status=result.status, message=result.message[:400], value=value)
        if str(getattr(answer, "__module__", "")).startswith("exercises."):
            note(review=f"the course's own answer to {exercise.name}")
        return result

    core.Exercise.outcome = outcome
    all_keys()  # imports all lessons
    unchanged.update(judges())


def judges():
    """Return {(module or class, name): code} of the functions of the checks, and of the built-in ones."""
    modules = [module for name, module in sys.modules.items() if name.startswith(JUDGES)]
    every = [(place, *pair) for place in [*modules, core.Exercise] for pair in vars(place).items()]
    found = {(place, name): getattr(value, "check_answer", value) for place, name, value in every}
    return {key: getattr(f, "__code__", f) for key, f in found.items() if callable(f)}


def again(calls):
    """In the kernel, at the end: call each check that has not passed, since its answer may stand below it.

    Then note which functions of the checks a cell has replaced.
    """
    for call, name in calls:
        if name not in [event["key"][3:] for event in passed()]:
            get_ipython().run_cell(call)  # noqa: F821 - the kernel has it
    now = judges()
    for place, name in unchanged:
        if now.get((place, name)) != unchanged[place, name]:
            note(review=f"replaced {name}")


def checks(source):
    """Return (call, exercise's name) for each statement of a cell that only checks an answer."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # magics, or no Python
        calls = [ast.unparse(n) for n in ast.parse(source).body if isinstance(n, ast.Expr)]
        return [(call, CHECK.search(call)[1]) for call in calls if CHECK.search(call)]
    return []


def main():
    """Run the notebook of the job; then check plain answers again here, where no cell has run."""
    job = events(EVENTS)[0]
    confine(job)
    run_notebook(job)
    for event in passed():
        lesson, name = event["key"].split(".")
        with suppress(ValueError, SyntaxError):  # no plain value
            answer = ast.literal_eval(event["value"])
            exercise = getattr(importlib.import_module(f"exercises.lesson{lesson}"), name)
            if exercise.outcome(answer).status != core.CORRECT:
                note(review=f"{name} differs when checked again")
    note(end=True)


def confine(job):
    """Set limits for this process and all below it, and become an ordinary user where root is sealed in."""
    threads = THREADS + 50 if job["sealed"] else -1  # outside, all that the user runs would count
    limits = {"DATA": job["memory"] * 10**9, "FSIZE": 2**26, "CORE": 0, "NPROC": threads}
    with suppress(ImportError):  # on Windows
        import resource

        os.nice(5)  # so that `grade`, which watches, has its turn
        for name, size in limits.items():
            with suppress(ValueError, OSError):  # there is a lower limit already
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (size, size))
    if job["sealed"] and os.geteuid() == 0:
        nobody = 1_900_000_000 + os.stat(EVENTS).st_ino % 10**8  # another one for each run
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)


def run_notebook(job):
    """Run all cells, each with its time, then once more the checks that have not passed."""
    shutil.copytree(ROOT / "notebooks/scripts", "scripts")
    calls = [pair for source in job["cells"] for pair in checks(source)]
    sources = [KERNEL + "record()", *job["cells"], f"{KERNEL}again({calls})"]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    client = NotebookClient(notebook, timeout=int(job["seconds"] / 2), kernel_name="python3")
    client.allow_errors = True
    client.on_cell_start = lambda cell, cell_index: note(begin=cell_index)
    client.on_cell_error = lambda cell, cell_index, execute_reply: note(
        cell=cell_index, error="{ename}: {evalue}".format(**execute_reply["content"])[:400]
    )
    client.execute()
