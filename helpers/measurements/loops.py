"""The training loop of lesson 04 and its faster variants, as `helpers.measurements.ladder` measures them.

`Setup` says what a loop does; `batches` feeds it, `training_step` makes its step. Lesson 08 explains each change.
"""

import math
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from helpers.devices import describe, features
from helpers.measurements.measure import tf32
from helpers.training import send

RATE = 3e-3  # Adam's learning rate for batches of 32, that of lesson 04


@dataclass(frozen=True)
class Setup:
    """How a loop trains; the defaults are those of lesson 04. `dtype`: of autocast, None for float32."""

    batch: int = 32
    resident: bool = False  # the images lie on the device
    convolutions_tf32: bool = True  # PyTorch's default
    products_tf32: bool = False  # PyTorch's default
    dtype: torch.dtype | None = None
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False
    graphed: bool = False

    @property
    def rate(self):
        """Adam's learning rate, which grows with the square root of the batch (https://arxiv.org/abs/2205.10287)."""
        return RATE * math.sqrt(self.batch / 32)


def has_tf32(device):
    """Whether `device` is an NVIDIA GPU whose tensor cores take TF32."""
    return describe(device)["kind"] == "cuda" and features(device)["TF32"] is not False


def half_format(device):
    """The 16-bit format for autocast: bfloat16, except on CUDA devices that only imitate it (lesson 04)."""
    imitated = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.float16 if imitated else torch.bfloat16


def compile_problem(device):
    """Why torch.compile does not run on `device`, in a line, or None: it compiles a product and its backward.

    What it takes (a C++ compiler for a CPU, Triton and a supported GPU) differs by release and system, and some
    releases fail only where products may round to TF32; so they may here.
    """
    x = torch.ones(8, 8, device=device, requires_grad=True)
    try:
        with precisions(Setup(products_tf32=True), device):
            torch.compile(lambda x: (x @ x).sum())(x).backward()
    except Exception as error:  # noqa: BLE001 - compilers fail with exceptions of many kinds; the line says which
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return None


@contextmanager
def precisions(setup, device):
    """Whether float32 convolutions and products may round to TF32; put back afterwards. Nothing without TF32."""
    with ExitStack() as stack:
        if has_tf32(device):
            stack.enter_context(tf32(setup.products_tf32))
            convolution = torch.backends.cudnn.conv
            stack.callback(setattr, convolution, "fp32_precision", convolution.fp32_precision)
            convolution.fp32_precision = "tf32" if setup.convolutions_tf32 else "ieee"
        yield


def batches(setup, data, device):
    """Full batches (x, y) of `data` on `device`, in a new random order."""
    images, labels = data
    if setup.resident:
        order = torch.randperm(len(images), device=device).split(setup.batch)
        found = ((images[part], labels[part]) for part in order)
    else:
        loader = DataLoader(
            TensorDataset(*data), setup.batch, shuffle=True, pin_memory=device.type == "cuda"
        )
        found = ((send(x, device), send(y, device)) for x, y in loader)
    for x, y in found:
        yield x.contiguous(memory_format=torch.channels_last) if setup.channels_last else x, y


def training_step(setup, model, device):
    """Functions step(x, y) → loss on the device, set_rate(rate), state() → the tensors that stay between two steps."""
    forward = torch.compile(model) if setup.compiled else model
    rate = (
        torch.tensor(setup.rate, device=device) if setup.graphed else setup.rate
    )  # a graph keeps numbers as they are
    adam = torch.optim.Adam(
        model.parameters(), rate, fused=setup.fused or None, capturable=setup.graphed
    )
    scaler = torch.amp.GradScaler(device.type, enabled=setup.dtype == torch.float16)

    def gradients(x, y):
        adam.zero_grad()
        with torch.autocast(device.type, setup.dtype, enabled=setup.dtype is not None):
            loss = F.cross_entropy(forward(x), y)
        scaler.scale(loss).backward()
        return loss.detach()

    def finish():
        scaler.step(adam)
        scaler.update()

    def set_rate(rate):
        for group in adam.param_groups:
            group["lr"] = group["lr"].fill_(rate) if setup.graphed else rate

    def state():
        kept = [v for values in adam.state.values() for v in values.values() if torch.is_tensor(v)]
        return [*model.parameters(), *kept]

    step = (
        _Graph(gradients, finish, adam, scaler.is_enabled())
        if setup.graphed
        else _chain(gradients, finish)
    )
    return step, set_rate, state


def _chain(gradients, finish):
    def step(x, y):
        loss = gradients(x, y)
        finish()
        return loss

    return step


class _Graph:
    """A step captured at its first call and replayed from then on, for batches of one shape.

    Follows https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture: warm-up on another stream, then
    the capture; with a scaler the optimizer's step stays outside.
    """

    def __init__(self, gradients, finish, optimizer, scaled):
        self.whole, self.optimizer = _chain(gradients, finish), optimizer
        self.captured, self.after = (gradients, finish) if scaled else (self.whole, None)
        self.graph = None

    def __call__(self, x, y):
        if self.graph is None:
            self._capture(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        if self.after:
            self.after()
        return self.loss

    def _capture(self, x, y):
        self.x, self.y = x.clone(), y.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", ".*capturable=True"
            )  # the steps before the capture are meant to run so
            for _ in range(3):
                self.whole(self.x, self.y)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.captured(self.x, self.y)
