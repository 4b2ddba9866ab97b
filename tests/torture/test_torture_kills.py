"""Kill -9, kill or Ctrl-C in the middle of what writes: what stood before still stands, and it goes on from there."""

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time

import kill_targets
import lanes
import pytest
import torch
from lanes import share

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")
EPOCHS = 12
KILL = getattr(signal, "SIGKILL", 9)


@pytest.fixture(scope="module")
def context():
    """Give a server that starts processes without threads, and has imported what they need."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["kill_targets"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield server


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
    process = started(context, target, *args)
    start = time.monotonic()
    process.join(120)
    assert process.exitcode == 0
    return time.monotonic() - start


def killed(context, chance, seconds, target, *args, sent=KILL):
    """Send `target` in a process a signal at a random moment of its `seconds`; return False when it was done before."""
    process = started(context, target, *args)
    time.sleep(chance.uniform(0, seconds))
    with contextlib.suppress(ProcessLookupError):  # it was done before
        os.kill(process.pid, sent)
    process.join(60)
    assert process.exitcode in (0, -sent, 1 if sent == signal.SIGINT else 0)
    return process.exitcode != 0


def halves(folder):
    """Remove half files that a kill left, and return their number; nobody reads them."""
    found = [path for path in folder.iterdir() if path.name.endswith((".part", ".half"))]
    for path in found:
        path.unlink()
    return len(found)


def test_what_a_target_prints_is_thrown_away(monkeypatch, capsys):
    monkeypatch.setattr(kill_targets, "shout", print, raising=False)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    kill_targets.start("shout", threading.Event(), "loud")
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, KILL], ids=lambda sent: sent.name)
def test_progress(context, chance, tmp_path, sent):
    landed = 0
    home = tmp_path / "home"
    told = tmp_path / "told"
    seconds = finished(context, "keep_progress", home, told)
    for _ in range(share(3, 55)):
        shutil.rmtree(home)
        told.unlink()
        landed += killed(context, chance, seconds, "keep_progress", home, told, sent=sent)
        kept = told.read_text().splitlines() if told.exists() else []
        there = json.loads((home / "progress.json").read_text()) if kept else {}
        assert len(there) - len(kept) in (0, 1)  # each one said to be kept, and the one in work
        hints = [there[key]["hints"] for key in kill_targets.KEYS[: len(kept)]]
        assert hints == list(range(1, len(kept) + 1))
        if home.exists():
            assert halves(home) <= 1
        else:
            assert not kept
        finished(context, "keep_progress", home, told)
        assert len(json.loads((home / "progress.json").read_text())) == len(kill_targets.KEYS)
    assert landed or not lanes.full


@pytest.mark.slow
def test_training_with_resume(context, chance, tmp_path):
    kills = share(4, 25)
    landed = 0
    seconds = finished(context, "train_on", tmp_path / "whole.pt", EPOCHS)
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)["model"]
    path = tmp_path / "killed.pt"
    done = 0
    for number in range(kills):
        landed += killed(context, chance, seconds, "train_on", path, EPOCHS)
        before = done
        done = 0
        if path.exists():
            done = torch.load(path, weights_only=True)["epoch"]
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
