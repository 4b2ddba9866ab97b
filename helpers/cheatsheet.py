"""The same task on each kind of device, call by call: the table of notebook 90, and code that checks it.

Each cell of the table is one Python statement, or "" where not every release from 2.11 on has such a call. `x` is a
tensor, `model` a module and `device` the device. Checked against torch 2.11, 2.13 and 2.15.
"""

import contextlib
import functools
import html
import os
import re
import time
import warnings
from dataclasses import dataclass

import torch

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


def _row(task, lesson, cuda, accelerator="", mps="", xpu="", cpu=""):
    return Row(task, cuda, accelerator, mps, xpu, cpu, lesson)


def _everywhere(task, lesson, call, generic="device"):
    """A row whose calls differ only in the device that stands for `DEVICE`; torch.accelerator's is `generic`."""
    return _row(
        task,
        lesson,
        *(
            call.replace("DEVICE", generic if kind == "accelerator" else f'"{kind}"')
            for kind in KINDS
        ),
    )


def _modules(task, lesson, name, without=()):
    """A row of calls that have the same `name` in torch.cuda, torch.accelerator, …, but for the kinds `without`."""
    return _row(
        task, lesson, *("" if kind in without else f"torch.{kind}.{name}" for kind in KINDS)
    )


GROUPS = {
    "there": (
        _modules("one is there", "01", "is_available()"),
        _row(
            "built for it",
            "01",
            "torch.backends.cuda.is_built()",
            "torch.accelerator.current_accelerator()",
            "torch.backends.mps.is_built()",
            "torch.version.xpu",
        ),
        _modules("how many", "01", "device_count()"),
        _row(
            "name",
            "01",
            "torch.cuda.get_device_name()",
            "",
            "torch.backends.mps.get_name()",
            "torch.xpu.get_device_name()",
        ),
        _row(
            "properties",
            "01",
            'torch.cuda.get_device_properties("cuda")',
            "",
            "",
            'torch.xpu.get_device_properties("xpu")',
        ),
    ),
    "choose": (
        _row(
            "the device",
            "01",
            'torch.device("cuda")',
            "torch.accelerator.current_accelerator()",
            'torch.device("mps")',
            'torch.device("xpu")',
            'torch.device("cpu")',
        ),
        _row(
            "current number",
            "02",
            "torch.cuda.current_device()",
            "torch.accelerator.current_device_index()",
            "",
            "torch.xpu.current_device()",
        ),
        _row(
            "change it",
            "02",
            "torch.cuda.set_device(0)",
            "torch.accelerator.set_device_index(0)",
            "",
            "torch.xpu.set_device(0)",
        ),
        _row(
            "for a with block",
            "02",
            "torch.cuda.device(0)",
            "torch.accelerator.device_index(0)",
            "",
            "torch.xpu.device(0)",
        ),
    ),
    "move": (
        _everywhere("create there", "02", "torch.ones(2, device=DEVICE)"),
        _everywhere("move a tensor", "02", "x.to(DEVICE)"),
        _everywhere("move a module", "03", "model.to(DEVICE)"),
        _everywhere("load a file", "04", "torch.load(path, map_location=DEVICE)"),
        _row("older, shorter", "02", "x.cuda()", "", "", "x.xpu()", "x.cpu()"),
        _row(
            "pin, then copy",
            "07",
            'x.pin_memory().to("cuda", non_blocking=True)',
            "x.pin_memory().to(device, non_blocking=True)",
            "",
            'x.pin_memory().to("xpu", non_blocking=True)',
        ),
    ),
    "wait": (
        _modules("wait for all work", "07", "synchronize()"),
        _modules("current stream", "07", "current_stream()", without=("mps",)),
        _row(
            "new stream",
            "07",
            "torch.cuda.Stream()",
            "torch.Stream(device)",
            "",
            "torch.xpu.Stream()",
            "torch.cpu.Stream()",
        ),
    ),
    "memory": (
        _row(
            "tensors hold",
            "05",
            "torch.cuda.memory_allocated()",
            "torch.accelerator.memory_allocated()",
            "torch.mps.current_allocated_memory()",
            "torch.xpu.memory_allocated()",
        ),
        _row(
            "PyTorch holds",
            "05",
            "torch.cuda.memory_reserved()",
            "torch.accelerator.memory_reserved()",
            "torch.mps.driver_allocated_memory()",
            "torch.xpu.memory_reserved()",
        ),
        _modules("highest so far", "05", "max_memory_allocated()", without=("mps", "cpu")),
        _modules("forget the highest", "05", "reset_peak_memory_stats()", without=("mps", "cpu")),
        _row(
            "free and total",
            "05",
            "torch.cuda.mem_get_info()",
            "torch.accelerator.get_memory_info()",
            "",
            "torch.xpu.mem_get_info()",
        ),
        _row("a limit to keep to", "05", "", "", "torch.mps.recommended_max_memory()"),
        _modules("return the cache", "05", "empty_cache()", without=("cpu",)),
        _row(
            "cap this process",
            "05",
            "torch.cuda.set_per_process_memory_fraction(0.5)",
            "",
            "torch.mps.set_per_process_memory_fraction(0.5)",
            "torch.xpu.set_per_process_memory_fraction(0.5)",
        ),
        _row(
            "error when full",
            "05",
            "torch.OutOfMemoryError",
            "torch.OutOfMemoryError",
            "RuntimeError",
            "torch.OutOfMemoryError",
            "RuntimeError",
        ),
    ),
    "time": (
        _row(
            "event with a clock",
            "07",
            "torch.cuda.Event(enable_timing=True)",
            "torch.Event(enable_timing=True)",
            "torch.mps.Event(enable_timing=True)",
            "torch.xpu.Event(enable_timing=True)",
            "time.perf_counter()",
        ),
        _row(
            "in a profile",
            "07",
            "torch.profiler.ProfilerActivity.CUDA",
            "",
            "torch.mps.profiler.profile()",
            "torch.profiler.ProfilerActivity.XPU",
            "torch.profiler.ProfilerActivity.CPU",
        ),
        _row("find hidden waits", "07", 'torch.cuda.set_sync_debug_mode("warn")'),
    ),
    "seeds": (
        _row("seed every device", "04", *["torch.manual_seed(0)"] * 5),
        _row(
            "only this kind",
            "04",
            "torch.cuda.manual_seed_all(0)",
            "",
            "torch.mps.manual_seed(0)",
            "torch.xpu.manual_seed_all(0)",
        ),
        _everywhere("generator", "02", "torch.Generator(DEVICE)"),
    ),
    "precision": (
        _everywhere(
            "autocast is there", "04", "torch.amp.is_autocast_available(DEVICE)", "device.type"
        ),
        _everywhere("autocast", "04", "torch.autocast(DEVICE)", "device.type"),
        _everywhere("scaler for FP16", "04", "torch.amp.GradScaler(DEVICE)", "device.type"),
        _row(
            "BF16 in hardware",
            "01",
            "torch.cuda.is_bf16_supported(including_emulation=False)",
            "",
            "",
            "torch.xpu.is_bf16_supported(including_emulation=False)",
        ),
        _row("TF32 of products", "08", 'torch.backends.cuda.matmul.fp32_precision = "tf32"'),
        _row("older, for all", "08", *['torch.set_float32_matmul_precision("high")'] * 5),
    ),
    "compile": (
        _row("compile a model", "08", *["torch.compile(model)"] * 5),
        _row("record a graph", "08", "torch.cuda.CUDAGraph()", "", "", "torch.xpu.XPUGraph()"),
        _row("fixed algorithms", "08", *["torch.use_deterministic_algorithms(True)"] * 5),
    ),
    "several": (
        _row(
            "library that talks",
            "06",
            "torch.distributed.is_nccl_available()",
            "torch.distributed.get_default_backend_for_device(device)",
            "",
            "torch.distributed.is_xccl_available()",
            "torch.distributed.is_gloo_available()",
        ),
        _row(
            "direct copies",
            "02",
            "torch.cuda.can_device_access_peer(0, 1)",
            "",
            "",
            "torch.xpu.can_device_access_peer(0, 1)",
        ),
        _row(
            "one process a device",
            "06",
            *["torch.nn.parallel.DistributedDataParallel"] * 2,
            "",
            *["torch.nn.parallel.DistributedDataParallel"] * 2,
        ),
    ),
}
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
MPS_FRACTION = float(
    os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", 1.7)
)  # PyTorch's default; it cannot be asked
NOT_ON_PRACTICE = ("torch.compile", "torch.cuda.CUDAGraph")  # practice GPUs refuse these by name


