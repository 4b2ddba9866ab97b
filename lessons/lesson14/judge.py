"""The judge of the final project: runs a port on the CPU, on practice GPUs and by the clock, and says what isn't met."""

import contextlib
import functools
import hashlib
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from lessons.lesson14 import causes
from lessons.lesson14.spy import Spy
from practice_gpus import processes, report
from practice_gpus.settings import Settings

HERE = Path(__file__).parent
PROJECT = HERE / "project" / "birdcalls"
SOLUTION = HERE / "solution" / "birdcalls"
CARD = "T4"
MEMORY = "8 GiB"
SLACK = 1.1  # of par
CLOSE = 0.05  # of a loss: 16 bits round
SECONDS = 90  # for two processes
NOWHERE = "can't be judged yet: nothing ran on a GPU"


@dataclass(frozen=True)
class Mark:
    """Whether a criterion is met, and a sentence that says why, beginning with file:line where it isn't."""

    met: bool
    text: str


def marks(folder) -> dict:
    """{criterion: Mark} of the port in `folder`, all six."""
    return {name: criterion(folder) for name, criterion in CRITERIA.items()}


def device(folder) -> Mark:
    """It runs on the CPU, and on a GPU where there is one."""
    told = on_cpu(folder)
    if told["error"]:
        return Mark(False, f"{causes.short(told['line'])} without a GPU: {told['error']}")
    done, spy = on_gpu(folder)
    if done.error is not None:
        return Mark(False, causes.failure(done))
    if not spy.device.startswith("cuda"):
        made = causes.line_with(folder, "Net(")
        return Mark(False, f"{made} leaves the model on the CPU of a machine that has a GPU")
    return Mark(True, "runs on the CPU, and on a GPU where there is one")


def loss(folder) -> Mark:
    """The losses are those of the untouched project."""
    truth = on_cpu(PROJECT)
    done, spy = on_gpu(folder)
    told = on_cpu(folder)
    if done.error is not None:
        return Mark(False, f"{causes.failure(done)}; no losses yet")
    losses = (done.names or {}).get("losses")
    if not isinstance(losses, list) or not all(isinstance(x, float) for x in losses):
        return Mark(False, "train.py:1 has no list of numbers named `losses` at its end")
    pairs = list(zip(losses, truth["losses"]))
    off = [n for n, (a, b) in enumerate(pairs) if not abs(a - b) <= CLOSE + CLOSE * b]
    if not off and len(losses) == len(truth["losses"]):
        return Mark(True, f"{len(losses)} losses as before, the last one {losses[-1]:.2f}")
    return Mark(False, causes.other_losses(losses, truth, off, told, spy))


def waits(folder) -> Mark:
    """The CPU doesn't wait for the GPU in the training loop."""
    done, spy = on_gpu(folder)
    if done.error is not None or not spy.device.startswith("cuda"):
        return Mark(False, NOWHERE)
    found = causes.waits(done)
    return Mark(not found, "; ".join(found) or "no wait in the training loop")


def memory(folder) -> Mark:
    """Training and test fit 8 GB, and nothing grows."""
    done, spy = on_gpu(folder)
    if done.error is not None or not spy.device.startswith("cuda"):
        return Mark(False, NOWHERE)
    leaks = [each for each in done.findings if each["kind"] == "leak"]
    if leaks:
        return Mark(False, f"{causes.short(causes.at(leaks[0]))} {leaks[0]['text']}")
    large = in_full(folder)
    if large.error is not None:
        return Mark(False, causes.too_large(large, folder))
    peak = max(device["peak"] for device in large.facts["devices"])
    return Mark(True, f"the peak is {peak / 2**30:.2f} of 8 GiB")


def speed(folder) -> Mark:
    """A step on a T4 takes no longer than par, by forecast."""
    _, spy = on_gpu(folder)
    if not spy.device.startswith("cuda"):
        return Mark(False, NOWHERE)
    step, par = three_steps(folder).step, three_steps(SOLUTION).step
    if step is None:
        return Mark(False, f"{causes.failure(three_steps(folder))}; no step to time")
    words = f"{step.ms:.0f} ms per step by forecast, par is {par.ms:.0f}"
    if step.ms <= SLACK * par.ms:
        return Mark(True, words + (", beaten" if step.ms < 0.99 * par.ms else ""))
    return Mark(False, f"{causes.slow(step, spy)}; {words}")


