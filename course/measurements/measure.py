"""What the lessons measure and what `python3 -m course record` records: one function a kind of row.

Each returns a row of a recording (a dict, without the device). `gpu_code` measures a GPU into one line to carry home.
"""

import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course.measurements import gpu_code as codes
from helpers.data import shapes
from helpers.devices import describe, pick_device, synchronize
from helpers.timing import time_ms
from helpers.training import SmallCNN, train_step

PRECISIONS = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "tf32": torch.float32,
}
TENSORS = {"copy": 2, "add": 3}  # that an operation of `traffic` reads and writes
Row = dict[str, Any]


def digits(value: float) -> float:
    """`value` to five significant digits, which is finer than any spread."""
    return float(f"{value:.5g}")


def stopwatch(fn: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of one call, by the computer's clock, until the device is done."""
    synchronize(device)
    start = time.perf_counter()
    fn()
    synchronize(device)
    return 1e3 * (time.perf_counter() - start)


def timed(fn: Callable[[], object], device: torch.device, quick: bool) -> Row:
    """Fields time_ms and time_iqr_ms of `fn()`; slow work gets three samples."""
    stopwatch(fn, device)
    slow = quick or stopwatch(fn, device) > 50
    seconds = 0.02 if slow else 0.1
    timing = time_ms(fn, device, repeats=3 if slow else 7, warmup=1, seconds=seconds)
    return {"time_ms": digits(timing.median_ms), "time_iqr_ms": digits(timing.iqr_ms)}


def formats(device: torch.device) -> tuple[str, ...]:
    """The number formats in which products are measured: "tf32" only where tensor cores take it."""
    if device.type == "cpu":
        return ("float32", "float64", "bfloat16")
    if device.type != "cuda":
        return ("float32", "float16")
    capability = describe(device)["capability"]  # None on AMD's GPUs
    has_tf32 = capability and float(capability) >= 8  # from Ampere on
    return ("float32", "float64", "bfloat16", "float16") + (("tf32",) if has_tf32 else ())


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Allow tensor cores to round float32 products to TF32, or not, for a while."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "tf32" if on else "ieee"
    try:
        yield
    finally:
        settings.fp32_precision = before


def product(device: torch.device, size: int, quick: bool, dtype: str) -> Row:
    """The row of the product of two [size, size] matrices; `dtype` is one of `PRECISIONS`."""
    a = torch.randn(size, size, device=device).to(PRECISIONS[dtype])
    b = torch.randn(size, size, device=device).to(PRECISIONS[dtype])
    with tf32(dtype == "tf32"):
        times = timed(lambda: a @ b, device, quick)
    rate = digits(2 * size**3 / times["time_ms"] / 1e9)
    return {"size": size, "dtype": dtype, **times, "tflop_per_s": rate}


def copy(device: torch.device, size: int, quick: bool, direction: str, pinned: bool) -> Row:
    """The row of one copy of `size` bytes between the CPU and the device, "h2d" (to it) or "d2h"."""
    host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
    there = torch.ones(size, dtype=torch.uint8, device=device)
    to, source = (there, host) if direction == "h2d" else (host, there)
    times = timed(lambda: to.copy_(source, non_blocking=pinned), device, quick)
    rate = digits(size / times["time_ms"] / 1e6)
    return {"bytes": size, "direction": direction, "pinned": pinned, **times, "gb_per_s": rate}


def traffic(device: torch.device, size: int, quick: bool, operation: str) -> Row:
    """The row of one operation of `TENSORS` on float32 tensors in the device's memory; it moves `size` bytes."""
    floats = size // 4 // TENSORS[operation]
    a, b, c = (torch.ones(floats, device=device) for _ in range(3))
    work = {"copy": lambda: a.copy_(b), "add": lambda: torch.add(a, b, out=c)}[operation]
    times = timed(work, device, quick)
    moved = 4 * floats * TENSORS[operation]
    rate = digits(moved / times["time_ms"] / 1e6)
    return {"operation": operation, "bytes": moved, **times, "gb_per_s": rate}


def _mlp() -> nn.Module:
    layers = [nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP": _mlp,  # products of matrices only
    "SmallCNN": SmallCNN,
    "SmallCNN, width 128": lambda: SmallCNN(width=128),
}


def trained(device: torch.device, batch: int, quick: bool, network: str, precision: str) -> Row:
    """The row of a training step with Adam of one of the `NETWORKS`, on drawn images that are on the device.

    Below float32 the step runs under autocast, in float16 with a scaler.
    """
    model = NETWORKS[network]().to(device)
    images, labels = shapes(min(batch, 256), seed=0)
    times_over = -(-batch // len(images))  # a few hundred images are drawn, the rest repeats them
    x = images.repeat(times_over, 1, 1, 1)[:batch].to(device)
    y = labels.repeat(times_over)[:batch].to(device)
    adam = torch.optim.Adam(model.parameters())
    dtype = None if precision == "float32" else PRECISIONS[precision]
    scaler = torch.amp.GradScaler(device.type) if precision == "float16" else None

    def step() -> torch.Tensor:
        return train_step(model, x, y, adam, dtype, scaler)

    step()
    times = timed(step, device, quick)
    adam.zero_grad()
    rate = digits(1e3 * batch / times["time_ms"])
    peak = peak_bytes(step, device) if device.type == "cuda" else None
    what = {"network": network, "batch": batch, "precision": precision}
    return {**what, **times, "images_per_s": rate, "peak_bytes": peak}


def peak_bytes(step: Callable[[], object], device: torch.device) -> int | None:
    """Most bytes at once that `step()` takes beyond what was there before; None where nothing counts them.

    Since PyTorch 2.15 a product of matrices takes its workspace anew (TORCH_CUBLAS_WORKSPACE_CACHE=1 keeps it), so a
    peak on CUDA may hold one; a recording's device says its size. Before, a step to warm up takes it for good.
    """
    if device.type == "cpu":
        return _peak_on_cpu(step)
    if device.type != "cuda":
        return None
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    return torch.cuda.max_memory_allocated(device) - before


def _peak_on_cpu(step: Callable[[], object]) -> int:
    """The peak on a CPU, by the profiler's memory events: https://docs.pytorch.org/docs/stable/profiler.html."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its library writes about start and end
    with torch.profiler.profile(acc_events=True, profile_memory=True) as profile:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    now = most = 0
    for event in sorted(changes, key=lambda event: event["ts"]):
        now += event["args"]["Bytes"]
        most = max(most, now)
    return most


SECTIONS: dict[
    str, tuple[Callable[..., Row], str, str]
] = {  # what measures a row, its size, its number
    "matmul": (product, "size", "tflop_per_s"),
    "copies": (copy, "bytes", "gb_per_s"),
    "bandwidth": (traffic, "bytes", "gb_per_s"),
    "training": (trained, "batch", "images_per_s"),
}


def gpu_code(device: str | None = None) -> str:
    """Measure `device` (None: the best one here) in under a minute and return its code, for `course.measurements.gpu_code.keep`."""
    place = pick_device("auto" if device is None else device)
    known = describe(place)
    numbers = tuple(_number(place, section, dict(fields)) for section, fields, _ in codes.SLOTS)
    gib = round((known["memory_bytes"] or 0) / 2**30)
    version = torch.__version__.split("+")[0]
    today = date.today().isoformat()
    return codes.encode(codes.Measured(known["name"], today, version, gib, numbers))


def _number(device: torch.device, section: str, fields: Row) -> float | None:
    """The number of one slot of a code, or None where it does not fit this device."""
    measured, size, number = SECTIONS[section]
    on_cpu = device.type == "cpu"
    dtype = fields.get("dtype", "float32")
    if dtype not in formats(device):
        return None
    # on some CPUs 16-bit products take minutes
    if on_cpu and (section == "copies" or dtype != "float32" or fields.get("size", 0) > 2048):
        return None
    if fields.get("pinned") and device.type != "cuda":
        return None
    if on_cpu and fields.get("precision") == "float16":
        fields["precision"] = "bfloat16"
    try:
        return measured(device, fields.pop(size), quick=True, **fields)[number]
    except torch.OutOfMemoryError:
        return None
