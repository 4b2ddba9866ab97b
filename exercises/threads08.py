"""Threads that fight: a training loop in a process of its own, alone and beside a busy program (lesson 08)."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from helpers.threads import SPIN, THREADS

SECONDS = 0.6  # of each measurement
STEPS = ("all threads", "one thread", "all threads, short spin")
BUSY = "while True: pass"
COURSE = Path(__file__).resolve().parents[1]


def fight():
    """Steps a second of a small network: {"alone": {setting: rate}, "beside a busy program": {...}}, a setting of `STEPS`.

    Two processes in turn, which take about ten seconds: the first with OpenMP's own settings, the second with a short
    spin.
    """
    own = {k: v for k, v in os.environ.items() if k not in (*SPIN, THREADS)}
    first = _run(own, [0, 1])
    second = _run({**own, **SPIN}, [0])
    return {
        place: dict(zip(STEPS, [*first[place], *second[place]], strict=True)) for place in first
    }


def _run(environment, threads):
    """What `_measure` prints in a new Python with this environment."""
    code = f"from exercises import threads08; threads08._measure({threads})"
    finished = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": str(COURSE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])


def _measure(threads):
    """Print the rates alone and beside a busy program as JSON; `threads`: numbers of threads, 0 for all."""
    import torch

    step = _step()
    every = torch.get_num_threads()
    counts = [count or every for count in threads]
    rates = {"alone": [_rate(step, count) for count in counts]}
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        time.sleep(0.3)
        rates["beside a busy program"] = [_rate(step, count) for count in counts]
    finally:
        busy.kill()
        busy.wait()
    print(json.dumps(rates))


def _step():
    import torch

    from helpers.training import SmallCNN, train_step

    model = SmallCNN()
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.rand(32, 3, 32, 32), torch.randint(10, (32,))
    return lambda: train_step(model, x, y, optimizer)


def _rate(step, threads):
    """Steps a second with so many threads, after two to warm up."""
    import torch

    torch.set_num_threads(threads)
    step()
    step()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        step()
        count += 1
    return count / (time.perf_counter() - start)


def draw(rates):
    """The rates of `fight` as (figure, sentence)."""
    from helpers import plots
    from helpers.figures import number

    alone, beside = rates["alone"], rates["beside a busy program"]
    many, one = beside[STEPS[0]], beside[STEPS[1]]
    title = f"Beside a busy program: {number(many, 2)} steps a second with all threads, {number(one, 2)} with one"
    figure = plots.dots(rates, title, "steps a second", log=True)
    figure.axes[0].margins(y=0.2)
    said = "; ".join(
        f"{name}: {number(alone[name], 2)} and {number(beside[name], 2)}" for name in STEPS
    )
    return figure, f"{said} steps a second, alone and beside it."
