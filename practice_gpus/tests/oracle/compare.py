"""What PyTorch's CUDA build and practice GPUs make of the same cases, and how the two differ.

`python compare.py [EVERY] [--write]` prints the figures, and the differences that are not in differences.txt; with
--write, it takes out of the list what no longer differs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import build

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
LISTED = HERE / "differences.txt"
LIMIT = 600  # seconds for a side
UNJUDGED = "unjudged"


def run(every: int = 1) -> Comparison:
    """Run one operator of ``every`` on both sides at once, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        return compared(*both(Path(folder), "oracle", "practice", every=every))


def both(folder: Path, *sides: str, every: int = 1) -> list[dict[str, list]]:
    """The outcomes of two sides, which run at once."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda side: outcomes(folder / side, every), sides))


def outcomes(file: Path, every: int) -> dict[str, list]:
    """Case → outcome on the side that ``file`` is named for. A case that ends its process has the outcome ["ends"]."""
    found: dict[str, list] = {}
    group = number = 0
    while True:
        command = [
            sys.executable,
            str(HERE / "child.py"),
            file.name,
            str(every),
            str(group),
            str(number),
            str(file),
        ]
        done = subprocess.run(
            command, env=environment(file.name), capture_output=True, text=True, timeout=LIMIT
        )
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found = {line[2]: line[3] for line in lines if len(line) == 4} | {
            k: v for k, v in found.items() if v == ["ends"]
        }
        if lines and not lines[-1]:
            return found
        if not lines or len(lines[-1]) == 4:
            raise RuntimeError(
                f"the side {file.name} ended with {done.returncode}: {done.stderr[-2000:]}"
            )
        group, number, key = lines[-1]
        found[key] = ["ends"]
        number += 1


def environment(side: str) -> dict[str, str]:
    """The variables of a side's process."""
    ours = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": str(SOURCE)}
    if side != "oracle":
        return ours
    stand_in = {"LD_PRELOAD": str(build.library()), "TORCH_CUDNN_V8_API_DISABLED": "1"}
    return ours | stand_in | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


@dataclass
class Line:
    """A line of differences.txt: what kind of difference, in how many cases, which, and why.

    Where the machine decides, `count` is the least and `most` the greatest number.
    """

    kind: str
    count: int
    most: int
    pattern: str
    reason: str
    found: int = 0

    def fits(self, kind: str, text: str) -> bool:
        """Whether a difference is one of these."""
        return self.kind in (kind, UNJUDGED) and re.search(self.pattern, text) is not None


def brief(outcome: list) -> str:
    """An outcome in a line."""
    return f"{outcome[1]}: {outcome[2]}" if outcome[0] == "raises" else " ".join(map(str, outcome))


def listed() -> list[Line]:
    """The lines of differences.txt."""
    rows = [line.split("\t") for line in LISTED.read_text().splitlines() if line and line[0] != "#"]
    counts = [list(map(int, row[1].split("-"))) for row in rows]
    return [
        Line(kind, count[0], count[-1], pattern, reason)
        for count, (kind, _, pattern, reason) in zip(counts, rows, strict=True)
    ]


@dataclass
class Comparison:
    """Counts, and the differences: (kind, case, CUDA's outcome, ours)."""

    lines: list[Line]
    cases: int = 0
    kinds: Counter = field(default_factory=Counter)
    unlisted: list[tuple] = field(default_factory=list)

    def note(self, key: str, theirs: list, ours: list) -> None:
        """Count a case."""
        self.cases += 1
        kind = difference(theirs, ours)
        if kind == "":
            return
        text = f"{key} -> {brief(theirs)} -> {brief(ours)}"
        line = next((line for line in self.lines if line.fits(kind, text)), None)
        if line is None:
            self.unlisted.append((kind, key, theirs, ours))
        else:
            line.found += 1
            kind = line.kind
        self.kinds[kind] += 1

    def stale(self) -> list[str]:
        """The lines of the list whose number is not what was found."""
        return [
            f"{line.pattern}: {line.count} to {line.most}, found {line.found}"
            for line in self.lines
            if not line.count <= line.found <= line.most
        ]

    def write(self) -> None:
        """Put smaller numbers into the list, and leave out what no longer differs."""
        smaller = {
            (line.kind, line.pattern): str(line.found)
            for line in self.lines
            if line.found < line.count
        }
        rows = []
        for text in LISTED.read_text().splitlines():
            row = text.split("\t")
            if len(row) == 4:
                row[1] = smaller.get((row[0], row[2]), row[1])
            if row[1:2] != ["0"]:
                rows.append("\t".join(row))
        LISTED.write_text("\n".join(rows) + "\n")

    def share(self, *kinds: str) -> float:
        """The share of the judged cases that do not differ in these ways."""
        judged = self.cases - self.kinds[UNJUDGED]
        return 1 - sum(self.kinds[kind] for kind in kinds) / judged

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {self.kinds[UNJUDGED]} not judged; equal in placement, dtype, type of exception: "
            f"{self.share('type'):.2%}; in words, too: {self.share('type', 'words'):.2%}"
        )


def difference(theirs: list, ours: list) -> str:
    """How two outcomes differ: "" not at all, "words" in the words of an exception alone, else "type"."""
    if theirs == ours:
        return ""
    same_exception = theirs[:2] == ours[:2] and theirs[0] == "raises"
    return "words" if same_exception else "type"


def compared(oracle: dict[str, list], practice: dict[str, list]) -> Comparison:
    """The comparison of the cases that both sides have."""
    result = Comparison(listed())
    for key in oracle.keys() & practice.keys():
        result.note(key, oracle[key], practice[key])
    result.unlisted.sort()
    return result


def main() -> None:
    """Compare all, or one operator of the number given; with --write, write smaller numbers into the list."""
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    comparison = run(*numbers)
    for kind, key, theirs, ours in comparison.unlisted:
        print(
            f"{kind}\t{key}\n    CUDA      {brief(theirs)[:300]}\n    practice  {brief(ours)[:300]}"
        )
    if not numbers:
        print(*comparison.stale(), sep="\n")
    if "--write" in sys.argv:
        comparison.write()
    print(comparison)


if __name__ == "__main__":
    main()
