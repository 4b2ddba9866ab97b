"""Make the environment if need be and open JupyterLab at the first notebook. Only standard library."""

import os
import subprocess
import sys
from pathlib import Path

from helpers.commands import _environment

HELP = "make the environment (first time) and open the course in JupyterLab"
START = "notebooks/00_start_here.ipynb"


def add_arguments(parser):
    """Add the options of `lab`."""
    _environment.add_arguments(parser)
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening a browser"
    )
    parser.add_argument("--prepare", action="store_true", help="make the environment and stop")
    parser.add_argument("--port", type=int, default=8888, help="first port to try (default 8888)")


def command(python, args):
    """Return the command line of JupyterLab: localhost only, token on, no news, no look for updates."""
    line = [
        str(python),
        "-m",
        "jupyterlab",
        "--ServerApp.root_dir=.",
        f"--LabApp.default_url=/lab/tree/{START}",
        "--ServerApp.ip=localhost",
        f"--ServerApp.port={args.port}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    line += ["--no-browser"] if args.no_browser else []
    return line + (["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else [])


def run(args):
    """Open JupyterLab and wait until it ends; return its exit status."""
    if not 1 <= args.port <= 65535:
        print(f"--port takes a number from 1 to 65535, got {args.port}", file=sys.stderr)
        return 2
    try:
        python = _environment.chosen(args)
    except _environment.SetupError as error:
        print(error, file=sys.stderr)
        return 1
    if args.prepare:
        return 0
    print("Starting JupyterLab. Stop it with Ctrl-C here.", flush=True)
    return wait(
        subprocess.Popen(command(python, args), cwd=str(_environment.ROOT), env=environment())
    )


def environment():
    """Return the variables for JupyterLab: kernels from its own environment, no question about news (labconfig/)."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    return dict(os.environ, JUPYTER_PREFER_ENV_PATH="1", JUPYTER_CONFIG_PATH=os.pathsep.join(paths))


def wait(process):
    """Wait for `process`, leaving Ctrl-C to it, and return its exit status."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue
