"""One learner's notebook, run whole for `grade`: bounded in time, in memory, in processes and in what it may say.

The run says what its checks note, line by line, so that what came before its end counts. Nobody's code is trusted.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread, Timer
from typing import IO, Any

from course.measurements.reader import schema_checker
from course.tools import ROOT, _bounds

MIME = "application/vnd.gpus-in-pytorch.outcome+json"
MOST = 8_000_000  # bytes that a run may say
GRACE = 10  # seconds between a cell's interrupt and its kernel's end
DUMPABLE = 4  # of Linux's prctl


@dataclass(frozen=True)
class Event:
    """What was noted in a cell: the outcome of the exercise `key`, or, without one, an error."""

    cell: int
    message: str
    key: str = ""
    status: str = ""
    own: bool = False

    def __post_init__(self) -> None:
        """Raise TypeError for what is no event: a run may say anything."""
        texts = (self.message, self.key, self.status)
        if type(self.cell) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("no event")


def environment(course: str | Path, home: str | Path) -> dict:
    """Return the variables of learners' code that differ from those around it."""
    names = dict.fromkeys(("HOME", "TMPDIR", "GPU_COURSE_HOME", "IPYTHONDIR"), str(home))
    return {**names, "PYTHONPATH": str(course), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def run(job: dict, container: list) -> tuple[list[Event], str]:
    """Run a job; return what it noted until its end, or until it was ended, and why that was. ValueError: nothing came.

    `job` has the "cells", and how many "seconds" and GB of "memory" they may take.
    """
    name = f"grade-{uuid.uuid4().hex[:12]}"
    line = [*container[:2], f"--name={name}", *container[2:]] if container else []
    said, ended = bytearray(), ""
    with (
        _bounds.home() as home,
        nullcontext() if container else _bounds.group() as group,
    ):
        variables = {} if container else environment(ROOT, home)
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps({**job, "group": str(group or "")}).encode())
            file.seek(0)
            process = _bounds.start(
                [*line, "python" if container else sys.executable, "-m", "course.tools._graded"],
                cwd=home,
                env={**os.environ, **variables},
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        listener = Thread(target=listen, args=(process.stdout, said), daemon=True)
        listener.start()
        try:
            if container:
                listener.join(job["seconds"])
            else:
                ended = _bounds.watch(listener, process, home, job)
        finally:
            if container:
                subprocess.run([container[0], "kill", name], capture_output=True)
            if group:
                _bounds.empty(group)
            _bounds.end_run(process)
    return understood(bytes(said[:MOST]), job["seconds"], ended)


def listen(pipe: IO[bytes], said: bytearray) -> None:
    """Add what comes from a pipe to `said`, until its end or until it is too much."""
    while len(said) < MOST and (piece := os.read(pipe.fileno(), 65536)):
        said += piece


def understood(said: bytes, seconds: float, ended: str = "") -> tuple[list[Event], str]:
    """Return the events in what a run said, and what stopped it: its last word, a text, unless it was `ended`."""
    events, stopped = [], f"no result in {seconds} s, or the whole run was ended"
    if len(said) == MOST:
        stopped = f"ended, since it said more than {MOST // 10**6} MB"
    for line in said.splitlines():
        with suppress(ValueError, TypeError, RecursionError):
            content = json.loads(line)
            if isinstance(content, str):
                stopped = content[:400]
            else:
                events.append(Event(**content))
    stopped = ended or stopped
    if not events and stopped:
        raise ValueError(stopped)
    return events, stopped


def inside() -> None:
    """In the container: run the cells of the job on the standard input, and say after each what was noted in it."""
    schema_checker()  # nbformat imports it, and would wait for its grammar
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, DeadKernelError

    say, job = private_output(), json.load(sys.stdin)
    _bounds.control(_bounds.ADOPTING, 1)
    _bounds.limit(job)
    shutil.copytree(ROOT / "notebooks/scripts", "scripts")
    sources = ["import course.tools._graded; course.tools._graded.record()", *job["cells"]]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = NotebookClient(nbformat.v4.new_notebook(cells=cells), allow_errors=True)
    client.timeout, client.interrupt_on_timeout = job["seconds"] // 4, True
    client.iopub_timeout = 30  # on a busy machine, an outcome comes late
    watch = Watch(client.timeout + GRACE)

    def executed(cell, cell_index, **_):
        watch.timer.cancel()
        for event in noted(cell, cell_index - 1):
            say(asdict(event))

    client.on_cell_execute, client.on_cell_executed = watch.begin, executed
    try:
        client.execute(cwd=os.getcwd())
        say("")
    except (CellControlSignal, DeadKernelError):
        executed(cells[watch.cell], watch.cell)
        why = f"ended its kernel, or took more than {job['memory']} GB"
        if watch.hung:
            why = f"hung: not done after {client.timeout} s, nor to be interrupted"
        say(f"cell {watch.cell} {why}")


class Watch:
    """Ends the kernel where a cell takes longer than so many seconds, which is longer than until its interrupt."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.hung, self.cell = seconds, False, 0
        self.timer = Timer(seconds, self.give_up)

    def begin(self, cell: Any, cell_index: int) -> None:
        """Watch a cell."""
        self.cell, self.timer = cell_index, Timer(self.seconds, self.give_up)
        self.timer.start()

    def give_up(self) -> None:
        """End what the cell does."""
        self.hung = True
        _bounds.end(_bounds.others())


def noted(cell: Any, number: int) -> Iterator[Event]:
    """The events in a cell's outputs."""
    for output in cell.get("outputs", ()):
        with suppress(TypeError):  # learners' code can publish anything
            if MIME in output.get("data", {}):
                yield Event(number, **output.data[MIME])
            elif output.output_type == "error":
                yield Event(number, f"{output.ename}: {output.evalue}"[:400])


def private_output() -> Callable:
    """Return a function that says something to the grader, on a pipe that learners' code does not get."""
    _bounds.control(DUMPABLE, 0)  # nor from /proc, but as root
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return lambda content: print(json.dumps(content), file=pipe, flush=True)


def record() -> None:
    """In the kernel: from now on every check also publishes its outcome, and quit() does nothing."""
    from IPython import get_ipython
    from IPython.display import publish_display_data

    from course.checks.core import Exercise  # with PyTorch, which the grader goes without

    check, first_outcome, last = Exercise.check, Exercise.outcome, {}

    def noted(exercise, answer=None):
        last[exercise.key] = first_outcome(exercise, answer)
        return last[exercise.key]

    def published(exercise, answer=None):
        check(exercise, answer)
        result = last[exercise.key]
        own = str(getattr(answer, "__module__", "")).startswith("course.lesson")
        event = {"key": exercise.key, "status": result.status, "message": result.message[:400]}
        publish_display_data({MIME: {**event, "own": own}})

    for name, function in ("outcome", noted), ("check", published):
        setattr(Exercise, name, function)
    get_ipython().user_ns.update(quit=print, exit=print)


if __name__ == "__main__":
    inside()
