"""GPU tests of other libraries on practice GPUs: sample them, run them, write README's table.

``python library_tests.py CHECKOUTS [NAME …]`` runs a sample of each library of library_tests.toml whose repository lies in
CHECKOUTS/NAME (its requirements are installed already) and keeps what came out in CHECKOUTS/NAME.json. ``--table`` prints the
table of what is there. What fails is run again on the plain CPU: a test that fails there, too, says nothing of a GPU.
What then remains is sorted by hand, in library_tests.toml, each with its reason.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomllib

HERE = Path(__file__).parent
LIBRARIES: dict[str, dict] = tomllib.loads((HERE / "library_tests.toml").read_text())
GPU = re.compile(r"cuda|gpu|\bdevice", re.IGNORECASE)
KINDS = ("passed", "skipped", "refused", "wrong", "device bug", "environment")
HEAD = ("library, commit", "run", "passed", "skipped", "refused", "wrong here", "device bugs")


def main() -> None:
    """Run the samples, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("names", nargs="*", help="all of library_tests.toml, if none is given")
    parser.add_argument("--seed", type=int, default=49)
    parser.add_argument("--sample", type=int, default=40, help="tests of a library")
    parser.add_argument("--files", type=int, default=12, help="files that they come from")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    names = options.names or list(LIBRARIES)
    if options.table:
        print(table(options.checkouts, names))
        return
    for name in names:
        run(options, name)


def run(options: argparse.Namespace, name: str) -> None:
    """Run a library's sample on practice GPUs, and its failures on the plain CPU."""
    root, library = options.checkouts.resolve() / name, LIBRARIES[name]
    files = sampled_files(root, library, random.Random(options.seed), options.files)
    choice = f"--library-sample={options.sample}:{options.seed}"
    tests = pytest(root, library, ["--practice-gpus=2", choice, *files])
    if not tests:
        print(f"{name}: no test ran; {name}.log says why", file=sys.stderr)
        return
    bad = [test for test, (outcome, _) in tests.items() if outcome == "failed"]
    plain = pytest(root, library, bad) if bad else {}
    for test in bad:
        tests[test].append(plain.get(test, ["missing", ""])[0])
    head = ["git", "-C", str(root), "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    found = {"commit": commit, "seed": options.seed, "tests": tests}
    (options.checkouts / f"{name}.json").write_text(json.dumps(found, indent=1))
    print(row(options.checkouts, name), flush=True)


def sampled_files(root: Path, library: dict, chance: random.Random, most: int) -> list[str]:
    """Test files that speak of GPUs, at random."""
    found = [
        p for each in library["tests"] for p in [root / each, *sorted((root / each).rglob("*.py"))]
    ]
    tests = [p for p in found if p.is_file() and "test" in p.stem and p.stem != "conftest"]
    tests = [p for p in tests if GPU.search(p.read_text(errors="replace"))]
    start = root / library.get("folder", ".")
    return [str(p.relative_to(start)) for p in chance.sample(tests, min(most, len(tests)))]


def pytest(root: Path, library: dict, arguments: list[str]) -> dict[str, list]:
    """What came out of each test: its outcome, and the first words of its failure."""
    result = root.parent / f"{root.name}.result"
    result.unlink(missing_ok=True)
    path = os.pathsep.join([str(HERE), *(str(root / p) for p in library.get("path", ["."]))])
    here = {**os.environ, **library.get("environment", {})}
    here |= {"PYTHONPATH": os.pathsep.join(filter(None, [path, here.get("PYTHONPATH")]))}
    here |= {"LIBRARY_RESULT": str(result)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "library_tests",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    limits = [
        "--timeout=40",
        "--session-timeout=200",
        "--continue-on-collection-errors",
        "--practice-gpus-summary=" + os.devnull,
    ]
    with (root.parent / f"{root.name}.log").open("a") as log:
        subprocess.run(
            [*command, *limits, *library.get("options", []), *arguments],
            cwd=root / library.get("folder", "."), env=here, stdout=log, stderr=log, check=False,
        )  # fmt: skip
    return json.loads(result.read_text()) if result.exists() else {}


def pytest_addoption(parser: Any) -> None:
    """Add the option that says how many tests to take, and the seed."""
    parser.addoption("--library-sample", default="")


def pytest_collection_modifyitems(config: Any, items: list) -> None:
    """Keep a random sample of the tests that speak of GPUs."""
    if config.getoption("--library-sample"):
        count, seed = map(int, config.getoption("--library-sample").split(":"))
        mine = [item for item in items if GPU.search(item.nodeid + source(item))]
        random.Random(seed).shuffle(mine)
        functions = {item.nodeid.partition("[")[0]: item for item in mine}  # one case of each
        chosen = set(list(functions.values())[:count])
        items[:] = [item for item in items if item in chosen]  # in order: classes clean up once


def source(item: Any) -> str:
    """A test's own text, and the names of its fixtures."""
    try:
        text = inspect.getsource(getattr(item, "function", item.obj))
    except (AttributeError, OSError, TypeError):
        text = "cuda"
    return text + " ".join(getattr(item, "fixturenames", ()))


OUTCOMES: dict[str, list] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """Note an outcome; a test's worst stage counts."""
    refused = any(name == "practice_gpus refused" for name, _ in report.user_properties)
    if report.when == "call" or report.outcome != "passed":
        outcome = "refused" if report.outcome == "failed" and refused else report.outcome
        words = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
        OUTCOMES[report.nodeid] = [outcome, words[:300]]
        if "LIBRARY_RESULT" in os.environ:
            Path(os.environ["LIBRARY_RESULT"]).write_text(json.dumps(OUTCOMES))


def counted(checkouts: Path, name: str) -> tuple[str, dict[str, list[str]]]:
    """A library's commit, and its tests by kind."""
    found = json.loads((checkouts / f"{name}.json").read_text())
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for test, (outcome, _, *plain) in found["tests"].items():
        kind = outcome
        if outcome == "failed":
            known = LIBRARIES[name].get("sorted", {})
            by_hand = [each for part, each in known.items() if part in test]
            kind = by_hand[0].partition(":")[0] if by_hand else "wrong"
            kind = "environment" if plain == ["failed"] and not by_hand else kind
        kinds[kind].append(test)
    return found["commit"], kinds


def row(checkouts: Path, name: str) -> str:
    """A line of the table."""
    commit, kinds = counted(checkouts, name)
    cells = [f"{name} {commit}", str(sum(map(len, kinds.values())))]
    cells += [str(len(kinds[kind])) for kind in KINDS]
    return f"| {' | '.join(cells)} |"


def table(checkouts: Path, names: list[str]) -> str:
    """README's table."""
    names = [name for name in names if (checkouts / f"{name}.json").exists()]
    counts = [counted(checkouts, name)[1] for name in names]
    sums = [sum(len(each[kind]) for each in counts) for kind in KINDS]
    head = [*HEAD, "environment"]
    last = f"| together | {sum(sums)} | {' | '.join(map(str, sums))} |"
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(row(checkouts, name) for name in names), last])


if __name__ == "__main__":
    main()
