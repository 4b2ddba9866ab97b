"""python3 -m course record: measure this machine for the figures of the course; `measurements` reads the result.

After every part the file is whole, and the same command goes on from there.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from course import files, measurements
from course.doctor import gather_facts
from course.measurements import measure
from course.measurements.measure import Row
from course.measurements.reader import HERE, VERSION, Recording
from course.tools._arguments import own_file
from helpers.devices import describe, pick_device
from helpers.host import cpu_cores, cpu_name

HELP = "measure this machine (GPU and CPU) into a file that the figures can draw"
Part = Callable[[torch.device, bool], Iterable[Row]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `record`."""
    parser.add_argument(
        "--out",
        type=own_file,
        required=True,
        metavar="FILE.json",
        help="new, or unfinished and to be gone on with",
    )
    parser.add_argument(
        "--device",
        type=device,
        help='such as "cuda:1" (default: the best one); the CPU is always measured too',
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a minute or less, for a look; coarser, not to be shared",
    )


def device(text: str) -> str:
    """Return the name of a device that is here; ArgumentTypeError says which are."""
    try:
        return str(pick_device(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is{str(error).removeprefix('prefer is')}") from None


def run(args: argparse.Namespace) -> int:
    """Measure, and say where the result is. Returns 0, 2 when wrongly called, 130 when stopped."""
    try:
        recording = record(args.out, args.device, args.quick, PARTS)
    except KeyboardInterrupt:
        kept = f"{args.out} keeps the finished parts, if any; the same command goes on from there."
        print(f"\nStopped. {kept}", file=sys.stderr)
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    rows = sum(map(len, recording.sections.values()))
    size = recording.path.stat().st_size / 1000
    print(f"{args.out}: {rows} rows, {size:.0f} KB; {recording.label}")
    return 0


# --- The parts: rows of a section by growing sizes, until one takes too long or the memory is full -----------------


def limit_ms(quick: bool) -> float:
    """Work that takes longer than this ends a series of growing sizes."""
    return 20 if quick else 100


def growing(
    measured: Callable[..., Row],
    sizes: Iterable[int],
    device: torch.device,
    quick: bool,
    **fields: Any,
) -> Iterator[Row]:
    """Rows `measured(device, size, quick, **fields)` for growing `sizes`."""
    for size in sizes:
        try:
            row = measured(device, size, quick, **fields)
        except torch.OutOfMemoryError:
            return  # the device's limit: larger sizes do not fit either
        yield row
        if row["time_ms"] > limit_ms(quick):
            return


def room(device: torch.device, quick: bool) -> int:
    """Bytes that one measurement may use: a fifth of the device's memory, at most 16 GiB; 0.5 GiB on a CPU."""
    most = 2**29 if device.type == "cpu" or quick else 2**34
    return min(most, (describe(device)["memory_bytes"] or 2**32) // 5)


def matmul(device: torch.device, quick: bool) -> Iterator[Row]:
    """Products of two square matrices by size and number format."""
    sizes = [2**n for n in range(5, 13, 2)] if quick else [2**n for n in range(4, 15)]
    sizes = [size for size in sizes if 24 * size**2 <= room(device, quick)]
    for name in measure.formats(device):
        yield from growing(measure.product, sizes, device, quick, dtype=name)


def copies(device: torch.device, quick: bool) -> Iterator[Row]:
    """Copies between the CPU and the device, both ways, from pageable and (CUDA) from pinned memory."""
    if device.type == "cpu":
        return
    sizes = [2**n for n in range(10, 31, 4 if quick else 2) if 2**n <= room(device, quick)]
    for direction in ("h2d", "d2h"):
        for pinned in (False, True) if device.type == "cuda" else (False,):
            yield from growing(
                measure.copy, sizes, device, quick, direction=direction, pinned=pinned
            )


def bandwidth(device: torch.device, quick: bool) -> Iterator[Row]:
    """Bytes read and written in the device's own memory by a copy and by an addition of float32 tensors."""
    powers = range(10, 29, 4) if quick else range(11, 30, 2)  # 2**25 floats are 128 MiB
    floats = [2**n for n in powers if 12 * 2**n <= room(device, quick)]
    for operation, tensors in measure.TENSORS.items():
        sizes = [4 * tensors * n for n in floats]
        yield from growing(measure.traffic, sizes, device, quick, operation=operation)


def training(device: torch.device, quick: bool) -> Iterator[Row]:
    """Training steps by network, precision and batch; the wide network only where it does not take minutes."""
    precisions = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16", "float16")}
    sizes = [4**n for n in range(6 if device.type == "cpu" else 7)]
    for network in measure.NETWORKS:
        if device.type == "cpu" and network == "SmallCNN, width 128":
            continue
        for precision in precisions.get(device.type, ("float32",)):
            fields = {"network": network, "precision": precision}
            wanted = sizes[1::2] if quick else sizes
            yield from growing(measure.trained, wanted, device, quick, **fields)


PARTS: dict[str, Part] = {
    "matmul": matmul,
    "bandwidth": bandwidth,
    "copies": copies,
    "training": training,
}


# --- The file ------------------------------------------------------------------------------------------------------

# what has to be the same to go on with a file
SAME = ("quick", "code", "torch", "cuda", "rocm", "cudnn", "driver", "cpu", "cores", "system")


def record(path: str | Path, device: str | None, quick: bool, parts: dict[str, Part]) -> Recording:
    """Measure `device` (None: the best one) and the CPU into the file `path`; returns the Recording.

    A file that an earlier call left unfinished on the same machine is gone on with. Stopped by Ctrl+C, the file keeps
    each finished part. ValueError for a file that is finished, of another machine or no recording; FileNotFoundError
    where its folder is missing.
    """
    path = Path(path)
    if path.exists() and not path.is_file() or not path.parent.is_dir():
        raise FileNotFoundError(f"--out is {str(path)!r}; it takes a file in a folder that exists")
    best = pick_device("auto" if device is None else device)
    names = list(dict.fromkeys([str(best), "cpu"]))
    data = _start(path, names, quick)
    done = data["provenance"]["done"]
    todo = [(name, part) for part in parts for name in names if f"{name} {part}" not in done]
    with tqdm(todo, unit="part", desc=path.name) as bar:
        for name, part in bar:
            bar.set_postfix_str(f"{part} on {name}")
            place = pick_device(name)
            # PyTorch asks the current GPU and waits for it unless told otherwise
            with torch.cuda.device(place) if place.type == "cuda" else contextlib.nullcontext():
                rows = [{"device": name, **row} for row in parts[part](place, quick)]
            data["sections"].setdefault(part, []).extend(rows)
            done.append(f"{name} {part}")
            write(data, path)
    data["provenance"]["complete"] = True
    write(data, path)
    return measurements.load(path)


def _start(path: Path, names: list[str], quick: bool) -> dict[str, Any]:
    """The data to add to: that of an unfinished file, or new."""
    devices = {}
    for name in names:
        known = describe(name) | {"blas_workspace_bytes": _blas_workspace_bytes(pick_device(name))}
        devices[name] = {field: value for field, value in known.items() if field != "device"}
    known = {"schema": VERSION, "provenance": provenance(quick), "devices": devices, "sections": {}}
    if not path.exists():
        return known
    old = measurements.load(path)
    if old.provenance["complete"]:
        words = "a finished recording; it takes the name of a new file"
        raise ValueError(f"--out is {str(path)!r}, {words}")
    other = [field for field in SAME if old.provenance[field] != known["provenance"][field]]
    other += ["devices"] if old.devices != devices else []
    if other:
        words = f"begun with another {', '.join(other)}; it takes the name of a new one"
        raise ValueError(f"--out is {str(path)!r}, {words}")
    return {**known, "provenance": old.provenance, "sections": old.sections}


def _blas_workspace_bytes(device: torch.device) -> int | None:
    """Size of the workspace of a product on a CUDA device; None where PyTorch does not tell (before 2.15)."""
    ask = getattr(torch.backends.cuda, "cublas_workspace_size", None)
    if device.type != "cuda" or ask is None:
        return None
    try:
        return ask()
    except RuntimeError:
        return None  # a practice GPU, which has no such library


def provenance(quick: bool) -> dict[str, Any]:
    """Where and how a recording is made, as its schema wants it."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    words = [re.sub(r"[^=]*[/\\]", "", word) for word in sys.argv[1:]]  # without folders
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "code": code_version(),
        "command": shlex.join(["python3", "-m", "course", *words]),
        **versions(),
        "driver": gather_facts().driver,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": cpu_cores(),
        "load_average": load,
        "quick": bool(quick),
        "complete": False,
        "done": [],
    }


def versions() -> dict[str, str | None]:
    """Versions of "python", "torch", "cuda", "rocm", "cudnn", "nccl"; None where PyTorch was built without it."""
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    has_nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "cudnn": None if cudnn is None else _cudnn_text(cudnn),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
    }


def _cudnn_text(number: int) -> str:
    """cuDNN's version number as text: major * 10000 + minor * 100 + patch since 9.0, major * 1000 before."""
    thousands = 10000 if number >= 90000 else 1000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"


def code_version() -> str:
    """What git calls this copy of the course, with "-dirty" after a change; else the installed version or "unknown"."""
    line = ["git", "describe", "--always", "--dirty", "--tags"]
    try:
        done = subprocess.run(line, cwd=HERE, text=True, capture_output=True, timeout=20)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass  # no git on this machine
    try:
        return metadata.version("gpus-in-pytorch")
    except metadata.PackageNotFoundError:
        return "unknown"


def write(data: dict[str, Any], path: Path) -> None:
    """Write the recording whole or not at all, one row a line, after its check."""
    measurements.check(data, path.name)
    files.write(path, as_text(data))


def as_text(data: dict[str, Any]) -> str:
    """The recording as JSON with one row a line: small, and readable in a comparison of versions."""
    sections = []
    for name, rows in data["sections"].items():
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
        inside = "\n  " + ",\n  ".join(lines) + "\n " if lines else ""
        sections.append(f" {json.dumps(name)}: [{inside}]")
    head = {key: data[key] for key in ("schema", "provenance", "devices")}
    start = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    return start + ',\n "sections": {\n' + ",\n".join(sections) + "\n }\n}\n"
