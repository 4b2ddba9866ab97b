"""The same task on each kind of device, call by call: the table of notebook 90, and code that checks it.

In the calls of cheatsheet.txt `x` is a tensor, `model` a module, `device` the device and `path` a file.
"""

import contextlib
import functools
import html
import os
import re
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from helpers.show import page

KINDS = ("cuda", "accelerator", "mps", "xpu", "cpu")
HEAD = ("task", "CUDA", "torch.<wbr>accelerator", "MPS", "XPU", "CPU", "lesson")


@dataclass(frozen=True)
class Row:
    """One task, and the statement for it on each of `KINDS`; `lesson` explains it."""

    task: str
    cuda: str
    accelerator: str
    mps: str
    xpu: str
    cpu: str
    lesson: str


OLD = {  # older forms that still turn up, and what replaced them
    "torch.cuda.amp.autocast": 'torch.autocast("cuda")',
    "torch.cuda.amp.GradScaler": 'torch.amp.GradScaler("cuda")',
    "torch.backends.cuda.matmul.allow_tf32": "torch.backends.cuda.matmul.fp32_precision",
    "torch.backends.cudnn.allow_tf32": "torch.backends.cudnn.conv.fp32_precision",
    "torch.cuda.OutOfMemoryError": "torch.OutOfMemoryError",
    "torch.cuda.memory_cached": "torch.cuda.memory_reserved",
    "torch.cuda.reset_max_memory_allocated": "torch.cuda.reset_peak_memory_stats",
    "torch.set_default_tensor_type": "torch.set_default_device",
    "torch.accelerator.current_device_idx": "torch.accelerator.current_device_index",
}
# PyTorch's default, which cannot be asked
MPS_FRACTION = float(os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", 1.7))
NOT_ON_PRACTICE = ("torch.compile", "torch.cuda.CUDAGraph")  # practice GPUs refuse these by name


@functools.cache
def groups():
    """The table of cheatsheet.txt: a dict from a group to its rows."""
    found = {}
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            rows = found[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            task, lesson, *calls = (cell.strip() for cell in line.split("|"))
            calls += [""] * (len(KINDS) - len(calls))
            rows.append(Row(task, *calls, lesson))
    return found


def show(group):
    """Show one group of the table, in a notebook as a table; ValueError lists the groups there are."""
    if group not in groups():
        raise ValueError(f"group is {group!r}; it takes one of {list(groups())}")
    page(as_html(group), markdown(group))


def markdown(group):
    """One group as a table in Markdown: a row for each task, a column for each of `KINDS`."""
    lines = ["| task | CUDA | `torch.accelerator` | MPS | XPU | CPU | lesson |", "|" + "---|" * 7]
    for row in groups()[group]:
        calls = [getattr(row, kind) for kind in KINDS]
        shown = [f"`{call}`" if call else "–" for call in calls]
        lines.append("| " + " | ".join([row.task, *shown, row.lesson]) + " |")
    return "\n".join(lines)


def as_html(group):
    """The same table in HTML; long calls may wrap inside a name, without a trace in what is copied from them."""
    head = "".join(f'<th style="text-align:left">{name}</th>' for name in HEAD)
    rows = []
    for row in groups()[group]:
        cells = [_code(getattr(row, kind)) for kind in KINDS]
        shown = "".join(
            f'<td style="text-align:left">{cell}</td>' for cell in (row.task, *cells, row.lesson)
        )
        rows.append(f"<tr>{shown}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _code(call):
    """A statement in HTML, with places where its line may break."""
    if not call:
        return "–"
    return "<code>" + re.sub(r"([._=]|\((?!\)))", r"\1<wbr>", html.escape(call)) + "</code>"


def names(call):
    """The dotted names of torch that a statement uses, for example {"torch.cuda.synchronize"}."""
    return set(re.findall(r"\btorch(?:\.\w+)+", call))


def exists(name):
    """Whether the installed torch has the dotted `name`."""
    try:
        functools.reduce(getattr, name.split(".")[1:], torch)
    except AttributeError:
        return False
    return True


def execute(kind, device, path, skip=()):
    """Execute every call of one column on `device`; return (how many ran, {call: error} of those that failed).

    `path` is a file for torch.load, `skip` holds beginnings of calls to leave out. Two GPUs are needed for "cuda".
    Settings that a call changes are put back after it.
    """
    device = torch.device(device)
    failed = {}
    ran = 0
    known = {
        "torch": torch,
        "time": time,
        "path": path,
        "device": device,
        "x": torch.ones(2),
        "model": torch.nn.Linear(2, 2),
    }
    for call in (getattr(row, kind) for rows in groups().values() for row in rows):
        if call and not call.startswith(tuple(skip)):
            try:
                with _settings_kept(kind):
                    exec(call, dict(known))  # noqa: S102 - a statement of the table above
                ran += 1
            except Exception as error:  # noqa: BLE001 - which error it is, is the finding
                failed[call] = f"{type(error).__name__}: {error}"
    return ran, failed


@contextlib.contextmanager
def _settings_kept(kind):
    """A block after which the settings that calls of column `kind` change are as they were; warnings stay unseen."""
    back = [functools.partial(change, value) for change, value in _settings(kind)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for put_back in back:
                put_back()


def _settings(kind):
    """The settings that calls of column `kind` change, as pairs: the call that sets it, its value now."""
    yield torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()
    # also writes the two below, so it comes first
    yield torch.set_float32_matmul_precision, _matmul_precision()
    for products in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        yield functools.partial(setattr, products, "fp32_precision"), products.fp32_precision
    if kind == "cuda":
        yield torch.cuda.set_sync_debug_mode, torch.cuda.get_sync_debug_mode()
    if kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        yield module.set_per_process_memory_fraction, module.get_per_process_memory_fraction()
    if kind == "mps":
        yield torch.mps.set_per_process_memory_fraction, MPS_FRACTION


def _matmul_precision():
    """The precision of products in the older words; "highest" where the newer attribute was set, which hides it."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "highest"
