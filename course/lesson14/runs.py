"""Runs a learner's port, the package in a folder whose `train` module trains, where it has to run.

On the CPU, on a practice T4 with 8 GiB, on shapes alone, and as two processes. A project takes ``--small`` for a short training, and
leaves the losses in its variable `losses`. `python runs.py FOLDER WHERE 0 1` is the two processes. They aren't started by
`course.launch`: torchrun looks for GPUs before it forks, so CUDA, and practice GPUs like it, refuse the
workers that it forks.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.optim import optimizer as optimizers

if TYPE_CHECKING:
    from practice_gpus.reports import Report

CARD = "T4"
MEMORY = "8 GiB"
SECONDS = 90  # for two processes
GRACE = 10  # for one of them when the other has failed


class Spy:
    """Watches the program in `folder` by PyTorch's hooks; with `values` it reads batches and weights, too, which waits.

    With `memory` it notes what the GPU holds whenever a module is called.
    """

    def __init__(self, folder: str | Path, values: bool = False, memory: bool = False) -> None:
        self.folder = str(Path(folder).resolve())
        self.values = values
        self.memory: list | None = [] if memory else None  # bytes, at each call of a module
        self.trained = 0  # how many of them until the last step
        self.taken = 0  # training steps
        self.optimizer: torch.optim.Optimizer | None = None
        self.model: torch.nn.Module | None = (
            None  # what the program calls first: its network, or a wrapper of it
        )
        self.called: list = []  # (file, line) of the first call, innermost first
        self.stepped: list = []  # the same of the optimizer's first step
        self.device = ""
        self.unused: list = []  # names of parameters that no loss depends on: without a gradient at the first step
        self.clips: list = []  # of each training step: how many, and the sum of their samples
        self.weights: list = []  # after each step: the sum of all weights

    def __enter__(self) -> "Spy":
        module = torch.nn.modules.module
        self.hooks = [
            module.register_module_forward_pre_hook(self.calls),
            optimizers.register_optimizer_step_post_hook(self.steps),
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def calls(self, module: torch.nn.Module, inputs: tuple) -> None:
        """A module is called."""
        if self.memory is not None:
            self.memory.append(torch.cuda.memory_allocated())
        first = next(iter(module.parameters()), None)
        if self.model is None and first is not None:
            self.model = module
            self.called = self.lines()
            self.device = str(first.device)
        training = module.training and torch.is_grad_enabled()
        if self.values and training and module is self.model:
            waves = inputs[0]
            self.clips.append((len(waves), waves.detach().double().sum().item()))

    def steps(self, optimizer: torch.optim.Optimizer, *rest: object) -> None:
        """An optimizer has stepped."""
        self.optimizer = optimizer
        self.taken += 1
        self.trained = len(self.memory or ())
        if not self.stepped:
            self.stepped = self.lines()
            named = self.model.named_parameters() if self.model is not None else ()
            self.unused = [name for name, p in named if p.requires_grad and p.grad is None]
        if self.values:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            total = sum(p.detach().double().sum().item() for p in parameters)
            self.weights.append(total)

    def lines(self) -> list[tuple[str, int]]:
        """The program's lines that are running, innermost first."""
        frame: FrameType | None = sys._getframe(1)
        found = []
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self.folder):
                found.append((file, frame.f_lineno))
            frame = frame.f_back
        return found


def once(run: Callable) -> Callable:
    """A run of the same files isn't repeated."""
    kept = {}

    @functools.wraps(run)
    def answer(folder):
        key = str(folder), fingerprint(folder)
        if key not in kept:
            kept[key] = run(Path(folder).resolve())
        return kept[key]

    return answer


