"""Train the tiny GPT of lesson 09, sharded over all processes (lesson 10).

Four processes on this machine, on its GPUs where there are enough of them, otherwise on the CPU:

    torchrun --standalone --nproc-per-node=4 shard.py --out results.json --checkpoint folder

On four machines with eight GPUs each, the same command on every one of them, with the name of the first as HOST:

    torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=run1 --rdzv-endpoint=HOST:29500 shard.py

`python -m course.launch` takes the place of torchrun on a small machine: less memory, a faster start (lesson 10).
"""

import argparse
import datetime
import functools
import gc
import json
import os
import re
import runpy
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from course import files, gpt
from helpers.memory import format_bytes, tensor_bytes

PATIENCE = 60  # seconds that a process waits for the others before it gives up


def arguments():
    parser = argparse.ArgumentParser(
        description="Train the tiny GPT, sharded over all processes."
    )
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument(
        "--batch-size", type=int, default=8, help="texts a step, of all processes"
    )
    parser.add_argument("--width", type=int, default=256, help="numbers for a word")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of Adam")
    parser.add_argument("--disable-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument(
        "--block", type=Path, metavar="FILE", help="a file with your fsdp_block, to run"
    )
    parser.add_argument(
        "--ddp",
        type=Path,
        metavar="FILE",
        help="a file with your to_ddp, to compare with",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="time TinyGPT at its own size, sharded, too"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FOLDER", help="each rank saves its part"
    )
    parser.add_argument(
        "--out", type=Path, metavar="PATH", help="file for the results as JSON"
    )
    parser.add_argument(
        "--die", type=int, metavar="RANK", help="at the end, this rank fails on purpose"
    )
    return parser


def start(disable_cuda):
    """Join the group of processes; returns this process's device. The launcher has set the environment variables."""
    local_rank = int(os.environ["LOCAL_RANK"])
    local_processes = int(os.environ["LOCAL_WORLD_SIZE"])
    patience = datetime.timedelta(seconds=PATIENCE)
    too_few = torch.cuda.device_count() < local_processes
    if disable_cuda or too_few or not dist.is_nccl_available():  # Windows has no NCCL
        torch.set_num_threads(1)  # of each process
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # your to_ddp would take a GPU
        dist.init_process_group("gloo", timeout=patience)
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=patience)
    return device


def new_model(words, width=256, layers=4):
    torch.manual_seed(0)  # the same weights in every process
    return gpt.TinyGPT(words, width, heads=4, layers=layers)


def shard(model, mesh):
    """Leave each rank of `mesh` its part of every weight. Each block is fetched by itself when it runs."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def wrap(model, file):
    """`model`, wrapped by the function `to_ddp` in `file`. This process has joined the group already.

    DDP keeps gradients and buckets apart unless told; here they share their memory, of which four ranks need a lot.
    """
    lean = functools.partialmethod(
        DistributedDataParallel.__init__, gradient_as_bucket_view=True
    )
    with (
        mock.patch.object(dist, "init_process_group"),
        mock.patch.object(DistributedDataParallel, "__init__", lean),
    ):
        to_ddp = runpy.run_path(str(file))["to_ddp"]
        wrapped, _ = to_ddp(model, TensorDataset(torch.arange(64)), 1)
    return wrapped


def mean_over_ranks(losses):
    """The mean of every rank's `losses`, as a list; all have equal shares of the batch."""
    dist.all_reduce(losses)
    return (losses / dist.get_world_size()).tolist()


