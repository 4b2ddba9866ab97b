"""Inside the sandbox: run a notebook whole on a fresh kernel, and note what each check sees as lines of JSON.

`python -m helpers.commands._grade_inside` takes a job on its standard input. `record` and `finish` run in the kernel,
beside learners' code, which could forge what they note: `grade` serves an honest class.
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
from pathlib import Path

from helpers.checks import core

EVENTS = os.environ.get("GRADE_EVENTS", "")
CHECK = re.compile(r"\b(\w+)\s*\.\s*check\s*\(")  # the exercise's name in ex.NAME.check(
SEALED_EVENTS = "/events"  # the path in a sandbox
NOBODY = 1_900_000_000  # a user id that belongs to nobody
KERNEL = "__import__('helpers.commands._grade_inside', fromlist=['*'])."
PLAIN = (bool, dict, float, int, list, set, str, tuple)


def note(**event):
    """Add an event to the file of events."""
    with open(EVENTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def events(path):
    """Return the events in a file, a list of dicts; whatever else stands there is left out."""
    found = []
    with open(path, "rb") as file:
        lines = file.read(2**22).splitlines()
    for line in lines:
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
        text = repr(answer) if type(answer) in PLAIN else ""
        ast.literal_eval(text[:10_001])
        return text if len(text) <= 10_000 else None


def finish():
    """In the kernel, at the end: note the functions of the checks, and built-in ones, that a cell replaced."""
    modules = [name for name in sys.modules if name.startswith(("exercises", "helpers.checks"))]
    places = [sys.modules[name] for name in [*modules, "builtins"]]
    for place in [*places, core.Exercise]:
        for name, value in list(vars(place).items()):
            code = getattr(getattr(value, "check_answer", value), "__code__", None)
            if "ipykernel_" in getattr(code, "co_filename", ""):
                note(replaced=name)


def main():
    """Run the notebook of the job; then check plain answers again here, where no cell has run."""
    job = json.load(sys.stdin)
    confine(job)
    run_notebook(job)
    exercises = importlib.import_module(f"exercises.lesson{job['lesson']}")
    for event in events(EVENTS):
        if event.get("plain") and event["status"] == core.CORRECT:
            exercise = getattr(exercises, event["key"][3:])
            status = exercise.outcome(ast.literal_eval(event["plain"])).status
            note(differs=exercise.name if status != core.CORRECT else "")
    note(end=True)


def confine(job):
    """Set limits for this process and all below it, and become an ordinary user where root is sealed in."""
    with suppress(ImportError):  # on Windows
        import resource

        signal.alarm(int(job["seconds"]) + 60)
        limits = {"DATA": int(job["memory"] * 1e9), "FSIZE": 2**26, "NPROC": 1500, "CORE": 0}
        for name, size in limits.items():
            with suppress(ValueError, OSError):  # there is a lower limit already
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (size, size))
    if os.geteuid() == 0 and EVENTS == SEALED_EVENTS:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def run_notebook(job):
    """Run all cells but those to skip, then once more the checks that have not passed."""
    folder = Path(tempfile.mkdtemp(), "lesson")
    shutil.copytree(job["scripts"], folder / "scripts")
    client = new_client(job["cell_seconds"])
    with client.setup_kernel(cwd=str(folder)):
        execute(client, KERNEL + "record()")
        for number, source in enumerate(job["cells"]):
            if number not in job["skip"]:
                note(begin=number)
                execute(client, source, number)
        note(begin=None)
        for source in job["cells"]:
            for statement in missed_checks(source):
                execute(client, statement)
        execute(client, KERNEL + "finish()")


def new_client(seconds):
    """Return a client for a fresh kernel that keeps no output and notes errors."""
    import nbformat
    from nbclient import NotebookClient

    class Client(NotebookClient):
        def output(self, outs, msg, display_id, cell_index):
            if msg["msg_type"] == "error":
                text = f"{msg['content']['ename']}: {msg['content']['evalue']}"
                note(cell=self.number, error=text[:2000])

    client = Client(nbformat.v4.new_notebook(), timeout=seconds, kernel_name="python3")
    client.allow_errors = True
    client.shutdown_kernel = "immediate"
    client.extra_arguments = ["--log-level=ERROR"]
    return client


def execute(client, source, number=None):
    """Run the source of cell `number`; without a number it is no part of the notebook."""
    import nbformat

    client.number = number
    client.nb.cells.append(nbformat.v4.new_code_cell(source))
    index = len(client.nb.cells) - 1
    try:
        client.execute_cell(client.nb.cells[index], index, store_history=number is not None)
    except TimeoutError:
        note(late=True)
        raise


def missed_checks(source):
    """Yield the statements of a cell that only check an answer, and one that has not passed."""
    passed = [each["key"][3:] for each in events(EVENTS) if each.get("status") == core.CORRECT]
    with suppress(SyntaxError, ValueError):  # magics, or no Python
        for node in ast.parse(source).body:
            found = CHECK.findall(ast.unparse(node)) if isinstance(node, ast.Expr) else []
            if found and found[0] not in passed:
                yield ast.unparse(node)


if __name__ == "__main__":
    main()