def fingerprint(folder: str | Path) -> str:
    """A text that changes with the program."""
    files = sorted(Path(folder).glob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


@once
def on_cpu(folder: Path) -> dict:
    """{"losses", "error", "line", "clips", "spy", "printed"} of a small run without a GPU."""
    told: dict = {"losses": None, "error": "", "line": None}
    with inside(folder) as printed, without_gpu(), Spy(folder, values=True) as spy:
        try:
            told["losses"] = small(folder).get("losses")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the program raises
            told["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
            told["line"] = innermost(error, folder)
    return told | {"clips": spy.clips, "spy": spy, "printed": printed.getvalue()}


def small(folder: Path, *arguments: str) -> dict:
    """Run the project's small training in here, or that of `arguments`; returns its variables."""
    with mock.patch.object(sys, "argv", [*(arguments or ("train", "--small"))]):
        return runpy.run_module(f"{folder.name}.train", run_name="__main__")


def without_gpu() -> Any:
    """A context in which PyTorch sees no GPU."""
    return mock.patch.multiple(torch.cuda, is_available=lambda: False, device_count=lambda: 0)


@once
def on_gpu(folder: Path) -> tuple:
    """(the report, what was spied) of a small run on a practice GPU."""
    with inside(folder), Spy(folder) as spy:
        return report_on(folder, "--small"), spy


@once
def in_full(folder: Path) -> tuple:
    """(the report, what was spied) of the whole training, and of the test, on shapes alone."""
    with inside(folder), Spy(folder, memory=True) as spy:
        return report_on(folder, shapes=True), spy


@once
def held(folder: Path) -> tuple:
    """(what was spied, the error that ended it or None) of the same run without a clock, in half of the time."""
    from practice_gpus import practice_gpus

    gpu = practice_gpus(1, MEMORY, real="hide", values=False, stand_in=1.0)
    error = None
    with inside(folder), gpu, Spy(folder, memory=True) as spy:
        try:
            small(folder, "train")
        except Exception as raised:  # noqa: BLE001 - whatever the program raises
            error = raised
    return spy, error


@once
def two_steps(folder: Path) -> "Report":
    """The report of the first steps of the whole training, on shapes alone."""
    with inside(folder):
        return report_on(folder, shapes=True, steps=2)


def report_on(folder: Path, *arguments: str, **settings: Any) -> "Report":
    """The report of the project's training on a practice T4 with 8 GiB."""
    from practice_gpus import report

    where: dict[str, Any] = {"card": CARD, "memory": MEMORY, "real": "hide", "module": True}
    done = report(f"{folder.name}.train", *arguments, **where, **settings)
    assert done is not None  # real="hide": never on a real GPU
    return done


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[io.StringIO]:
    """The folder above the project is the current one, its modules are loaded anew; yields what takes its output."""
    here = Path.cwd()
    state = torch.get_rng_state()
    forget(folder.name)
    os.chdir(folder.parent)
    sys.path.insert(0, str(folder.parent))
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield printed
    finally:
        sys.path.remove(str(folder.parent))
        os.chdir(here)
        forget(folder.name)
        torch.set_rng_state(state)


def forget(package: str) -> None:
    """Let go of the modules of a project that ran before."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@once
def on_two(folder: Path) -> list:
    """What each of two processes did, as `rank` tells it; a process that ended early tells only its error."""
    from course.checks.ranks import hosted_store  # the processes, which run this file, need it not

    store, group = hosted_store()
    with tempfile.TemporaryDirectory() as name:
        together = [[0, 1]] if sys.platform == "linux" else [[0], [1]]
        children = [start(folder, name, ranks, group) for ranks in together]
        try:
            for child in children:
                child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for child in children:
                end(child)
        return [told_by(Path(name) / f"{rank}.json") for rank in range(2)]


def told_by(file: Path) -> dict:
    """What a process wrote, or that it didn't come to it."""
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))
    return {"error": "it never ended: one process waits for the other", "line": None}


def end(child: subprocess.Popen) -> None:
    """End a process and those that it forked."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)  # its group, as it leads one
        else:
            child.kill()
    child.wait()


def start(folder: Path, name: str, ranks: list[int], group: dict[str, str]) -> subprocess.Popen:
    """Start a process that imports PyTorch once for all of `ranks`, which it forks if they are several."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    places = {**group, "OMP_NUM_THREADS": "1"}
    places["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), name, *map(str, ranks)],
        env=os.environ | places,
        cwd=folder.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def work(folder: str, name: str, *ranks: str) -> None:
    """Run the project as each of `ranks`; when one has failed, the others have a few seconds to end, too."""
    import torch._dynamo  # noqa: F401 - optimizers and DDP import it; here it is shared

    from practice_gpus import session  # noqa: F401

    if len(ranks) == 1:
        rank(folder, name, int(ranks[0]))
        return
    running = {}
    for number in map(int, ranks):
        child = os.fork()
        if not child:
            try:
                rank(folder, name, number)
            finally:
                os._exit(0)
        running[child] = number
    last = float("inf")
    while running and time.monotonic() < last:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            time.sleep(0.05)
            continue
        file = Path(name) / f"{running.pop(child)}.json"
        if not file.exists():
            words = f"a process ended with status {status} before it was done"
            file.write_text(json.dumps({"error": words, "line": None}), encoding="utf-8")
        if json.loads(file.read_text(encoding="utf-8"))["error"]:
            last = min(last, time.monotonic() + GRACE)


def innermost(error: BaseException, folder: str | Path) -> tuple[str, int]:
    """The project's innermost line, (file, number), on the way to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [(f.filename, f.lineno or 1) for f in frames if f.filename.startswith(str(folder))]
    return lines[-1] if lines else (str(Path(folder) / "train.py"), 1)


def rank(folder: str, name: str, number: int) -> None:
    """Run the project as one of two processes with two practice GPUs in sight, as torchrun would; write what it did."""
    from practice_gpus import session
    from practice_gpus.pytorch import variables
    from practice_gpus.settings import Settings

    places = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ.update({key: str(value) for key, value in places.items()})
    os.environ.update(variables(Settings(n=2, memory=MEMORY, card=CARD, real="hide")))
    session.resume()
    sys.path.insert(0, str(Path(folder).parent))
    told: dict = {"error": "", "line": None}
    with Spy(folder, values=True) as spy:
        try:
            small(Path(folder))
        except BaseException as error:  # noqa: BLE001 - whatever the program raises
            told = {"error": f"{type(error).__name__}: {error}", "line": innermost(error, folder)}
    names = ("device", "clips", "weights", "called", "stepped", "unused")
    told |= {each: getattr(spy, each) for each in names}
    part = Path(name) / f"{number}.part"
    part.write_text(json.dumps(told), encoding="utf-8")
    part.replace(Path(name) / f"{number}.json")


if __name__ == "__main__":
    work(*sys.argv[1:])
