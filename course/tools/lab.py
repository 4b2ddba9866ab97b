"""Make the environment if need be and open JupyterLab where the learner was. Only standard library."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from course import files, threads
from course.pages import NOTEBOOKS
from course.tools import ROOT, _arguments, _copies, _install, _venv

HELP = "open the course in JupyterLab; the first time, install it"
START = NOTEBOOKS[0].file
LOOK = Path(__file__).parent / "labconfig" / "custom.css"
WHERE = "from course.tools.progress import going_on; print(*going_on(), sep='\\n')"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lab`."""
    environment_arguments(parser)
    add = parser.add_argument
    add("--no-browser", action="store_true", help="print the address instead of opening a browser")
    add("--prepare", action="store_true", help="make the environment and stop")
    fresh = "open a new copy of a lesson (03); yours gets another name (03_…_mine) and stays"
    add("--fresh", metavar="LESSON", help=fresh)
    add("--port", type=_arguments.port, default=8888, help="first port to try (default 8888)")


def environment_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `lab` and `test` share."""
    which = parser.add_mutually_exclusive_group()
    cpu = "PyTorch's CPU build; without a GPU that is what you get anyway"
    other = "another build of PyTorch, such as cu126 or rocm6.4; default: the plain package index's"
    here = "use the Python that runs this command; install nothing"
    which.add_argument("--cpu", dest="wheels", action="store_const", const="cpu", help=cpu)
    which.add_argument("--wheels", type=_arguments.build, metavar="NAME", help=other)
    which.add_argument("--here", action="store_true", help=here)
    newest = f"the newest versions instead of those in {_install.VERSIONS}"
    parser.add_argument("--latest", action="store_true", help=newest)


def chosen(args: argparse.Namespace, extras: Sequence[str] = ()) -> Path:
    """Return the Python that `args` ask for, ready to use, with the `extras` of pyproject.toml."""
    if args.here:
        return Path(sys.executable)
    return _install.ensure(args.wheels, extras, args.latest)


def run(args: argparse.Namespace) -> int:
    """Open JupyterLab and wait until it ends; return its exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what installs, too
    try:
        lesson = _copies.file_of(args.fresh) if args.fresh is not None else ""
        python = chosen(args)
        folder = copies(args.fresh)
    except (_install.SetupError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if args.prepare:
        return 0
    path = f"{folder.name}/{lesson or where(python, args.here)}"
    print("Starting JupyterLab. Stop it with Ctrl-C here.", flush=True)
    return become(command(python, args, path), environment(args.here))


def copies(name: str | None = None) -> Path:
    """Make the learner's copies, with a fresh one of lesson `name`; return the folder to open, the originals' at worst.

    Copies that are there are opened, also where no other can be made.
    """
    try:
        for line in _copies.prepare(name):
            print(line, flush=True)
    except OSError as error:
        there = (_copies.FOLDER / START).is_file() and not _copies.FOLDER.is_symlink()
        opened = "Your copies stay" if there else "The lessons open"
        print(f"{opened} as they are, and no others could be made: {error}.")
        return _copies.FOLDER if there else _copies.ORIGINALS
    return _copies.FOLDER


def where(python: Path, here: bool = False) -> str:
    """Say what is solved and where to go on; return the file of that lesson."""
    line = [str(python), "-c", WHERE]
    child = subprocess.run(line, cwd=ROOT, env=environment(here), capture_output=True, text=True)
    if child.returncode != 0:  # a damaged installation: JupyterLab says more about it
        return START
    sentence, number = child.stdout.split("\n")[:2]
    print(sentence, flush=True)
    return next(lesson.file for lesson in NOTEBOOKS if lesson.number == number)


def command(python: Path, args: argparse.Namespace, path: str) -> list:
    """Return the command line of JupyterLab, open at `path`: localhost only, token on, no news, few words.

    Kernels that can encrypt what they say do so; the others warn of that in the terminal, at each start.
    """
    line = [
        *(str(python), "-m", "jupyterlab"),
        "--ServerApp.root_dir=.",
        f"--LabApp.default_url=/lab/tree/{path}",
        "--ServerApp.ip=localhost",
        f"--ServerApp.port={args.port}",
        "--LabApp.custom_css=True",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--Application.log_level=ERROR",
        "--KernelManager.transport_encryption=auto",
    ]
    line += ["--no-browser"] * args.no_browser
    return line + ["--allow-root"] * (getattr(os, "geteuid", lambda: 1)() == 0)


def environment(here: bool = False) -> dict:
    """Return the variables for JupyterLab and its kernels: their own environment, this course, threads that leave room.

    The course's environment leaves out what leads astray; another one, `here`, may need its PYTHONPATH.

    course/tools/labconfig has JupyterLab wrap wide code, save every 15 s and ask nothing, and its kernels
    say how to go on where a name is missing; it changes no other JupyterLab.
    """
    config = [str(LOOK.parents[1]), os.environ.get("JUPYTER_CONFIG_PATH")]
    own = {n: value for n, value in os.environ.items() if n != "PYTHONSAFEPATH"}
    inherited = own if here else _venv.variables()
    kernels = [str(LOOK.parent), os.environ.get("JUPYTER_PATH")]
    modules = [str(ROOT), inherited.get("PYTHONPATH")]
    return {
        **inherited,
        **threads.variables(),
        **look(),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PATH": os.pathsep.join(filter(None, kernels)),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, config)),
        "PYTHONPATH": os.pathsep.join(filter(None, modules)),
    }


def look() -> dict:
    """Put the course's stylesheet into a folder of settings of this lab alone; return the variable that names it."""
    folder = _copies.FOLDER / ".jupyter"
    if _copies.FOLDER.is_symlink() or not _copies.FOLDER.is_dir():
        return {}
    try:
        (folder / "custom").mkdir(parents=True, exist_ok=True)
        files.write(folder / "custom" / LOOK.name, LOOK.read_bytes())
    except OSError:
        return {}  # a folder that cannot be written: JupyterLab looks as always
    return {"JUPYTER_CONFIG_DIR": str(folder)}


def become(line: list, variables: dict) -> int:
    """Run `line` in the course's folder in the place of this process, so that what ends this one ends it."""
    os.chdir(ROOT)
    if os.name != "nt":
        os.execve(line[0], line, variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is JupyterLab's
    return subprocess.call(line, env=variables)
