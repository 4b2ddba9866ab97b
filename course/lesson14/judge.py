"""The judge of the final project: runs a port on the CPU, on practice GPUs and by the clock, and says what isn't met."""

import atexit
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from course.lesson14 import causes
from course.lesson14.runs import in_full, on_cpu, on_gpu, on_two, two_steps

HERE = Path(__file__).parent
PROJECT = HERE / "project" / "birdcalls"
SOLUTION = HERE / "solution" / "birdcalls"
SLACK = 1.1  # of par
CLOSE = 0.05  # of a loss: 16 bits round


WEEKEND = (  # what Ines changed in a weekend to make it run on a GPU: (file, text, what stands there instead)
    (
        "model.py",
        "self.window = torch.hann_window(WIDTH)",
        'self.register_buffer("window", torch.hann_window(WIDTH))',
    ),
    ("model.py", "torch.arange(x.shape[1])", "torch.arange(x.shape[1], device=x.device)"),
    ("train.py", "model = Net(config)", 'model = Net(config).to("cuda")'),
    (
        "train.py",
        "= train_step(model, waves, labels",
        "= train_step(model, waves.cuda(), labels.cuda()",
    ),
    ("evaluate.py", "model(waves)", "model(waves.cuda())"),
    ("evaluate.py", "append(labels)", "append(labels.cuda())"),
)
TOGETHER = (  # what the lesson changes as an example, in the same form
    (
        "model.py",
        "self.window = torch.hann_window(WIDTH)",
        'self.register_buffer("window", torch.hann_window(WIDTH), persistent=False)',
    ),
)
SINS = {  # two of each kind, by the names that they get when they're gone
    "Placement": ("a plain attribute", "made on the CPU"),
    "Waits": ("a loss read in each step", "chosen by a mask"),
    "Memory": ("graphs kept alive", "a test with graphs"),
    "Speed": ("clip by clip", "32 bits on a T4"),
    "Two GPUs": ("an unused layer", "two separate trainings"),
}


@dataclass(frozen=True)
class Mark:
    """Whether a criterion is met, and a sentence that says why, beginning with file:line where it isn't.

    `judged`: False where there was nothing to judge.
    """

    met: bool
    text: str
    judged: bool = True


LATER = Mark(False, "judged once it runs on a GPU", judged=False)


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


def nothing_ran(folder) -> bool:
    """Whether the port fails on a GPU, or leaves its model on the CPU."""
    done, spy = on_gpu(folder)
    return done.error is not None or not spy.device.startswith("cuda")


def waits(folder) -> Mark:
    """The CPU doesn't wait for the GPU in the training loop."""
    if nothing_ran(folder):
        return LATER
    done, _ = on_gpu(folder)
    found = causes.waits(done)
    return Mark(not found, "; ".join(found) or f"no wait in the training loop{causes.copies(done)}")


def memory(folder) -> Mark:
    """Training and test fit 8 GiB, and nothing grows."""
    if nothing_ran(folder):
        return LATER
    leaks = [each for each in on_gpu(folder)[0].findings if each["kind"] == "leak"]
    if leaks:
        return Mark(False, f"{causes.short(causes.at(leaks[0]))} {leaks[0]['text']}")
    large, _ = in_full(folder)
    if large.error is not None:
        return Mark(False, causes.too_large(large, folder))
    peak = max(device["peak"] for device in large.facts["devices"])
    return Mark(True, f"the peak is {peak / 2**30:.2f} of 8 GiB")


def speed(folder) -> Mark:
    """A step on a T4 takes no longer than par, by forecast."""
    if nothing_ran(folder):
        return LATER
    step, par = two_steps(folder).step, two_steps(SOLUTION).step
    if step is None:
        return Mark(False, f"{causes.failure(two_steps(folder))}; no step to time")
    words = f"{step.ms:.0f} ms per step by forecast, par is {par.ms:.0f}"
    if step.ms <= SLACK * par.ms:
        return Mark(True, words + (", beaten" if step.ms < 0.99 * par.ms else ""))
    return Mark(False, f"{causes.slow(step, on_gpu(folder)[1])}; {words}")


def two(folder) -> Mark:
    """Two processes share each step's clips, have a GPU each, and keep equal weights."""
    if nothing_ran(folder):
        return LATER
    fault = causes.apart(on_two(folder), on_cpu(PROJECT)["clips"])
    return Mark(not fault, fault or "two processes share each step, and their weights stay equal")


CRITERIA = {
    "device": device,
    "loss": loss,
    "waits": waits,
    "memory": memory,
    "speed": speed,
    "two": two,
}


def sins(folder) -> dict:
    """{kind: [whether each of its two sins is gone]}, as far as the runs show it."""
    done, spy = on_gpu(folder)
    if nothing_ran(folder):
        modules = spy.model.modules() if spy.model is not None else ()
        tensors = [each for module in modules for each in vars(module).values()]
        plain = any(isinstance(each, torch.Tensor) for each in tensors)
        kept = spy.model is not None and not plain
        return dict.fromkeys(SINS, [False, False]) | {"Placement": [kept, False]}
    chosen = causes.choices(done)
    leak = any(each["kind"] == "leak" for each in done.findings)
    step = two_steps(folder).step
    gone = (
        [True, True],
        [all(chosen), not any(chosen)],
        [not leak, in_full(folder)[0].error is None],
        [bool(step) and not each(step, spy) for each in (causes.loops, causes.wide)],
        [not spy.unused, two(folder).met],
    )
    return dict(zip(SINS, gone, strict=True))


def weekend() -> Path:
    """The folder of Ines's weekend version: it runs on a GPU, and has eight of the ten sins left."""
    return changed(WEEKEND)


@functools.cache
def changed(edits: tuple, project: Path = PROJECT) -> Path:
    """The folder of a copy of a project, the untouched one, with `edits`: (file, text, what stands there instead) each."""
    above = Path(tempfile.mkdtemp(prefix="changed"))
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    folder = above / "birdcalls"
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, instead in edits:
        code = (folder / file).read_text(encoding="utf-8")
        if text not in code:
            raise ValueError(f"{text!r} is not in {file}")
        (folder / file).write_text(code.replace(text, instead), encoding="utf-8")
    return folder
