"""Run a submission and note what each check sees, in a sandbox: Python, the course, an empty folder, no network."""

import ast
import ctypes
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

from helpers.checks import core
from lessons import all_keys
from tools import ROOT

EVENTS = os.environ.get("GRADE_EVENTS", "")
CHECK = re.compile(r"\b(\w+)\.check\(")  # the exercise's name in ex.NAME.check(
JUDGES = ("exercises", "helpers.checks", "builtins")
THREADS = 128  # of all processes together; beyond that, a run is ended
THIS = "__import__('tools._grade_run', fromlist=['*'])."  # in another process
unchanged = {}  # in the kernel: the functions of the checks before any cell
SYSTEM = "/usr /bin /sbin /lib /lib64 /etc/ld.so.cache /etc/alternatives /etc/hosts /etc/fonts"
SEALED = """bwrap --die-with-parent --new-session --unshare-ipc --unshare-pid --unshare-net --unshare-uts
    --unshare-cgroup-try --hostname localhost --proc /proc --dev /dev
    --size 268435456 --perms 1777 --tmpfs /tmp --size 268435456 --perms 1777 --tmpfs /dev/shm"""


def sealed(file, inside, hidden):
    """Return the words that, before a command, put it into a sandbox, where `file` has the path `inside`."""
    python = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])]
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    course = [ROOT / room for room in "helpers exercises practice_gpus notebooks/scripts".split()]
    user = "--unshare-user" if os.geteuid() else "--cap-add CAP_SETUID --cap-add CAP_SETGID"
    line = f"{SEALED} {user}".split()
    for place in [*SYSTEM.split(), "/sys/devices/system", *python, *packages, *course]:
        line += [word for path in reversed(Path(place).parents) for word in ("--dir", path)]
        line += ["--ro-bind-try", place, place]
        line += ["--tmpfs", hidden] if Path(hidden).is_relative_to(place) else []
    return [*line, "--bind", str(file), inside, "--remount-ro", "/", "--chdir", "/tmp"]


def problem():
    """Return why no sandbox works here, an empty text where one does."""
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed; on Linux: apt install bubblewrap libseccomp2"
    code = f"import ipykernel; {THIS}refuse()"
    line = [*sealed(os.devnull, "/events", "/none"), sys.executable, "-c", code]
    child = subprocess.run(line, text=True, capture_output=True, env=environment("/tmp", ""))
    if "libseccomp.so" in child.stderr:
        return "install libseccomp2 (Debian, Ubuntu) or libseccomp (Fedora, Arch) for it"
    if child.returncode == 0:
        return ""
    return (child.stderr.strip().splitlines() or ["bwrap fails"])[-1]


