"""Run pip with one line on the screen that says how far it is; its own words go to a log. Only standard library."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote

WORDS = re.compile(
    r"^(?:Collecting (?P<looking>[\w.-]+)"
    r"|\s*Processing \S*?(?P<local>[\w.]+)-[^/\s]*\.whl"
    r"|\s*Downloading (?P<file>\S+) \((?P<size>[\d.]+) (?P<unit>[kMG]?B)\)"
    r"|Installing collected packages: (?P<unpacking>.+))",
    flags=re.M,
)
BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


class Line:
    """One line of the screen for one step; where the output is no screen, only its beginning and its end."""

    def __init__(self, step, text):
        self.head = f"[{step}/4] {text}"
        self.begun = time.monotonic()
        self.live = sys.stdout.isatty()
        self._write(self.head, end="" if self.live else "\n")

    def show(self, detail):
        """Say how far the step is, in a few words."""
        if self.live:
            self._write(f"{self.head}: {detail}, {self.clock()}", end="")

    def done(self, detail):
        """Say how the step ended and how long it took."""
        head = f"{self.head}:" if self.live else "     "
        self._write(f"{head} {detail}, {self.clock()}")

    def clock(self):
        """Return the time since the beginning, such as 2:05."""
        seconds = round(time.monotonic() - self.begun)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def _write(self, text, end="\n"):
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            text = f"\r{text[:width]:<{width}}"
        print(text, end=end, flush=True)


def run(command, folder, log, line, venv=None):
    """Run a `command` of pip in `folder` and show on `line` how far it is; return (exit status, its words).

    Its words are added to the file `log`. The command ends with this program. Where it installs into `venv`, the
    packages there are counted.
    """
    before = packages(venv)
    begin = log.stat().st_size if log.exists() else 0
    settings = dict(os.environ, PIP_PROGRESS_BAR="off", PIP_DISABLE_PIP_VERSION_CHECK="1")
    with open(log, "ab") as words:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
        )
        try:
            while child.poll() is None:
                time.sleep(0.2)
                line.show(progress(_since(log, begin), packages(venv) - before))
        finally:
            child.terminate()
            child.wait()
    return child.returncode, _since(log, begin)


def _since(log, begin):
    return log.read_bytes()[begin:].decode("utf-8", errors="replace")


def packages(venv):
    """Return how many packages the environment `venv` holds; 0 for None."""
    places = ("lib/python*/site-packages", "Lib/site-packages") if venv else ()
    return sum(len(list(venv.glob(f"{place}/*.dist-info"))) for place in places)


def progress(text, unpacked=0):
    """Return what pip is doing, in a few words, from what it has written and how many packages it has unpacked."""
    lines = list(WORDS.finditer(text))
    if not lines:
        return "asking the index"
    last = lines[-1]
    if last["unpacking"]:
        return f"unpacked {unpacked} of {last['unpacking'].count(',') + 1}"
    if last["looking"] or last["local"]:
        return f"looking for {last['looking'] or last['local']}"
    file = unquote(last["file"].rpartition("/")[2])
    size = float(last["size"]) * BYTES[last["unit"]]
    return f"{file.split('-')[0]} {fetched(file) / 1e6:.1f} of {size / 1e6:.1f} MB"


def fetched(file):
    """Return how many bytes of `file` pip has fetched, as its folder for temporary files shows."""
    parts = Path(tempfile.gettempdir()).glob(f"pip-*/{file}")
    return max((part.stat().st_size for part in parts if part.exists()), default=0)


def last_error(text):
    """Return what pip says about its failure, in a line."""
    errors = re.findall(r"^ERROR: (.+)", text, flags=re.M)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (errors or lines or ["nothing"])[-1][:300]