def show(group):
    """Show one group of the table, in a notebook as a table; ValueError lists the groups there are."""
    if group not in GROUPS:
        raise ValueError(f"group is {group!r}; it takes one of {list(GROUPS)}")
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        get_ipython = None
    if get_ipython is None or get_ipython() is None:
        print(markdown(group))
    else:
        display({"text/plain": markdown(group), "text/html": as_html(group)}, raw=True)


def markdown(group):
    """One group as a table in Markdown: a row for each task, a column for each of `KINDS`."""
    lines = ["| task | CUDA | `torch.accelerator` | MPS | XPU | CPU | lesson |", "|" + "---|" * 7]
    for row in GROUPS[group]:
        calls = [getattr(row, kind) for kind in KINDS]
        shown = [f"`{call}`" if call else "–" for call in calls]
        lines.append("| " + " | ".join([row.task, *shown, row.lesson]) + " |")
    return "\n".join(lines)


def as_html(group):
    """The same table in HTML; long calls may wrap inside a name, without a trace in what is copied from them."""
    head = "".join(f'<th style="text-align:left">{name}</th>' for name in HEAD)
    rows = []
    for row in GROUPS[group]:
        cells = [_code(getattr(row, kind)) for kind in KINDS]
        shown = "".join(
            f'<td style="text-align:left">{cell}</td>' for cell in (row.task, *cells, row.lesson)
        )
        rows.append(f"<tr>{shown}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _code(call):
    """A statement in HTML, with places where its line may break."""
    return (
        "<code>" + re.sub(r"([._=]|\((?!\)))", r"\1<wbr>", html.escape(call)) + "</code>"
        if call
        else "–"
    )


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


def all_names():
    """Every name of torch in the table, sorted."""
    calls = [getattr(row, kind) for rows in GROUPS.values() for row in rows for kind in KINDS]
    return sorted(set().union(*map(names, calls)))


def execute(kind, device, path, skip=()):
    """Execute every call of one column on `device`; return (how many ran, {call: error} of those that failed).

    `path` is a file for torch.load, `skip` holds beginnings of calls to leave out. Two GPUs are needed for "cuda".
    Settings that a call changes are put back after it.
    """
    device, failed, ran = torch.device(device), {}, 0
    known = {
        "torch": torch,
        "time": time,
        "path": path,
        "device": device,
        "x": torch.ones(2),
        "model": torch.nn.Linear(2, 2),
    }
    for call in (getattr(row, kind) for rows in GROUPS.values() for row in rows):
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
    yield (
        torch.set_float32_matmul_precision,
        _matmul_precision(),
    )  # also writes the two below, so it comes first
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
