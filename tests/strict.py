"""Strict nbval over one notebook in a process of its own, where possible without a network, with its memory.

The same module is the pytest plugin that takes the measure inside that process.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from course.measurements.reader import schema_checker
from course.tools import ROOT
from course.tools.execute import environment

schema_checker()  # before nbval's imports, which would wait 1.5 s for its grammar

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


def run_strict(path, cell_timeout=600):
    """Run strict nbval over the notebook at `path`; return its exit status, pytest's text, and the kernel's peak.

    The peak is in bytes; None where the system does not tell.
    """
    options = ["-c", os.devnull, "--rootdir", str(path.parent), "-q", "-p", "no:cacheprovider"]
    options += ["--disable-plugin-autoload", "-p", "strict", "-p", "nbval.plugin"]
    nbval = ["--nbval", f"--nbval-cell-timeout={cell_timeout}", str(path)]
    # pictures in HTML differ with the release of matplotlib and its fonts
    nbval.append(f"--nbval-sanitize-with={Path(__file__).with_name('nbval_sanitize.cfg')}")
    line = [sys.executable, "-m", "pytest", *options, *nbval]
    if offline_possible():
        line = [*OFFLINE, sys.executable, "-c", LOOPBACK, *line]
    with tempfile.TemporaryDirectory() as home:
        peak = Path(home) / "peak"
        folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        variables = environment(home, PYTHONPATH=os.pathsep.join(filter(None, folders)))
        done = subprocess.run(
            [*line, f"--peak={peak}"],
            cwd=ROOT,
            env=variables,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        memory = int(peak.read_text()) if peak.exists() else None
    return done.returncode, done.stdout, memory


def pytest_addoption(parser):
    """Add the file for the measure."""
    parser.addoption("--peak")


def pytest_runtest_teardown(item):
    """Write down the kernel's peak memory so far, while the kernel is still there."""
    status = Path(f"/proc/{item.parent.kernel.km.provisioner.pid}/status")
    if status.exists():
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        Path(item.config.getoption("peak")).write_text(str(int(peak[1]) * 1024))
