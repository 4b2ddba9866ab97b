"""Make the environment if need be and run every test in it. Only standard library."""

import os
import subprocess
import sys

from helpers.commands import _environment

HELP = "run every test: units, notebooks compared strictly, style, browser"


def add_arguments(parser):
    """Add the options of `test`."""
    _environment.add_arguments(parser)
    parser.add_argument("pytest", nargs="*", metavar="-- ARGUMENTS", help="passed on to pytest, after --")


def run(args):
    """Run pytest in the course's folder, its output shown, and return its exit status."""
    try:
        python = _environment.chosen(args)
    except _environment.SetupError as error:
        print(error, file=sys.stderr)
        return 1
    line = [str(python), "-m", "pytest", *args.pytest]
    print("$ " + " ".join(line), flush=True)
    return subprocess.call(line, cwd=str(_environment.ROOT), env=dict(os.environ, JUPYTER_PREFER_ENV_PATH="1"))
