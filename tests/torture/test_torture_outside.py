"""Commands among odd environments, copies, links and paths: what isn't the course's stays as it is."""

import os
import random
import subprocess

import pytest
from copies import FILES
from lanes import share

from helpers import __main__ as door
from tools import _copies, _environment, execute, grade, pack, site

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="makes links and pipes")]
TRIALS = share(20, 200)
PLACES = (
    ".venv my_notebooks my_notebooks/scripts my_notebooks/00_start.ipynb notebooks/data".split()
)
ODD = ["nothing", "folder", "file", "link", "link to a file", "link to nothing", "pipe", "stamped"]
OUTSIDE = ["outside/notes.csv", "outside", "outside/notes.csv/x.csv"]
TARGETS = [*OUTSIDE, "link", "link to a file.csv", "pipe.csv"]
LINKS = {"link": ".", "link to a file": "notes.csv", "link to nothing": "x"}


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
    if kind in LINKS:
        path.symlink_to(outside / LINKS[kind])
    elif kind == "file":
        path.write_text("precious")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "nothing":
        path.mkdir()
        (path / "inside").symlink_to(outside)
        (path / (_environment.STAMP if kind == "stamped" else "mine.txt")).write_text("{}")


def course(root, monkeypatch):
    """Make a small course at `root`, in which nothing is installed, fetched or run, and precious files beside it."""
    house, outside = root / "course", root / "outside"
    (house / "notebooks/scripts").mkdir(parents=True)
    for name in (*FILES, "notebooks/00_start.ipynb", "notebooks/scripts/train.py"):
        (house / name).write_text("")
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
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_symlink():
                found[path] = os.readlink(path)
            elif path.is_file():
                found[path] = path.read_bytes()
            else:
                found[path] = ""
    return found


def test_what_is_not_the_courses_stays(tmp_path, monkeypatch, capsys):
    seed = random.randrange(10**9)
    for number in range(TRIALS):
        chance = random.Random(seed + number)
        root = tmp_path / f"{number} a'b$c"
        with monkeypatch.context() as patch:
            house, outside = course(root, patch)
            for name in chance.sample(PLACES, 2):
                place = house / name
                above = place.parent
                free = above.is_dir() or not os.path.lexists(above)
                if free and not above.is_symlink() and not os.path.lexists(place):
                    make(place, chance.choice(ODD), outside)
            make(root / "link", "link", outside)
            make(root / "link to a file.csv", "link to a file", outside)
            make(root / "pipe.csv", "pipe", outside)
            line = chance.choice(lines(chance.choice(TARGETS)))
            before = contents(outside, root / "class")
            try:
                status = door.main(line)
            except SystemExit as end:
                status = end.code
            assert contents(outside, root / "class") == before, (seed + number, line, status)
            assert "Traceback" not in capsys.readouterr().err
