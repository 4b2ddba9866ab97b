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

from helpers import course
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu

PAGE = Path(__file__).parents[1] / "notebooks" / "90_cheat_sheet.ipynb"
KINDS = ("cuda", "accelerator", "mps", "xpu", "cpu")
NOT_ON_PRACTICE = ("torch.compile", "torch.cuda.CUDAGraph")  # practice GPUs refuse these by name
# PyTorch's default, which cannot be asked
MPS_FRACTION = float(os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", 1.7))


NAMES = {"any": "accelerator", "CUDA": "cuda", "MPS": "mps", "XPU": "xpu", "CPU": "cpu"}


def table():
    """(calls by kind, lesson) of each row of the notebook's tables."""
    for cell in nbformat.read(PAGE, as_version=4).cells:
        if cell.cell_type == "markdown" and cell.source.startswith("| task |"):
            for line in cell.source.splitlines()[2:]:
                _, devices, calls, lesson = (part.strip() for part in line.strip("|").split("|"))
                yield dict.fromkeys(KINDS, "") | _by_kind(devices, calls), lesson


def _by_kind(devices, calls):
    """{kind: call} of a row: a line of `devices` names those that use the call in the same line of `calls`."""
    lines = zip(devices.split("<br>"), calls.split("<br>"), strict=True)
    rows = [(", ".join(NAMES) if names == "all" else names, call) for names, call in lines]
    return {NAMES[name]: call.strip("`") for names, call in rows for name in names.split(", ")}


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
    calls = [calls[kind] for calls, _ in table() if calls[kind]]
    calls = [call for call in calls if not call.startswith(tuple(skip))]
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
    rows = list(table())
    text = " ".join(call for calls, _ in rows for call in calls.values())
    names = set(re.findall(r"\btorch(?:\.\w+)+", text))
    assert len(names) > 90
    for name in names:
        functools.reduce(getattr, name.split(".")[1:], torch)  # AttributeError names it
    assert {lesson for _, lesson in rows} <= {lesson.number for lesson in course.NOTEBOOKS}


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
