"""One change after another to the training loop of lesson 04, and what each of them gives. Lesson 08 explains them.

`ladder(device, quick)` is a generator of rows for its section of the schema, as in `helpers.recordings.measure`. Each
rung trains the same network from the same seeds on as many images, so that rates and accuracies can be compared.
"""
import gc
import math
import time
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from helpers.data import shapes
from helpers.devices import describe, features, synchronize
from helpers.memory import tensor_bytes
from helpers.recordings.measure import digits, stopwatch, tf32
from helpers.recordings.networks import allocated_on_cpu, networks
from helpers.training import evaluate

RATE, SEEDS = 3e-3, (0, 1, 2)  # Adam's learning rate for batches of 32, that of lesson 04
SIDE = "no TF32"  # a step aside, never kept: what convolutions would take without PyTorch's default
SLOW = 4  # times slower than the best before: not worth training to the end


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


@dataclass(frozen=True)
class Plan:
    """How much a rung trains: images to learn from (a multiple of every batch), to test on, epochs, larger batch."""
    images: int
    test: int
    epochs: int
    batch: int


def plan(device, quick):
    """The Plan for `device`: a GPU needs more images, to be measured for longer than it takes to start."""
    if quick:
        return Plan(512, 256, 2, 128)
    return Plan(8192, 4000, 6, 128) if device.type == "cpu" else Plan(49152, 10000, 6, 256)


def rungs(device, batch):
    """Changes in their order: (name, fields of Setup). A device that has no use for a change lacks the rung."""
    found = [("loop of lesson 04", {}), ("larger batch", {"batch": batch}), ("no loader", {"resident": True})]
    if has_tf32(device):
        found += [(SIDE, {"convolutions_tf32": False}), ("TF32", {"products_tf32": True})]
    found += [("mixed precision", {"dtype": half_format(device)}), ("channels_last", {"channels_last": True}),
              ("fused Adam", {"fused": True})]
    if (problem := compile_problem(device)) is None:
        found.append(("torch.compile", {"compiled": True}))
    else:
        warnings.warn(f"torch.compile does not run on {device}, so the ladder lacks it: {problem}", stacklevel=2)
    return found + [("CUDA graph", {"graphed": True})] * (device.type == "cuda")


def has_tf32(device):
    """Whether `device` is an NVIDIA GPU whose tensor cores take TF32."""
    return describe(device)["kind"] == "cuda" and features(device)["TF32"] is not False


def half_format(device):
    """The 16-bit format for autocast: bfloat16, except on CUDA devices that only imitate it (lesson 04)."""
    imitated = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.float16 if imitated else torch.bfloat16


def compile_problem(device):
    """Why torch.compile does not run on `device`, in a line, or None: it compiles one addition to find out.

    What it takes (a C++ compiler for a CPU, Triton and a supported GPU) differs by release and system.
    """
    x = torch.ones(8, device=device)
    try:
        torch.compile(lambda x: x + 1)(x)
    except Exception as error:  # noqa: BLE001 - compilers fail with exceptions of many kinds; the line says which
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return None


def ladder(device, quick):
    """Rates, peak memory and accuracy, rung by rung. A rung that is slower than the best before it is not kept.

    Time is that of an epoch over its steps, loader included, without the first epoch; `setup_s` the first step's.
    """
    plans = plan(device, quick)
    data, test = shapes(plans.images, seed=0), DataLoader(TensorDataset(*shapes(plans.test, seed=1)), 500)
    changes, seeds = rungs(device, plans.batch), SEEDS[:1] if quick else SEEDS
    for network, build in networks(device).items():
        if network == "MLP":
            continue  # the loop of lesson 04 trains convolutions
        best, setup = math.inf, Setup()
        for rung, (name, change) in enumerate(changes):
            trial = replace(setup, **change)
            slow = SLOW * best * trial.batch / setup.batch
            runs = [_run(trial, build, data, test, device, seed, plans.epochs, slow) for seed in seeds]
            row = _row(trial.batch, runs)
            kept = name != SIDE and trial.batch / row["time_ms"] > setup.batch / best
            precision = str(trial.dtype or torch.float32).removeprefix("torch.")
            yield {"rung": rung, "name": name, "network": network, "batch": trial.batch, "precision": precision, **row,
                   "kept": kept}
            if kept:
                best, setup = row["time_ms"], trial


