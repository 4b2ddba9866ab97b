"""Run the job of one submission in the system's sandbox (bubblewrap), watch what it uses, and end all it started.

Sealed, learners' code sees Python, the course and an empty folder in memory: no network, no home, no submission.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from helpers.commands import _grade_record
from helpers.commands._environment import ROOT

PROCESSES = 64
FIRST_USER = 1_900_000_000  # user ids from here on belong to nobody
INHERITED = {"PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT"}
SYSTEM = (
    "/usr /bin /sbin /lib /lib64 /etc/ld.so.cache /etc/alternatives /etc/hosts /sys/devices/system"
)
COURSE = ("helpers", "exercises", "practice_gpus", "notebooks/scripts")


def sealed_line(file, hidden):
    """Return the command line that puts what follows it into a sandbox, where it can write to `file` as /events."""
    line = "bwrap --die-with-parent --new-session --unshare-ipc --unshare-pid --unshare-net --unshare-uts"
    line = [*line.split(), "--hostname", "localhost", "--unshare-cgroup-try"]
    if os.geteuid() == 0:
        line += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]  # to become somebody else
    else:
        line += ["--unshare-user"]
    line += ["--proc", "/proc", "--dev", "/dev"]
    for place in ("/tmp", "/dev/shm"):
        line += ["--size", str(2**28), "--perms", "1777", "--tmpfs", place]
    for place in visible():
        for parent in reversed(Path(place).parents):
            line += ["--dir", str(parent)]
        line += ["--ro-bind-try", place, place]
    if any(Path(hidden).is_relative_to(place) for place in visible()):
        line += ["--tmpfs", hidden]
    return [*line, "--bind", str(file), "/events", "--remount-ro", "/", "--chdir", "/tmp"]


def visible():
    """Return the paths that learners' code may read: the system's programs, Python, the course."""
    python = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])]
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [*SYSTEM.split(), *python, *packages, *(str(ROOT / name) for name in COURSE)]


def problem():
    """Return why no sandbox works here, an empty text where one does."""
    if not shutil.which("bwrap"):
        return "bubblewrap (the program bwrap) is not installed"
    with tempfile.NamedTemporaryFile() as file:
        line = [
            *sealed_line(file.name, ROOT / "none"),
            sys.executable,
            "-c",
            "import nbclient, ipykernel",
        ]
        done = subprocess.run(
            line, text=True, capture_output=True, env=environment("/tmp", "/events")
        )
    return (done.stderr.strip().splitlines() or ["bwrap failed"])[-1] if done.returncode else ""


def environment(folder, file):
    """Return the environment variables of learners' code, whose home is `folder`."""
    inherited = {name: os.environ[name] for name in INHERITED & os.environ.keys()}
    homes = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP", "GPU_COURSE_HOME"), str(folder))
    fixed = {"USER": "learner", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    python = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
    return {**inherited, **homes, **fixed, **python, "GRADE_EVENTS": str(file)}


def run(job, sealed, hidden, stopping):
    """Run a job (see `_grade_run`); return its events and why it was ended early, if it was.

    `hidden` is the folder of submissions; the job ends early, too, when the event `stopping` is set.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file, task = Path(folder, "events"), Path(folder, "job.json")
        file.touch()
        file.chmod(0o666)
        task.write_text(json.dumps(job), encoding="utf-8")
        line = [sys.executable, "-m", "helpers.commands._grade_run"]
        variables = environment(folder, file)
        if sealed:
            line = [*sealed_line(file, hidden), *line]
            variables = environment("/tmp", "/events")
        with open(task, encoding="utf-8") as stdin:
            process = subprocess.Popen(
                line,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=None,
                cwd=folder,
                env=variables,
                start_new_session=True,
            )
        try:
            why = watch(process, job, stopping)
        finally:
            end(process, str(file))
        return _grade_record.events(file), why


def watch(process, job, stopping):
    """Wait for a process to end; return why it is to be ended early, or an empty text."""
    until = time.monotonic() + job["seconds"]
    while process.poll() is None:
        if stopping.is_set():
            return "stopped"
        if time.monotonic() > until:
            return "the notebook's time was over"
        with suppress(psutil.Error):
            below = psutil.Process(process.pid).children(recursive=True)
            if len(below) > PROCESSES:
                return f"more than {PROCESSES} processes"
            if (
                gigabytes(below, "memory_info")
                > job["memory"]
                < gigabytes(below, "memory_full_info")
            ):
                return f"more than {job['memory']:g} GB of memory"
        time.sleep(0.2)
    return ""


def gigabytes(processes, read):
    """Return the GB that processes use; by "memory_full_info", which is slow, what they share counts once."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            facts = getattr(process, read)()
            total += getattr(facts, "pss", facts.rss - getattr(facts, "shared", 0))
    return total / 1e9


def end(process, file):
    """Kill a process, with it its sandbox; without one, all whose environment names the file of events."""
    process.kill()
    process.wait()
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.environ().get("GRADE_EVENTS") == file:
                each.kill()
