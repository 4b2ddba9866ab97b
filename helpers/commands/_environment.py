"""The course's own virtual environment beside the package: made, repaired, updated. Only standard library."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
OLDEST = (3, 10)
WHEELS = "https://download.pytorch.org/whl/"
AGAIN = "Then run the same command again: it goes on where it stopped."


class SetupError(RuntimeError):
    """The environment cannot be made; the text says why and what to do."""


def python_of(venv):
    """Return the path of the Python inside the environment at `venv`."""
    return Path(venv) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint():
    """Return a short text that changes when the environment has to be installed again."""
    parts = [(ROOT / name).read_bytes() for name in ("requirements.txt", "pyproject.toml")]
    parts += [str(ROOT).encode(), "{}.{}".format(*sys.version_info).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def stamp():
    """Return what the last complete installation wrote ({"fingerprint", "wheels"}), or None."""
    path = VENV / "course-stamp.json"
    try:
        return json.loads(path.read_text(encoding="utf-8")) if python_of(VENV).exists() else None
    except (OSError, ValueError):
        return None


def add_arguments(parser):
    """Add the options that `lab` and `test` share."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cpu", dest="wheels", action="store_const", const="cpu",
                       help="take PyTorch's CPU wheels (0.2 GB instead of about 5 on Linux)")
    which.add_argument("--wheels", metavar="NAME", help="another folder of PyTorch's index, for example cu130")
    which.add_argument("--here", action="store_true", help="use the Python that runs this command; install nothing")


def chosen(args):
    """Return the Python that `args` ask for, ready to use."""
    return Path(sys.executable) if args.here else ensure(args.wheels)


def ensure(wheels=None):
    """Return the Python of a complete environment, making or repairing it first.

    `wheels` names a folder of PyTorch's wheel index ("cpu", "cu130"); None takes what is there, or the default build.
    Raises SetupError with what to do. The stamp is written last, so an interrupted run is repeated, not trusted.
    """
    found = stamp()
    if found and wheels not in (None, found.get("wheels")):
        raise SetupError("{} holds the {} build of PyTorch. Delete that folder to change it. {}".format(
            VENV, found.get("wheels") or "default", AGAIN))
    if found and found.get("fingerprint") == fingerprint():
        return python_of(VENV)
    wheels = wheels or (found or {}).get("wheels")
    check_machine(wheels, fresh=not found)
    make_venv()
    install(wheels)
    verify()
    write_stamp(wheels)
    return python_of(VENV)


def say(step, text):
    """Print one numbered step of the installation at once."""
    print(f"[{step}/4] {text}", flush=True)


def check_machine(wheels, fresh):
    """Raise SetupError when Python, its venv module or the disk will not do."""
    if sys.version_info < OLDEST:
        raise SetupError("Python {}.{} is too old: the course needs {}.{} or later. Install one from python.org and "
                         "call it by name: python3.12 -m helpers lab".format(*sys.version_info[:2], *OLDEST))
    if not (ROOT / "requirements.txt").exists():
        raise SetupError(f"{ROOT} has no requirements.txt. Run this command in a clone of the course.")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError("This Python lacks its module {}. On Debian and Ubuntu: sudo apt install python3-venv. With "
                         "conda: create an environment and use --here. {}".format(" and ".join(missing), AGAIN))
    check_disk(wheels, fresh)


def check_disk(wheels, fresh):
    """Raise SetupError when the disk has too little room for a fresh installation."""
    small = wheels == "cpu" or sys.platform in ("darwin", "win32")
    need, free = 1.5 if small else 8, shutil.disk_usage(ROOT).free / 1e9
    say(1, "Python {}.{}, {:.0f} GB free".format(*sys.version_info[:2], free))
    if fresh and free < need:
        hint = "" if small else " Or add --cpu: PyTorch's CPU build fits into 1.5 GB."
        raise SetupError(f"The installation needs about {need} GB, and {free:.1f} GB are free at {ROOT}. Make room. "
                         f"{AGAIN}{hint}")


def make_venv():
    """Make the environment, or make it anew when its Python or pip does not start."""
    works = python_of(VENV).exists() and quiet(["-m", "pip", "--version"]) == 0
    say(2, "environment {}{}".format(VENV, " (kept)" if works else ""))
    if not works and subprocess.call([sys.executable, "-m", "venv", "--clear", str(VENV)]) != 0:
        raise SetupError("python -m venv failed; its message stands above. On Debian and Ubuntu: sudo apt install "
                         f"python3-venv. Is a program using {VENV}? Close it. {AGAIN}")


def quiet(arguments):
    """Run the environment's Python without showing anything; return its exit status."""
    try:
        return subprocess.call([str(python_of(VENV)), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return 1


def torch_lines():
    """Return the lines of requirements.txt for torch and torchvision, without their comments."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.findall(r"^(?:torch|torchvision)\b[^#\s]*", text, flags=re.M)


def install(wheels):
    """Install requirements.txt with pip, torch and torchvision first and together when `wheels` names an index."""
    size = "about 0.2 GB" if wheels == "cpu" else "up to 5 GB on Linux; a while on a slow line"
    say(3, f"packages ({size})")
    if wheels:
        pip([*torch_lines(), "--index-url", WHEELS + wheels])
    pip(["-r", "requirements.txt"])


def pip(arguments):
    """Run pip install in the environment, its progress shown; raise SetupError with the likely cause."""
    command = [str(python_of(VENV)), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    if subprocess.call(command, cwd=str(ROOT)) != 0:
        raise SetupError(f"pip stopped; its message stands above. {why_pip_failed()} {AGAIN}")


def why_pip_failed():
    """Say the likely cause after pip failed, from the disk's room and one small request."""
    if shutil.disk_usage(ROOT).free < 5e8:
        return "The disk is full: make room, or use --cpu."
    probe = "-m pip install -q --dry-run --ignore-installed --no-deps --retries 0 --timeout 10 pip"
    if quiet(probe.split()) != 0:
        return ("The package index does not answer: check the network; behind a proxy set HTTPS_PROXY; without any "
                "network, install on a machine that has one.")
    return ("The index answers, so one package is the cause: PyTorch may have no wheel yet for Python {}.{} on this "
            "system (see https://pytorch.org/get-started/locally).".format(*sys.version_info[:2]))


def verify():
    """Raise SetupError unless the environment imports what the course needs; print PyTorch's version."""
    say(4, "first import of PyTorch")
    code = "import torch, torchvision, jupyterlab, ipywidgets, matplotlib, helpers; print('torch', torch.__version__)"
    if subprocess.call([str(python_of(VENV)), "-c", code], cwd=str(ROOT)) != 0:
        raise SetupError(f"Everything is installed, yet an import fails; see above. Delete {VENV}. {AGAIN}")


def write_stamp(wheels):
    """Write the mark of a complete installation, whole or not at all."""
    half = VENV / "course-stamp.half"
    half.write_text(json.dumps({"fingerprint": fingerprint(), "wheels": wheels}), encoding="utf-8")
    os.replace(str(half), str(VENV / "course-stamp.json"))