def train(model, words, args, rank=0, world=1):
    """Train on one rank's share of each batch; returns losses, optimizer and tokens per second of all ranks."""
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    torch.manual_seed(1)  # the same batches in every process
    losses = []
    inner = getattr(model, "module", model)  # without DDP's wrapper
    drawn = gpt.batches(inner, words, args.steps, args.batch_size)
    for number, (x, y) in enumerate(drawn):
        if number == 1:
            begin = time.perf_counter()  # the first step makes Adam's state
        logits = model(x[rank::world])
        loss = F.cross_entropy(logits.flatten(0, 1), y[rank::world].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    losses.tolist()  # waits for a GPU
    seconds = time.perf_counter() - begin
    return losses, optimizer, (args.steps - 1) * x.numel() / seconds


def local(tensor):
    """The part of `tensor` that is on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def bytes_here(model, optimizer):
    """Bytes that this rank holds between two steps: {"parameters": …, "gradients": …, "optimizer": …}."""
    weights = list(model.parameters())
    states = [value for state in optimizer.state.values() for value in state.values()]
    kinds = {
        "parameters": weights,
        "gradients": [weight.grad for weight in weights],
        "optimizer": [value for value in states if value.ndim],  # not the step's number
    }
    return {
        kind: sum(tensor_bytes(local(tensor)) for tensor in tensors)
        for kind, tensors in kinds.items()
    }


def tell(part):
    """A line for who waits: what the ranks do now."""
    if dist.get_rank() == 0:
        print(f"now: {part}", flush=True)


def gather(value):
    """The `value` of every rank, in a list, on every rank."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def report(results):
    for rank, sizes in enumerate(results["ranks"]):
        words = ", ".join(f"{kind} {format_bytes(n)}" for kind, n in sizes.items())
        print(f"rank {rank} on {results['device']}: {words}")
    total = sum(sum(sizes.values()) for sizes in results["ranks"])
    quotient = total / results["parameters"]
    print(f"together: {format_bytes(total)}, {quotient:g} bytes per parameter")
    print(
        f"loss: {results['losses'][0]:.4f} at first, {results['losses'][-1]:.4f} at last"
    )
    print(f"largest difference from one process: {results['difference']:.0e}")
    for way, speed in results["tokens_per_s"].items():
        print(f"{way}: {speed:,.0f} tokens per second")


def fail(model, words, args, rank, world):
    """Let one rank end with an error, while the others train on and need its shards."""
    if rank == args.die:
        raise RuntimeError("this rank fails on purpose")
    train(model, words, args, rank, world)


def main(args):
    # whole lines, though several processes print
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    device = start(args.disable_cuda)
    rank, world = dist.get_rank(), dist.get_world_size()
    words = gpt.course_words()

    tell("training, sharded")
    mesh = init_device_mesh(device.type, (world,))
    model = shard(new_model(words, args.width, args.layers).to(device), mesh)
    losses, optimizer, speed = train(model, words, args, rank, world)
    results = {
        "device": device.type,
        "backend": dist.get_backend(),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "ranks": gather(bytes_here(model, optimizer)),
        "losses": mean_over_ranks(losses),
        "tokens_per_s": {"FSDP": speed},
    }
    if args.checkpoint:
        checkpoint.save({"model": model.state_dict()}, checkpoint_id=args.checkpoint)
    del optimizer
    model.zero_grad()
    gc.collect()
    if args.ddp:
        tell("training with DDP")
        wrapped = wrap(new_model(words, args.width, args.layers).to(device), args.ddp)
        losses, optimizer, speed = train(wrapped, words, args, rank, world)
        results["ddp"] = mean_over_ranks(losses)
        results["ddp_bytes"] = bytes_here(wrapped, optimizer)
        results["tokens_per_s"]["DDP"] = speed
        del wrapped, optimizer
        gc.collect()
    if args.tiny:
        tell("training TinyGPT at its own size")
        tiny = shard(new_model(words, width=128, layers=2).to(device), mesh)
        *_, results["tiny_tokens_per_s"] = train(tiny, words, args, rank, world)
    tell("training in one process")
    if rank == 0:  # the same training in one process, to compare with
        single = new_model(words, args.width, args.layers).to(device)
        alone, _, single_speed = train(single, words, args)
        results["alone"] = alone.tolist()
        pairs = zip(results["losses"], results["alone"], strict=True)
        results["difference"] = max(abs(a - b) for a, b in pairs)
        results["tokens_per_s"]["one process"] = single_speed
        del single
    if args.block:
        import _own_block  # beside this script

        tell("fsdp_block, yours")
        fresh = new_model(words, args.width, layers=2).to(device)
        results["own"] = _own_block.run(args.block, fresh)
    if rank == 0:
        report(results)
        if args.out:
            files.write(args.out, json.dumps(results, indent=1))
    dist.barrier()
    if args.die is not None:
        fail(model, words, args, rank, world)
    dist.destroy_process_group()


def run(args):
    """One process's run: `main`, with what went wrong in a line of its own."""
    warnings.filterwarnings("ignore", module="torch.distributed")
    try:
        main(args)
    except RuntimeError as error:
        first_line = str(error).splitlines()[0]
        reason = first_line.split("] ", 1)[-1]  # without gloo's file and line,
        reason = reason.split(". ")[0]  # its advice,
        reason = re.sub(r" \[[^]]*\]:\d+", "", reason)  # and its address
        # in one piece, newline and all: others write at the same time
        sys.stderr.write(f"rank {os.environ['RANK']} ends: {reason}\n")
        sys.exit(1)


def check(args):
    """Raises ValueError where arguments do not fit, before any process waits for another."""
    world = int(os.environ.get("WORLD_SIZE", 0))
    if world < 1:
        raise ValueError(
            "it runs in several processes: torchrun --standalone --nproc-per-node=4 shard.py"
        )
    for name in ("steps", "batch_size", "width", "layers", "lr"):
        if not 0 < getattr(args, name) < float("inf"):
            raise ValueError(
                f"--{name.replace('_', '-')} takes a number above 0; got {getattr(args, name)}"
            )
    if args.steps < 2:
        raise ValueError("--steps takes at least 2: the first is not timed; got 1")
    if args.batch_size % world:
        raise ValueError(
            f"--batch-size takes a multiple of the number of processes; {args.batch_size} texts "
            f"do not divide by {world}, and then the mean of the ranks is not the mean of the batch"
        )
    if args.width % 4:
        raise ValueError(f"--width takes a multiple of the 4 heads; got {args.width}")
    own = {"--block": (args.block, "fsdp_block"), "--ddp": (args.ddp, "to_ddp")}
    for option, (file, name) in own.items():
        if file and not file.is_file():
            raise ValueError(
                f"{option} takes a file with a function {name}; got {file}"
            )
    if args.out and (args.out.is_dir() or not args.out.parent.is_dir()):
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
    run(options)
