"""Pack the course and every wheel it needs into one folder that installs with no network. Only standard library."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from course import files
from course.pages import NOTEBOOKS
from course.tools import ROOT, _install, needs
from course.tools._arguments import build, folder
from course.tools._install import SetupError, gigabytes, machine

HELP = "pack lessons and wheels into one folder that installs with no network"
ROOMS = ("helpers", "course", "practice_gpus", "notebooks/scripts")
FILES = (
    *("lab.py", "README.md", "LICENSE", "pyproject.toml", "setup.py", "requirements.txt"),
    *(".github/lesson.gif", ".github/lesson_dark.gif", "notebooks/INSTRUCTORS.md"),
    *(f"notebooks/{lesson.file}" for lesson in NOTEBOOKS),
)
LEFT = shutil.ignore_patterns("data", "checkpoints", "__pycache__", "*.egg-info", ".*")
TRIAL = "from course.tools import _install; _install.ensure()"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pack`."""
    parser.description = (
        HELP + ". The folder serves machines of this system, this kind of processor and this "
        "version of Python: pack on each kind of machine in your room, on the oldest system of it."
    )
    parser.add_argument(
        "folder", type=folder, metavar="FOLDER", help="where to pack; it must not exist yet"
    )
    text = "the build of PyTorch: cpu (default), another folder of its index, or default for pip's"
    parser.add_argument("--wheels", type=build, metavar="NAME", default="cpu", help=text)


def run(args: argparse.Namespace) -> int:
    """Pack the folder; return 1 and say why where that fails."""
    try:
        pack(args.folder.resolve(), args.wheels)
    except (SetupError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def pack(folder: Path, wheels: str) -> None:
    """Make `folder` whole or not at all: everything happens in FOLDER.half, and a repeated run goes on with that.

    Ready means that the course was installed from the folder alone and imported, as `lab` does it on the day.
    """
    half = folder.with_name(folder.name + ".half")
    check(folder, wheels)
    begin(half, {"for": machine(), "wheels": wheels})
    copy(half)
    fetch(half, wheels)
    try_out(half)
    size = sum(path.stat().st_size for path in half.rglob("*") if path.is_file()) / 1e9
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    text = text.format(machine=machine(), room=size + gigabytes(wheels))
    (half / "START_HERE.txt").write_text(text, encoding="utf-8")
    os.replace(half, folder)
    print(
        f"{folder} is ready: {size:.1f} GB, for {machine()}; installed from it and imported once."
    )
    print("Hand out the folder; START_HERE.txt says what to type.")


def check(folder: Path, wheels: str) -> None:
    """Raise SetupError when the folder is there or would hold itself, or when the disk is too small."""
    if folder.exists():
        raise SetupError(f"{folder} is there already. Name another folder, or delete this one.")
    if any(folder.is_relative_to(ROOT / top) for top in ROOMS):
        raise SetupError(
            f"{folder} lies inside what is packed, so it would have to hold itself. Name another folder, "
            f"for example {ROOT / 'gpu-course'}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free / 1e9
    if free < 2 * gigabytes(wheels):
        need = f"about {2 * gigabytes(wheels)} GB, and {free:.1f} GB are free at {folder.parent}"
        raise SetupError(f"Packing and trying it out need {need}.")


def begin(half: Path, manifest: dict) -> None:
    """Make the folder `half`, or go on with the one that an interrupted run for the same machine and build left."""
    path = half / _install.PACK
    text = json.dumps(manifest)
    if half.exists() and (not path.exists() or path.read_text(encoding="utf-8") != text):
        raise SetupError(
            f"{half} is there, and no interrupted run like this one left it. Delete it."
        )
    (half / "wheels").mkdir(parents=True, exist_ok=True)
    files.write(path, text)


def fetch(half: Path, wheels: str) -> None:
    """Download the wheels into `half`, all but what is there; torch and torchvision have to be of one build."""
    store = half / "wheels"
    download = [sys.executable, "-m", "pip", "download", "--only-binary", ":all:", "--dest", store]
    index = [] if wheels == "default" else ["--index-url", _install.WHEELS + wheels]
    torch = [need for need in needs() if need.startswith("torch")]
    others = ["uv", *needs("requires"), *(need for need in needs() if need not in torch)]
    _install.call("pip, for PyTorch,", [*download, "--no-deps", *torch, *index])
    found = [path.name.split("-")[:2] for path in store.glob("torch*-*.whl")]
    builds = {version.partition("+")[2] for _, version in found}
    if len(builds) > 1 or (index and sys.platform != "darwin" and builds != {wheels}):
        names = ", ".join("-".join(pair) for pair in sorted(found))
        raise SetupError(
            f"Not the build {wheels}: {names}. Delete {half}, and take another --wheels."
        )
    pinned = ["==".join(pair) for pair in found]
    versions = ["--find-links", store, "--constraint", ROOT / _install.VERSIONS]
    _install.call("pip, for the rest,", [*download, *pinned, *others, *versions])


def try_out(half: Path) -> None:
    """Install the course from `half` alone, without the network, and import it; then take that installation away."""
    offline = {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "PYTHONPATH": ""}
    line = [sys.executable, "-c", TRIAL]
    status = subprocess.call(line, cwd=half, env={**os.environ, **offline})
    shutil.rmtree(half / ".venv", ignore_errors=True)
    if status:
        raise SetupError(
            f"The folder cannot be installed, so it is not ready: the reason stands above. {half} stays."
        )


def copy(half: Path) -> None:
    """Copy the course, without its tests and without anything that is not the course's."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, half / room, ignore=LEFT, dirs_exist_ok=True)
    for name in FILES:
        (half / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, half / name)
