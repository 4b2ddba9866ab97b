"""The walls around learners' code: namespaces, limits, a private home, and an end for every process it starts.

Sealed (Linux, where the system lets this user make namespaces): no network, a process table of its own, every file
read-only except a private 256 MB folder in memory, the folder of submissions hidden. As root, learners' code runs
under a user id of its own, which may read files and nothing else. Elsewhere only limits and the private home remain:
the code can then read and write what the person who grades can.
"""

import ctypes
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from helpers.commands._environment import ROOT

PROCESSES, FILE_MB, FOLDER = 64, 64, b"size=256m,mode=1777"
FIRST_USER = 1_900_000_000  # user ids from here on belong to nobody
INHERITED = {"PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT"}
NEW_FOLDERS, NEW_USER, NEW_REST = (
    0x20000,
    0x10000000,
    0x8000000 | 0x20000000 | 0x40000000,
)  # IPC, PID, NET
PRIVATE, PLAIN = 0x4000 | 0x40000, 2 | 4  # MS_REC | MS_PRIVATE; MS_NOSUID | MS_NODEV
READ_ANY = 1 << 2  # CAP_DAC_READ_SEARCH: Python itself may lie in a folder that only root may open


def system(name, *arguments):
    """Call the C library's function `name`; OSError where it fails."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def mount(kind, place, flags=PLAIN, options=None):
    """Mount an empty file system of this kind at a path; with kind None change the mount that is there."""
    system("mount", kind, os.fsencode(place), kind, ctypes.c_ulong(flags), options)


def leave():
    """Leave the network, the mounts, and for later children the process table; OSError where that is forbidden."""
    user, group = os.geteuid(), os.getegid()
    system("unshare", NEW_FOLDERS | NEW_REST | (NEW_USER if user else 0))
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", name).write_text(text)


def seal(folder, hidden=None):
    """As the first process after `leave`: make all files read-only but `folder`, and hide the folder `hidden`."""
    import fcntl

    with socket.socket() as any_socket:  # processes of one exercise talk over loopback
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    mount(None, "/", PRIVATE)
    mount(b"proc", "/proc")
    system(
        "syscall",
        *map(ctypes.c_long, (442, -100)),
        b"/",
        ctypes.c_long(0x8000),  # mount_setattr, AT_RECURSIVE
        struct.pack("4Q", 1, 0, 0, 0),
        ctypes.c_long(32),
    )  # MOUNT_ATTR_RDONLY
    for place in (folder, "/dev/shm"):
        mount(b"tmpfs", place, options=FOLDER)
    kept = (
        ROOT,
        Path(folder),
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path("/proc"),
        Path("/dev/shm"),
    )
    if hidden and not any(path.resolve().is_relative_to(hidden) for path in kept):
        mount(b"tmpfs", hidden, PLAIN | 1)


def drop(user):
    """Give up every right to change the system; become `user` unless it is None, keeping the right to read."""
    rights = READ_ANY if user else 0
    if user:
        system("prctl", 8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    system(
        "capset",
        struct.pack("Ii", 0x20080522, 0),
        struct.pack("6I", rights, rights, rights, 0, 0, 0),
    )
    if user:
        system(
            "prctl", 47, 2, 2, 0, 0
        )  # PR_CAP_AMBIENT_RAISE: children that are other programs read, too
    system("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def tried(action):
    """Run `action` in a child process and tell whether it ended without an exception."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def possible(folder):
    """Return (sealed, user): whether `seal` works here, and whether learners' code can have a user id of its own."""
    if sys.platform != "linux":
        return False, False

    def walls():
        leave()
        assert tried(partial(seal, folder))

    def another():
        drop(FIRST_USER)
        os.chdir(ROOT)
        subprocess.run(
            [sys.executable, "-c", "import helpers.checks.core"],
            check=True,
            stderr=subprocess.DEVNULL,
        )

    return tried(walls), os.geteuid() == 0 and tried(another)


def guard():
    """In a process that watches others: outlive no parent, adopt orphans, take no Ctrl-C, show nothing."""
    if sys.platform == "linux":
        system("prctl", 1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG
        system("prctl", 36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    quiet()


def quiet():
    """Leave the terminal: a session of its own, standard input and output empty."""
    with suppress(AttributeError, OSError):  # not on Windows; or it has one
        os.setsid()
    empty = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(empty, stream)


def confine(job, kept):
    """In the process of learners' code: nothing open but descriptor `kept`, a private home, limits, no rights."""
    quiet()
    os.closerange(3, kept)
    os.closerange(kept + 1, 65536)
    home = tempfile.mkdtemp(dir=job["work"])
    inherited = {name: os.environ[name] for name in INHERITED & os.environ.keys()}
    os.environ.clear()
    os.environ.update(
        inherited,
        HOME=home,
        TMPDIR=home,
        GPU_COURSE_HOME=home,
        USER="learner",
        MPLBACKEND="Agg",
        CUDA_VISIBLE_DEVICES="",
        OMP_NUM_THREADS="1",
        PYTHONPATH=str(ROOT),
        PYTHONDONTWRITEBYTECODE="1",
    )
    tempfile.tempdir = None
    os.chdir(home)
    with suppress(ImportError):  # on Windows
        import resource

        sizes = {
            "AS": psutil.Process().memory_info().vms + job["memory"],
            "CPU": int(job["seconds"]) + 2,
            "FSIZE": FILE_MB * 2**20,
            "CORE": 0,
            "NOFILE": 512,
            **({"NPROC": 4 * PROCESSES} if job["few"] else {}),
        }
        for name, size in sizes.items():
            with suppress(ValueError):  # where the limit is lower already
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (size, size))
    if sys.platform == "linux":
        os.chown(home, job["user"] or -1, -1)
        drop(job["user"])


def excess(memory):
    """Return why the processes below this one are too much, or an empty text.

    Memory that processes share counts once ("pss"); reading that is slow, so a bound is looked at first.
    """
    below = psutil.Process().children(recursive=True)
    if len(below) > PROCESSES:
        return f"more than {PROCESSES} processes"
    for read in "memory_info", "memory_full_info":
        total = 0
        for process in below:
            with suppress(psutil.Error):
                facts = getattr(process, read)()
                total += getattr(facts, "pss", facts.rss - getattr(facts, "shared", 0))
        if total <= memory:
            return ""
    return f"more than {memory / 1e9:g} GB of memory"


def end_below(process=None):
    """Kill every descendant of process number `process` (None: this one), until none is left."""
    alive = True
    while alive:
        alive = []
        with suppress(OSError):
            _ = process is None and os.getpid() == 1 and os.kill(-1, 9)
        with suppress(psutil.Error):
            for each in psutil.Process(process).children(recursive=True):
                with suppress(psutil.Error):
                    if each.status() != psutil.STATUS_ZOMBIE:
                        alive.append(each)
                        each.kill()
        time.sleep(0.01 * bool(alive))
