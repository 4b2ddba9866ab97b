"""Three processes average gradients, and one of them doesn't come. Lesson 13 runs this file."""

import os

os.environ.setdefault(
    "TORCH_FR_BUFFER_SIZE", "100"
)  # the flight recorder, off by default

import datetime
import pickle
import sys

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

BATCHES = {0: [8, 8, 8], 1: [8, 8, 8], 2: [8, 8, 0]}  # samples: 64 don't split evenly


def step(samples):
    """Average the gradient of a batch over all processes."""
    gradient = torch.full((4,), float(samples))
    if samples > 0:
        dist.all_reduce(gradient)
    return gradient


def epoch(rank):
    """Run this rank's batches, then collect the loss."""
    for samples in BATCHES[rank]:
        step(samples)
    loss = torch.zeros(1)
    dist.broadcast(loss, src=0)


def recorded():
    """Return one line for each collective of this rank, from the flight recorder."""
    lines = []
    for entry in pickle.loads(_dump_fr_trace())["entries"]:
        own = [f for f in entry["frames"] if f["filename"].endswith("hang.py")]
        what = entry["profiling_name"].removeprefix("gloo:")
        where = f"hang.py:{own[0]['line']} in {own[0]['name']}"
        sizes = entry["input_sizes"]
        number = entry["collective_seq_id"]
        lines.append(f"#{number} {what:<11}{sizes!s:<7}{where}")
    return lines


if __name__ == "__main__":
    dist.init_process_group("gloo")
    patience = datetime.timedelta(seconds=int([*sys.argv, "1"][1]))  # not minutes
    dist.distributed_c10d._set_pg_timeout(patience)
    rank = dist.get_rank()
    try:
        epoch(rank)
        dist.barrier()
    except RuntimeError:
        pass  # gloo's timeout
    sys.stdout.write("".join(f"rank {rank}  {line}\n" for line in recorded()))
