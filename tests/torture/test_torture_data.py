"""Data sets and checkpoints that are cut, altered, strange or hostile: a clear error or a right answer."""

import hashlib
import http.server
import multiprocessing
import os
import pickle
import random
import signal
import socket
import threading
import time

import kill_targets
import pytest
import torch
from lanes import share, within
from test_data import _cifar_archive, _put_fashion
from test_scripts import train

from helpers import data
from practice_gpus import practice_gpus

datasets = pytest.importorskip("torchvision.datasets", reason="needs torchvision")
posix = pytest.mark.skipif(os.name == "nt", reason="needs fork and kill")
pytestmark = pytest.mark.slow
SIZES = {"fashion-mnist": 6, "cifar-10": 5}
BOTH = pytest.mark.parametrize("name", SIZES)


# A server of the real formats, which breaks off when it is told to


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` by the end of the address; `manner` is "whole", "cut", "stall" or "slow"."""

    manner, files, asked = "whole", {}, 0


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request in the manner of its server."""

    def do_GET(self):  # noqa: N802 - the name that http.server wants
        self.server.asked += 1
        manner = self.server.manner  # as it is when it is asked
        content = self.server.files[self.path.rpartition("/")[2]]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        if manner in ("stall", "slow"):
            time.sleep({"stall": 5, "slow": 0.3}[manner])
        if manner in ("whole", "slow"):
            self.wfile.write(content[len(content) // 2 :])

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch):
    """Give a running server that torchvision's two data sets come from."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = Server(("127.0.0.1", 0), Handler)
    served.files = {}
    monkeypatch.setattr(datasets.FashionMNIST, "resources", _put_fashion(served.files))
    archive, lists, meta = _cifar_archive()
    served.files["cifar-10-python.tar.gz"] = archive
    address = f"http://127.0.0.1:{served.server_address[1]}/"
    for name, value in {
        "tgz_md5": hashlib.md5(archive).hexdigest(),
        "train_list": lists[:1],
        "test_list": lists[1:],
        "meta": meta,
        "url": address + "cifar-10-python.tar.gz",
    }.items():
        monkeypatch.setattr(datasets.CIFAR10, name, value)
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [address])
    thread = threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield served
    served.shutdown()
    served.server_close()


@BOTH
@pytest.mark.parametrize("manner", ["cut", "stall"])
def test_a_download_that_breaks_off_leaves_nothing(server, tmp_path, monkeypatch, name, manner):
    set_timeout = socket.setdefaulttimeout
    monkeypatch.setattr(
        socket, "setdefaulttimeout", lambda limit: set_timeout(limit and min(limit, 2))
    )
    server.manner = manner
    with (
        within(60),
        pytest.raises(OSError, match=f"download: {name} could not be fetched .*check the network"),
    ):
        data.load(name, root=tmp_path, download=True)
    assert list(tmp_path.iterdir()) == [] and server.asked
    server.manner = "whole"
    assert len(data.load(name, root=tmp_path, download=True)) == SIZES[name]


def fetch(name, root, pipe):
    """In a process of its own: fetch, and send how many images came, or what went wrong."""
    try:
        pipe.send(len(data.load(name, root=root, download=True)))
    except Exception as error:
        pipe.send(repr(error))


@posix
@BOTH
def test_processes_that_fetch_at_once_all_get_it(server, tmp_path, name):
    server.manner = "slow"
    context, runs = multiprocessing.get_context("fork"), []
    for _ in range(4):
        reader, writer = context.Pipe(False)
        runs.append((context.Process(target=fetch, args=(name, tmp_path, writer)), reader))
        runs[-1][0].start()
    assert [reader.recv() if reader.poll(60) else "hangs" for _, reader in runs] == [
        SIZES[name]
    ] * 4
    for process, _ in runs:
        process.join()
    assert len(list(tmp_path.iterdir())) == 1


@posix
@BOTH
def test_a_download_killed_in_the_middle_is_begun_again(server, tmp_path, name):
    server.manner = "stall"
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(False)
    process = context.Process(target=fetch, args=(name, tmp_path, writer))
    process.start()
    while not list(tmp_path.iterdir()):
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    server.manner = "whole"
    with pytest.raises(FileNotFoundError, match="missing or broken"):
        data.load(name, root=tmp_path)
    old = next(tmp_path.iterdir())
    os.utime(old, (time.time() - 2 * data._ABANDONED,) * 2)
    assert len(data.load(name, root=tmp_path, download=True)) == SIZES[name]
    assert len(list(tmp_path.iterdir())) == 1


# Files on the disk


BATCH, META = "cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/batches.meta"


class Hostile:
    """Makes a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def test_a_hostile_batch_is_not_executed(server, tmp_path):
    data.load("cifar-10", root=tmp_path / "data", download=True)
    for file in (BATCH, META):
        (tmp_path / "data" / file).write_bytes(pickle.dumps(Hostile(tmp_path / "mark")))
    with pytest.raises(FileNotFoundError, match="missing or broken"):
        data.load("cifar-10", root=tmp_path / "data")
    assert not (tmp_path / "mark").exists()


# Checkpoints of the script of lesson 04

SMALL = ["--device", "cpu", "--images", "32", "--epochs"]


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs train.py in this process, tested on 10 images."""
    monkeypatch.setattr(train.data, "load", kill_targets.few(train.data.load))
    return lambda *args: train.main(train.arguments().parse_args([*map(str, args)]))


@pytest.fixture
def checkpoint(run, tmp_path):
    """Give the path of a checkpoint after one epoch."""
    run(*SMALL, 1, "--checkpoint", tmp_path / "run.pt")
    return tmp_path / "run.pt"


def refused(run, path, words=""):
    """Assert that the script refuses to go on from `path` with a message that holds `words`, and leaves the file."""
    before = path.read_bytes()
    with (
        within(60),
        pytest.raises(ValueError, match=rf"--resume: cannot go on from .*run\.pt, .*{words}"),
    ):
        run(*SMALL, 2, "--checkpoint", path, "--resume")
    assert path.read_bytes() == before


def test_checkpoints_cut_anywhere_are_refused(run, checkpoint):
    content, chance = checkpoint.read_bytes(), random.Random(0)
    places = [
        0,
        1,
        4,
        len(content) - 1,
        *(chance.randrange(len(content)) for _ in range(share(40, 300))),
    ]
    for place in places:
        checkpoint.write_bytes(content[:place])
        refused(run, checkpoint)


def test_checkpoints_with_altered_bytes_are_refused_or_right(run, checkpoint):
    content, chance = checkpoint.read_bytes(), random.Random(1)
    count = share(60, 600)
    run(*SMALL, 2, "--checkpoint", checkpoint, "--resume")
    right = torch.load(checkpoint, weights_only=True)["model"]
    for _ in range(count):
        place = chance.randrange(len(content))
        altered = bytes([content[place] ^ chance.randrange(1, 256)])
        checkpoint.write_bytes(content[:place] + altered + content[place + 1 :])
        try:
            run(*SMALL, 2, "--checkpoint", checkpoint, "--resume")
        except ValueError as error:
            assert "cannot go on from" in str(error)
        else:  # bytes that mean nothing: padding, dates
            found = torch.load(checkpoint, weights_only=True)["model"]
            assert all(torch.equal(found[name], right[name]) for name in right), place


@pytest.mark.parametrize("form", ["zip", "old", "bare"])
@pytest.mark.parametrize("place", ["model", "whole"])
def test_hostile_checkpoints_are_not_executed(run, checkpoint, tmp_path, form, place):
    hostile = Hostile(tmp_path / "mark")
    state = (
        hostile
        if place == "whole"
        else torch.load(checkpoint, weights_only=True) | {"model": hostile}
    )
    if form == "bare":
        checkpoint.write_bytes(pickle.dumps(state))
    else:
        torch.save(state, checkpoint, _use_new_zipfile_serialization=form == "zip")
    refused(run, checkpoint)
    assert not (tmp_path / "mark").exists()


def test_checkpoints_from_a_gpu_go_on_without_one(run, checkpoint):
    state = torch.load(checkpoint, weights_only=True)
    run(*SMALL, 2, "--checkpoint", checkpoint, "--resume")
    right = torch.load(checkpoint, weights_only=True)["model"]
    with practice_gpus(n=1):
        moved = {name: value.to("cuda:0") for name, value in state["model"].items()}
        torch.save(state | {"model": moved}, checkpoint)
    run(*SMALL, 2, "--checkpoint", checkpoint, "--resume")
    found = torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
    assert all(torch.equal(found[name], right[name]) for name in right)