def _row(batch, runs):
    samples = [ms for run in runs for ms in run["samples_ms"]]
    low, middle, high = (numpy.quantile(samples, q) for q in (0.25, 0.5, 0.75))
    accuracies = [digits(run["accuracy"]) for run in runs if run["accuracy"] is not None]
    peaks = [run["peak_bytes"] for run in runs if run["peak_bytes"] is not None]
    mean = digits(sum(accuracies) / len(accuracies)) if accuracies else None
    return {"time_ms": digits(middle), "time_iqr_ms": digits(high - low), "images_per_s": digits(1e3 * batch / middle),
            "setup_s": digits(runs[0]["setup_s"]), "peak_bytes": max(peaks, default=None), "accuracy": mean,
            "accuracies": accuracies}


def _run(setup, build, data, test, device, seed, epochs, slow):
    """Train from `seed`, as `setup` says; what it took and gave. Above `slow` ms a step it stops, without accuracy."""
    gc.collect()
    before = _start_counting(device)
    if setup.compiled:
        torch.compiler.reset()
    torch.manual_seed(seed)
    with precisions(setup, device):
        model = build().to(device, memory_format=torch.channels_last if setup.channels_last else torch.preserve_format)
        data = tuple(part.to(device) for part in data) if setup.resident else data
        first = next(batches(setup, data, device))
        setup_s, (step, set_rate, state) = _first_step(setup, model, first, device)
        samples, accuracy = [stopwatch(lambda: step(*first), device)], None
        if samples[0] < slow:
            samples = [_epoch(step, setup, data, device, set_rate, epoch / epochs) for epoch in range(epochs)][1:]
            accuracy = evaluate(model, test, device)
        return {"samples_ms": samples, "setup_s": setup_s, "accuracy": accuracy,
                "peak_bytes": _peak(device, before, lambda: step(*first), [*state(), *first])}


def _first_step(setup, model, first, device):
    """(seconds, what `training_step` gives) of the first batch: compiling and capturing happen here."""
    synchronize(device)
    start = time.perf_counter()
    made = training_step(setup, model, device)
    made[0](*first)
    synchronize(device)
    return time.perf_counter() - start, made


def _epoch(step, setup, data, device, set_rate, done):
    """Milliseconds a step, of one pass over the images; the rate falls in a cosine over the `done` part (0 to 1)."""
    set_rate(setup.rate * (1 + math.cos(math.pi * done)) / 2)
    start, total, steps = time.perf_counter(), torch.zeros((), device=device), 0
    for x, y in batches(setup, data, device):
        total += step(x, y)
        steps += 1
    total.item()
    return 1e3 * (time.perf_counter() - start) / steps


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
        found = DataLoader(TensorDataset(*data), setup.batch, shuffle=True, pin_memory=device.type == "cuda")
    for x, y in found:
        x, y = x.to(device), y.to(device)
        yield x.contiguous(memory_format=torch.channels_last) if setup.channels_last else x, y


def training_step(setup, model, device):
    """Functions step(x, y) → loss on the device, set_rate(rate), state() → the tensors that stay between two steps."""
    forward = torch.compile(model) if setup.compiled else model
    rate = torch.tensor(setup.rate, device=device) if setup.graphed else setup.rate  # a graph keeps numbers as they are
    adam = torch.optim.Adam(model.parameters(), rate, fused=setup.fused or None, capturable=setup.graphed)
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
        return [*model.parameters(), *(p.grad for p in model.parameters()), *kept]
    step = _Graph(gradients, finish, adam, scaler.is_enabled()) if setup.graphed else _chain(gradients, finish)
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
        with torch.cuda.stream(side):
            for _ in range(3):
                self.whole(self.x, self.y)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.captured(self.x, self.y)


def _start_counting(device):
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _peak(device, before, step, tensors):
    """Most bytes at once: on CUDA all that the rung took, images too; on a CPU `tensors` and what a step takes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) - before
    return sum(map(tensor_bytes, tensors)) + allocated_on_cpu(step) if device.type == "cpu" else None