def environment(home, place):
    """Return the environment variables of learners' code."""
    names = {"PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT"} & os.environ.keys()
    variables = {name: os.environ[name] for name in names}
    variables |= dict.fromkeys(("HOME", "TMPDIR", "TEMP", "GPU_COURSE_HOME"), home)
    variables |= {"USER": "learner", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return {**variables, "PYTHONPATH": str(ROOT), "GRADE_EVENTS": place}


def run(cells, args, seconds, stopping):
    """Run cells, at most until the event `stopping`; return what was noted, and why they were ended early, or ""."""
    job = {"cells": cells, "seconds": seconds, "memory": args.memory, "sealed": not args.unsealed}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        file = Path(home, "events")
        place = str(file) if args.unsealed else f"/{Path(home).name}"
        file.write_text(json.dumps(job) + "\n", encoding="utf-8")
        file.chmod(0o666)
        sandbox = [] if args.unsealed else sealed(file, place, os.path.realpath(args.folder))
        variables = environment(home if args.unsealed else "/tmp", place)
        options = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        options |= {"cwd": home, "env": variables, "start_new_session": True}
        process = subprocess.Popen([*sandbox, sys.executable, "-c", THIS + "main()"], **options)
        try:
            reason = watch(process, args.memory, time.monotonic() + seconds, stopping)
        finally:
            end(process, place)
        return events(file)[1:], reason


def watch(process, memory, until, stopping):
    """Wait for a process to end; return why it must end early, or an empty text."""
    while process.poll() is None and not stopping.is_set():
        reason = excess(process.pid, memory)
        if reason or time.monotonic() > until:
            return reason or "the notebook's time was over"
        time.sleep(0.5)
    return ""


def excess(pid, memory):
    """Return what all processes below one take too much of, or an empty text."""
    used = threads = 0
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            threads += process.num_threads()
            info = process.memory_full_info()
            used += getattr(info, "pss", info.uss) / 1e9  # shared parts count once
    if threads > THREADS:
        return f"more than {THREADS} processes and threads"
    if used > memory:
        return f"more than {memory} GB of memory"
    short = psutil.virtual_memory().percent > 95  # buffers of sockets: nobody's
    return "the machine's memory ran short" if short else ""


def end(process, place):
    """Kill a process and all whose environment names the `place` of its events, until none is left."""
    process.kill()
    process.wait()
    until = time.monotonic() + 5
    while any([killed(other, place) for other in psutil.process_iter()]):
        if time.monotonic() >= until:
            break
        time.sleep(0.05)  # until their memory is given back; more may start meanwhile


def killed(process, place):
    """Kill a process whose environment names the `place`; tell whether it was there."""
    with suppress(psutil.Error):
        if process.environ().get("GRADE_EVENTS") == place:
            process.kill()
            return True
    return False


def note(**event):
    """Add an event to the file of events."""
    with open(EVENTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def events(path):
    """Return the events in a file, a list of dicts; whatever else stands there is left out."""
    values = []
    for line in Path(path).read_bytes()[: 2**24].splitlines():
        with suppress(ValueError, RecursionError):
            values.append(json.loads(line))
    return [event for event in values if isinstance(event, dict)]


def record():
    """In the kernel, where learners' code could forge it: note every outcome from now on, and plain answers."""
    original = core.Exercise.outcome

    def outcome(exercise, answer=None):
        result = original(exercise, answer)
        text = repr(answer)[:10_000] if type(answer) in (dict, list, tuple, str, int, float) else ""
        note(key=exercise.key, status=result.status, message=result.message[:400], value=text)
        if str(getattr(answer, "__module__", "")).startswith("lessons."):
            note(review=f"the course's own answer to {exercise.name}")
        return result

    core.Exercise.outcome = outcome
    all_keys()  # imports all lessons
    unchanged.update(judges())


def judges():
    """Return {(module or class, name): code} of the functions of the checks, and of the built-in ones."""
    modules = [module for name, module in sys.modules.items() if name.startswith(JUDGES)]
    functions = {}
    for place in [*modules, core.Exercise]:
        for name, value in vars(place).items():
            function = getattr(value, "check_answer", value)
            if callable(function):
                functions[place, name] = getattr(function, "__code__", function)
    return functions


def recheck(calls):
    """In the kernel, at the end: call what has not passed, its answer may stand below; note what cells replaced."""
    solved = [e["key"][3:] for e in events(EVENTS) if e.get("status") == core.CORRECT]
    for call, name in calls:
        if name not in solved:
            get_ipython().run_cell(call)  # noqa: F821 - the kernel has it
    current = judges()
    for key in [key for key in unchanged if current.get(key) != unchanged[key]]:
        note(review=f"replaced {key[1]}")


def checks(source):
    """Return (call, exercise's name) for each statement of a cell that only checks an answer."""
    calls = []
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # magics, or no Python
        calls += [ast.unparse(n) for n in ast.parse(source).body if isinstance(n, ast.Expr)]
    return [(call, CHECK.search(call)[1]) for call in calls if CHECK.search(call)]


def main():
    """Run the notebook of the job; then check plain answers again here, where no cell has run."""
    job = events(EVENTS)[0]
    confine(job)
    run_notebook(job)
    for event in [event for event in events(EVENTS) if event.get("status") == core.CORRECT]:
        with suppress(ValueError, SyntaxError):  # no plain value
            answer = ast.literal_eval(event["value"])
            exercise = pkgutil.resolve_name(
                "lessons.lesson" + event["key"].replace(".", ".exercises.", 1)
            )
            if exercise.outcome(answer).status != core.CORRECT:
                note(review=f"{exercise.name} differs when checked again")
    note(end=True)


def confine(job):
    """Set limits for this process and all below it, and become an ordinary user where root is sealed in."""
    limits = {"DATA": job["memory"] * 10**9, "FSIZE": 2**26, "CORE": 0}
    if job["sealed"]:
        refuse()
        limits["NPROC"] = THREADS + 50  # outside, all that the user runs would count
    with suppress(ImportError):  # on Windows
        import resource

        os.nice(5)  # so that `grade`, which watches, has its turn
        for name, size in limits.items():
            with suppress(ValueError, OSError):  # there is a lower limit already
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (size, size))
    if job["sealed"] and os.geteuid() == 0:
        nobody = 1_900_000_000 + os.stat(EVENTS).st_ino % 10**8  # another one for each run
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)


def refuse():
    """Let calls for memory that no process owns fail, here and in all processes below: they are "not implemented"."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(0x7FFF0000))  # allow what is not named
    for name in (b"memfd_create", b"memfd_secret", b"shmget", b"mount", b"fsopen"):
        library.seccomp_rule_add(rules, 0x50026, library.seccomp_syscall_resolve_name(name), 0)
    if library.seccomp_load(rules):
        raise OSError("seccomp does not work")


def run_notebook(job):
    """Run all cells, each with its time, then once more the checks that have not passed."""
    shutil.copytree(ROOT / "notebooks/scripts", "scripts")
    calls = [pair for source in job["cells"] for pair in checks(source)]
    sources = [THIS + "record()", *job["cells"], f"{THIS}recheck({calls})"]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    client = NotebookClient(notebook, timeout=int(job["seconds"] / 2), kernel_name="python3")
    client.allow_errors = True
    client.on_cell_start = lambda cell, cell_index: begin(cell_index, job["memory"])
    client.on_cell_error = lambda cell, cell_index, execute_reply: note(
        cell=cell_index, error="{ename}: {evalue}".format(**execute_reply["content"])[:400]
    )
    client.execute()


def begin(cell, memory):
    """Note that a cell begins; not when `grade` is about to end the run, which the cell before is to blame for."""
    while excess(os.getpid(), memory):
        time.sleep(0.1)
    note(begin=cell)
