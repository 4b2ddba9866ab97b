"""Strict nbval over one notebook in a process of its own, where possible without a network, with its measures.

The same module is the pytest plugin that takes the measures inside that process.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helpers.commands._environment import ROOT
from helpers.commands.execute import environment

OFFLINE = ("unshare", "-r", "-n")
LOOPBACK = """
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS: kernels talk over loopback
os.execv(sys.argv[1], sys.argv[1:])
"""


@functools.cache
def offline_possible():
    """Tell whether this machine can run a process in a namespace without a network interface."""
    there = shutil.which(OFFLINE[0]) is not None
    return there and subprocess.run([*OFFLINE, "true"], capture_output=True).returncode == 0


def run_strict(path, cell_timeout=300):
    """Run strict nbval over the notebook at `path` and return its measures.

    Keys: "status", "text" (pytest's output), "offline", "seconds", "first_figure" (s from the start of the kernel, None
    without a figure), "memory" (peak bytes of the kernel, None where unknown), "cells" (seconds of each).
    """
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "--rootdir",
        str(Path(path).parent),
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "helpers.commands._strict",
        "--nbval",
        f"--nbval-cell-timeout={cell_timeout}",
        str(path),
    ]
    if offline_possible():
        line = [*OFFLINE, sys.executable, "-c", LOOPBACK, *line]
    with tempfile.TemporaryDirectory() as home:
        record = Path(home) / "measures.json"
        done = subprocess.run(
            line,
            cwd=ROOT,
            env=environment(home, COURSE_MEASURES=str(record)),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        measures = json.loads(record.read_text()) if record.exists() else EMPTY
    return dict(measures, status=done.returncode, text=done.stdout, offline=offline_possible())


EMPTY = {"seconds": 0.0, "first_figure": None, "memory": None, "cells": []}
_measures = dict(EMPTY, cells=[])
_start = []


def pytest_runtest_logstart(nodeid, location):
    """Note the time just before the first cell's kernel starts."""
    if not _start:
        _start.append(time.perf_counter())


def pytest_runtest_logreport(report):
    """Note the seconds of each cell."""
    if report.when == "call":
        _measures["cells"].append(report.duration)


def pytest_runtest_teardown(item, nextitem):
    """Note the time of the first picture and the kernel's peak memory, while the kernel is still there."""
    elapsed = time.perf_counter() - _start[0]
    if _measures["first_figure"] is None and any(
        "image/png" in out.get("data", {}) for out in item.test_outputs or []
    ):
        _measures["first_figure"] = elapsed
    _measures["seconds"] = elapsed
    _measures["memory"] = peak_memory(item.parent.kernel) or _measures["memory"]


def peak_memory(kernel):
    """Return the largest resident memory of nbval's kernel so far, in bytes; None where the system does not tell."""
    try:
        status = Path(f"/proc/{kernel.km.provisioner.pid}/status").read_text()
    except OSError:
        return None
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def pytest_sessionfinish(session):
    """Write the measures."""
    if "COURSE_MEASURES" in os.environ:
        Path(os.environ["COURSE_MEASURES"]).write_text(json.dumps(_measures))
