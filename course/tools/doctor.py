"""python3 -m course doctor: what this machine can do, why CUDA is not there, and a room's machines at a glance."""

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from importlib import metadata
from typing import Any

from course.checks import codes
from course.doctor import diagnose, gather_facts, report, say
from course.doctor.facts import Facts
from course.tools import _sheets, needs
from helpers.host import cpu_name, memory_bytes

HELP = "say what this machine can do, and why CUDA is not there; --room for a class"
# of two lessons; one of several places for notebooks, and what comes with it; of commands for authors
OPTIONAL = ("torchvision", "jupyterlab", "nbformat", "nbconvert", "beautifulsoup4")
FIELDS = ("verdict", "torch", "device", "memory GB", "free disk GB", "packages")
MARK = "R2"  # a room's code
DISK_GB = 1  # less free disk than this is a problem: data sets and checkpoints


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --room and --collect to `parser`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--room", action="store_true", help="print one line with a code to send to the instructor"
    )
    which.add_argument(
        "--collect",
        nargs="*",
        metavar="CODE",
        help="make a table of learners' codes (from the arguments, or lines on the standard input)",
    )


def run(args: argparse.Namespace) -> int:
    """Exit status 0; 1 where PyTorch does not work here, or where a collected code is damaged."""
    if args.collect is not None:
        return collect(args.collect or codes.pick(MARK, sys.stdin.read()))
    facts = gather_facts()
    verdict = diagnose(facts)
    if args.room:
        problems = package_problems(facts)
        fields = room_fields(facts, verdict, problems)
        print(f"{verdict.summary} {' '.join(problems)}".strip())
        print(f"Send this code: {codes.encode(MARK, fields)}")
    else:
        say(report(facts, verdict))
    return 1 if facts.torch is None else 0


def package_problems(facts: Facts) -> list[str]:
    """What is wrong with the packages that the lessons need, as a list of short texts: ["ipywidgets-missing"]."""
    problems = []
    for name, oldest in (need.split(">=") for need in needs()):
        version = _installed(name)
        if name in OPTIONAL:
            continue
        if version is None:
            problems.append(f"{name}-missing")
        elif _numbers(version) < _numbers(oldest):
            problems.append(f"{name}-{version}")
    if _installed("torchvision") and facts.torch and not _imports("torchvision"):
        problems.append("torchvision-broken")
    return problems


def _installed(name):
    """The installed version of a package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version):
    """The first two numbers of a version, (2, 11) for "2.11.0+cpu"."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _imports(name):
    line = [sys.executable, "-c", f"import {name}"]
    try:
        return subprocess.run(line, capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def room_fields(facts: Facts, verdict: Any, problems: list[str]) -> tuple:
    """The values of `FIELDS` for this machine, as text; memory and disk in GB (10**9 bytes), "?" for unknown."""
    best = facts.devices[0] if facts.devices else None
    memory = best.memory_bytes if best else memory_bytes()
    free = shutil.disk_usage(".").free
    return (
        verdict.code,
        facts.torch or "none",
        best.name if best else cpu_name(),
        "?" if memory is None else str(round(memory / 1e9)),
        str(round(free / 1e9)),
        ",".join(problems) or "ok",
    )


def decode(code: str) -> tuple:
    """The fields of a `code`, a tuple of texts by `FIELDS`; ValueError says what is wrong with it."""
    fields = codes.decode(MARK, code)
    if len(fields) != len(FIELDS):
        raise ValueError("the code was made by another version of the course")
    return tuple(
        re.sub(r"[^ -~]", "?", str(field)) for field in fields
    )  # no orders for the terminal


def collect(words: list[str]) -> int:
    """Print a table of codes, what they have in common and what needs attention; 1 when a code is damaged, else 0."""
    rows, bad = [], []
    for number, code in enumerate(words, 1):
        try:
            rows.append((str(number), *decode(code)))
        except ValueError as error:
            bad.append(f"code {number}: {error}")
    if rows:
        print(_sheets.aligned([("", *FIELDS), *rows]))
        verdicts = Counter(row[1] for row in rows).most_common()
        say("\n" + ", ".join(f"{count} × {name}" for name, count in verdicts))
    for number, *_, free, packages in rows:
        full = free.isdigit() and int(free) < DISK_GB
        if full or packages != "ok":
            print(f"attend to {number}: packages {packages}, {free} GB of disk free")
    for line in bad if words else ["no codes: give them as arguments, or on the standard input"]:
        print(line, file=sys.stderr)
    return 1 if bad or not words else 0
