"""Pack the course and every wheel it needs into one folder that installs with no network. Only standard library."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from helpers import files
from helpers.course import NOTEBOOKS
from tools import _environment, _pip
from tools._environment import ROOT, SetupError

HELP = "for a class: pack lessons and wheels into one folder that installs with no network"
TOPS = (
    "exercises",
    "helpers",
    "practice_gpus",
    "notebooks",
    "README.md",
    ".github/training.png",  # the picture of README.md
    "LICENSE",
    "pyproject.toml",
    "requirements.txt",
)
KINDS = (".py", ".json", ".toml", ".md", ".txt", ".j2", ".cfg")  # and the lessons, by name
LEFT = {"data", "checkpoints", ".ipynb_checkpoints"}


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
        pack(Path(args.folder).resolve(), args.wheels)
    except (SetupError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def pack(folder, wheels):
    """Make `folder` whole or not at all: everything happens in FOLDER.half, and a repeated run goes on with that.

    `wheels` names a folder of PyTorch's index, or "default" for what pip takes. Raises SetupError with what to do.
    """
    half = folder.with_name(folder.name + ".half")
    check(folder, half, wheels)
    begin(half, {"for": _environment.machine(), "wheels": wheels})
    line = _pip.Line(2, f"lessons and helpers, into {half}")
    copy(half)
    line.done("copied")
    fetch(half, wheels)
    (half / "pip.log").unlink(missing_ok=True)
    size = _environment.size(half) / 1e9
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
    store = str(half / "wheels")
    download = ["--only-binary", ":all:", "--dest", store]
    index = [] if wheels == "default" else ["--index-url", _environment.WHEELS + wheels]
    torch = _environment.torch_lines()
    needed = _environment.needs() + _environment.needs("requires")  # the last: to build helpers
    others = [need for need in needed if not need.startswith("torch")]
    pip(half, "download", [*download, *torch, *index], "PyTorch's wheels")
    pip(half, "download", [*download, *others], "the other wheels")
    offline = ["--dry-run", "--ignore-installed", "--no-index", "--find-links", store]
    wheels_alone = [*offline, *torch, *others]
    pip(half, "install", wheels_alone, "trying the wheels without the network", step=4)


def pip(half, action, arguments, text, step=3):
    """Run the pip of this Python; raise SetupError with the likely cause."""
    _environment.pip(arguments, text, step, action, sys.executable, half)


def check(folder, half, wheels):
    """Raise SetupError when the folder is there or would hold itself, or when pip, the course or disk space are not."""
    if folder.exists():
        raise SetupError(
            f"{folder} is there already. Name a folder that does not exist yet, or delete this one."
        )
    if any(folder.is_relative_to(ROOT / top) for top in TOPS):
        raise SetupError(
            f"{folder} lies inside what is packed, so it would have to hold itself. Name another folder, "
            f"for example {ROOT / 'gpu-course'}"
        )
    if importlib.util.find_spec("pip") is None:
        raise SetupError(
            f"{sys.executable} has no pip. Type: python3 -m ensurepip --upgrade. On Debian and Ubuntu: "
            "sudo apt install python3-pip"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    _environment.check_machine(folder.parent)
    _environment.check_disk(wheels, half)


def begin(half, manifest):
    """Make the folder `half`, or go on with the one that an interrupted run for the same machine and build left."""
    path = half / _environment.PACK
    text = json.dumps(manifest)
    if half.exists() and (not path.exists() or path.read_text(encoding="utf-8") != text):
        raise SetupError(
            f"{half} is there already, and no interrupted run like this one left it. Delete it."
        )
    (half / "wheels").mkdir(parents=True, exist_ok=True)
    files.write(path, text)


def copy(half):
    """Copy the course, without its tests and without anything that is not the course's."""
    for name in course_files():
        (half / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, half / name)


def course_files():
    """Return the names of the files to pack: what git tracks; without git, what is of the course's kinds."""
    line = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *TOPS]
    try:
        tracked = subprocess.run(line, capture_output=True, text=True).stdout.split("\0")
    except OSError:
        tracked = []
    if "pyproject.toml" in tracked:
        return [name for name in tracked if name and (ROOT / name).is_file()]
    return [name for top in TOPS for name in of_the_course(top)]


def of_the_course(top):
    """Return the names of the files of the course at or below `top`, by their names' kinds."""
    if (ROOT / top).is_file():
        return [top]
    names = {lesson.file for lesson in NOTEBOOKS}
    paths = [path.relative_to(ROOT) for path in sorted((ROOT / top).rglob("*")) if path.is_file()]
    return [
        path.as_posix()
        for path in paths
        if (path.name in names or path.suffix in KINDS) and not LEFT & set(path.parts)
    ]
