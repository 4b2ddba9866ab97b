"""Commands among odd environments, copies, links and paths: what isn't the course's stays as it is."""

import os
import random
import subprocess

import pytest
from lanes import share

from helpers import __main__ as door
from helpers.commands import _copies, _environment, execute, grade, pack, site

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="makes links and pipes")]
TRIALS = share(20, 200)
PLACES = (
    ".venv",
    "my_notebooks",
    "my_notebooks/scripts",
    "my_notebooks/00_start.ipynb",
    "notebooks/data",
)
ODD = (
    "nothing",
    "folder",
    "file",
    "link",
    "link to a file",
    "link to nothing",
    "pipe",
    "mark of the course",
)
TARGETS = (
    "outside/notes.csv",
    "outside",
    "link",
    "link to a file.csv",
    "pipe.csv",
    "outside/notes.csv/x.csv",
)


def lines(target):
    """Return command lines of the course, some of them told to write to a target."""
    return [
        ["lab", "--prepare"],
        ["lab", "--prepare", "--fresh", "00"],
        ["lab", "--prepare", "--fresh", "../outside/notes.csv"],
        ["pack", target],
        ["site", target],
        ["grade", "class", "--out", target],
        ["grade", "class", "--out", "class/a.ipynb", "--force"],
        ["execute", "outside/00_start.ipynb"],
    ]


def make(path, kind, outside):
    """Put something of a kind at a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = {
        "link": outside,
        "link to a file": outside / "notes.csv",
        "link to nothing": outside / "x",
    }
    if kind in ends:
        path.symlink_to(ends[kind])
    elif kind == "file":
        path.write_text("precious")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "nothing":
        path.mkdir()
        (path / "inside").symlink_to(outside)
        (path / (_environment.STAMP if "mark" in kind else "mine.txt")).write_text("{}")


def course(root, monkeypatch):
    """Make a small course at `root`, in which nothing is installed, fetched or run, and precious files beside it."""
    house, outside = root / "course", root / "outside"
    for name in (
        "requirements.txt",
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "notebooks/00_start.ipynb",
    ):
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).write_text("")
    (house / "notebooks/scripts").mkdir()
    (house / "notebooks/scripts/train.py").write_text("")
    outside.mkdir()
    for name in ("notes.csv", "index.html", "00_start.ipynb", "pyvenv.cfg", "pip.log"):
        (outside / name).write_text("precious")
    (root / "class").mkdir()
    (root / "class/a.ipynb").write_text("precious")
    for module in (_environment, _copies, pack, site):
        monkeypatch.setattr(module, "ROOT", house)
    monkeypatch.setattr(_environment, "VENV", house / ".venv")
    monkeypatch.setattr(_copies, "ORIGINALS", house / "notebooks")
    monkeypatch.setattr(_copies, "FOLDER", house / "my_notebooks")
    for name in ("suitable", "verify", "check_disk", "check_machine"):
        monkeypatch.setattr(_environment, name, lambda *what, **more: ("default", ""))
    monkeypatch.setattr(_environment, "install", lambda wheels, *what, **more: wheels)
    monkeypatch.setattr(_environment.subprocess, "run", without_pip)
    monkeypatch.setattr(pack, "fetch", lambda half, wheels: None)
    monkeypatch.setattr(site, "page", lambda path, exporter: "")
    monkeypatch.setattr(grade, "grade_all", lambda paths, args: [{"submission": "a"}])
    monkeypatch.setattr(execute, "execute", lambda notebook, *more: notebook)
    monkeypatch.chdir(root)
    return house, outside


def without_pip(command, **options):
    """Make an environment of one empty file for `python -m venv FOLDER`; any other command fails."""
    if command[1:3] == ["-m", "venv"]:
        python = _environment.python_of(command[3])
        python.parent.mkdir(parents=True)
        python.touch()
    return subprocess.CompletedProcess(command, 0 if "venv" in command else 1, "", "")


def contents(*folders):
    """Return {path: what is there} of all that is in folders; links are not followed."""
    found = {}
    for path in [path for folder in folders for path in folder.rglob("*")]:
        link = os.readlink(path) if path.is_symlink() else ""
        found[path] = link or (path.read_bytes() if path.is_file() else "")
    return found


def test_what_is_not_the_courses_stays(tmp_path, monkeypatch, capsys):
    seed = random.randrange(10**9)
    for number in range(TRIALS):
        chance = random.Random(seed + number)
        root = tmp_path / f"{number} a'b$c"
        with monkeypatch.context() as patch:
            house, outside = course(root, patch)
            for place in (house / name for name in chance.sample(PLACES, 2)):
                free = place.parent.is_dir() or not os.path.lexists(place.parent)
                if free and not place.parent.is_symlink() and not os.path.lexists(place):
                    make(place, chance.choice(ODD), outside)
            for kind in ("link", "link to a file", "pipe"):
                make(root / (kind if kind == "link" else f"{kind}.csv"), kind, outside)
            line = chance.choice(lines(chance.choice(TARGETS)))
            before = contents(outside, root / "class")
            try:
                status = door.main(line)
            except SystemExit as end:
                status = end.code
            assert contents(outside, root / "class") == before, (seed + number, line, status)
            assert "Traceback" not in capsys.readouterr().err
