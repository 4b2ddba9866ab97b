"""The course's own virtual environment beside the package: made, repaired, updated. Only standard library."""

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
OLDEST = (3, 10)
WHEELS = "https://download.pytorch.org/whl/"
PACK = "pack.json"  # what `pack` writes about its folder, beside wheels/
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
    """Return what the last complete installation wrote ({"fingerprint", "wheels", "extras"}), or None."""
    path = VENV / "course-stamp.json"
    try:
        return json.loads(path.read_text(encoding="utf-8")) if python_of(VENV).exists() else None
    except (OSError, ValueError):
        return None


def machine():
    """Return what wheels are made for, in words: the version of Python, the system and its processor."""
    return "Python {}.{} on {} {}".format(
        *sys.version_info[:2], platform.system(), platform.machine()
    )


def manifest():
    """Return what `pack` wrote about this folder ({"for": machine(), "wheels": build}); in a clone an empty dict."""
    path = ROOT / PACK
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def add_arguments(parser):
    """Add the options that `lab` and `test` share."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--cpu",
        dest="wheels",
        action="store_const",
        const="cpu",
        help="take PyTorch's CPU wheels (0.2 GB instead of about 5 on Linux)",
    )
    which.add_argument(
        "--wheels", metavar="NAME", help="another folder of PyTorch's index, for example cu130"
    )
    which.add_argument(
        "--here", action="store_true", help="use the Python that runs this command; install nothing"
    )


def chosen(args, extras=()):
    """Return the Python that `args` ask for, ready to use, with the `extras` of pyproject.toml."""
    return Path(sys.executable) if args.here else ensure(args.wheels, extras)


def ensure(wheels=None, extras=()):
    """Return the Python of a complete environment, making or repairing it first.

    `wheels` names a folder of PyTorch's wheel index ("cpu", "cu130"); None takes what is there, or the default build.
    `extras` names lists of pyproject.toml, such as "test"; they are installed on top, once.
    In a folder made by `pack` its own wheels are installed, with no network.
    Raises SetupError with what to do. The stamp is written last, so an interrupted run is repeated, not trusted.
    """
    found = stamp()
    if found and wheels not in (None, found.get("wheels")):
        raise SetupError(
            "{} holds the {} build of PyTorch. Delete that folder to change it. {}".format(
                VENV, found.get("wheels") or "default", AGAIN
            )
        )
    there = set(found.get("extras", ())) if found else set()
    if found and found.get("fingerprint") == fingerprint() and there.issuperset(extras):
        return python_of(VENV)
    extras = sorted(there.union(extras))
    wheels = wheels or (found or manifest()).get("wheels")
    check_machine(wheels, fresh=not found)
    make_venv()
    install(wheels, extras)
    verify()
    write_stamp(wheels, extras)
    return python_of(VENV)


def say(step, text):
    """Print one numbered step of the installation at once."""
    print(f"[{step}/4] {text}", flush=True)


def check_machine(wheels, fresh, place=None):
    """Raise SetupError when Python, its venv module or the disk of `place` (default: this folder) will not do."""
    if sys.version_info < OLDEST:
        raise SetupError(
            "Python {}.{} is too old: the course needs {}.{} or later. Install one from python.org and "
            "call it by name: python3.12 -m helpers lab".format(*sys.version_info[:2], *OLDEST)
        )
    if not (ROOT / "requirements.txt").exists():
        raise SetupError(
            f"{ROOT} has no requirements.txt. Run this command in a clone of the course."
        )
    if manifest().get("for", machine()) != machine():
        raise SetupError(
            f"This folder was packed for {manifest()['for']}, and this is {machine()}. Start the command "
            "with that Python, or pack a folder on a machine like this one."
        )
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            "This Python lacks its module {}. On Debian and Ubuntu: sudo apt install python3-venv. With "
            "conda: create an environment and use --here. {}".format(" and ".join(missing), AGAIN)
        )
    check_disk(wheels, fresh, place or ROOT)


def gigabytes(wheels):
    """Return the room in GB that a fresh installation takes, or a pack while it is made."""
    return 1.5 if wheels == "cpu" or sys.platform in ("darwin", "win32") else 8


def check_disk(wheels, fresh, place):
    """Raise SetupError when the disk of `place` has too little room for a fresh start."""
    need, free = gigabytes(wheels), shutil.disk_usage(place).free / 1e9
    say(1, "Python {}.{}, {:.0f} GB free".format(*sys.version_info[:2], free))
    if fresh and free < need:
        hint = "" if need < 8 else " Or add --wheels cpu: PyTorch's CPU build fits into 1.5 GB."
        raise SetupError(
            f"This needs about {need} GB, and {free:.1f} GB are free at {place}. Make room. {AGAIN}{hint}"
        )


def make_venv():
    """Make the environment, or make it anew when its Python or pip does not start."""
    works = python_of(VENV).exists() and quiet(["-m", "pip", "--version"]) == 0
    say(2, "environment {}{}".format(VENV, " (kept)" if works else ""))
    if not works and subprocess.call([sys.executable, "-m", "venv", "--clear", str(VENV)]) != 0:
        raise SetupError(
            "python -m venv failed; its message stands above. On Debian and Ubuntu: sudo apt install "
            f"python3-venv. Is a program using {VENV}? Close it. {AGAIN}"
        )


def quiet(arguments, python=None):
    """Run `python` (default: the environment's) without showing anything; return its exit status."""
    try:
        line = [str(python or python_of(VENV)), *arguments]
        return subprocess.call(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return 1


def needs(table="dependencies"):
    """Return the list called `table` in pyproject.toml, such as ["torch>=2.11", …]; [] where there is none."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.search(rf"^{table} = \[(.*?)\]", text, flags=re.M | re.S)
    return re.findall(r'"([^"]+)"', lists[1]) if lists else []


def torch_lines():
    """Return what is needed of torch and torchvision."""
    return [need for need in needs() if need.startswith("torch")]


def install(wheels, extras=()):
    """Install the course with pip, torch and torchvision first and together when `wheels` names an index.

    A folder made by `pack` holds its wheels: those alone are used, unless another build of PyTorch was asked for.
    """
    if manifest() and manifest()["wheels"] == wheels:
        say(3, "packages from wheels/, with no network")
        return pip(["--no-index", "--find-links", "wheels", *course(extras)])
    size = "about 0.2 GB" if wheels == "cpu" else "up to 5 GB on Linux; a while on a slow line"
    say(3, f"packages ({size})")
    if wheels:
        pip([*torch_lines(), "--index-url", WHEELS + wheels])
    pip(course(extras))


def course(extras):
    """Return pip's arguments for the course, and what it needs, with `extras`."""
    return ["-e", f".[{','.join(extras)}]"] if extras else ["-r", "requirements.txt"]


def pip(arguments, action="install", python=None, place=None):
    """Run pip in the environment, or that of `python`, its progress shown; raise SetupError with the likely cause."""
    command = [
        str(python or python_of(VENV)),
        "-m",
        "pip",
        action,
        "--disable-pip-version-check",
        *arguments,
    ]
    if subprocess.call(command, cwd=str(ROOT)) != 0:
        packed = "A file in wheels/ is missing or damaged: copy the folder again, or pack it again."
        why = packed if "--no-index" in arguments else why_pip_failed(python, place)
        raise SetupError(f"pip stopped; its message stands above. {why} {AGAIN}")


def why_pip_failed(python=None, place=None):
    """Say the likely cause after pip of `python` failed, from the room at `place` and one small request."""
    if shutil.disk_usage(place or ROOT).free < 5e8:
        return "The disk is full: make room, or add --wheels cpu."
    probe = "-m pip install -q --dry-run --ignore-installed --no-deps --retries 0 --timeout 10 pip"
    if quiet(probe.split(), python) != 0:
        return (
            "The package index does not answer: check the network; behind a proxy set HTTPS_PROXY; without any "
            "network, use a folder made by python3 -m helpers pack on a machine that has one."
        )
    return (
        "The index answers, so one package is the cause: PyTorch may have no wheel yet for Python {}.{} on this "
        "system (see https://pytorch.org/get-started/locally), or its own index, which --cpu and --wheels name, is "
        "blocked here.".format(*sys.version_info[:2])
    )


def verify():
    """Raise SetupError unless the environment imports what the course needs; print PyTorch's version."""
    say(4, "first import of PyTorch")
    code = "import torch, torchvision, jupyterlab, ipywidgets, matplotlib, helpers; print('torch', torch.__version__)"
    if subprocess.call([str(python_of(VENV)), "-c", code], cwd=str(ROOT)) != 0:
        raise SetupError(
            f"Everything is installed, yet an import fails; see above. Delete {VENV}. {AGAIN}"
        )


def write_stamp(wheels, extras):
    """Write the mark of a complete installation, whole or not at all."""
    half = VENV / "course-stamp.half"
    stamped = {"fingerprint": fingerprint(), "wheels": wheels, "extras": extras}
    half.write_text(json.dumps(stamped), encoding="utf-8")
    os.replace(str(half), str(VENV / "course-stamp.json"))