def two(folder) -> Mark:
    """Two processes share each step's clips, have a GPU each, and keep equal weights."""
    ranks = on_two(folder)
    fault = causes.apart(ranks, on_cpu(PROJECT)["clips"])
    if fault:
        return Mark(False, fault)
    return Mark(True, "two processes share each step, and their weights stay equal")


CRITERIA = {
    "device": device,
    "loss": loss,
    "waits": waits,
    "memory": memory,
    "speed": speed,
    "two": two,
}


def once(run):
    """A run of the same files isn't repeated."""
    kept = {}

    @functools.wraps(run)
    def answer(folder):
        key = str(folder), fingerprint(folder)
        if key not in kept:
            kept[key] = run(Path(folder).resolve())
        return kept[key]

    return answer


def fingerprint(folder):
    """A text that changes with the program."""
    files = sorted(Path(folder).glob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


@once
def on_cpu(folder):
    """{"losses", "error", "line", "clips"} of a small run without a GPU."""
    told = {"losses": None, "error": "", "line": None}
    hidden = mock.patch.multiple(torch.cuda, is_available=lambda: False, device_count=lambda: 0)
    with inside(folder), hidden, Spy(folder, values=True) as spy:
        before, sys.argv = sys.argv, ["train", "--small"]
        try:
            names = runpy.run_module("birdcalls.train", run_name="__main__")
            told["losses"] = names.get("losses")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the program raises
            told["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
            told["line"] = causes.lines_of(error, folder)[-1:] or [(str(folder / "train.py"), 1)]
            told["line"] = told["line"][0]
        finally:
            sys.argv = before
    return told | {"clips": spy.clips}


@once
def on_gpu(folder):
    """(the report, what was spied) of a small run on a practice GPU."""
    with inside(folder), Spy(folder) as spy:
        return report_on("--small"), spy


@once
def in_full(folder):
    """The report of the whole training on shapes alone."""
    with inside(folder):
        return report_on(shapes=True)


@once
def three_steps(folder):
    """The report of the first steps of the whole training, on shapes alone."""
    with inside(folder):
        return report_on(shapes=True, steps=3)


def report_on(*arguments, **settings):
    """The report of birdcalls.train on a practice T4 with 8 GB."""
    where = {"card": CARD, "memory": MEMORY, "real": "hide", "module": True}
    return report("birdcalls.train", *arguments, **where, **settings)


@contextlib.contextmanager
def inside(folder):
    """The folder above the project is the current one, its modules are loaded anew, what it prints is dropped."""
    here = Path.cwd()
    state = torch.get_rng_state()
    forget()
    os.chdir(folder.parent)
    sys.path.insert(0, str(folder.parent))
    drop = io.StringIO()
    try:
        with contextlib.redirect_stdout(drop), contextlib.redirect_stderr(drop):
            yield
    finally:
        sys.path.remove(str(folder.parent))
        os.chdir(here)
        forget()
        torch.set_rng_state(state)


def forget():
    """Modules of a port that ran before."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "birdcalls"]:
        del sys.modules[name]


@once
def on_two(folder):
    """What each of two processes did, as `rank` tells it; a process that ended early tells only its error."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
        free.close()
        files = [Path(name) / f"{rank}.json" for rank in range(2)]
        children = [start(folder, name, rank, port, file) for rank, file in enumerate(files)]
        try:
            for child in children:
                child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for child in children:
                child.kill()
                child.wait()
        late = {
            "error": f"still running after {SECONDS} seconds: one waits for the other",
            "line": None,
        }
        return [json.loads(f.read_text()) if f.exists() else late for f in files]


def start(folder, name, rank, port, file):
    """Start one of two processes, each with two practice GPUs in sight, as torchrun would."""
    settings = Settings(n=2, memory=MEMORY, card=CARD, real="hide")
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    places |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    more = processes.variables(settings) | {key: str(value) for key, value in places.items()}
    more[processes.REPORT] = f"0 {name}/facts"
    more["PYTHONPATH"] = os.pathsep.join([more["PYTHONPATH"], str(HERE.parents[1])])
    command = [sys.executable, str(HERE / "rank.py"), str(folder), str(file)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=os.environ | more, cwd=folder.parent, **quiet)
