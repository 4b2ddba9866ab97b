"""Run a submission in a sandbox (bubblewrap) that holds Python, the course, an empty folder, no network; end it all."""

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
from helpers.commands._grade_inside import THREADS, events

SYSTEM = "/usr /bin /sbin /lib /lib64 /etc/ld.so.cache /etc/alternatives /etc/hosts /etc/fonts"
SEALED = """bwrap --die-with-parent --new-session --unshare-ipc --unshare-pid --unshare-net --unshare-uts
    --unshare-cgroup-try --hostname localhost --proc /proc --dev /dev
    --size 268435456 --perms 1777 --tmpfs /tmp --size 268435456 --perms 1777 --tmpfs /dev/shm"""


def sealed(file, inside, hidden):
    """Return the words that, before a command, put it into a sandbox, where `file` has the path `inside`."""
    python = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])]
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    rooms = ("helpers", "exercises", "practice_gpus", "notebooks/scripts")
    course = [str(ROOT / room) for room in rooms]
    user = "--unshare-user" if os.geteuid() else "--cap-add CAP_SETUID --cap-add CAP_SETGID"
    line = f"{SEALED} {user}".split()
    for place in [*SYSTEM.split(), "/sys/devices/system", *python, *packages, *course]:
        for parent in reversed(Path(place).parents):
            line += ["--dir", str(parent)]
        line += ["--ro-bind-try", place, place]
        if Path(hidden).is_relative_to(place):
            line += ["--tmpfs", hidden]
    return [*line, "--bind", str(file), inside, "--remount-ro", "/", "--chdir", "/tmp"]


def problem():
    """Return why no sandbox works here, an empty text where one does."""
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed; on Linux: apt install bubblewrap"
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, "-c", "import nbclient, ipykernel"]
        line = [*sealed(file.name, "/events", "/none"), *command]
        done = subprocess.run(line, text=True, capture_output=True)
    return (done.stderr.strip().splitlines() or ["bwrap fails"])[-1] if done.returncode else ""


def environment(home, place):
    """Return the environment variables of learners' code."""
    names = ("PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    homes = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "GPU_COURSE_HOME"), home)
    fixed = {"USER": "learner", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return {**kept, **homes, **fixed, "PYTHONPATH": str(ROOT), "GRADE_EVENTS": place}


def run(cells, args, seconds, stopping):
    """Run cells, at most until the event `stopping`; return what was noted, and why they were ended early, or ""."""
    job = {"cells": cells, "seconds": seconds, "memory": args.memory, "sealed": not args.unsealed}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        file = Path(home, "events")
        place = str(file) if args.unsealed else f"/{Path(home).name}"
        file.write_text(json.dumps(job) + "\n", encoding="utf-8")
        file.chmod(0o666)
        sandbox = [] if args.unsealed else sealed(file, place, os.path.realpath(args.folder))
        code = "from helpers.commands import _grade_inside; _grade_inside.main()"
        variables = environment(home if args.unsealed else "/tmp", place)
        options = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        options |= {"cwd": home, "env": variables, "start_new_session": True}
        process = subprocess.Popen([*sandbox, sys.executable, "-c", code], **options)
        try:
            why = watch(process, args.memory, time.monotonic() + seconds, stopping)
        finally:
            end(process, place)
        return events(file)[1:], why


def watch(process, memory, until, stopping):
    """Wait for a process to end; return why it must end early, or an empty text."""
    while process.poll() is None and not stopping.is_set():
        below, used, threads = [], 0, 0
        with suppress(psutil.Error):
            below = psutil.Process(process.pid).children(recursive=True)
        for each in below:
            with suppress(psutil.Error):  # it has ended
                threads += each.num_threads()
                memory_of = each.memory_full_info()
                used += getattr(memory_of, "pss", memory_of.uss) / 1e9  # shared parts count once
        if threads > THREADS:
            return f"more than {THREADS} processes and threads"
        if used > memory:
            return f"more than {memory} GB of memory"
        if time.monotonic() > until:
            return "the notebook's time was over"
        time.sleep(0.5)
    return ""


def end(process, place):
    """Kill a process and all whose environment names the `place` of its events."""
    process.kill()
    process.wait()
    for _ in range(3):  # more may start meanwhile
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if each.environ().get("GRADE_EVENTS") == place:
                    each.kill()
