"""``python -m practice_gpus verify``: do real GPUs print what practice GPUs print? Each difference is shown.

The situations and the lines to expect are in the folder situations/, a wheel of its own: ``practice-gpus[verify]``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

NEEDS_TWO = "needs 2 GPUs"


def situations() -> ModuleType:
    """The package of situations: of its own wheel, or of the checkout; imported when it is asked for."""
    name = "practice_gpus.situations"
    folder = Path(__file__).parents[2] / "situations"
    if importlib.util.find_spec(name) is None and (folder / "lines.py").exists():
        places: Any = {"submodule_search_locations": [str(folder)]}
        spec: Any = importlib.util.spec_from_file_location(name, folder / "__init__.py", **places)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        sys.exit("verify needs the situations: pip install 'practice-gpus[verify]'")


def expected() -> list[str]:
    """The lines to expect: ``NNN name: result``."""
    text = (Path(situations().__path__[0]) / "expected.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


def printed() -> Iterator[str]:
    """The lines of the GPUs that are there, else of two practice GPUs."""
    from practice_gpus.session import practice_gpus

    run = importlib.import_module(f"{situations().__name__}.lines").lines
    devices = contextlib.nullcontext() if torch.cuda.is_available() else practice_gpus(2)
    with devices:
        yield from run()


def compare(wanted: list[str], got: list[str]) -> dict[str, tuple[str, str]]:
    """What differs: the name of each situation → the result wanted and the result got."""
    differences = {}
    for one, other in zip(wanted, got, strict=True):
        name, _, result = one.partition(": ")
        same_name, _, outcome = other.partition(": ")
        assert name == same_name, "the same situations in the same order"
        if outcome != result and not outcome.startswith(NEEDS_TWO):
            differences[name[4:]] = result, outcome
    return differences


def machine() -> str:
    """What the lines come from, in words."""
    versions = f"PyTorch {torch.__version__}, {platform.system()}"
    if not torch.cuda.is_available():
        return f"two practice GPUs, for want of a real one; {versions}"
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"{', '.join(names)}; CUDA {torch.version.cuda}; {versions}"


def main() -> int:
    """Print the differences, and return 1 if there are any, else 0."""
    wanted = expected()
    where = machine()
    got = list(printed())
    for name, (result, outcome) in (differences := compare(wanted, got)).items():
        print(f"{name}\n  expected {result}\n  here     {outcome}")
    left_out = sum(NEEDS_TWO in line for line in got)
    same = len(wanted) - len(differences) - left_out
    print(f"{where}: {same} lines of {len(wanted)} as expected, {len(differences)} differ", end="")
    print(f", {left_out} need a second GPU" if left_out else "")
    return 1 if differences else 0
