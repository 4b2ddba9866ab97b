"""Kill -9 in the middle of all that writes: what stood before still stands, and the command goes on from there."""

import csv
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import kill_targets
import lanes
import nbformat
import psutil
import pytest
import torch
from copies import copy_of_course
from lanes import share

from helpers import measurements
from helpers.commands import _notebooks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="needs kill -9"),
]
EPOCHS = 12


@pytest.fixture(scope="module")
def context():
    """Give a server that starts processes without threads, and has imported what they need."""
    server, before = multiprocessing.get_context("forkserver"), os.environ.get("PYTHONPATH")
    server.set_forkserver_preload(["kill_targets"])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    yield server
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def chance(request):
    """Give random numbers that are others for each test and, in the whole lane, for each run."""
    seed = time.time_ns() if lanes.full else request.node.name
    print("seed", seed)
    return random.Random(seed)


def started(context, target, *args):
    """Start `target` in a process; return it when the imports are over and the work begins."""
    ready = context.Event()
    process = context.Process(target=kill_targets.start, args=(target, ready, *args))
    process.start()
    assert ready.wait(120)
    return process


def finished(context, target, *args):
    """Run `target` to its end in a process; return the seconds of its work."""
    process, start = started(context, target, *args), time.monotonic()
    process.join(120)
    assert process.exitcode == 0
    return time.monotonic() - start


def killed(context, chance, seconds, target, *args):
    """Kill `target` in a process at a random moment of its `seconds`; return False when it was done before."""
    process = started(context, target, *args)
    time.sleep(chance.uniform(0, seconds))
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def halves(folder):
    """Remove half files that a kill left, and return their number; nobody reads them."""
    found = [path for path in folder.iterdir() if path.name.endswith((".part", ".half"))]
    for path in found:
        path.unlink()
    return len(found)


def test_progress(context, chance, tmp_path):
    kills, landed = share(4, 55), 0
    home, told = tmp_path / "home", tmp_path / "told"
    seconds = finished(context, "keep_progress", home, told)
    for _ in range(kills):
        shutil.rmtree(home)
        told.unlink()
        landed += killed(context, chance, seconds, "keep_progress", home, told)
        kept = told.read_text().splitlines() if told.exists() else []
        there = json.loads((home / "progress.json").read_text()) if kept else {}
        assert len(there) in (
            len(kept),
            len(kept) + 1,
        )  # each one that was said to be kept, and the one in work
        assert [there[key]["hints"] for key in kill_targets.KEYS[: len(kept)]] == list(
            range(1, len(kept) + 1)
        )
        finished(context, "keep_progress", home, told)
        assert len(json.loads((home / "progress.json").read_text())) == len(kill_targets.KEYS)
    assert landed or not lanes.full


def test_table_of_a_class(context, chance, tmp_path):
    kills, landed = share(3, 45), 0
    path = tmp_path / "class.csv"
    seconds = min(
        finished(context, "write_tables", path) for _ in range(2)
    )  # the first one may be slow
    for _ in range(kills):
        landed += killed(context, chance, seconds, "write_tables", path)
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
        assert rows[-1][0] == f"learner {len(rows) - 2}" and {len(row) for row in rows} == {
            len(rows[0])
        }
        halves(tmp_path)
    assert os.listdir(tmp_path) == ["class.csv"]
    assert landed or not lanes.full


def test_recording(context, chance, tmp_path):
    kills, landed = share(4, 14), 0
    seconds = finished(context, "make_recording", tmp_path / "whole.json")
    whole = measurements.load(tmp_path / "whole.json").sections
    path = tmp_path / "killed.json"
    for _ in range(kills):
        landed += killed(context, chance, seconds, "make_recording", path)
        done = measurements.load(path).provenance["done"] if path.exists() else []
        if path.exists() and not measurements.load(path).provenance["complete"]:
            landed += killed(context, chance, seconds, "make_recording", path)
            assert measurements.load(path).provenance["done"][: len(done)] == done
        if not path.exists() or not measurements.load(path).provenance["complete"]:
            finished(context, "make_recording", path)
        assert (
            measurements.load(path).provenance["complete"]
            and measurements.load(path).sections == whole
        )
        path.unlink()
    assert landed or not lanes.full


