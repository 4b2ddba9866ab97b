"""Programs that run on their own, so that their errors don't break the notebook, forked from one that has torch.

`in_child` starts that one when it is first needed; it ends with the notebook. Where nothing can be forked, each program
gets a Python of its own.
"""

import functools
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = "program.py"


def in_child(code: str, **variables: str) -> str:
    """What `code` prints as a program of its own, its errors included; `variables` join its environment."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / PROGRAM
        program.write_text(code, encoding="utf-8")
        if sys.platform == "linux":
            return _forked(program, variables)
        child = subprocess.run(
            [sys.executable, str(program)], stderr=subprocess.STDOUT, **_pipes(variables)
        )
        return child.stdout


def blamed_line(output: str) -> str:
    """The line of a program's code that the traceback in its `output`, from `in_child`, names; "" where none."""
    lines = re.findall(rf'File ".*{PROGRAM}", line \d+, in .*\n +(.*)', output)
    return lines[-1] if lines else ""


def _pipes(variables):
    paths = os.pathsep.join(filter(None, sys.path))
    plain = {"PYTHONIOENCODING": "utf-8", "PYTHON_COLORS": "0"}  # tracebacks are read
    settings = {**os.environ, "PYTHONPATH": paths, **plain, **variables}
    return {
        "stdout": subprocess.PIPE,
        "encoding": "utf-8",
        "errors": "replace",
        "env": settings,
    }


def _forked(program, variables):
    parent, output = _parent(), program.with_name("output.txt")
    parent.stdin.write(json.dumps([str(program), str(output), variables]) + "\n")
    parent.stdin.flush()
    parent.stdout.readline()  # the program has ended
    return output.read_text(encoding="utf-8", errors="replace")


@functools.cache
def _parent():
    command = [sys.executable, "-c", f"import {__name__} as child; child.serve()"]
    # a session of its own: an interrupted cell doesn't end it
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **_pipes({}))


def serve() -> None:
    """Fork a program for each line of the input, and tell when it has ended."""
    import torch  # noqa: F401 - the programs share it

    for line in sys.stdin:
        program, output, variables = json.loads(line)
        child = os.fork()
        if not child:
            _run(program, output, variables)
        os.waitpid(child, 0)
        print("ended", flush=True)


def _run(program, output, variables):
    """Run `program` in this process, which ends with it."""
    os.environ.update(variables)
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    status = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
