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
import sysconfig
from pathlib import Path

from helpers import files
from tools import _pip

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = "course-stamp.json"  # in every environment that the course made; says what is complete
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
    parts += [str(ROOT).encode(), str(python_of(VENV).resolve()).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def stamp():
    """Return what the last complete installation wrote, three texts {"fingerprint", "wheels", "extras"}; None: nothing."""
    try:
        content = json.loads((VENV / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    names = ("fingerprint", "wheels", "extras")  # a damaged file may hold anything
    sound = isinstance(content, dict) and all(isinstance(content.get(name), str) for name in names)
    return content if sound and python_of(VENV).exists() else None


def machine():
    """Return what wheels are made for, in words: the version of Python, the system and its processor."""
    return f"Python {sysconfig.get_python_version()} on {platform.system()} {platform.machine()}"


def manifest():
    """Return what `pack` wrote about this folder ({"for": machine(), "wheels": build}); in a clone an empty dict."""
    path = ROOT / PACK
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError:
        raise SetupError(f"{path} is damaged: copy the folder again, or pack it again.") from None


def needs(table="dependencies"):
    """Return the list called `table` in pyproject.toml, such as ["torch>=2.11", …]; [] where there is none."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.search(rf"^{table} = \[(.*?)\]", text, flags=re.M | re.S)
    return re.findall(r'"([^"]+)"', lists[1]) if lists else []


def torch_lines():
    """Return what is needed of torch and torchvision."""
    return [need for need in needs() if need.startswith("torch")]


def add_arguments(parser):
    """Add the options that `lab` and `test` share."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--cpu",
        dest="wheels",
        action="store_const",
        const="cpu",
        help="take PyTorch's CPU build; without an NVIDIA driver that is what you get anyway",
    )
    which.add_argument(
        "--wheels",
        metavar="NAME",
        help="another folder of PyTorch's index, for example cu130; default: the build that pip takes",
    )
    which.add_argument(
        "--here", action="store_true", help="use the Python that runs this command; install nothing"
    )


def chosen(args, extras=()):
    """Return the Python that `args` ask for, ready to use, with the `extras` of pyproject.toml."""
    return Path(sys.executable) if args.here else ensure(args.wheels, extras)


def ensure(wheels=None, extras=()):
    """Return the Python of a complete environment, making or repairing it first.

    `wheels` names a folder of PyTorch's wheel index ("cpu", "cu130"), or "default" for what pip takes; None keeps what
    is there, or looks for an NVIDIA driver and chooses. `extras` names lists of pyproject.toml, such as "test"; they are
    installed on top, once. In a folder made by `pack` its own wheels are installed, with no network.
    Raises SetupError with what to do. What is complete is written last, so an interrupted run is repeated, not trusted.
    """
    installed = stamp()
    if installed and wheels not in (None, installed["wheels"]):
        raise SetupError(
            f"{VENV} holds the {installed['wheels']} build of PyTorch. Delete that folder to change it. {AGAIN}"
        )
    if installed:
        wheels = installed["wheels"]
        extras = {*extras, *installed["extras"].split()}
    extras = sorted(extras)
    if installed and installed == complete(wheels, extras):
        return python_of(VENV)
    with files.locked(ROOT, patience=0) as is_locked:
        if not is_locked:
            raise SetupError(f"Another installation is at work in {ROOT}: wait until it is done.")
        make(wheels or manifest().get("wheels"), extras)
    return python_of(VENV)


def complete(wheels, extras):
    """Return the stamp of an environment with a build of PyTorch and lists of pyproject.toml."""
    return {"fingerprint": fingerprint(), "wheels": wheels, "extras": " ".join(extras)}


def make(wheels, extras):
    """Make or repair the environment in four steps; `wheels` None: the build that suits this machine."""
    reason = ""
    if wheels is None:
        wheels, reason = suitable()
    check_machine(ROOT, reason)
    check_disk(wheels, VENV)
    make_venv()
    wheels = install(wheels, extras, requested=not reason)
    verify()
    files.write(VENV / STAMP, json.dumps(complete(wheels, extras)))


def suitable():
    """Return the build of PyTorch for this machine, a folder of its index or "default", and why, in words."""
    from helpers.doctor.facts import find_driver
    from helpers.gpus import install_command

    facts = find_driver()
    driver = facts.get("driver")
    if driver and sys.platform == "win32":
        wheels = install_command("Windows", driver).rpartition("/")[2]
        reason = f"; NVIDIA driver {driver}: PyTorch for CUDA ({wheels}; another: --wheels NAME)"
        return wheels, reason
    if sys.platform in ("darwin", "win32") or facts:
        return "default", ""
    return "cpu", "; no NVIDIA driver: PyTorch's CPU build (the other: --wheels default)"


def check_machine(place, reason=""):
    """Print the first step: Python, free disk at `place`, `reason` for a build. SetupError when something will not do."""
    version = sysconfig.get_python_version()
    if sys.version_info < OLDEST:
        raise SetupError(
            f"Python {version} is too old: the course needs {OLDEST[0]}.{OLDEST[1]} or later. Install one from "
            "python.org and call it by name: python3.12 lab.py"
        )
    if not (ROOT / "requirements.txt").exists():
        raise SetupError(
            f"{ROOT} has no requirements.txt. Run this command in a clone of the course."
        )
    if not os.access(ROOT, os.W_OK):
        raise SetupError(
            f"{ROOT} cannot be written, so no environment can be made in it. Copy the course into a folder "
            "of yours, or use an environment of your own with --here."
        )
    if manifest().get("for", machine()) != machine():
        raise SetupError(
            f"This folder was packed for {manifest()['for']}, and this is {machine()}. Start the command "
            "with that Python, or pack a folder on a machine like this one."
        )
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"This Python lacks its module {' and '.join(missing)}. On Debian and Ubuntu: sudo apt install "
            f"python3-venv. With conda: create an environment and use --here. {AGAIN}"
        )
    print(f"[1/4] Python {version}, {free_gb(place):.0f} GB free{reason}", flush=True)


def free_gb(place):
    """Return the GB that are free on the disk of `place`."""
    return shutil.disk_usage(place).free / 1e9


def gigabytes(wheels):
    """Return the room in GB that a fresh installation takes, or a pack while it is made."""
    return 1.5 if wheels == "cpu" or sys.platform in ("darwin", "win32") else 8


def size(folder):
    """Return the bytes that the files in `folder` take; 0 where there is none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def check_disk(wheels, folder):
    """Raise SetupError when there is too little room for `folder` on its disk; what it holds already counts."""
    need = gigabytes(wheels)
    free = free_gb(folder.parent)
    if free + size(folder) / 1e9 < need:
        hint = "" if need < 8 else " Or add --wheels cpu: PyTorch's CPU build fits into 1.5 GB."
        raise SetupError(
            f"This needs about {need} GB, and {free:.1f} GB are free at {folder.parent}. Make room. {AGAIN}{hint}"
        )


def foreign():
    """Tell whether something stands in the environment's place that the course did not make, or that is a link."""
    if VENV.is_symlink():
        return True
    if not VENV.exists() or (VENV / STAMP).is_file():
        return False
    half = f".{STAMP}."  # its first writing, cut off
    return not VENV.is_dir() or any(not path.name.startswith(half) for path in VENV.iterdir())


def make_venv():
    """Make the environment, or make it anew when its Python or pip does not start; nothing else is ever cleared."""
    if foreign():
        raise SetupError(
            f"{VENV} is there, and the course did not make it, so it stays as it is. Rename or delete it, and "
            "run the same command again. Or use an environment of your own: in it, pip install -r "
            "requirements.txt (with uv: uv pip install -r requirements.txt), then python -m tools lab --here."
        )
    code = "import pip"
    if not stamp():
        version = sysconfig.get_python_version()
        code += f", sysconfig; raise SystemExit(sysconfig.get_python_version() != {version!r})"
    works = quiet(["-c", code]) == 0
    line = _pip.Line(2, f"environment {VENV}")
    if works:
        return line.done("kept")
    VENV.mkdir(exist_ok=True)
    files.write(VENV / STAMP, "{}")  # the course's mark: it stands whenever this is cut off
    for path in VENV.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != STAMP:
            path.unlink()
    child = subprocess.run(
        [sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True
    )
    if child.returncode != 0:
        raise SetupError(
            f"python -m venv failed: {_pip.last_error(child.stdout + child.stderr)}. On Debian and Ubuntu: sudo apt "
            f"install python3-venv. Is a program using {VENV}? Close it. {AGAIN}"
        )
    line.done("made")


def quiet(arguments, python=None):
    """Run `python` (default: the environment's) without showing anything; return its exit status."""
    try:
        line = [str(python or python_of(VENV)), *arguments]
        return subprocess.call(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return 1


def install(wheels, extras=(), requested=True):
    """Install the course with pip, torch and torchvision first and together when `wheels` names an index.

    A folder made by `pack` holds its wheels: those alone are used, unless another build of PyTorch was asked for.
    Where nobody `requested` that index and it does not answer, pip's default build is taken. Returns the build taken.
    """
    course = ["-r", "requirements.txt"]
    course += ["-e", f".[{','.join(extras)}]"] if extras else []
    if manifest().get("wheels") == wheels:
        pip(["--no-index", "--find-links", "wheels", *course], "packages from wheels/, no network")
        return wheels
    if wheels != "default" and not requested and not answers(wheels):
        print(f"      {WHEELS}{wheels} does not answer: pip's default build of PyTorch instead")
        wheels = "default"
        check_disk(wheels, VENV)
    if wheels != "default":
        pip([*torch_lines(), "--index-url", WHEELS + wheels], f"PyTorch ({wheels})")
    pip(course, "packages")
    return wheels


def answers(wheels):
    """Tell whether the folder `wheels` of PyTorch's index answers with builds of that name, such as 2.15.0+cpu.

    Of torch and torchvision, since pip also looks where its own settings say: a lone torch from there does not fit
    another's torchvision.
    """
    for package in ("torch", "torchvision"):
        look = f"-m pip index versions {package} --retries 0 --timeout 10 --index-url"
        command = [str(python_of(VENV)), *look.split(), WHEELS + wheels]
        if f"+{wheels}" not in subprocess.run(command, capture_output=True, text=True).stdout:
            return False
    return True


def pip(arguments, text, step=3, action="install", python=None, place=None):
    """Run pip in the environment, or that of `python`, one line on the screen; its words go to pip.log at `place`.

    Raises SetupError with the likely cause.
    """
    place = place or VENV
    line = _pip.Line(step, text)
    command = [str(python or python_of(VENV)), "-m", "pip", action, *arguments]
    if not python:
        command.append("--no-compile")  # a fifth of disk and time; Python compiles what it uses
    status, words = _pip.run(command, ROOT, place / "pip.log", line, None if python else VENV)
    installed = re.findall(r"^Successfully \w+ (.+)", words, flags=re.M)
    if status == 0:
        line.done(f"{len(installed[-1].split())} ready" if installed else "ready")
    else:
        line.done("stopped")
        packed = "A file in wheels/ is missing or damaged: copy the folder again, or pack it again."
        cause = packed if "--no-index" in arguments else why_pip_failed(python, place)
        raise SetupError(
            f"pip stopped: {_pip.last_error(words)}\n{cause} All that pip said stands in {place / 'pip.log'}. {AGAIN}"
        )


def why_pip_failed(python, place):
    """Say the likely cause after pip of `python` failed, from the room at `place` and one small request."""
    if shutil.disk_usage(place).free < 5e8:
        return "The disk is full: make room, or add --wheels cpu."
    if quiet("-m pip index versions pip --retries 0 --timeout 10".split(), python) != 0:
        return (
            "The package index does not answer: check the network; behind a proxy set HTTPS_PROXY; without any "
            "network, use a folder made by python3 -m tools pack on a machine that has one."
        )
    return (
        "The index answers, so one package is the cause: PyTorch may have no wheel yet for Python "
        f"{sysconfig.get_python_version()} on this system (see https://pytorch.org/get-started/locally ; another "
        "Python does: python3.12 lab.py), or its own index, which --cpu and --wheels name, is blocked here."
    )


def verify():
    """Raise SetupError unless the environment imports what the course needs; print PyTorch's version."""
    line = _pip.Line(4, "first import of PyTorch")
    code = "import torch, torchvision, jupyterlab, ipywidgets, matplotlib, helpers; print(torch.__version__)"
    command = [str(python_of(VENV)), "-c", code]
    child = subprocess.run(command, cwd=str(ROOT), capture_output=True, text=True)
    line.done(child.stdout.strip() or "failed")
    if child.returncode != 0:
        raise SetupError(
            f"Everything is installed, yet an import fails: {_pip.last_error(child.stderr)}. Delete {VENV}. {AGAIN}"
        )
