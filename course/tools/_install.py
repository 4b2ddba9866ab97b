"""The course's environment in .venv, installed by uv: complete or not at all, gone on with later. Only standard library."""

import contextlib
import functools
import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from course import files
from course.tools import ROOT, _venv
from course.tools._venv import python_of

VENV = ROOT / ".venv"
STAMP = "course-stamp.txt"  # in every environment that the course made; says what is complete
WHEELS = "https://download.pytorch.org/whl/"
VERSIONS = "course/tools/versions.txt"  # that suit each other, installed unless --latest
PACK = "pack.json"  # what `pack` writes about its folder, beside wheels/
# What a lesson imports; where torch and torchvision are of different builds, the last call fails.
TRIAL = """
import sys
sys.path.insert(0, ".")
import torch, torchvision, jupyterlab, ipywidgets, matplotlib, helpers, practice_gpus
torchvision.ops.nms(torch.rand(2, 4), torch.rand(2), 0.5)
print("PyTorch", torch.__version__, "is ready.")
"""
TRIED = "the first import of PyTorch"


class SetupError(RuntimeError):
    """The environment cannot be made; the text says why and what to do."""


def stamp() -> list:
    """Return what the last complete installation wrote, [fingerprint, build of PyTorch, extras]; [] where none did."""
    try:
        lines = (VENV / STAMP).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return []
    return lines if len(lines) == 3 and python_of(VENV).exists() else []


def complete(wheels: str, extras: list) -> list:
    """Return the stamp of an environment with a build of PyTorch and lists of pyproject.toml."""
    parts = [(ROOT / name).read_bytes() for name in ("requirements.txt", "pyproject.toml")]
    parts += [str(ROOT).encode(), str(python_of(VENV).resolve()).encode()]
    return [hashlib.sha256(b"\0".join(parts)).hexdigest()[:16], wheels, " ".join(extras)]


def machine() -> str:
    """Return what wheels are made for, in words: the version of Python, the system and its processor."""
    return f"Python {sysconfig.get_python_version()} on {platform.system()} {platform.machine()}"


def manifest() -> dict:
    """Return what `pack` wrote about this folder ({"for": machine(), "wheels": build}); in a clone an empty dict."""
    path = ROOT / PACK
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def ensure(wheels: str | None = None, extras: Sequence[str] = (), latest: bool = False) -> Path:
    """Return the Python of a complete environment, making or repairing it first; SetupError says what to do.

    `wheels` names a build of PyTorch ("cpu", "cu130"), or "default" for that of the plain package index; None keeps what
    is there, or lets uv look for a driver and choose. `extras` names lists of pyproject.toml, such as "test", installed
    on top and kept. A folder made by `pack` installs its own wheels, with no network.
    """
    _, build, more = stamp() or ("", "", "")
    if build and wheels not in (None, build):
        raise SetupError(f"{VENV} holds the {build} build. Delete that folder to change it.")
    wheels = wheels or build or manifest().get("wheels", "auto")
    extras = sorted({*extras, *more.split()})
    if stamp() != complete(wheels, extras) or latest:
        with alone() as lock:
            check()
            known = _venv.has(VENV, "torch")
            look_through()
            source = obtainable(wheels)
            if not known and gigabytes(source) > 2 and not manifest():
                picked = choice(source)
                source, wheels = picked, wheels if picked == source else picked
            check_room(source)
            make(source, extras, latest, lock, known)
            files.write(VENV / STAMP, "\n".join(complete(wheels, extras)))  # the last step
    return python_of(VENV)


def look_through() -> None:
    """Take away what is broken in an environment that is there: it was stopped half-way, or its Python has gone."""
    _venv.remove_rest(VENV)
    if not os.path.lexists(VENV):
        return
    version = _venv.version(VENV)
    starts = version and (not manifest() or version == sysconfig.get_python_version())
    torn = _venv.mend(VENV) if starts else []
    if not starts or "pip" in torn:
        print(f"{VENV} has no Python that works here: it is made anew.", flush=True)
        _venv.discard(VENV)
    elif torn:
        print(f"Not whole, so installed again: {', '.join(torn)}.", flush=True)


def make(source: str, extras: list, latest: bool, lock: Sequence[int], known: bool) -> None:
    """Install and try everything; where PyTorch was `known` here before and does not work, the whole is made anew, once."""
    make_venv(lock)
    install(source, extras, latest, lock)
    try:
        call(TRIED, [python_of(VENV), "-I", "-c", TRIAL], lock)
    except SetupError:
        if not known:
            raise
        print(f"{VENV} does not work: it is made anew, from what was fetched already.", flush=True)
        _venv.discard(VENV)
        make(source, extras, latest, lock, known=False)


@contextlib.contextmanager
def alone() -> Iterator[tuple[int, ...]]:
    """Give a lock on the course's folder that lasts as long as any program of the installation; Windows has none."""
    if os.name == "nt":
        yield ()
        return
    import fcntl

    handle = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield (handle,)
    except BlockingIOError:
        raise SetupError(f"Another installation is at work in {ROOT}: wait for its end.") from None
    finally:
        os.close(handle)


