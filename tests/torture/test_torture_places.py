"""Lessons on machines that nobody foresaw: odd folders, disks, users, limits and variables.

Every scenario with every lesson would take hours, so each runs the lessons that use what it takes away.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
import strict
from copies import copy_of_course
from lesson_runs import LOST, run_lesson

from helpers import data
from helpers.checks import progress

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="made with tools of Linux")
FOLLOWS = (
    "NameError",
    "ImportError",
    "CalledProcessError",
)  # of cells that need what a failed one should have made
NOBODY = 65534  # a user without rights
PLACES = {}  # name: (function that gives options for the kernel, lessons that use what is missing, allowed failures)


def place(name, *lessons, allowed=""):
    """Note a scenario: `lessons` use what it takes away; failures whose text matches `allowed` are clear messages."""

    def note(function):
        PLACES[name] = function, lessons, allowed
        return function

    return note


@functools.cache
def mounts():
    """Tell whether this user may have mounts of its own."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
        ).returncode
        == 0
    )


def shell(text):
    """Return the words before a kernel's command line that run the shell lines `text` first, in mounts of its own."""
    if not mounts():
        pytest.skip("needs root with the right to mount")
    text = textwrap.dedent(text).strip() + '\nexec "$@"'
    return ["unshare", "-m", "sh", "-ec", text, "sh"]


@place("folder: spaces and letters", "01", "04", "06")
def odd_folder(folder):
    return {"root": copy_of_course(folder / "Kürs für GPUs 'und' 深度 {x} %s")}


@place("checkout: read-only", "00", "04", "06")
def read_only(folder):
    root = copy_of_course(folder / "course")
    return {
        "root": root,
        "prefix": shell(
            f"mount --bind '{root}' '{root}'\nmount -o remount,bind,ro '{root}'\n"
            f"cd '{root}/notebooks'"
        ),
    }


@place("home: not writable", "00", "02", "90")
def no_home(folder):
    names = ("GPU_COURSE_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_DATA_DIR")
    return {"variables": {"HOME": "/proc/home", **dict.fromkeys(names)}}


@place(
    "disk: full",
    "00",
    "04",
    "06",
    allowed="No space left|PytorchStreamWriter|unexpected pos|No usable temporary",
)
def full_disk(folder):
    return {
        "root": copy_of_course(folder / "course"),
        "variables": {
            "HOME": "/mnt/home",
            "GPU_COURSE_HOME": "/mnt/home/kept",
            "TMPDIR": "/mnt/tmp",
            "PYTHONPATH": "/mnt/course",
        },
        "prefix": shell(f"""
            mount -t tmpfs -o size=32m none /mnt
            cp -r '{folder}/course' /mnt/course
            mkdir /mnt/home /mnt/tmp
            HOME=/mnt/home '{sys.executable}' -m IPython profile create >/dev/null
            dd if=/dev/zero of=/mnt/fill bs=4k 2>/dev/null || true
            mount --bind /mnt/tmp /var/tmp
            mount --bind /mnt/tmp /tmp
            cd /mnt/course/notebooks"""),
    }


@place("user: not root", "00", "04", "05")
def other_user(folder):
    if os.geteuid() != 0:
        pytest.skip("this is no root anyway")
    (folder / "home").mkdir()
    os.chown(folder / "home", NOBODY, -1)
    return {
        "prefix": ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"],
        "variables": {"HOME": str(folder / "home"), "GPU_COURSE_HOME": str(folder / "home/kept")},
    }


def with_windows_line_ends(text):
    """Return the bytes of a text file as git writes it on Windows."""
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


@place("scripts: Windows line ends", "01", "04", "06")
def windows_line_ends(folder):
    return {"root": copy_of_course(folder / "course", change=with_windows_line_ends)}


@place("64 open files beside the kernel's own", "04", "06")
def few_files(folder):
    return {
        "prefix": ["prlimit", "--nofile=128:128"]
    }  # the kernel alone, before any lesson, opens about 60


@place(
    "no /dev/shm",
    "04",
    "06",
    allowed="shared memory|/dev/shm|Function not implemented|SemLock|Read-only file",
)
def no_shared_memory(folder):
    return {"prefix": shell("mount -t tmpfs -o ro,size=4k none /dev/shm")}


@place("no compiler", "08", "90", "91")
def no_compiler(folder):
    (folder / "bin").mkdir()
    for name in filter(shutil.which, ("sh", "git", "ls", "cat")):
        (folder / "bin" / name).symlink_to(shutil.which(name))
    (folder / "bin/python").symlink_to(sys.executable)
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    return {"variables": {"PATH": str(folder / "bin"), "CC": None, "CXX": None, **cache}}


@place("no network", "01", "04", "06")
def no_network(folder):
    if not strict.offline_possible():
        pytest.skip("this system gives no namespace without interfaces")
    return {"prefix": [*strict.OFFLINE, sys.executable, "-c", strict.LOOPBACK], "sockets": True}


CLOCK = """
import time
_true, _calls = time.time, [0]
def wrong():  # ten years early, and an hour back at every tenth look
    _calls[0] += 1
    return _true() - 10 * 365 * 86400 - 3600 * (_calls[0] // 10)
time.time = wrong
"""


@place("clock: wrong, runs back", "00", "04", "07")
def wrong_clock(folder):
    (folder / "sitecustomize.py").write_text(CLOCK)
    return {"variables": {"PYTHONPATH": str(folder)}}


@place("one core", "03", "06", "07")
def one_core(folder):
    return {"prefix": ["taskset", "-c", str(min(os.sched_getaffinity(0)))]}


@place("2 GB of memory", "04", "05", "06", "08")
def little_memory(folder):
    return {"prefix": ["prlimit", f"--data={2 * 2**30}"]}


VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_HOME")


@place("variables: text", "01", "03", "05")
def odd_variables(folder):
    return {"variables": dict.fromkeys(VARIABLES, "text")}


def outcome_of_lesson(name, lesson, folder):
    """Return the failures of a lesson in the scenario `name`."""
    return run_lesson(lesson, **PLACES[name][0](folder))


CASES = [(name, lesson) for name, (_, lessons, _) in PLACES.items() for lesson in lessons]


@pytest.mark.parametrize(("name", "lesson"), CASES, ids=lambda value: value.replace(" ", "_"))
def test_lesson(name, lesson, outcome):
    assert unclear(outcome(), PLACES[name][2], 0) == []


def unclear(failures, allowed, set_up):
    """Return the failures that are no clear message and follow from none; all follow from one of cell `set_up`."""
    clear = [
        bool(allowed and re.search(allowed, f"{failure.kind}: {failure.text}"))
        for failure in failures
    ]
    follows = [
        any(clear[:i])
        and failure.kind not in LOST
        and (failure.kind in FOLLOWS or failures[0].cell == set_up)
        for i, failure in enumerate(failures)
    ]
    return [failure for i, failure in enumerate(failures) if not clear[i] and not follows[i]]


def test_a_user_without_a_home_folder_is_told_or_goes_on(tmp_path, monkeypatch):
    import pwd

    for name in ("HOME", "XDG_DATA_HOME", "GPU_COURSE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    monkeypatch.setattr(progress, "_memory", {})
    monkeypatch.chdir(tmp_path)
    assert progress.record("02.same", status="correct") is False
    assert progress.load() == {"02.same": {"status": "correct"}} and list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="root: this user has no home folder; give root"):
        data.load("cifar-10")
