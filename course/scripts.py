"""Run a script of the course in a child process, alone or as several processes under torchrun.

Lessons launch scripts this way because functions defined in a notebook's cell cannot be started in new processes.
"""

import contextlib
import ctypes
import gc
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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


def script_path(name: str | os.PathLike[str]) -> Path:
    """Where the script `name` ("train.py" or "train") of the course lies: in a checkout or in the installed package.

    A path to a file of your own is returned as it is. FileNotFoundError lists the scripts there are.
    """
    if not isinstance(name, (str, os.PathLike)) or not os.fspath(name):
        raise TypeError(f"name is {name!r}; it takes the name of a script or a path")
    file = Path(name) if Path(name).suffix else Path(f"{os.fspath(name)}.py")
    folders = [_CHECKOUT, _PACKAGED] if file == Path(file.name) else []
    if folders and Path.cwd() == _OWN.parent:
        folders.insert(0, _OWN)
    for candidate in [folder / file for folder in folders] + [Path(name)]:
        if candidate.is_file():
            return candidate.resolve()
    scripts = [path for folder in (_CHECKOUT, _PACKAGED) for path in folder.glob("[!_]*.py")]
    names = ", ".join(sorted({path.name for path in scripts})) or "none"
    words = f"the course has: {names} (or give the path of a file of your own)"
    raise FileNotFoundError(f"script is {os.fspath(name)!r}; {words}")


def run(
    script: str | os.PathLike[str],
    *args: object,
    processes: int | None = None,
    timeout: float = 300,
    quiet: bool = False,
    forked: bool = True,
    cwd: str | os.PathLike[str] | None = None,
    each_line: Callable[[str], None] | None = None,
) -> Finished:
    """Run `script` with `args` in a child process with this Python and return `Finished`(returncode, text).

    Prints the command line that runs, then shows the output as it comes, unless `quiet`. With `processes` (an int, at
    least 1) torchrun starts that many, each with one thread for its operations (OMP_NUM_THREADS=1). Their lines mix,
    unless the script calls sys.stdout.reconfigure(line_buffering=True, write_through=False). On Linux, course.launch does
    what torchrun does, in half of the memory and of the time, unless `forked` is False. `cwd` is the folder in which it
    runs, where paths in `args` begin (None: this one). `each_line` is called with each line as it comes.
    A script that fails raises nothing: look at `returncode`. Under gloo a process may abort at its very end, after it
    wrote its results, so judge by the results, not by the return code alone. After `timeout` seconds everything it
    started is killed and TimeoutError tells the last lines; an interrupt (the stop button, Ctrl+C) kills it too.
    """
    if processes is not None and (type(processes) is not int or processes < 1):
        words = "it takes None or a whole number of at least 1"
        raise ValueError(f"processes is {processes!r}; {words}")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}; it takes seconds above 0")
    work = [str(script_path(script)), *map(str, args)]
    command = [*_launcher(processes, forked and sys.platform == "linux"), *work]
    print(shown(command), flush=True)
    _give_back()
    child = _start(command, processes, cwd)
    lines: list[str] = []
    reader = threading.Thread(
        target=_read, args=(child.stdout, lines, quiet, each_line), daemon=True
    )
    reader.start()
    try:
        child.wait(timeout)
        reader.join(_GRACE)  # a process left behind may hold the output open
    except subprocess.TimeoutExpired:
        last = "".join(lines[-5:]).rstrip() or "(no output)"
        words = f"the script took longer than timeout={timeout:g} seconds and was stopped"
        raise TimeoutError(f"{words}; it ended:\n{last}") from None
    finally:
        if reader.is_alive():
            _end(child)
            reader.join(_GRACE)
    return Finished(child.returncode, "".join(lines))


def _give_back():
    """Return the memory of freed tensors, which glibc keeps for later, to the system: the child may need it."""
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # other C libraries have no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


def _launcher(processes: int | None, forked: bool = False) -> list[str]:
    """The beginning of the command: this Python, and torchrun (torch.distributed.run) for several `processes`."""
    if processes is None:
        return [sys.executable]
    options = ["--standalone", f"--nproc-per-node={processes}"]
    module = "course.launch" if forked else "torch.distributed.run"
    return [sys.executable, "-m", module, *options]


def shown(command: list[str]) -> str:
    """The `command` as one types it in the notebooks' folder: torchrun or Python, and the names of the course's scripts."""
    if command[1:2] == ["-m"]:  # both launchers take what torchrun takes
        command = ["torchrun", *command[3:]]
    folders = {str(folder): "scripts" for folder in (_CHECKOUT, _OWN)}
    words = ["python" if word == sys.executable else word for word in command]
    for i, word in enumerate(words):
        folder = folders.get(os.path.dirname(word))
        words[i] = f"{folder}/{os.path.basename(word)}" if folder else word
    return "$ " + shlex.join(words)


def _start(
    command: list[str], processes: int | None, cwd: str | os.PathLike[str] | None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=_environment(processes),
        cwd=cwd,
        start_new_session=sys.platform != "win32",
    )


def _environment(processes: int | None) -> dict[str, str]:
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "Agg"}
    env["PYTHON_COLORS"] = "0"  # a notebook asks for colors; what scripts say is read
    if (_HERE.parent / "pyproject.toml").is_file():  # a checkout that may not be installed
        paths = [str(_HERE.parent), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if processes is not None:
        env["OMP_NUM_THREADS"] = "1"
        if sys.platform == "win32":  # PyTorch for Windows lacks libuv: pytorch/pytorch#139990
            env.setdefault("USE_LIBUV", "0")
    return env


def _read(
    stream: IO[str], lines: list[str], quiet: bool, each_line: Callable[[str], None] | None
) -> None:
    with stream:
        for line in stream:
            lines.append(line)
            if each_line is not None:
                each_line(line)
            if not quiet:
                print(line, end="", flush=True)


def _end(child: subprocess.Popen[str]) -> None:
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
