"""Copies of the course and small courses, for tests that change one or look at it from elsewhere."""

import shutil
import types

from course import tools
from course.tools import ROOT, _install, pack

PACKAGES = ("helpers", "course", "practice_gpus")
FILES = ("LICENSE", "README.md", "lab.py", "pyproject.toml", "setup.py", "requirements.txt")
IGNORED = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.egg-info")


def copy_of_course(place, folders=(*PACKAGES, "notebooks"), change=None):
    """Copy folders and top files of the course to `place`, each text file changed by `change`; return `place`."""
    place.mkdir(parents=True, exist_ok=True)
    for name in folders:
        shutil.copytree(ROOT / name, place / name, ignore=IGNORED)
    for name in FILES:
        shutil.copy(ROOT / name, place)
    if change:
        for path in place.rglob("*"):
            if path.suffix in (".py", ".json", ".md", ".ipynb", ".txt"):
                path.write_bytes(change(path.read_bytes()))
    return place


def settle(monkeypatch, house, free=9e9):
    """Let the commands take `house` for the folder of the course, on a disk with so many free bytes."""
    for module in (tools, _install, pack):
        monkeypatch.setattr(module, "ROOT", house)
    monkeypatch.setattr(_install, "VENV", house / ".venv")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=free))


def everything(folder):
    """Return {name: bytes} of all files below `folder`."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
