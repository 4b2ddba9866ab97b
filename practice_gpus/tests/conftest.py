"""What the tests of practice GPUs share: two of them, and programs in processes of their own."""

import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

os.environ["PRACTICE_GPUS_CPU"] = "typical"  # forecasts don't depend on who has calibrated theirs
SOURCE = Path(__file__).resolve().parents[1] / "src"


@pytest.fixture(scope="session")
def imitated():
    """Give practice_gpus as a context manager that skips the test where it would step aside for real GPUs."""
    from practice_gpus import practice_gpus  # PyTorch, only for tests that ask for it

    @contextlib.contextmanager
    def turned_on(*args, **options):
        with practice_gpus(*args, **options) as machine:
            if machine.real:
                pytest.skip("these GPUs are real")
            yield machine

    return turned_on


@pytest.fixture
def gpus(imitated):
    """Give two practice GPUs; skip the test where there are real ones."""
    with imitated(n=2) as machine:
        yield machine


@pytest.fixture
def write(tmp_path):
    """Give a function that writes a program into the folder of the test, and returns its path."""

    def written(text, name="program.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return written


@pytest.fixture
def run(write):
    """Give a function that runs a program in a process of its own, and returns what it prints."""

    def printed(text, *command):
        path = write(text)
        line = [sys.executable, *command, str(path)]
        options = {"cwd": path.parent, "env": os.environ | {"PYTHONPATH": str(SOURCE)}}
        done = subprocess.run(line, **options, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return printed
