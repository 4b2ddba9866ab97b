"""Copies of the course, for tests that change it or look at it from elsewhere."""

import shutil

from helpers.commands._environment import ROOT

PACKAGES = ("exercises", "helpers", "practice_gpus")
FILES = ("LICENSE", "README.md", "pyproject.toml", "requirements.txt")
IGNORED = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")


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
