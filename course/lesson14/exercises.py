"""Exercises of lesson 14, Port a project: four stages of one port, each decided by the judge."""

import ast
import difflib
import html
import importlib
import os
import re
import shutil
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from IPython.display import Audio, display
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from course import show
from course.checks import panel
from course.checks.core import NotAttempted, NotYet
from course.checks.words import exercise
from course.lesson04.exercises import save_checkpoint
from course.lesson06.exercises import to_ddp
from course.lesson07.exercises import find_waits
from course.lesson14 import causes, figures, judge
from course.lesson14.runs import fingerprint, in_full, inside, on_cpu, small, two_steps, without_gpu
from course.show import figures as drawn
from practice_gpus.reports import page

# The lesson uses them where the learner has kept none.
__all__ = ["find_waits", "save_checkpoint", "to_ddp"]

SOLUTION = str(judge.SOLUTION)
PAGE = "gpu_report.html"
CLIPS = 64  # of which the loudest of each bird is shown
MOST = (
    "a batched spectrogram",
    "Put the loop over clips back, and our solution takes 181 ms instead of 74, partly because autocast then adds six "
    "casts per clip, each with its launch. Without float16, it takes 157: a T4 runs these convolutions on its tensor "
    "cores only in float16, and half the bytes mean half the memory traffic.",
)
TITLES = {
    "device": "runs on any device",
    "loss": "has the same losses",
    "waits": "runs ahead in the loop",
    "memory": "fits 8 GiB",
    "speed": "par on a T4, by forecast",
    "two": "trains on two GPUs",
}


