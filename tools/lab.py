"""Make the environment if need be and open JupyterLab at the first notebook. Only standard library."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from helpers import threads
from tools import _copies, _environment

HELP = "make the environment (first time) and open the course in JupyterLab"
START = "00_start_here.ipynb"


def add_arguments(parser):
    """Add the options of `lab`."""
    _environment.add_arguments(parser)
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening a browser"
    )
    parser.add_argument("--prepare", action="store_true", help="make the environment and stop")
    parser.add_argument(
        "--fresh",
        metavar="LESSON",
        help="first bring a new copy of a lesson (03) into my_notebooks; yours stays beside it",
    )
    parser.add_argument("--port", type=int, default=8888, help="first port to try (default 8888)")


def run(args):
    """Open JupyterLab and wait until it ends; return its exit status."""
    if not 1 <= args.port <= 65535:
        print(f"--port takes a number from 1 to 65535, got {args.port}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends pip, too
    try:
        python = _environment.chosen(args)
        folder = copies(args.fresh)
    except (_environment.SetupError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if args.prepare:
        return 0
    print("Starting JupyterLab. Stop it with Ctrl-C here.", flush=True)
    return become(command(python, args, folder), environment())


def copies(name=None):
    """Make the learner's copies, with a fresh one of lesson `name`; return the folder to open, the originals' at worst.

    Copies that are there are opened, also where no other can be made.
    """
    try:
        lines = _copies.prepare(name)
    except OSError as error:
        if (_copies.FOLDER / START).is_file() and not _copies.FOLDER.is_symlink():
            print(f"Your copies stay as they are, and no other could be made: {error}.")
            return _copies.FOLDER
        print(f"No copies of your own: {error}. The lessons open as they are.")
        return _copies.ORIGINALS
    for line in lines:
        print(line, flush=True)
    return _copies.FOLDER


def command(python, args, folder):
    """Return the command line of JupyterLab: localhost only, token on, no news, no look for updates, few words.

    Kernels that can encrypt what they say do so; the others warn of that in the terminal, at each start.
    """
    line = [
        str(python),
        "-m",
        "jupyterlab",
        "--ServerApp.root_dir=.",
        f"--LabApp.default_url=/lab/tree/{folder.name}/{START}",
        "--ServerApp.ip=localhost",
        f"--ServerApp.port={args.port}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--Application.log_level=ERROR",
        "--KernelManager.transport_encryption=auto",
    ]
    if args.no_browser:
        line.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        line.append("--allow-root")
    return line


def environment():
    """Return the variables for JupyterLab and its kernels: their own environment, this course, threads that leave room.

    labconfig/ keeps JupyterLab from asking about news, and has it wrap code that is wider than the page.
    """
    config = [str(Path(__file__).parent), os.environ.get("JUPYTER_CONFIG_PATH")]
    modules = [str(_environment.ROOT), os.environ.get("PYTHONPATH")]
    return {
        **os.environ,
        **threads.variables(),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, config)),
        "PYTHONPATH": os.pathsep.join(filter(None, modules)),
    }


def become(line, variables):
    """Run `line` in the course's folder in the place of this process, so that what ends this one ends it."""
    os.chdir(_environment.ROOT)
    if os.name != "nt":
        os.execve(line[0], line, variables)
    process = subprocess.Popen(line, env=variables)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # Ctrl-C is JupyterLab's
