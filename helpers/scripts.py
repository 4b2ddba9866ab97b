"""Run a script of the course in a child process, alone or as several processes under torchrun.

Lessons launch scripts this way because functions defined in a notebook's cell cannot be started in new processes.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from helpers import threads

_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parent / "notebooks" / "scripts"
_OWN = _HERE.parent / "my_notebooks" / "scripts"  # a learner's copies, for notebooks beside them
_PACKAGED = _HERE / "lesson_scripts"
_GRACE = 5.0  # seconds that processes get to end by themselves before they are killed


@dataclass(frozen=True)
class Finished:
    """How a script ended: its exit status (0: well) and its output, standard output and errors together."""

    returncode: int
    text: str


def script_path(name):
    """Where the script `name` ("train.py" or "train") of the course lies: in a checkout or in the installed package.

    A path to a file of your own is returned as it is. FileNotFoundError lists the scripts there are.
    """
    if not isinstance(name, (str, os.PathLike)) or not os.fspath(name):
        raise TypeError(f"name is {name!r}; it takes the name of a script or a path")
    file = Path(name) if Path(name).suffix else Path(f"{name}.py")
    folders = (_CHECKOUT, _PACKAGED) if file == Path(file.name) else ()
    if folders and Path.cwd() == _OWN.parent:
        folders = (_OWN, *folders)
    for candidate in [folder / file for folder in folders] + [Path(name)]:
        if candidate.is_file():
            return candidate.resolve()
    scripts = [path for folder in (_CHECKOUT, _PACKAGED) for path in folder.glob("[!_]*.py")]
    names = sorted({path.name for path in scripts})
    raise FileNotFoundError(
        f"script is {os.fspath(name)!r}; the course has: {', '.join(names) or 'none'} "
        "(or give the path of a file of your own)"
    )


def run(script, *args, processes=None, timeout=300, quiet=False):
    """Run `script` with `args` in a child process with this Python and return `Finished`(returncode, text).

    First prints the equivalent command line, then shows the output as it comes, unless `quiet`. With `processes` (an
    int, at least 1) torchrun starts that many, each with one thread for its operations (OMP_NUM_THREADS=1). Their lines
    mix, unless the script calls sys.stdout.reconfigure(line_buffering=True, write_through=False).
    A script that fails raises nothing: look at `returncode`. Under gloo a process may abort at its very end, after it
    wrote its results, so judge by the results, not by the return code alone. After `timeout` seconds everything it
    started is killed and TimeoutError tells the last lines; an interrupt (the stop button, Ctrl+C) kills it too.
    """
    if processes is not None and (type(processes) is not int or processes < 1):
        raise ValueError(
            f"processes is {processes!r}; it takes None or a whole number of at least 1"
        )
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}; it takes seconds above 0")
    path = script_path(script)
    print(command_line(path, *args, processes=processes), flush=True)
    child = _start(path, args, processes)
    lines = []
    reader = threading.Thread(target=_read, args=(child.stdout, lines, quiet), daemon=True)
    reader.start()
    try:
        child.wait(timeout)
        reader.join(_GRACE)  # a process left behind may hold the output open
    except subprocess.TimeoutExpired:
        last = "".join(lines[-5:]).rstrip() or "(no output)"
        raise TimeoutError(
            f"the script took longer than timeout={timeout:g} seconds and was stopped; it ended:\n{last}"
        ) from None
    finally:
        if reader.is_alive():
            _end(child)
            reader.join(_GRACE)
    return Finished(child.returncode, "".join(lines))


def _start(path, args, processes):
    """The child process, alone or as torchrun's parent of several."""
    torchrun = [] if processes is None else ["-m", "helpers.torchrun", *_several(processes)]
    return subprocess.Popen(
        [sys.executable, *torchrun, str(path), *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=_environment(processes),
        start_new_session=sys.platform != "win32",
    )


def _several(processes):
    return ["--standalone", f"--nproc-per-node={processes}"]


def command_line(path, *args, processes=None):
    """The line that one would type in the folder of the notebooks to do the same, for example
    "$ torchrun --standalone --nproc-per-node=2 scripts/ddp.py --epochs 1"."""
    path = Path(path)
    script = f"scripts/{path.name}" if path.parent in (_CHECKOUT, _OWN) else path.as_posix()
    program = ["python"] if processes is None else ["torchrun", *_several(processes)]
    return "$ " + shlex.join([*program, script, *map(str, args)])


def _environment(processes):
    env = {**os.environ, **threads.variables()}
    env.update(PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8", MPLBACKEND="Agg")
    if (_HERE.parent / "pyproject.toml").is_file():  # a checkout that may not be installed
        paths = [str(_HERE.parent), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if processes is not None:
        env["OMP_NUM_THREADS"] = "1"
        if sys.platform == "win32":  # PyTorch for Windows lacks libuv: pytorch/pytorch#139990
            env.setdefault("USE_LIBUV", "0")
    return env


def _read(stream, lines, quiet):
    with stream:
        for line in stream:
            lines.append(line)
            if not quiet:
                print(line, end="", flush=True)


def _end(child):
    """End the child and all that it started; torchrun puts its workers into sessions of their own."""
    import psutil

    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(child.pid).children(recursive=True)
    child.terminate()  # torchrun ends its workers itself, when asked
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    _, stubborn = psutil.wait_procs(family, timeout=_GRACE)
    for process in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()
