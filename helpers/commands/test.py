"""Make the environment if need be and run every test in it. Only standard library."""

import os
import subprocess
import sys

from helpers.commands import _environment, _gpu

HELP = "run every test: units, notebooks compared strictly, style, browser"


def add_arguments(parser):
    """Add the options of `test`."""
    _environment.add_arguments(parser)
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="everything on this machine's GPU, strictly against what "
        "was stored without one, then a recording; installs nothing",
    )
    parser.add_argument(
        "--torture", action="store_true", help="only what tries to break the course, all of it"
    )
    parser.add_argument(
        "--out",
        default="gpu-recording.json",
        metavar="FILE.json",
        help="with --gpu: the new file for the recording (default: %(default)s)",
    )
    parser.add_argument(
        "pytest", nargs="*", metavar="-- ARGUMENTS", help="passed on to pytest, after --"
    )


def run(args):
    """Run pytest in the course's folder, its output shown, and return its exit status."""
    if args.gpu:
        ready = _environment.stamp() and not args.here
        python = _environment.python_of(_environment.VENV) if ready else sys.executable
        return _gpu.run(str(python), args.out, args.pytest)
    try:
        python = _environment.chosen(args, extras=["test"])
    except _environment.SetupError as error:
        print(error, file=sys.stderr)
        return 1
    line = [
        str(python),
        "-m",
        "pytest",
        *["--torture", "tests/torture"] * args.torture,
        *args.pytest,
    ]
    print("$ " + " ".join(line), flush=True)
    return subprocess.call(
        line, cwd=str(_environment.ROOT), env=dict(os.environ, JUPYTER_PREFER_ENV_PATH="1")
    )
