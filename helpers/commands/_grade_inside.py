"""Inside the sandbox: run the job on the standard input, a notebook, and note what each check sees as lines of JSON.

`record` and `finish` run in the kernel, beside learners' code, which could forge what they note.
"""

import ast
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from contextlib import suppress

import nbformat
from nbclient import NotebookClient

from helpers.checks import core

EVENTS = os.environ.get("GRADE_EVENTS", "")
SEALED_EVENTS = "/events"
CHECK = re.compile(r"\b(\w+)\s*\.\s*check\s*\(")  # the exercise's name in ex.NAME.check(
NOBODY = 1_900_000_000  # a user id that belongs to nobody
KERNEL = "__import__('helpers.commands._grade_inside', fromlist=['*'])."


def note(**event):
    """Add an event to the file of events."""
    with open(EVENTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def events(path):
    """Return the events in a file, a list of dicts; whatever else stands there is left out."""
    found = []
    with open(path, "rb") as file:
        for line in file.read(2**22).splitlines():
            with suppress(ValueError, RecursionError):
                found.append(json.loads(line))
    return [event for event in found if isinstance(event, dict)]


def record():
    """In the kernel: note every outcome from now on, and the answer where it is a plain value."""
    original = core.Exercise.outcome

    def outcome(exercise, answer=None):
        result = original(exercise, answer)
        own = str(getattr(answer, "__module__", "")).startswith("exercises.")
        about = {"message": result.message[:2000], "plain": plain(answer), "own": own}
        note(key=exercise.key, status=result.status, **about)
        return result

    core.Exercise.outcome = outcome


def plain(answer):
    """Return a plain value as Python text of at most 10,000 characters, None for anything else."""
    with suppress(Exception):
        text = repr(answer) if isinstance(answer, (dict, list, tuple, str, int, float)) else ""
        ast.literal_eval(text[:10_001])
        return text if len(text) <= 10_000 else None


def finish():
    """In the kernel, at the end: note the functions of the checks, and built-in ones, that a cell replaced."""
    judging = ("exercises", "helpers.checks", "builtins")
    modules = [module for name, module in sys.modules.items() if name.startswith(judging)]
    for place in [*modules, core.Exercise]:
        for name, value in list(vars(place).items()):
            code = getattr(getattr(value, "check_answer", value), "__code__", None)
            if "ipykernel_" in getattr(code, "co_filename", ""):
                note(replaced=name)


def main():
    """Run the notebook of the job; then check plain answers again here, where no cell has run."""
    job = json.load(sys.stdin)
    confine(job)
    run_notebook(job)
    for event in events(EVENTS):
        if event.get("plain") and event["status"] == core.CORRECT:
            lesson, name = event["key"].split(".")
            exercise = getattr(importlib.import_module(f"exercises.lesson{lesson}"), name)
            if exercise.outcome(ast.literal_eval(event["plain"])).status != core.CORRECT:
                note(differs=name)
    note(end=True)


def confine(job):
    """Set limits for this process and all below it, and become an ordinary user where root is sealed in."""
    with suppress(ImportError):  # on Windows
        import resource

        os.nice(5)  # so that `grade`, which watches, has its turn
        signal.alarm(int(job["seconds"]) + 60)
        limits = {"DATA": int(job["memory"] * 1e9), "FSIZE": 2**26, "NPROC": 500, "CORE": 0}
        for name, size in limits.items():
            with suppress(ValueError, OSError):  # there is a lower limit already
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (size, size))
    if EVENTS == SEALED_EVENTS and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


class Client(NotebookClient):
    """Drives a kernel, keeps no output, notes errors."""

    number = None

    def output(self, outs, msg, display_id, cell_index):
        """Note an error of cell `number`, drop everything else."""
        if msg["msg_type"] == "error":
            text = f"{msg['content']['ename']}: {msg['content']['evalue']}"
            note(cell=self.number, error=text[:2000])

    def run(self, source, number=None):
        """Run the source of cell `number`; None is no part of the notebook."""
        self.number = number
        self.nb.cells.append(nbformat.v4.new_code_cell(source))
        cell = self.nb.cells[-1]
        self.execute_cell(cell, len(self.nb.cells) - 1, store_history=number is not None)


def run_notebook(job):
    """Run all cells but those to skip, then once more the checks that have not passed."""
    options = {"timeout": job["cell_seconds"], "allow_errors": True, "kernel_name": "python3"}
    client = Client(nbformat.v4.new_notebook(), shutdown_kernel="immediate", **options)
    folder = os.path.join(tempfile.mkdtemp(), "lesson")
    shutil.copytree(job["scripts"], os.path.join(folder, "scripts"))
    with client.setup_kernel(cwd=folder):
        client.run(KERNEL + "record()")
        for number, source in enumerate(job["cells"]):
            if number not in job["skip"]:
                note(begin=number)
                client.run(source, number)
        note(begin=None)
        for source in job["cells"]:
            for statement in missed_checks(source):
                client.run(statement)
        client.run(KERNEL + "finish()")


def missed_checks(source):
    """Yield the statements of a cell that only check an answer, and one that has not passed."""
    passed = [each["key"][3:] for each in events(EVENTS) if each.get("status") == core.CORRECT]
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # magics, or no Python
        for node in ast.parse(source).body:
            found = CHECK.findall(ast.unparse(node)) if isinstance(node, ast.Expr) else []
            if found and found[0] not in passed:
                yield ast.unparse(node)


if __name__ == "__main__":
    main()
