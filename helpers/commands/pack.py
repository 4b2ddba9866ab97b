"""Pack the course and every wheel it needs into one folder that installs with no network. Only standard library."""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

from helpers import files
from helpers.commands import _environment
from helpers.commands._environment import ROOT, SetupError

HELP = "for a class: pack lessons and wheels into one folder that installs with no network"
TOPS = (
    "exercises",
    "helpers",
    "practice_gpus",
    "notebooks",
    "README.md",
    "LICENSE",
    "pyproject.toml",
    "requirements.txt",
)
LEFT = ("__pycache__", ".ipynb_checkpoints", "data", "checkpoints")


def add_arguments(parser):
    """Add the options of `pack`."""
    parser.description = (
        HELP + ". The folder serves machines of this system, this kind of processor and this "
        "version of Python: pack on each kind of machine in your room, on the oldest system of it."
    )
    parser.add_argument("folder", metavar="FOLDER", help="where to pack; it must not exist yet")
    parser.add_argument(
        "--wheels",
        metavar="NAME",
        default="cpu",
        help="the build of PyTorch: a folder of its index, "
        "for example cu130, or default for the one that pip takes (default: %(default)s)",
    )


def run(args):
    """Pack the folder; return 1 and say why where that fails."""
    try:
        pack(Path(args.folder).resolve(), None if args.wheels == "default" else args.wheels)
    except (SetupError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def pack(folder, wheels):
    """Make `folder` whole or not at all: everything happens in FOLDER.half, and a repeated run goes on with that.

    `wheels` names a folder of PyTorch's index; None takes pip's default build. Raises SetupError with what to do.
    """
    half = folder.with_name(folder.name + ".half")
    check(folder, wheels)
    begin(half, {"for": _environment.machine(), "wheels": wheels})
    _environment.say(2, f"lessons and helpers, into {half}")
    copy(half)
    fetch(half, wheels)
    size = sum(path.stat().st_size for path in half.rglob("*")) / 1e9
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    text = text.format(machine=_environment.machine(), room=size + _environment.gigabytes(wheels))
    (half / "START_HERE.txt").write_text(text, encoding="utf-8")
    os.replace(half, folder)
    print(
        f"{folder} is ready: {size:.1f} GB, for {_environment.machine()}. Hand out the folder; START_HERE.txt says "
        "what to type."
    )


def fetch(half, wheels):
    """Download the wheels into `half`, all but what is there, and let pip find everything in them alone."""
    _environment.say(3, "wheels, PyTorch's first")
    index = ["--index-url", _environment.WHEELS + wheels] if wheels else []
    for needed in ([*_environment.torch_lines(), *index], others()):
        pip(half, "download", "--only-binary", ":all:", "--dest", str(half / "wheels"), *needed)
    _environment.say(4, "trying the wheels without the network")
    pip(
        half,
        "install",
        "-q",
        "--dry-run",
        "--ignore-installed",
        "--no-index",
        "--find-links",
        str(half / "wheels"),
        *_environment.torch_lines(),
        *others(),
    )


def check(folder, wheels):
    """Raise SetupError when the folder is there, or when pip, the course or room on the disk are not."""
    if folder.exists():
        raise SetupError(
            f"{folder} is there already. Name a folder that does not exist yet, or delete this one."
        )
    if importlib.util.find_spec("pip") is None:
        raise SetupError(
            f"{sys.executable} has no pip. Type: python3 -m ensurepip --upgrade. On Debian and Ubuntu: "
            "sudo apt install python3-pip"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    _environment.check_machine(wheels, True, folder.parent)


def begin(half, manifest):
    """Make the folder `half`, or go on with the one that an interrupted run for the same machine and build left."""
    path, text = half / _environment.PACK, json.dumps(manifest)
    if half.exists() and (not path.exists() or path.read_text(encoding="utf-8") != text):
        raise SetupError(
            f"{half} is there already, and no interrupted run like this one left it. Delete it."
        )
    (half / "wheels").mkdir(parents=True, exist_ok=True)
    files.write(path, text)


def copy(half):
    """Copy the course, without its tests."""
    for top in TOPS:
        if (ROOT / top).is_dir():
            shutil.copytree(
                ROOT / top, half / top, ignore=shutil.ignore_patterns(*LEFT), dirs_exist_ok=True
            )
        else:
            shutil.copy(ROOT / top, half)


def others():
    """Return what the course needs beside PyTorch, and what pip builds helpers with."""
    needed = _environment.needs() + _environment.needs("requires")
    return [need for need in needed if not need.startswith("torch")]


def pip(half, action, *arguments):
    """Run the pip of this Python; raise SetupError with the likely cause."""
    _environment.pip(list(arguments), action, sys.executable, half)
