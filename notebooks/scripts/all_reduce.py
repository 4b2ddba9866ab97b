"""Time the all-reduce of gradients between processes, one for each device (lesson 06).

    torchrun --standalone --nproc-per-node=2 all_reduce.py --out rows.json

GPUs exchange through NCCL where there are enough of them, otherwise the processes exchange through gloo on the CPU.
A ring sends 2 (n - 1) / n times the bytes over each link, so `gb_per_s` is that traffic by the time: what NVIDIA calls
the bus bandwidth (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import quantiles

import torch
import torch.distributed as dist
from helpers import files


def arguments():
    parser = argparse.ArgumentParser(
        description="Time the all-reduce of gradients between processes."
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        required=True,
        help="file for the rows as JSON",
    )
    parser.add_argument(
        "--most",
        type=int,
        metavar="BYTES",
        default=2**28,
        help="the largest sum (default: 256 MiB)",
    )
    parser.add_argument(
        "--samples", type=int, metavar="N", default=9, help="measurements of each size"
    )
    parser.add_argument("--disable-cuda", action="store_true", help="stay on the CPU")
    return parser


def start(disable_cuda):
    """Join the group of processes; returns this process's device. torchrun has set the environment variables."""
    local_rank = int(os.environ["LOCAL_RANK"])
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    if disable_cuda or torch.cuda.device_count() < here or not dist.is_nccl_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def once_ms(gradients, device):
    """Milliseconds of one all-reduce, until the slowest process has its result."""
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(gradients)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    passed = torch.tensor(
        [1e3 * (time.perf_counter() - begin)], dtype=torch.float64, device=device
    )
    dist.all_reduce(passed, dist.ReduceOp.MAX)
    return passed.item()


def row(size, samples, device):
    """Bytes, median and interquartile range of the times, and the traffic of a link by the time."""
    gradients, world = torch.zeros(size // 4, device=device), dist.get_world_size()
    times = [once_ms(gradients, device) for _ in range(samples + 2)][2:]  # two warm-ups
    low, middle, high = quantiles(times, n=4, method="inclusive")
    return {
        "processes": world,
        "backend": dist.get_backend(),
        "bytes": size,
        "time_ms": middle,
        "time_iqr_ms": high - low,
        "gb_per_s": 2 * (world - 1) / world * size / middle / 1e6,
    }


def main(args):
    device = start(args.disable_cuda)
    sizes = [2**n for n in range(12, 31, 2) if 2**n <= args.most]
    rows = [row(size, args.samples, device) for size in sizes]
    if dist.get_rank() == 0:
        files.write(args.out, json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def check(args):
    """Raises ValueError where arguments do not fit, before any process waits for another."""
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        raise ValueError(
            "start this script with torchrun and two processes or more: "
            "torchrun --standalone --nproc-per-node=2 all_reduce.py --out rows.json"
        )
    if args.most < 4096:
        raise ValueError(f"--most takes 4096 bytes or more; got {args.most}")
    if args.samples < 2:
        raise ValueError(f"--samples takes 2 or more; got {args.samples}")
    if args.out.is_dir() or not args.out.parent.is_dir():
        raise ValueError(
            f"--out takes the path of a file in a folder that exists; got {args.out}"
        )


if __name__ == "__main__":
    parser = arguments()
    options = parser.parse_args()
    try:
        check(options)
    except ValueError as error:
        parser.error(str(error))  # exit status 2
    main(options)
