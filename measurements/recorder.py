"""Measure a machine part by part into one file, which after every part is whole and can be gone on with."""

import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import torch
from tqdm import tqdm

import measurements
from helpers import files
from helpers.devices import describe, pick_device, versions
from helpers.doctor.facts import gather_facts
from helpers.host import cpu_cores, cpu_name
from measurements import measure, networks, schema
from measurements.peaks import blas_workspace_bytes
from measurements.rows import VERSION, Device

PARTS = {
    "matmul": measure.matmul,
    "bandwidth": measure.bandwidth,
    "copies": measure.copies,
    "training": networks.training,
}
# to go on with a file
SAME = ("quick", "code", "torch", "cuda", "rocm", "cudnn", "driver", "cpu", "cores", "system")


def record(path, device=None, quick=False, parts=PARTS):
    """Measure `device` (None: the best one) and the CPU into the file `path`; returns the Recording.

    A file that an earlier call left unfinished on the same machine is gone on with. Stopped by Ctrl+C, the file keeps
    each finished part. `parts`: generators of rows by section. ValueError for a file that is finished, of another
    machine or no recording; FileNotFoundError where its folder is missing.
    """
    path = Path(path)
    if path.exists() and not path.is_file() or not path.parent.is_dir():
        raise FileNotFoundError(f"out is {str(path)!r}; it takes a file in a folder that exists")
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


def _start(path, names, quick):
    """The data to add to: that of an unfinished file, or new."""
    new = {"schema": VERSION, "provenance": provenance(quick), "devices": {}, "sections": {}}
    for name in names:
        known = describe(name) | {"blas_workspace_bytes": blas_workspace_bytes(pick_device(name))}
        new["devices"][name] = {field.name: known.get(field.name) for field in fields(Device)}
    if not path.exists():
        return new
    old = measurements.load(path)
    if old.provenance["complete"]:
        raise ValueError(
            f"out is {str(path)!r}, a finished recording; it takes the name of a new file"
        )
    other = [field for field in SAME if old.provenance[field] != new["provenance"][field]]
    other += ["devices"] if old.devices != new["devices"] else []
    if other:
        raise ValueError(
            f"out is {str(path)!r}, begun with another {', '.join(other)}; it takes the name of a new one"
        )
    return {**new, "provenance": old.provenance, "sections": old.sections}


def provenance(quick):
    """Where and how a recording is made, as `rows.Provenance` wants it."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    known = versions()
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "code": code_version(),
        "command": shlex.join(
            ["python3", "-m", "tools", *(re.sub(r"[^=]*[/\\]", "", a) for a in sys.argv[1:])]
        ),
        **{field: known[field] for field in ("python", "torch", "cuda", "rocm", "cudnn", "nccl")},
        "driver": gather_facts().driver,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": cpu_cores(),
        "load_average": load,
        "quick": bool(quick),
        "complete": False,
        "done": [],
    }


def code_version():
    """What git calls this copy of the course, with "-dirty" after a change; else the installed version or "unknown"."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--tags"],
            cwd=measurements.FOLDER,
            text=True,
            capture_output=True,
            timeout=20,
        )
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass  # no git on this machine
    try:
        return metadata.version("gpus-in-pytorch")
    except metadata.PackageNotFoundError:
        return "unknown"


def write(data, path):
    """Write the recording whole or not at all, one row a line, after its check."""
    schema.check(data, path.name)
    files.write(path, _text(data))


def _text(data):
    """JSON with one row a line: small, and readable in a comparison of versions."""
    sections = []
    for name, rows in data["sections"].items():
        lines = ",\n".join(
            "  " + json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows
        )
        sections.append(
            f" {json.dumps(name)}: [\n{lines}\n ]" if rows else f" {json.dumps(name)}: []"
        )
    head = json.dumps(
        {key: data[key] for key in ("schema", "provenance", "devices")},
        indent=1,
        ensure_ascii=False,
    )
    return head[:-2] + ',\n "sections": {\n' + ",\n".join(sections) + "\n }\n}\n"
