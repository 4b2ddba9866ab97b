"""The GPU lane of `test --gpu`: everything on the GPUs of this machine, then a recording. Only standard library."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools import ROOT

# What these steps import; they open no JupyterLab and read no pages.
NEEDED = (
    "torch pytest nbval nbclient ipykernel ipywidgets matplotlib numpy platformdirs psutil tqdm"
).split()


def missing(python: str) -> list[str]:
    """Return the packages that the lane needs and the Python at path `python` lacks."""
    code = "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n) is None])"
    line = [python, "-c", code, *NEEDED]
    return subprocess.run(line, text=True, capture_output=True, check=True).stdout.split()


def sees_gpu(python: str) -> bool:
    """Tell whether PyTorch in a new process can use a CUDA device; asked there, so that none is started here."""
    code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.call([python, "-c", code], stderr=subprocess.DEVNULL) == 0


def steps(out: str, pytest_arguments: Sequence[str] = ()) -> list[tuple]:
    """Return (what it shows, arguments for Python, variables of the environment) of each step, in order.

    Practice GPUs step aside where there is a GPU, so the first step runs the fidelity script, the memory steps, each
    exercise's answers and each notebook on the GPU, against the lines and outputs stored without one. With the GPUs
    hidden, the second step runs the same scripts on practice GPUs, beside the same PyTorch.
    """
    test = ["-m", "pytest", "--color=yes", "--gpu"]
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return [
        ("what a GPU changes, on the GPU", [*test, *pytest_arguments], {}),
        ("practice GPUs beside it", [*test, "practice_gpus/tests"], hidden),
        ("recording", ["-m", "tools", "record", "--out", out], {}),
    ]


def run(python: str, out: str | Path, pytest_arguments: Sequence[str] = ()) -> int:
    """Run each step, also after one that fails, and print what came out; return 0 when all of them passed."""
    lacking = missing(python)
    if lacking:
        print(
            f"--gpu: {python} lacks {', '.join(lacking)}. What is there may stay as it is; install these beside it: "
            f"{python} -m pip install {' '.join(lacking)}",
            file=sys.stderr,
        )
        return 1
    if os.path.exists(out) or not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        print(f"--gpu: --out {out} takes a new file in a folder that exists.", file=sys.stderr)
        if os.path.isfile(out):
            advice = f"To go on with a recording: python3 -m tools record --out {out}"
            print(advice, file=sys.stderr)
        return 2
    if not sees_gpu(python):
        message = "--gpu: PyTorch sees no GPU here. python3 -m tools doctor says why."
        print(message, file=sys.stderr)
        return 2
    return run_steps(python, steps(os.path.abspath(out), pytest_arguments))


def run_steps(python: str, all_steps: list[tuple]) -> int:
    """Run each step and print a table of how they ended; return 1 when one failed, else 0."""
    rows = []
    failed = False
    for name, arguments, variables in all_steps:
        print(f"\n== {name}\n$ {' '.join([python, *arguments])}", flush=True)
        start = time.monotonic()
        environment = {**os.environ, **variables}
        status = subprocess.call([python, *arguments], cwd=str(ROOT), env=environment)
        failed = failed or status != 0
        outcome = f"FAILED ({status})" if status else "passed"
        rows.append(f"{outcome:<12}{time.monotonic() - start:7.0f} s  {name}")
    print("\n" + "\n".join(rows))
    return int(failed)
