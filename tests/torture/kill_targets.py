"""What the tests of kills run in processes of their own: each function writes something until it is done or killed."""

import contextlib
import json
import os
import time
from pathlib import Path

import torch
from test_scripts import train

from helpers import measurements
from helpers.checks import codes, progress
from helpers.measurements.recorder import record

KEYS = codes.ITEMS[:25]


def quietly(function):
    """Return `function` with its output thrown away and one thread, as a process of its own runs it."""

    def run(*args):
        torch.set_num_threads(1)
        with (
            open(os.devnull, "w") as nothing,
            contextlib.redirect_stdout(nothing),
            contextlib.redirect_stderr(nothing),
        ):
            function(*args)

    return run


def start(name, ready, *args):
    """Say by `ready` that the imports are over, then run the function `name` of this file."""
    ready.set()
    globals()[name](*args)


def keep_progress(folder, told):
    """Keep one result after the other, and say in the file `told` how many are kept."""
    os.environ["GPU_COURSE_HOME"] = str(folder)
    with open(told, "w") as file:
        for number, key in enumerate(KEYS, 1):
            progress.record(key, status="correct", hints=number)
            file.write(f"{number}\n")
            file.flush()


def parts():
    """Return parts of a recording that take 20 ms each and give rows that were really measured."""
    data = json.loads((measurements.FOLDER / "amd-epyc-2-cores.json").read_text(encoding="utf-8"))

    def part(rows):
        def measured(device, quick):
            for row in rows:
                time.sleep(0.01)
                yield {key: value for key, value in row.items() if key != "device"}

        return measured

    return {name: part(rows[:2]) for name, rows in data["sections"].items() if rows}


def make_recording(path):
    """Record, or go on."""
    record(path, "cpu", parts=parts())


def train_on(path, epochs):
    """Train with a checkpoint after each epoch; go on where there is one."""
    load = train.data.load
    train.data.load = lambda name, train=True, n=None, **more: load(
        name, train=train, n=n if train else 10, **more
    )
    line = ["--device", "cpu", "--images", "32", "--epochs", str(epochs), "--checkpoint", str(path)]
    train.main(
        train.arguments().parse_args([*line, *(["--resume"] if Path(path).exists() else [])])
    )


make_recording, train_on = quietly(make_recording), quietly(train_on)