def call(step: str, command: list, lock: Sequence[int] = ()) -> None:
    """Run one step of the installation, its words on the screen; SetupError with the likely cause when it fails."""
    if not _venv.run(step, command, ROOT, lock):
        return
    cause = f"Does the network answer (HTTPS_PROXY)? Has PyTorch a wheel for {machine()}?"
    if manifest():
        cause = "A file in wheels/ is missing or damaged: copy the folder again, or pack it again."
    again = "Then run the same command again: it goes on where it stopped."
    raise SetupError(f"{step} failed; the reason stands above. {cause} {again}")


def gigabytes(wheels: str) -> float:
    """Return the GB of disk that an installation takes, or a pack while it is made."""
    gpu = wheels != "cpu"
    if wheels == "auto":
        gpu = bool(shutil.which("nvidia-smi") or shutil.which("rocm-smi"))
    return 8 if gpu and (sys.platform == "linux" or wheels.startswith(("cu1", "rocm"))) else 1.5


def check() -> None:
    """Print what is here; SetupError where Python, a pack or an environment of others will not do."""
    free = shutil.disk_usage(ROOT).free / 1e9
    packed = manifest().get("for", machine())
    version = sys.version_info
    if version < (3, 10):
        raise SetupError(f"{machine()} is too old: 3.10 or later is needed.")
    if packed != machine():
        raise SetupError(f"This folder was packed for {packed}; this is {machine()}.")
    if os.path.lexists(VENV) and not _venv.is_ours(VENV, STAMP):
        raise SetupError(
            f"{VENV} is there, and the course did not make it, so it stays as it is. Rename or delete it. Or use an "
            "environment of your own: in it, pip install -r requirements.txt, then python lab.py --here."
        )
    print(f"{machine()}, {free:.0f} GB free.", flush=True)
    if _venv.left_out():
        print(
            f"Set here, and not used for the course's environment: {', '.join(_venv.left_out())}."
        )


def obtainable(wheels: str) -> str:
    """Return the build of PyTorch to ask for; SetupError where the index that has it does not answer.

    Then the plain package index serves, whose build suits GPUs on Linux and CPUs elsewhere.
    """
    if wheels == "default" or manifest().get("wheels") == wheels or answers():
        return wheels
    if (
        wheels == "auto"
        or (wheels == "cpu" and sys.platform != "linux")
        or _venv.has(VENV, "torch")
    ):
        print(f"{WHEELS} does not answer: the plain package index's PyTorch instead.", flush=True)
        return "default"
    raise SetupError(
        f"{WHEELS} does not answer, and PyTorch's {wheels} build is only there. Try again later. Or take the plain "
        f"package index's, which needs {gigabytes('default')} GB of disk here: --wheels default"
    )


def choice(build: str) -> str:
    """Say how much a build of PyTorch takes, before it is fetched; a person at a terminal chooses. Return the build."""
    smaller = answers()
    print(f"About 3 GB are fetched; they take 6 GB in {VENV}.", flush=True)
    if smaller:
        print(
            "With PyTorch's CPU build it is 0.3 GB to fetch, and 1.1 in the end: --cpu", flush=True
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return build
    try:
        word = (
            input(f"Enter goes on, {'c takes the CPU build, ' * smaller}q stops: ").strip().lower()
        )
    except EOFError:
        word = "q"
    if word not in ("", "c"[:smaller]):
        raise SetupError("Stopped; nothing was fetched.")
    return "cpu" if word == "c" else build


def check_room(build: str) -> None:
    """Raise SetupError where the disk is too small for an environment that is not there yet."""
    free, size = shutil.disk_usage(ROOT).free / 1e9, gigabytes(build)
    if not VENV.exists() and free < size:
        smaller = "; --cpu takes 1.5 GB" * (size > 2 and answers())
        raise SetupError(f"This needs {size} GB, {free:.1f} are free{smaller}.")


def make_venv(lock: Sequence[int]) -> None:
    """Make .venv where there is none; in any case it is incomplete from here on."""
    known = python_of(VENV).exists()
    VENV.mkdir(exist_ok=True)
    files.write(VENV / STAMP, "")
    step = "python -m venv (on Debian and Ubuntu: sudo apt install python3-venv)"
    if not known:
        call(
            step, [getattr(sys, "_base_executable", sys.executable), "-I", "-m", "venv", VENV], lock
        )


def install(source: str, extras: list, latest: bool, lock: Sequence[int]) -> None:
    """Install uv, and with it the course; its lines say what is fetched, how large it is, and what is done.

    Compiled at once, so that no program that starts later compiles PyTorch for itself.
    """
    python = python_of(VENV)
    packed = ["--no-index", "--find-links", "wheels"] * (manifest().get("wheels") == source)
    call("pip", [python, "-I", "-m", "pip", "install", "-q", *packed, "uv"], lock)
    command = [python, "-I", "-m", "uv", "pip", "install", "--compile-bytecode", "--python", python]
    command += [*packed, "-r", "requirements.txt"]
    command += ["-e", f".[{','.join(extras)}]"] if extras else []
    command += [] if packed or latest else ["--constraints", VERSIONS]
    command += [] if packed or source == "default" else ["--torch-backend", source]
    call("uv", command, lock)


@functools.cache
def answers() -> bool:
    """Tell whether PyTorch's own package index answers."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{WHEELS}cpu/torch/", timeout=10):
        return True
    return False
