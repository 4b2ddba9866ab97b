"""The ladder of lesson 08 for the recorder: one change after another to the loop of lesson 04, measured by `Climb`."""

import contextlib
import io
import math
import warnings
from dataclasses import dataclass, replace

import torch
from torch.utils.data import DataLoader, TensorDataset

from helpers.data import shapes
from helpers.measurements.climb import Climb
from helpers.measurements.measure import has_tf32, tf32
from helpers.training import SmallCNN, send, train_epoch, train_step

RATE = 3e-3  # Adam's learning rate for batches of 32, that of lesson 04


@dataclass(frozen=True)
class Setup:
    """How a loop trains; the defaults are those of lesson 04. `dtype`: of autocast, None for float32."""

    batch: int = 32
    resident: bool = False  # the images lie on the device
    tf32: bool = False  # for products; convolutions have it by default
    dtype: torch.dtype | None = None
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False
    graphed: bool = False


def half_format(device):
    """The 16-bit format for autocast: bfloat16, except on CUDA devices that only imitate it (lesson 04)."""
    imitated = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.float16 if imitated else torch.bfloat16


def compile_problem(device):
    """Why torch.compile does not run on `device`, in a line, or None: it compiles a product and its backward."""
    x = torch.ones(4, 4, device=device, requires_grad=True)
    try:
        torch.compile(lambda x: (x @ x).sum())(x).backward()
    except Exception as error:  # noqa: BLE001 - compilers fail with exceptions of many kinds; the line says which
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0]}"
    return None


def rungs(device, batch):
    """Changes in their order: (name, fields of Setup). A device that has no use for a change lacks the rung."""
    changes = [
        ("baseline", {}),
        ("larger batch", {"batch": batch}),
        ("no loader", {"resident": True}),
    ]
    if has_tf32(device):
        changes.append(("TF32", {"tf32": True}))
    changes.append(("mixed precision", {"dtype": half_format(device)}))
    changes.append(("channels_last", {"channels_last": True}))
    changes.append(("fused Adam", {"fused": True}))
    problem = compile_problem(device)
    if problem is None:
        changes.append(("torch.compile", {"compiled": True}))
    else:
        warnings.warn(f"the ladder lacks torch.compile on {device}: {problem}", stacklevel=2)
    if device.type == "cuda":
        changes.append(("CUDA graph", {"graphed": True}))
    return changes


def ladder(device, quick):
    """Rows of the ladder: each change is tried on top of those that were kept."""
    images = 1024 if quick else 4096 if device.type == "cpu" else 24576
    batch = 128 if device.type == "cpu" else 256
    data = shapes(images, seed=0)
    test = DataLoader(TensorDataset(*shapes(500 if quick else 2000, seed=1)), 500)
    climb = Climb(_started(data, device), test, device, seconds=0.05 if quick else 0.15)
    resident = tuple(part.to(device) for part in data)
    setup = Setup()
    for name, change in rungs(device, batch):
        trial = replace(setup, **change)
        with contextlib.redirect_stdout(io.StringIO()):
            source = resident if trial.resident else data
            row = climb(name, maker(trial, device), feeder(trial, source, device))
        if row["kept"]:
            setup = trial
        yield {"network": "SmallCNN", **{k: v for k, v in row.items() if k != "wins"}}


def _started(data, device):
    """A network that has learned for two passes: new ones differ widely from seed to seed."""
    torch.manual_seed(0)
    model = SmallCNN().to(device)
    adam = torch.optim.Adam(model.parameters(), RATE)
    loader = DataLoader(TensorDataset(*data), 32, shuffle=True)
    for _ in range(2):
        train_epoch(model, loader, adam, device)
    return model


def feeder(setup, data, device):
    """A function that gives the batches (x, y) of one pass on `device`, in a new random order."""

    def loaded():
        pinned = device.type == "cuda"
        loader = DataLoader(TensorDataset(*data), setup.batch, shuffle=True, pin_memory=pinned)
        for x, y in loader:
            yield send(x, device), send(y, device)

    def resident():
        images, labels = data
        for part in torch.randperm(len(images), device=device).split(setup.batch):
            yield images[part], labels[part]

    def channels_last():
        for x, y in resident() if setup.resident else loaded():
            yield x.contiguous(memory_format=torch.channels_last), y

    if setup.channels_last:
        return channels_last
    return resident if setup.resident else loaded


def maker(setup, device):
    """A function make_step(model) for `Climb`, as `setup` says."""

    def make_step(model):
        if setup.channels_last:
            model.to(memory_format=torch.channels_last)
        forward = torch.compile(model) if setup.compiled else model
        # Adam's rate grows with the square root of the batch: https://arxiv.org/abs/2205.10287
        rate = RATE / 3 * math.sqrt(setup.batch / 32)
        rate = torch.tensor(rate, device=device) if setup.graphed else rate
        options = {"fused": setup.fused or None, "capturable": setup.graphed}
        adam = torch.optim.Adam(model.parameters(), rate, **options)
        scaler = torch.amp.GradScaler(device.type) if setup.dtype == torch.float16 else None

        def step(x, y):
            with tf32(True) if setup.tf32 else contextlib.nullcontext():
                return train_step(forward, x, y, adam, setup.dtype, scaler)

        if setup.graphed and scaler is None:
            return Graph(step, adam)
        return step

    return make_step


class Graph:
    """A step captured at its first call and replayed from then on, for batches of one shape.

    Follows https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture: warm-up on another stream, then
    the capture.
    """

    def __init__(self, step, optimizer):
        self.step = step
        self.optimizer = optimizer
        self.graph = None

    def __call__(self, x, y):
        if self.graph is None:
            self._capture(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss

    def _capture(self, x, y):
        self.x = x.clone()
        self.y = y.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", ".*capturable=True"
            )  # these steps are meant to run so
            for _ in range(3):
                self.step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step(self.x, self.y)