def test_training_with_resume(context, chance, tmp_path):
    kills, landed = share(4, 25), 0
    seconds = finished(context, "train_on", tmp_path / "whole.pt", EPOCHS)
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)["model"]
    path, done = tmp_path / "killed.pt", 0
    for number in range(kills):
        landed += killed(context, chance, seconds, "train_on", path, EPOCHS)
        before, done = done, torch.load(path, weights_only=True)["epoch"] if path.exists() else 0
        assert before <= done
        if done == EPOCHS or number == kills - 1:
            finished(context, "train_on", path, EPOCHS)
            found = torch.load(path, weights_only=True)["model"]
            assert all(torch.equal(found[name], whole[name]) for name in whole)
            path.unlink()
            done = 0
    halves(tmp_path)
    assert os.listdir(tmp_path) == ["whole.pt"]
    assert landed or not lanes.full


# Commands in programs of their own, over a copy of the course


@pytest.fixture
def course(tmp_path):
    """Give a copy of the course."""
    return copy_of_course(tmp_path / "course")


class Command:
    """A command of the course at `root`, run whole or killed; every process that it starts carries a mark."""

    def __init__(self, root, *words):
        self.mark = f"torture-{time.time_ns()}"
        self.line, self.root = [sys.executable, "-m", "helpers", *map(str, words)], root
        (root.parent / "tmp").mkdir(exist_ok=True)

    def start(self):
        """Start it."""
        environment = dict(
            os.environ,
            PYTHONPATH=str(self.root),
            TMPDIR=str(self.root.parent / "tmp"),
            TORTURE=self.mark,
            COURSE_HANDED_OVER="1",
        )
        return subprocess.Popen(
            self.line,
            cwd=self.root,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def whole(self):
        """Run it to its end; return its seconds."""
        start, process = time.monotonic(), self.start()
        text = process.communicate(timeout=300)[0]
        assert process.returncode == 0, text
        return time.monotonic() - start

    def killed(self, delay):
        """Kill it after `delay` seconds; assert that within 20 s nothing of it runs. False when it was done before."""
        process = self.start()
        time.sleep(delay)
        landed = process.poll() is None
        process.kill()
        process.wait()
        end = time.monotonic() + 20
        while self.alive() and time.monotonic() < end:
            time.sleep(0.2)
        assert self.alive() == []
        process.stdout.close()
        return landed

    def alive(self):
        """Return the command lines of the processes that carry the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get("TORTURE") == self.mark
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process.cmdline())
            except psutil.Error:
                continue
        return found


def content(root):
    """Return {path: checksum} of all files that commands of authors write."""
    files = [*(root / "notebooks").glob("*"), root / "README.md", root / "helpers/course.py"]
    return {
        path.relative_to(root): hashlib.md5(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file()
    }


def test_publish(course, tmp_path, chance):
    kills, landed = share(1, 8), 0
    old = content(course)
    shutil.copytree(course, tmp_path / "new/course")
    seconds = Command(tmp_path / "new/course", "publish", "someone/course").whole()
    new = content(tmp_path / "new/course")
    for _ in range(kills):
        shutil.rmtree(tmp_path / "new")
        shutil.copytree(course, tmp_path / "new/course")
        command = Command(tmp_path / "new/course", "publish", "someone/course")
        landed += command.killed(chance.uniform(0.3, 1) * seconds)
        now = content(tmp_path / "new/course")
        assert all(now[path] in (old[path], new[path]) for path in old)
        command.whole()
        halves(tmp_path / "new/course/notebooks")
        assert content(tmp_path / "new/course") == new
    assert landed or not lanes.full


def test_execute(course, chance):
    kills, landed = share(1, 3), 0
    path = course / "notebooks/00_start_here.ipynb"
    command, old = Command(course, "execute", "00"), path.read_bytes()
    seconds = command.whole()
    for _ in range(kills):
        path.write_bytes(old)
        landed += command.killed(chance.uniform(0.2, 1) * seconds)
        nbformat.validate(_notebooks.read(path))
        assert path.read_bytes() == old or len(_notebooks.compared(_notebooks.read(path))) > 3
        command.whole()
    assert landed or not lanes.full


def test_grade(course, tmp_path, chance):
    kills, landed = share(1, 4), 0
    (tmp_path / "class").mkdir()
    for number in range(3):
        shutil.copy(
            course / "notebooks/00_start_here.ipynb", tmp_path / "class" / f"00_{number}.ipynb"
        )
    out = tmp_path / "out/grades.csv"
    out.parent.mkdir()
    command = Command(course, "grade", tmp_path / "class", "--out", out, "--force")
    seconds, new = command.whole(), out.read_bytes()
    for _ in range(kills):
        out.write_bytes(b"old")
        landed += command.killed(chance.uniform(0.2, 1) * seconds)
        assert out.read_bytes() in (b"old", new)
        halves(out.parent)
        assert os.listdir(out.parent) == ["grades.csv"]
        command.whole()
        assert out.read_bytes() == new
    assert landed or not lanes.full
