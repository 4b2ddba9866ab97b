"""Compare the memory counters of a practice GPU, step by step, with those of PyTorch's own allocator."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def parsed(text) -> dict[str, list[int]]:
    """Return the numbers of each line by the name of its step."""
    parts = [line.split(": ") for line in text.splitlines() if not line.startswith("#")]
    return {name: [int(number) for number in numbers.split(", ")] for name, numbers in parts}


@pytest.fixture(scope="module")
def counters():
    """Return wanted and got counters of all steps, from one run in a process that holds nothing else."""
    wanted = parsed((HERE / "memory_steps_expected.txt").read_text(encoding="utf-8"))
    line = [sys.executable, str(HERE / "memory_steps.py")]
    done = subprocess.run(line, text=True, capture_output=True, check=True)
    return wanted, parsed(done.stdout)


def test_thirty_steps(counters):
    wanted, got = counters
    assert list(wanted) == list(got) and len(wanted) == 30


def test_counters_are_equal_after_each_step(counters):
    wanted, got = counters
    allocated_and_reserved = {name: row[:2] for name, row in wanted.items()}
    assert {name: row[:2] for name, row in got.items()} == allocated_and_reserved


def test_peaks_are_within_five_percent(counters):
    wanted, got = counters
    for name, row in wanted.items():
        assert got[name][2] == pytest.approx(row[2], rel=0.05), name
