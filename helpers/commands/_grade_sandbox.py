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

from helpers.commands import _grade_inside
from helpers.commands._environment import ROOT

PROCESSES = 64
READ = ("memory_info", "memory_full_info")
INHERITED = {"PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT"}
SYSTEM = """/usr /bin /sbin /lib /lib64 /etc/ld.so.cache /etc/alternatives /etc/hosts /etc/fonts
    /sys/devices/system"""
SEALED = """bwrap --die-with-parent --new-session --unshare-ipc --unshare-pid --unshare-net --unshare-uts
    --unshare-cgroup-try --hostname localhost --proc /proc --dev /dev
    --size 268435456 --perms 1777 --tmpfs /tmp --size 268435456 --perms 1777 --tmpfs /dev/shm"""
BECOME_ANOTHER = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")


def sealed(file, hidden):
    """Return the words that, before a command, put it into a sandbox, where `file` is /events."""
    line = [*SEALED.split(), *(["--unshare-user"] if os.geteuid() else BECOME_ANOTHER)]
    for place in visible():
        for parent in reversed(Path(place).parents):
            line += ["--dir", str(parent)]
        line += ["--ro-bind-try", place, place]
        if Path(hidden).is_relative_to(place):
            line += ["--tmpfs", str(hidden)]
    return [
        *line,
        "--bind",
        str(file),
        _grade_inside.SEALED_EVENTS,
        "--remount-ro",
        "/",
        "--chdir",
        "/tmp",
    ]


def visible():
    """Return the paths that learners' code may read."""
    python = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])]
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    course = ("helpers", "exercises", "practice_gpus", "notebooks/scripts")
    return [*SYSTEM.split(), *python, *packages, *(str(ROOT / name) for name in course)]


def problem():
    """Return why no sandbox works here, an empty text where one does."""
    if not shutil.which("bwrap"):
        return "bubblewrap (the program bwrap) is not installed"
    with tempfile.NamedTemporaryFile() as file:
        line = [*sealed(file.name, "/none"), sys.executable, "-c", "import nbclient, ipykernel"]
        variables = environment("/tmp", _grade_inside.SEALED_EVENTS)
        done = subprocess.run(line, text=True, capture_output=True, env=variables)
    return (done.stderr.strip().splitlines() or ["bwrap fails"])[-1] if done.returncode else ""


def environment(folder, file):
    """Return the environment variables of learners' code, whose home is `folder`."""
    inherited = {name: os.environ[name] for name in INHERITED & os.environ.keys()}
    homes = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "GPU_COURSE_HOME"), str(folder))
    fixed = {"USER": "learner", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    python = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "GRADE_EVENTS": str(file)}
    return {**inherited, **homes, **fixed, **python}


def run(job, hidden, stopping):
    """Run a job; return its events, and why it was ended early or an empty text.

    `hidden` is the folder of submissions, None for no sandbox. The event `stopping` ends it early.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file, task = Path(folder, "events"), Path(folder, "job.json")
        file.touch()
        file.chmod(0o666)
        task.write_text(json.dumps(job), encoding="utf-8")
        line = [sys.executable, "-m", _grade_inside.__name__]
        options = {"cwd": folder, "env": environment(folder, file)}
        if hidden:
            line = [*sealed(file, hidden), *line]
            options["env"] = environment("/tmp", _grade_inside.SEALED_EVENTS)
        for stream in ("stdout", "stderr"):
            options[stream] = subprocess.DEVNULL
        with open(task, encoding="utf-8") as stdin:
            process = subprocess.Popen(line, stdin=stdin, start_new_session=True, **options)
        try:
            why = watch(process, job, stopping)
        finally:
            end(process, str(file))
        return _grade_inside.events(file), why


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
            if all(gigabytes(below, read) > job["memory"] for read in READ):
                return f"more than {job['memory']:g} GB of memory"
        time.sleep(0.3)
    return ""


def gigabytes(processes, read):
    """Return the GB that processes use; read in full, which takes longer, what they share counts once."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            facts = getattr(process, read)()
            total += getattr(facts, "pss", facts.rss - getattr(facts, "shared", 0)) / 1e9
    return total


def end(process, file):
    """Kill a process, with it its sandbox; without one, all whose environment names the file of events."""
    process.kill()
    process.wait()
    if "bwrap" in process.args:
        return
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.environ().get("GRADE_EVENTS") == file:
                each.kill()
