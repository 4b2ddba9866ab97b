"""The course's environment in .venv, installed by uv: complete or not at all, gone on with later. Only standard library."""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from course import files
from course.tools import ROOT

VENV = ROOT / ".venv"
STAMP = "course-stamp.txt"  # in every environment that the course made; says what is complete
WHEELS = "https://download.pytorch.org/whl/"
VERSIONS = "course/tools/versions.txt"  # that suit each other, installed unless --latest
PACK = "pack.json"  # what `pack` writes about its folder, beside wheels/
# What a lesson imports; where torch and torchvision are of different builds, the last call fails.
TRIAL = """
import torch, torchvision, jupyterlab, ipywidgets, matplotlib, helpers, practice_gpus
torchvision.ops.nms(torch.rand(2, 4), torch.rand(2), 0.5)
print("PyTorch", torch.__version__, "is ready.")
"""


class SetupError(RuntimeError):
    """The environment cannot be made; the text says why and what to do."""


def python_of(venv: Path) -> Path:
    """Return the path of the Python inside the environment at `venv`."""
    return Path(venv) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


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
            check(wheels)
            make_venv(lock)
            install(wheels, extras, latest, lock)
            call("the first import of PyTorch", [python_of(VENV), "-c", TRIAL], lock)
            files.write(VENV / STAMP, "\n".join(complete(wheels, extras)))  # the last step
    return python_of(VENV)


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
    process = subprocess.Popen([str(word) for word in command], cwd=ROOT, pass_fds=lock)
    try:
        if not process.wait():
            return
    finally:
        process.terminate()  # with this program
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


def check(wheels: str) -> None:
    """Print what is to be done; SetupError where Python, the disk, a pack or an environment of others will not do."""
    free, size, version = shutil.disk_usage(ROOT).free / 1e9, gigabytes(wheels), sys.version_info
    packed = manifest().get("for", machine())
    if version < (3, 10):
        raise SetupError(f"{machine()} is too old: 3.10 or later is needed.")
    if packed != machine():
        raise SetupError(f"This folder was packed for {packed}; this is {machine()}.")
    if os.path.lexists(VENV) and (VENV.is_symlink() or not (VENV / STAMP).exists()):
        raise SetupError(
            f"{VENV} is there, and the course did not make it, so it stays as it is. Rename or delete it. Or use an "
            "environment of your own: in it, pip install -r requirements.txt, then python lab.py --here."
        )
    if not VENV.exists() and free < size:
        raise SetupError(f"This needs {size} GB, {free:.1f} are free; --cpu takes 1.5 GB.")
    print(f"{machine()}, {free:.0f} GB free. PyTorch's build: {wheels}.", flush=True)


def make_venv(lock: Sequence[int]) -> None:
    """Make .venv, incomplete from here on; over one that is there, venv repairs what starts Python and pip."""
    VENV.mkdir(exist_ok=True)
    files.write(VENV / STAMP, "")
    step = "python -m venv (on Debian and Ubuntu: sudo apt install python3-venv)"
    call(step, [sys.executable, "-m", "venv", VENV], lock)


def install(wheels: str, extras: list, latest: bool, lock: Sequence[int]) -> None:
    """Install uv, and with it the course; its lines say what is fetched, how large it is, and what is done.

    Compiled at once, so that no program that starts later compiles PyTorch for itself.
    """
    python = python_of(VENV)
    packed = ["--no-index", "--find-links", "wheels"] * (manifest().get("wheels") == wheels)
    call("pip", [python, "-m", "pip", "install", "-q", *packed, "uv"], lock)
    command = [python, "-m", "uv", "pip", "install", "--compile-bytecode", "--python", python]
    command += [*packed, "-r", "requirements.txt"]
    command += ["-e", f".[{','.join(extras)}]"] if extras else []
    command += [] if packed or latest else ["--constraints", VERSIONS]
    if wheels == "auto" and not packed and not answers():
        print(f"{WHEELS} does not answer: the plain package index's PyTorch instead.")
        wheels = "default"
    command += [] if packed or wheels == "default" else ["--torch-backend", wheels]
    if not packed and gigabytes(wheels) > 2:
        print("About 3 GB are fetched, 6 GB in the end. PyTorch's CPU build, 0.3 GB: --cpu")
    call("uv", command, lock)


def answers() -> bool:
    """Tell whether PyTorch's own package index answers."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{WHEELS}cpu/torch/", timeout=10):
        return True
    return False
