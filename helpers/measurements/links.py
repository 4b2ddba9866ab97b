"""All-reduce between processes: what several GPUs, or several processes on a CPU, pay to agree on their gradients."""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from helpers import scripts
from helpers.measurements.measure import digits


def all_reduce(device, quick):
    """Rows of the script all_reduce.py: 2 processes on a CPU; 2, 4 and 8 GPUs, as many as there are."""
    if not dist.is_available():
        return  # some builds lack it
    counts = (
        [2]
        if device.type == "cpu"
        else [n for n in (2, 4, 8) if device.type == "cuda" and _gpus() >= n]
    )
    for n in counts:
        for row in measured(n, device.type == "cpu", quick):
            yield {
                name: digits(value) if isinstance(value, float) else value
                for name, value in row.items()
            }


def _gpus():
    """How many GPUs can reduce together: none where NCCL is missing, as on Windows."""
    return torch.cuda.device_count() if dist.is_nccl_available() else 0


def measured(processes, on_cpu, quick):
    """The rows that `processes` processes wrote. RuntimeError with their last lines where they wrote none."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "rows.json"
        options = [
            "--most",
            2**20 if quick else 2**28 if on_cpu else 2**30,
            "--samples",
            3 if quick else 9,
        ]
        ended = scripts.run(
            "all_reduce.py",
            "--out",
            out,
            *options,
            *["--disable-cuda"] * on_cpu,
            processes=processes,
            quiet=True,
        )
        if not out.exists():  # gloo may abort at its very end, so the file counts, not the status
            raise RuntimeError(
                f"all_reduce.py wrote no rows (exit status {ended.returncode}):\n{ended.text[-500:]}"
            )
        return json.loads(out.read_text(encoding="utf-8"))
