"""What a device can do: matrix products, copies, bandwidth.

Each part is a generator of rows (dicts, without the device) for its section: `part(device, quick)`, with a torch.device
and whether a short run is wanted. Sizes grow until one measurement takes too long or the memory is full.
"""

import time
from contextlib import contextmanager

import torch

from helpers.devices import describe, features, synchronize
from helpers.timing import time_ms

PRECISIONS = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "tf32": torch.float32,
}


def digits(value):
    """`value` to five significant digits, which keeps the file small and is finer than any spread."""
    return float(f"{value:.5g}")


def timed(fn, device, quick):
    """Fields time_ms and time_iqr_ms of `fn()`; slow work gets three samples."""
    stopwatch(fn, device)
    slow = quick or stopwatch(fn, device) > limit_ms(quick) / 2
    seconds = 0.02 if slow else 0.1
    timing = time_ms(fn, device, repeats=3 if slow else 7, warmup=1, seconds=seconds)
    return {"time_ms": digits(timing.median_ms), "time_iqr_ms": digits(timing.iqr_ms)}


def stopwatch(fn, device):
    """Milliseconds of one call, by the computer's clock, until the device is done."""
    synchronize(device)
    start = time.perf_counter()
    fn()
    synchronize(device)
    return 1e3 * (time.perf_counter() - start)


def limit_ms(quick):
    """Work that takes longer than this ends a series of growing sizes."""
    return 20 if quick else 100


def growing(measured, sizes, device, quick, **fields):
    """Rows `measured(device, size, quick, **fields)` for growing `sizes`, until one takes too long or finds the memory full."""
    for size in sizes:
        try:
            row = measured(device, size, quick, **fields)
        except torch.OutOfMemoryError:
            return  # the device's limit: larger sizes do not fit either
        yield row
        if row["time_ms"] > limit_ms(quick):
            return


def room(device, quick):
    """Bytes that one measurement may use: a fifth of the device's memory, at most 16 GiB; 0.5 GiB on a CPU."""
    most = 2**29 if device.type == "cpu" or quick else 2**34
    return min(most, (describe(device)["memory_bytes"] or 2**32) // 5)


def has_tf32(device):
    """Whether `device` is an NVIDIA GPU whose tensor cores take TF32."""
    return describe(device)["kind"] == "cuda" and features(device)["TF32"] is not False


def formats(device):
    """The number formats in which products are measured: "tf32" only where tensor cores take it."""
    if device.type == "cpu":
        return ("float32", "float64", "bfloat16")
    if device.type != "cuda":
        return ("float32", "float16")
    without = ("float32", "float64", "bfloat16", "float16")
    return (*without, "tf32") if has_tf32(device) else without


@contextmanager
def tf32(on):
    """Allow tensor cores to round float32 products to TF32, or not, for a while."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "tf32" if on else "ieee"
    try:
        yield
    finally:
        settings.fp32_precision = before


def matmul(device, quick):
    """Products of two square matrices by size and number format."""
    sizes = [2**n for n in range(5, 13, 2)] if quick else [2**n for n in range(4, 15)]
    sizes = [size for size in sizes if 24 * size**2 <= room(device, quick)]
    for name in formats(device):
        yield from growing(product, sizes, device, quick, dtype=name)


def product(device, size, quick, dtype):
    """The row of the product of two [size, size] matrices; `dtype` is one of `PRECISIONS`."""
    a = torch.randn(size, size, device=device).to(PRECISIONS[dtype])
    b = torch.randn(size, size, device=device).to(PRECISIONS[dtype])
    with tf32(dtype == "tf32"):
        times = timed(lambda: a @ b, device, quick)
    rate = digits(2 * size**3 / times["time_ms"] / 1e9)
    return {"size": size, "dtype": dtype, **times, "tflop_per_s": rate}


def copies(device, quick):
    """Copies between the CPU and the device, both ways, from pageable and (CUDA) from pinned memory."""
    if device.type == "cpu":
        return
    sizes = [2**n for n in range(10, 31, 4 if quick else 2) if 2**n <= room(device, quick)]
    for direction in ("h2d", "d2h"):
        for pinned in (False, True) if device.type == "cuda" else (False,):
            yield from growing(copy, sizes, device, quick, direction=direction, pinned=pinned)


def copy(device, size, quick, direction, pinned):
    """The row of one copy of `size` bytes."""
    host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
    there = torch.ones(size, dtype=torch.uint8, device=device)
    to, source = (there, host) if direction == "h2d" else (host, there)
    times = timed(lambda: to.copy_(source, non_blocking=pinned), device, quick)
    rate = digits(size / times["time_ms"] / 1e6)
    return {"bytes": size, "direction": direction, "pinned": pinned, **times, "gb_per_s": rate}


TENSORS = {"copy": 2, "add": 3}  # that an operation of `bandwidth` reads and writes


def bandwidth(device, quick):
    """Bytes read and written in the device's own memory by a copy and by an addition of float32 tensors."""
    powers = range(10, 29, 4) if quick else range(11, 30, 2)  # 2**25 floats are 128 MiB
    sizes = [2**n for n in powers if 12 * 2**n <= room(device, quick)]
    for operation in TENSORS:
        yield from growing(traffic, sizes, device, quick, operation=operation)


def traffic(device, floats, quick, operation):
    """The row of one operation of `TENSORS` on tensors of so many `floats`."""
    a, b, c = (torch.ones(floats, device=device) for _ in range(3))
    work = {"copy": lambda: a.copy_(b), "add": lambda: torch.add(a, b, out=c)}[operation]
    times = timed(work, device, quick)
    moved = 4 * floats * TENSORS[operation]
    rate = digits(moved / times["time_ms"] / 1e6)
    return {"operation": operation, "bytes": moved, **times, "gb_per_s": rate}