def start(name="birdcalls") -> str:
    """Copy the project beside the notebook, unless there is one, and return its folder's name."""
    copy = Path(name)
    if copy.exists():
        print(f"Your {name}/ stays as it is.")
    else:
        shutil.copytree(judge.PROJECT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        print(f"{name}/ is yours to change: {', '.join(sorted(f.name for f in copy.iterdir()))}")
    return name


def ines() -> tuple:
    """Run Ines's program, untouched, on the CPU: print what it says first and last, return (network, optimizer)."""
    told = on_cpu(judge.PROJECT)
    first, *_, last, right = told["printed"].splitlines()
    print(f"{first}\n…\n{last}\n{right}")
    return told["spy"].model, told["spy"].optimizer


def listen() -> None:
    """Draw one clip of each bird as Ines's network sees it, and play them one after the other."""
    with inside(judge.PROJECT):
        data = importlib.import_module("birdcalls.data")
        waves, labels = data.calls(CLIPS, data.RATE, 0)
        own = [waves[labels == bird] for bird in range(data.BIRDS)]
        loudest = torch.stack([clips[clips.std(dim=1).argmax()] for clips in own])
        clips = importlib.import_module("birdcalls.model").Spectrogram()(loudest.clone())
    drawn.show(*figures.birds(clips))
    display(Audio(loudest.flatten().numpy(), rate=data.RATE))


def listing(file, *names) -> None:
    """Show the functions `names` of a file of Ines's program, as they stand there."""
    files = sorted(path.name for path in judge.PROJECT.glob("*.py"))
    if file not in files:
        raise ValueError(f"file is {file!r}; it takes one of {', '.join(files)}")
    code = (judge.PROJECT / file).read_text(encoding="utf-8")
    there = {getattr(node, "name", ""): node for node in ast.parse(code).body}
    if unknown := set(names) - set(there):
        raise ValueError(
            f"{file} has no {', '.join(unknown)}; it has {', '.join(filter(None, there))}"
        )
    own = [node for name, node in there.items() if name in names]
    shown = "\n\n".join(ast.get_source_segment(code, node) or "" for node in own)
    show.markdown(f"```python\n{shown}\n```", shown)


def verdict(port) -> None:
    """Show what the judge says to each of the six criteria, and which sins are gone."""
    folder = _folder(port)
    marks, sins = judge.marks(folder), judge.sins(folder)
    met = sum(mark.met for mark in marks.values())
    head = f"{found(folder)}, {met} of {len(marks)} criteria met"
    later = [TITLES[name] for name, mark in marks.items() if not mark.judged]
    rows = [(_state(mark), TITLES[name], mark.text) for name, mark in marks.items() if mark.judged]
    if later:
        rows.append(("open", ", ".join(later), judge.LATER.text))
    criteria = len(rows)
    for kind, gone in sins.items():
        names = [name if known else "?" for name, known in zip(judge.SINS[kind], gone)]
        rows.append(("right" if all(gone) else "open", kind, ", ".join(names)))
    state = "right" if {each for each, *_ in rows} == {"right"} else "open"
    parts = [_row(*row) for row in rows]
    lines = [f"{panel.SIGNS[each]} {title}: {text}" for each, title, text in rows]
    parts.insert(criteria, '<div style="margin-top:8px">The mistakes, by kind:</div>')
    lines.insert(criteria, "The mistakes, by kind:")
    show.page(panel.framed(state, head, parts), "\n".join([head, *lines]))


def _state(mark):
    return "right" if mark.met else "wrong"


def _row(state, title, text):
    look = f"background-color:{panel.COLORS[state]};color:#ffffff;border-radius:6px;padding:0 5px"
    sign = f'<b style="{look}">{panel.SIGNS[state]}</b>'
    return f"<div>{sign} <b>{html.escape(title)}</b>: {show.code_in(text)}</div>"


def found(folder) -> str:
    """How many of the ten mistakes are gone, in words."""
    return f"{sum(map(sum, judge.sins(folder).values()))} of 10 mistakes fixed"


def running(port) -> Path:
    """The folder of the port once it runs on a GPU; until then that of Ines's weekend version, and a line that says so."""
    folder = _folder(port)
    if judge.device(folder).met:
        return folder
    print("Your port doesn't run on a GPU yet. This is Ines's weekend version.")
    return judge.weekend()


def training(port):
    """A function that runs the port's small training, as it is now."""
    folder = _folder(port)

    def train():
        with inside(folder):
            small(folder)

    return train


def network(port, full=False) -> tuple:
    """(the port's network as its files are now, its settings): the small ones, or those of the whole training."""
    folder = _folder(port)
    with inside(folder):
        settings = importlib.import_module(f"{folder.name}.config")
        config = settings.FULL if full else settings.SMALL
        return importlib.import_module(f"{folder.name}.model").Net(config), config


def together() -> Path:
    """The folder of Ines's program with the one change that the lesson makes as an example."""
    return judge.changed(judge.TOGETHER)


def fails_at(folder, network, waves) -> str:
    """The line of the project at which its network fails on `waves`, and the error."""
    try:
        network(waves)
    except RuntimeError as error:
        line = causes.lines_of(error, _folder(folder))[-1:]
        return f"{causes.shown(line)}\n{str(error).splitlines()[0].partition(' (')[0]}"
    return "The network runs."


def alone(port, to_ddp) -> None:
    """Train two steps by `to_ddp` as a group of one process, on the CPU; print how it ends."""
    one = dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
    one |= dict(MASTER_ADDR="localhost", MASTER_PORT="0")
    try:
        net, config = network(port)
        clips = TensorDataset(torch.rand(32, config.samples), torch.arange(32) % 8)
        with mock.patch.dict(os.environ, one), without_gpu():
            model, loader = to_ddp(net, clips, 16)
            for waves, labels in loader:
                F.cross_entropy(model(waves), labels).backward()
        print("Two steps, and each parameter got its gradient.")
    except Exception as error:  # noqa: BLE001 - whatever the learner's files raise
        told = re.findall(r"[^.]*prior iteration[^.]*\.|Parameter indices[^\n]*", str(error))
        print(f"{type(error).__name__}: " + "\n".join(told or str(error).splitlines()[:1]))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def memory_now(port) -> None:
    """Draw what a GPU holds from batch to batch, in Ines's weekend version and in the port."""
    drawn.show(*figures.memory(running(port)))


def step_now(port) -> None:
    """Draw a step of Ines's weekend version and one of the port on a timeline, by forecast for a T4."""
    drawn.show(*figures.step(running(port)))


def report(port) -> None:
    """Write *The GPU report of my model* of a port, beside the notebook, show its sheet, and say where it is.

    Until the port runs on a GPU, show the sheet of Ines's weekend version.
    """
    folder = running(port)
    if folder == judge.weekend():
        drawn.show(*figures.first_sheet())
        return
    drawn.show(*figures.sheet(folder))
    path = page.write(in_full(folder)[0], PAGE, two_steps(judge.weekend()).content())
    show.markdown(f"Your report: [{path}]({path})", f"Your report: {path}")


def changes(file) -> None:
    """Show what the model solution changed in one file of the project."""
    both = judge.PROJECT / file, judge.SOLUTION / file
    old, new = (path.read_text().splitlines() for path in both)
    diff = "\n".join(difflib.unified_diff(old, new, file, file, lineterm="", n=1))
    show.markdown(f"```diff\n{diff}\n```", diff)


def _folder(answer):
    if not isinstance(answer, (str, Path)) or not (Path(answer) / "train.py").is_file():
        raise NotYet(f"{answer!r:.60} is no folder with a train.py: give that of your port.")
    return Path(answer).resolve()


def _stage(*names):
    """A check of some of the judge's criteria."""

    def check(answer):
        folder = _folder(answer)
        if fingerprint(folder) == fingerprint(judge.PROJECT):
            raise NotAttempted(
                f"{folder.name} is as it was. Change its files, save them, and run this again."
            )
        marks = [judge.CRITERIA[name](folder) for name in names]
        for mark in marks:
            if not mark.met:
                raise NotYet(mark.text)
        return "; ".join(mark.text for mark in marks) + f". {found(folder)}."

    return check


def half(*edits) -> str:
    """The folder of our solution with `edits`, (file, text, what stands there instead) each: one mistake is left."""
    return str(judge.changed(edits, judge.SOLUTION))


device = exercise("14.device", _stage("device", "loss"), SOLUTION, seconds=240)
memory = exercise("14.memory", _stage("waits", "memory"), SOLUTION, seconds=240)
speed = exercise("14.speed", _stage("speed"), SOLUTION, seconds=240)
two = exercise("14.two", _stage("two"), SOLUTION, seconds=240)
