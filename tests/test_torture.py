"""What breaks courses at home: cells run twice, interrupts, kills, odd folders, disks, users, limits, variables."""

import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from copies import copy_of_course
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_code_cell, new_notebook

from course.checks import progress
from course.checks.core import all_keys
from course.pages import number_of
from course.tools import ROOT, _notebooks
from course.tools.execute import environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="made with tools of Linux"),
]
LESSONS = {
    number_of(path.name): path for path in _notebooks.find() if not path.name.startswith("92")
}
FOLLOWS = ("NameError", "ImportError", "CalledProcessError")  # after a cell that failed clearly


def failures(cells, root=ROOT, prefix=(), variables=()):
    """Run cells in order in a new kernel of the course at `root`; return "kind: message" of each unmeant error.

    `prefix` are words before the kernel's command line, such as ["taskset", "-c", "0"].
    """
    fresh = [new_code_cell(cell.source, metadata=dict(cell.metadata)) for cell in cells]
    notebook = new_notebook(cells=fresh)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        spec = Path(home, "kernels", "torture", "kernel.json")
        spec.parent.mkdir(parents=True)
        line = [*prefix, sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": line, "display_name": "torture", "language": "python"}))
        modules = os.pathsep.join([str(root), str(Path(root) / "practice_gpus/src")])
        kernel = environment(Path(home, "kept"), CUDA_VISIBLE_DEVICES="", PYTHONPATH=modules)
        kernel |= {"OMP_NUM_THREADS": "1", **dict(variables)}
        kernel = {name: value for name, value in kernel.items() if value is not None}
        client = NotebookClient(notebook, kernel_name="torture", timeout=240, allow_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_PATH", home)
            try:
                client.execute(env=kernel, cwd=str(Path(root) / "notebooks"))
            except (CellTimeoutError, DeadKernelError) as error:
                return [*unmeant(notebook.cells), f"{type(error).__name__}: {error}"]
    return unmeant(notebook.cells)


def unmeant(cells):
    """Return "kind: message" of each error in cells that aren't meant to raise."""
    return [
        f"{output.ename}: {output.evalue}"
        for cell in cells
        if "raises-exception" not in _notebooks.tags(cell)
        for output in cell.outputs
        if output.output_type == "error"
    ]


def code(lesson, root=ROOT):
    """Return the lesson's code cells."""
    cells = _notebooks.read(Path(root) / "notebooks" / LESSONS[lesson].name).cells
    return [cell for cell in cells if cell.cell_type == "code" and cell.source]


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_learner_may_run_every_cell_twice(lesson):
    assert failures([cell for cell in code(lesson) for _ in range(2)]) == []


# Done before the interrupts: an import that is broken off is repaired by a new kernel only.
# The kernel interrupts itself, as the stop button does, while a cell with STOP runs: never between two cells.
STOP = "# interrupted"
IMPORTS = f"""
import torch._dynamo, torch.profiler
import ipywidgets, practice_gpus, helpers.memory, helpers.plots, course.scripts, course.show.widgets

import os, signal, threading

def start(info):
    if (info.raw_cell or "").endswith({STOP!r}):
        global timer
        timer = threading.Timer(0.4, os.killpg, (os.getpgid(0), signal.SIGINT))
        timer.start()

timer = threading.Timer(0, print)
get_ipython().events.register("pre_run_cell", start)
get_ipython().events.register("post_run_cell", lambda result: timer.cancel())
"""


def test_an_interrupted_cell_runs_again():
    set_up, *others = code("04")[:14]
    cells = [new_code_cell(IMPORTS), set_up]
    for cell in others:
        cells += [new_code_cell(f"{cell.source}\n{STOP}"), cell]
    assert set(failures(cells)) <= {"KeyboardInterrupt: "}


# --- machines that nobody foresaw: (lesson, what prepares the kernel, failures that are clear messages)


def shell(text):
    """Return the words before a kernel's command line that run the shell lines `text` first, in mounts of its own."""
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("needs root with the right to mount")
    return ["unshare", "-m", "sh", "-ec", text + '\nexec "$@"', "sh"]


def odd_folder(folder):
    return {"root": copy_of_course(folder / "Kürs für GPUs 'und' 深度 {x} %s")}


def windows_line_ends(folder):
    def change(text):
        return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")

    return {"root": copy_of_course(folder / "course", change=change)}


def read_only(folder):
    root = copy_of_course(folder / "course")
    mounts = f"mount --bind '{root}' '{root}'\nmount -o remount,bind,ro '{root}'"
    return {"root": root, "prefix": shell(f"{mounts}\ncd '{root}/notebooks'")}


def no_home(folder):
    names = ("GPU_COURSE_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_DATA_DIR")
    return {"variables": {"HOME": "/proc/home", **dict.fromkeys(names)}}


def full_disk(folder):
    names = dict.fromkeys(("HOME", "GPU_COURSE_HOME", "TMPDIR"), "/mnt/full")
    lines = [
        "mount -t tmpfs -o size=2m none /mnt",
        "mkdir /mnt/full",
        f"HOME=/mnt/full '{sys.executable}' -m IPython profile create >/dev/null",
        "dd if=/dev/zero of=/mnt/fill bs=4k 2>/dev/null || true",
        "mount --bind /mnt/full /var/tmp",
    ]
    return {"variables": names, "prefix": shell("\n".join(lines))}


def one_core(folder):
    return {"prefix": ["taskset", "-c", str(min(os.sched_getaffinity(0)))]}


def few_files(folder):
    return {"prefix": ["prlimit", "--nofile=128:128"]}


def odd_variables(folder):
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_HOME")
    return {"variables": dict.fromkeys(names, "text")}


FULL = "No space left|PytorchStreamWriter|unexpected pos|No usable temporary"
PLACES = [
    ("04", odd_folder, ""),
    ("06", windows_line_ends, ""),
    ("04", read_only, ""),
    ("00", no_home, ""),
    ("04", full_disk, FULL),
    ("06", one_core, ""),
    ("06", few_files, ""),
    ("03", odd_variables, ""),
]


@pytest.mark.parametrize(("lesson", "place", "clear"), PLACES)
def test_a_lesson_runs_on_an_odd_machine_or_says_what_it_lacks(lesson, place, clear, tmp_path):
    options = place(tmp_path)
    found = failures(code(lesson, options.get("root", ROOT)), **options)
    told = [bool(clear and re.search(clear, each)) for each in found]
    follows = [any(told[:i]) and each.startswith(FOLLOWS) for i, each in enumerate(found)]
    assert [each for i, each in enumerate(found) if not told[i] and not follows[i]] == []


# --- kill -9 in the middle of what writes: what stood before still stands, and it goes on from there


def keep_progress(folder):
    """Keep one result after the other, in a process of its own."""
    os.environ["GPU_COURSE_HOME"] = str(folder)
    for key in [key for keys in all_keys().values() for key in keys]:
        progress.record(key, status="correct")


def train_on(path):
    """Train with a checkpoint after each epoch; go on where there is one."""
    script = [sys.executable, str(ROOT / "notebooks/scripts/train.py"), "--device", "cpu"]
    line = [*script, "--images", "32", "--epochs", "6", "--checkpoint", str(path)]
    os.execv(line[0], line + ["--resume"] * path.exists())


def killed(target, path, seconds):
    """Run `target(path)` in a process, kill it after so many seconds; return its exit status."""
    process = multiprocessing.get_context("fork").Process(target=target, args=(path,))
    process.start()
    process.join(seconds)
    process.kill()
    process.join(60)
    return process.exitcode


def test_a_kill_never_loses_progress(tmp_path):
    chance, before = random.Random(0), 0
    for _ in range(8):
        killed(keep_progress, tmp_path, chance.uniform(0.01, 0.15))
        file = tmp_path / "progress.json"
        now = len(json.loads(file.read_text())) if file.exists() else 0
        assert now >= before
        before = now
    assert killed(keep_progress, tmp_path, 60) == 0


def test_a_kill_never_loses_an_epoch(tmp_path):
    path, chance, before = tmp_path / "run.pt", random.Random(0), 0
    until = time.monotonic() + 120
    while before < 6 and time.monotonic() < until:
        killed(train_on, path, chance.uniform(4, 9))
        now = torch.load(path, weights_only=True)["epoch"] if path.exists() else 0
        assert now >= before
        before = now
    assert before == 6
