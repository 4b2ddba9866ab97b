"""Make the environment if need be and run the tests of one lane in it. Only standard library."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from course import threads
from course.tools import ROOT, _install, lab
from helpers.host import cpu_cores

HELP = "run the tests: notebooks compared strictly, helpers, exercises, practice GPUs, style"
LANES = {
    "all": "also the slow tests: wide sweeps, solutions in lessons, hostile grading, Colab",
    "browser": "only the tests that drive JupyterLab in a browser",
}
ONE_AT_A_TIME = ("browser",)  # these run several kernels at once themselves


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `test`."""
    lab.environment_arguments(parser)
    for name, text in LANES.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="what a GPU changes, on this machine's GPU, strictly against what was stored "
        "without one; then a recording. Installs nothing",
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


def pytest_line(args: argparse.Namespace, python: str | Path) -> list:
    """Return the command line that runs the lanes asked for, with a worker for each core."""
    lanes = [name for name in LANES if getattr(args, name)]
    line = [str(python), "-m", "pytest", *(f"--{name}" for name in lanes)]
    # plugins that no test here needs, but for the notebooks', which start nbval themselves: their imports take seconds
    line += [f"-pno:{name}" for name in ("nbval", "hypothesispytest", "anyio")]
    if not set(lanes) & set(ONE_AT_A_TIME):
        workers = max(1, int(min(cpu_cores(), threads.quota() or cpu_cores())))
        line += ["--numprocesses", str(workers), "--dist", "worksteal"]
    return [*line, *args.pytest]


def gpu_lane(python: str, out: Path, arguments: list) -> int:
    """Run what a GPU changes, practice GPUs beside it with the GPUs hidden, and record; return 0 where all passed.

    Practice GPUs step aside where there is a GPU, so the first step compares it with what was stored without one.
    """
    if os.path.lexists(out) or not out.parent.is_dir():
        print(f"--out {out} takes a new file in a folder that exists.", file=sys.stderr)
        return 2
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    lane = [python, "-m", "pytest", "--gpu"]
    steps: tuple = (
        ([*lane, *arguments], {}),
        ([*lane, "practice_gpus/tests"], hidden),
        ([python, "-m", "course", "record", "--out", str(out)], {}),
    )
    return int(
        any([subprocess.call(line, cwd=ROOT, env=os.environ | more) for line, more in steps])
    )


def run(args: argparse.Namespace) -> int:
    """Run pytest in the course's folder, its output shown, and return its exit status."""
    if args.gpu:
        ready = _install.stamp() and not args.here
        python = _install.python_of(_install.VENV) if ready else sys.executable
        return gpu_lane(str(python), Path(args.out).absolute(), args.pytest)
    try:
        python = lab.chosen(args, extras=["test", *["browser"] * args.browser])
    except _install.SetupError as error:
        print(error, file=sys.stderr)
        return 1
    line = pytest_line(args, python)
    print("$ " + " ".join(line), flush=True)
    variables = {"JUPYTER_PREFER_ENV_PATH": "1", threads.THREADS: "1", **os.environ}
    variables |= threads.variables(variables)
    return subprocess.call(line, cwd=ROOT, env=variables)
