"""An environment that may have been stopped at any moment: what of it is whole, and what is installed anew. Only standard library."""

import contextlib
import csv
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

# Ctrl-C at a terminal reaches the program that waits, and not what it runs.
APART: dict = {"start_new_session": True}
if os.name == "nt":
    APART = {"creationflags": vars(subprocess)["CREATE_NEW_PROCESS_GROUP"]}

# They would have pip and Python look, or install, elsewhere than in the course's environment.
ASTRAY = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE"),
    *(
        "PIP_USER",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_PYTHON",
        "PIP_NO_DEPS",
        "PIP_DRY_RUN",
    ),
)


def variables() -> dict[str, str]:
    """Return the variables for a program of the course's environment: without those that lead it astray."""
    return {name: value for name, value in os.environ.items() if name not in ASTRAY}


def left_out() -> list[str]:
    """Return the names of variables that are set here and lead astray."""
    return [name for name in ASTRAY if os.environ.get(name)]


def run(step: str, command: Sequence, folder: Path, lock: Sequence[int] = ()) -> int:
    """Run a program of the installation, its words on the screen; return its exit status. It ends with this one.

    The first Ctrl-C of a person at a terminal asks, the second one stops it.
    """
    words, null = [str(word) for word in command], subprocess.DEVNULL
    process = subprocess.Popen(
        words, cwd=folder, env=variables(), stdin=null, pass_fds=lock, **APART
    )
    asked = not sys.stdin.isatty()
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                if asked:
                    raise
                asked = True
                again = "Ctrl-C once more stops it; the same command goes on from there."
                print(f"\nStill at work: {step.strip(',')}. {again}", flush=True)
    finally:
        stop(process)


def stop(process: subprocess.Popen) -> None:
    """End a program, and what it started."""
    if process.poll() is not None:
        return
    ways = [process.terminate, process.kill]
    if os.name != "nt":
        ways = [partial(os.killpg, process.pid, n) for n in (signal.SIGTERM, signal.SIGKILL)]
    for way in ways:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            way()
            process.wait(10)
            return


def python_of(venv: Path) -> Path:
    """Return the path of the Python inside the environment at `venv`."""
    return Path(venv) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def version(venv: Path) -> str:
    """Return the version of Python in `venv`, "3.12"; "" where it does not start, or has no pip."""
    probe = "import pip._internal.cli.main, sysconfig; print(sysconfig.get_python_version())"
    line = [str(python_of(venv)), "-I", "-c", probe]
    try:
        done = subprocess.run(line, env=variables(), capture_output=True, text=True)
    except OSError:  # it is a link to a Python that has gone
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def packages(venv: Path) -> Iterator[Path]:
    """The folder in which each package of `venv` says what belongs to it, such as torch-2.15.0.dist-info."""
    for pattern in ("lib/python*/site-packages", "Lib/site-packages"):
        for site in Path(venv).glob(pattern):
            yield from site.glob("*.dist-info")


def has(venv: Path, name: str) -> bool:
    """Tell whether a package is installed in `venv`."""
    return any(info.name.startswith(f"{name}-") for info in packages(venv))


def whole(info: Path) -> bool:
    """Tell whether a package's files are those of its RECORD, by their sizes; what is compiled may be missing."""
    try:
        with open(info / "RECORD", newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if len(row) > 2 and row[2]]
        sizes = [os.path.getsize(info.parent / row[0]) == int(row[2]) for row in rows]
    except (OSError, ValueError):
        return False
    return all(sizes) and bool(rows) and not info.name.startswith("~")


def mend(venv: Path) -> list[str]:
    """Forget each package of `venv` that is not whole, so that it is installed again; return their names.

    An installer that was stopped among the files of a package takes it for installed.
    """
    torn = [info for info in packages(venv) if not whole(info)]
    for info in torn:
        shutil.rmtree(info)
    return sorted({info.name.partition("-")[0] for info in torn})


def is_ours(venv: Path, stamp: str) -> bool:
    """Tell whether the course made `venv`: it has the file `stamp`, or nothing yet."""
    if venv.is_symlink() or not venv.is_dir():
        return False
    return (venv / stamp).exists() or all(stamp in path.name for path in venv.iterdir())


def discard(venv: Path) -> None:
    """Remove an environment; where that is stopped, the rest has a name of its own, for `remove_rest`."""
    remove_rest(venv)
    venv.rename(_rest(venv))
    remove_rest(venv)


def remove_rest(venv: Path) -> None:
    """Remove what a stopped `discard` left."""
    shutil.rmtree(_rest(venv), ignore_errors=True)


def _rest(venv):
    return venv.with_name(f"{venv.name}.discarded")
