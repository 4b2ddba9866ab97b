"""Run a submission in the system's sandbox (bubblewrap), watch what it uses, end all that it started.

Sealed, learners' code sees the system's programs, Python, the course and an empty folder; no network, no other process.
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

from helpers.commands._environment import ROOT
from helpers.commands._grade_inside import SEALED_EVENTS, events

ENDING = 30  # seconds for which processes that start others are chased
PROCESSES = 64
SYSTEM = "/usr /bin /sbin /lib /lib64 /etc/ld.so.cache /etc/alternatives /etc/hosts /etc/fonts"
SEALED = """bwrap --die-with-parent --new-session --unshare-ipc --unshare-pid --unshare-net --unshare-uts
    --unshare-cgroup-try --hostname localhost --proc /proc --dev /dev
    --size 268435456 --perms 1777 --tmpfs /tmp --size 268435456 --perms 1777 --tmpfs /dev/shm"""
BECOME_ANOTHER = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")


def sealed(file, hidden):
    """Return the words that, before a command, put it into a sandbox, where `file` is /events."""
    python = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])]
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    rooms = ("helpers", "exercises", "practice_gpus", "notebooks/scripts")
    course = [str(ROOT / room) for room in rooms]
    line = [*SEALED.split(), *(["--unshare-user"] if os.geteuid() else BECOME_ANOTHER)]
    for place in [*SYSTEM.split(), "/sys/devices/system", *python, *packages, *course]:
        for parent in reversed(Path(place).parents):
            line += ["--dir", str(parent)]
        line += ["--ro-bind-try", place, place]
        if Path(hidden).is_relative_to(place):
            line += ["--tmpfs", str(hidden)]
    return [*line, "--bind", str(file), SEALED_EVENTS, "--remount-ro", "/", "--chdir", "/tmp"]


def problem():
    """Return why no sandbox works here, an empty text where one does."""
    if not shutil.which("bwrap"):
        return "bubblewrap (the program bwrap) is not installed"
    with tempfile.NamedTemporaryFile() as file:
        line = [*sealed(file.name, "/none"), sys.executable, "-c", "import nbclient, ipykernel"]
        done = subprocess.run(line, text=True, capture_output=True)
    return (done.stderr.strip().splitlines() or ["bwrap fails"])[-1] if done.returncode else ""


def environment(folder, file):
    """Return the environment variables of learners' code, whose home is `folder`."""
    kept = os.environ.keys() & {"PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT"}
    homes = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "GPU_COURSE_HOME"), str(folder))
    fixed = {"USER": "learner", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    python = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "GRADE_EVENTS": str(file)}
    return {**{name: os.environ[name] for name in kept}, **homes, **fixed, **python}


def run(job, hidden, stopping):
    """Run a job; return its events, and why it was ended early or an empty text.

    `hidden` is the folder of submissions, None for no sandbox. The event `stopping` ends it early.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file, task = Path(folder, "events"), Path(folder, "job.json")
        file.touch()
        file.chmod(0o666)
        task.write_text(json.dumps(job), encoding="utf-8")
        line = [sys.executable, "-m", "helpers.commands._grade_inside"]
        variables = environment(folder, file)
        if hidden:
            line = [*sealed(file, hidden), *line]
            variables = environment("/tmp", SEALED_EVENTS)
        quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        options = {"cwd": folder, "env": variables, "start_new_session": True, **quiet}
        with open(task, encoding="utf-8") as stdin:
            process = subprocess.Popen(line, stdin=stdin, **options)
        try:
            why = watch(process, job, stopping)
        finally:
            end(process, str(file))
        return events(file), why


def watch(process, job, stopping):
    """Wait for a process to end; return why it must end early, or an empty text."""
    until = time.monotonic() + job["seconds"]
    while process.poll() is None and not stopping.is_set():
        if time.monotonic() > until:
            return "the notebook's time was over"
        with suppress(psutil.Error):
            below = psutil.Process(process.pid).children(recursive=True)
            if len(below) > PROCESSES:
                return f"more than {PROCESSES} processes"
            if gigabytes(below) > job["memory"]:
                return f"more than {job['memory']:g} GB of memory"
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
    return ""


def gigabytes(processes):
    """Return the GB that processes use; on Linux what they share counts once."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            facts = process.memory_full_info()
            total += getattr(facts, "pss", facts.rss) / 1e9
    return total


def end(process, file):
    """Kill a process, with it its sandbox; without one, all whose environment names the file of events."""
    process.kill()
    process.wait()
    until = time.monotonic() + ENDING
    while "bwrap" not in process.args and kill_marked(file) and time.monotonic() < until:
        time.sleep(0.1)  # what was started meanwhile is met on the next round


def kill_marked(file):
    """Kill all processes whose environment names the file of events; return how many there were."""
    killed = 0
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.environ().get("GRADE_EVENTS") == file:
                each.kill()
                killed += 1
    return killed
