"""Threads that fight: a training loop in a process of its own, alone and beside a busy program (lesson 08)."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from helpers import plots
from helpers.figures import number
from helpers.threads import SPIN, THREADS
from helpers.training import SmallCNN

SECONDS = 0.4  # of each measurement
SETTINGS = ("all threads", "one thread")
BUSY = "while True: pass"
COURSE = Path(__file__).resolve().parents[2]


def fight():
    """Steps a second of a small network: {"alone": {setting: rate}, "beside a busy program": {...}}, of `SETTINGS`.

    A process of its own with OpenMP's own settings measures them, which takes some seconds.
    """
    own = {name: value for name, value in os.environ.items() if name not in (*SPIN, THREADS)}
    finished = subprocess.run(
        [sys.executable, "-c", "from lessons.lesson08 import threads; threads.measure()"],
        env={**own, "PYTHONPATH": str(COURSE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])


def measure():
    """Print the rates alone and beside a busy program as JSON."""
    step = _step()
    counts = (torch.get_num_threads(), 1)
    rates = {"alone": _rates(step, counts)}
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        time.sleep(0.3)
        rates["beside a busy program"] = _rates(step, counts)
    finally:
        busy.kill()
        busy.wait()
    print(json.dumps(rates))


def _rates(step, counts):
    """The rate of each setting: {setting: steps a second}."""
    return {name: _rate(step, count) for name, count in zip(SETTINGS, counts, strict=True)}


def _step():
    """A step of SGD by hand: making an optimizer imports PyTorch's compiler, which takes seconds."""
    model = SmallCNN()
    weights = list(model.parameters())
    x, y = torch.rand(32, 3, 32, 32), torch.randint(10, (32,))

    def step():
        loss = torch.nn.functional.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= 0.01 * gradient

    return step


def _rate(step, threads):
    """Steps a second with so many threads, after two to warm up."""
    torch.set_num_threads(threads)
    step()
    step()
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        step()
        count += 1
    return count / (time.perf_counter() - start)


def draw(rates):
    """The rates of `fight` as (figure, sentence)."""
    beside = rates["beside a busy program"]
    many, one = (number(beside[name], 2) for name in SETTINGS)
    title = f"Beside a busy program: {many} steps a second, with one thread {one}"
    figure = plots.dots(rates, title, "steps a second")
    figure.axes[0].margins(y=0.4)
    figure.axes[0].set_xlim(left=0)
    said = "; ".join(
        f"{name}: {number(rates['alone'][name], 2)} and {number(beside[name], 2)}"
        for name in SETTINGS
    )
    return figure, f"{said} steps a second, alone and beside it."
