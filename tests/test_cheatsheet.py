"""The tables of notebook 90: every name in them exists, every call of them runs where its device is."""

import contextlib
import functools
import os
import re
import time
import warnings
from pathlib import Path

import nbformat
import pytest
import torch

from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu

PAGE = Path(__file__).parents[1] / "notebooks" / "90_cheat_sheet.ipynb"
KINDS = ("cuda", "accelerator", "mps", "xpu", "cpu")
NOT_ON_PRACTICE = ("torch.compile", "torch.cuda.CUDAGraph")  # practice GPUs refuse these by name
# PyTorch's default, which cannot be asked
MPS_FRACTION = float(os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", 1.7))


CUDA, XPU, MPS, CPU = ("cuda",), ("xpu",), ("mps",), ("cpu",)
RUNS_ON = {  # what a table says: the kinds that its call is tried on
    **{"any GPU": ("accelerator",), "any GPU but MPS": ("accelerator",), "any device": KINDS},
    "any device but MPS": ("accelerator", "cuda", "xpu", "cpu"),
    **{"CUDA": CUDA, "MPS": MPS, "XPU": XPU, "CPU": CPU},
    **{"CUDA, XPU": CUDA + XPU, "MPS, CPU": MPS + CPU},
}


def table():
    """(kinds, call) of each call in the notebook's tables: a row has one, or in a fold a line for each device."""
    for cell in nbformat.read(PAGE, as_version=4).cells:
        for line in cell.source.splitlines():
            parts = [part.strip() for part in line.strip("|").split("|")]
            if line.startswith("| ") and len(parts) > 2 and parts[0] != "task":
                if parts[1].startswith("`"):
                    yield RUNS_ON[parts[2]], parts[1].strip("`")
                else:
                    lines = zip(parts[1].split("<br>"), parts[2].split("<br>"), strict=True)
                    yield from ((RUNS_ON[device], call.strip("`")) for device, call in lines)


def settings(kind):
    """The settings that calls of column `kind` change, as pairs: the call that sets it, its value now."""
    yield torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()
    yield torch.set_float32_matmul_precision, "highest"  # also writes the two below, so first
    for products in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        yield functools.partial(setattr, products, "fp32_precision"), products.fp32_precision
    if kind == "cuda":
        yield torch.cuda.set_sync_debug_mode, torch.cuda.get_sync_debug_mode()
    if kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        yield module.set_per_process_memory_fraction, module.get_per_process_memory_fraction()
    if kind == "mps":
        yield torch.mps.set_per_process_memory_fraction, MPS_FRACTION


@contextlib.contextmanager
def settings_kept(kind):
    """A block after which the settings that calls of column `kind` change are as they were; warnings stay unseen."""
    back = [functools.partial(change, value) for change, value in settings(kind)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for put_back in back:
                put_back()


def run_calls(kind, device, path, skip=()):
    """Run every call of one column on `device`, without those that begin as in `skip`; returns how many there were."""
    known = {"torch": torch, "time": time, "path": path, "device": torch.device(device)}
    calls = [call for kinds, call in table() if kind in kinds and not call.startswith(tuple(skip))]
    for call in calls:
        with settings_kept(kind):
            try:
                exec(call, {**known, "x": torch.ones(2), "model": torch.nn.Linear(2, 2)})
            except Exception as error:
                raise AssertionError(f"{call} fails on {device}: {error}") from error
    return len(calls)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file for torch.load."""
    path = tmp_path_factory.mktemp("files") / "x.pt"
    torch.save(torch.ones(2), path)
    return path


def test_every_name_of_the_tables_exists_in_this_pytorch():
    text = " ".join(call for _, call in table())
    names = set(re.findall(r"\btorch(?:\.\w+)+", text))
    assert len(names) > 90
    for name in names:
        functools.reduce(getattr, name.split(".")[1:], torch)  # AttributeError names it


def test_the_calls_for_the_cpu_run(path):
    assert run_calls("cpu", "cpu", path) >= 20


@pytest.mark.parametrize("kind", ["cuda", "accelerator"])
def test_the_calls_for_cuda_run_on_two_gpus_real_or_simulated(path, kind):
    with practice_gpus(2) as gpus:
        assert run_calls(kind, "cuda", path, () if gpus.real else NOT_ON_PRACTICE) >= 30


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_the_calls_for_other_devices_run_where_they_are(path, kind):
    if not getattr(torch, kind).is_available():
        pytest.skip(f"needs {kind}")
    skip = ("torch.xpu.can_device_access_peer",) if torch.xpu.device_count() < 2 else ()
    run_calls(kind, kind, path, skip)
