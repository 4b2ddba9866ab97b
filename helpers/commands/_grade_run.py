"""Inside the sandbox: `python -m helpers.commands._grade_run` runs the notebook of the job on its standard input."""

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

from helpers.commands import _grade_record
from helpers.commands._grade_record import EVENTS, events, note

CHECK = re.compile(r"\b(\w+)\s*\.\s*check\s*\(")  # the exercise's name in ex.NAME.check(
RECORDER = f"__import__({_grade_record.__name__!r}, fromlist=['*'])"


def main():
    """Run the notebook, judge its plain answers again in this process, and note the end."""
    job = json.load(sys.stdin)
    confine(job)
    run_notebook(job)
    judge_again(job["lesson"], events(EVENTS))
    note(end=True)


def confine(job):
    """Set limits for this process and all below it, and become the user whose number the job names."""
    with suppress(ImportError):  # on Windows
        import resource

        signal.alarm(int(job["seconds"]) + 60)
        limits = {"DATA": int(job["memory"] * 1e9), "FSIZE": 2**28, "NPROC": 1500, "CORE": 0}
        for name, size in limits.items():
            with suppress(ValueError, OSError):  # there is a lower limit already
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (size, size))
    if job["user"]:
        os.setgroups([])
        os.setresgid(*[job["user"]] * 3)
        os.setresuid(*[job["user"]] * 3)


def run_notebook(job):
    """Run all cells but those to skip, then once more the checks that have not passed."""
    folder = os.path.join(tempfile.mkdtemp(), "lesson")
    shutil.copytree(job["scripts"], os.path.join(folder, "scripts"))
    client = new_client(job["cell_seconds"])
    with client.setup_kernel(cwd=folder):
        execute(client, f"{RECORDER}.start()")
        for number, source in enumerate(job["cells"]):
            if number not in job["skip"]:
                note(begin=number)
                execute(client, source, number)
        note(begin=None)
        for source in job["cells"]:
            for statement in missed_checks(source):
                execute(client, statement)
        execute(client, f"{RECORDER}.finish({job['lesson']!r})")


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
        note(stopped=f"still running after {client.timeout:.0f} seconds")
        raise


def missed_checks(source):
    """Yield the statements of a cell that do nothing but check an answer which has not passed."""
    with suppress(SyntaxError, ValueError):  # magics, or no Python
        for node in ast.parse(source).body:
            text = ast.unparse(node) if isinstance(node, ast.Expr) else ""
            named = CHECK.search(text)
            if named and named[1] not in passed():
                yield text


def passed():
    """Return the names of the exercises that have passed."""
    seen = events(EVENTS)
    return {str(e["key"])[3:] for e in seen if e.get("status") == "correct" and "key" in e}


def judge_again(lesson, seen):
    """In this process, where no learner's code has run, note what has other outcomes or looks otherwise than there."""
    known = importlib.import_module(f"exercises.lesson{lesson}")
    here = _grade_record.judges(lesson)
    for event in seen:
        if isinstance(event.get("judges"), dict):
            note(replaced=[name for name in here if event["judges"].get(name) != here[name]])
        exercise = getattr(known, str(event.get("key"))[3:], None)
        if exercise and event.get("answer") and event.get("status") == "correct":
            status = exercise.outcome(ast.literal_eval(event["answer"])).status
            if status != "correct":
                note(key=exercise.key, again=status)


if __name__ == "__main__":
    main()
