"""The most memory that a step holds at once: by the allocator on CUDA, by PyTorch's profiler on a CPU."""

import gc
import json
import os
import tempfile
from pathlib import Path

import torch


def peak_bytes(step, device):
    """Most bytes at once that `step()` takes beyond what was there before; None where nothing counts them.

    Since PyTorch 2.15 a product of matrices takes its workspace anew (TORCH_CUBLAS_WORKSPACE_CACHE=1 keeps it), so a
    peak on CUDA may hold one; a recording's device says its size. Before, a step to warm up takes it for good.
    """
    if device.type == "cpu":
        return allocated_on_cpu(step)
    if device.type != "cuda":
        return None
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    return torch.cuda.max_memory_allocated(device) - before


def blas_workspace_bytes(device):
    """Size of the workspace of a product on a CUDA device; None where PyTorch does not tell (before 2.15)."""
    ask = getattr(torch.backends.cuda, "cublas_workspace_size", None)
    if device.type != "cuda" or ask is None:
        return None
    try:
        return ask()
    except RuntimeError:
        return None  # a practice GPU, which has no such library


def allocated_on_cpu(step):
    """The most that `step` holds at once on the CPU beyond what was there before, from the profiler's memory events."""
    now = 0
    most = 0
    for event in sorted(_memory_events(step), key=lambda event: event["ts"]):
        now += event["args"]["Bytes"]
        most = max(most, now)
    return most


def _memory_events(step):
    """Memory events of the profiler's trace: https://docs.pytorch.org/docs/stable/profiler.html."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its library writes about start and end
    with torch.profiler.profile(acc_events=True, profile_memory=True) as profile:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [event for event in events if event.get("name") == "[memory]"]
