"""Train a network whose weights, gradients and optimizer are sharded over all processes (lesson 10).

Four processes on this machine, on its GPUs where there are enough of them, otherwise on the CPU:

    torchrun --standalone --nproc-per-node=4 shard.py --out results.json --checkpoint folder

On four machines with eight GPUs each, the same command on every one of them, with the name of the first as HOST:

    torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=run1 --rdzv-endpoint=HOST:29500 shard.py
"""

import argparse
import datetime
import json
import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn import functional as F

from helpers import data, files
from helpers.memory import format_bytes, tensor_bytes

PATIENCE = 60  # seconds that a process waits for the others before it gives up


def arguments():
    parser = argparse.ArgumentParser(
        description="Train a network that is sharded over all processes."
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--batch-size", type=int, default=64, help="images a step, of all processes"
    )
    parser.add_argument("--width", type=int, default=256, help="inputs of a block")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate of Adam")
    parser.add_argument("--disable-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument(
        "--products", action="store_true", help="split two products with DTensor, too"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FOLDER", help="each rank saves its part"
    )
    parser.add_argument(
        "--out", type=Path, metavar="PATH", help="file for the results as JSON"
    )
    parser.add_argument(
        "--die", type=int, metavar="RANK", help="this rank fails, to see what happens"
    )
    return parser


class Block(nn.Module):
    """Two layers beside a way past them, as in a transformer; the network of the lesson."""

    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x)))


def new_model(width=256, blocks=8):
    torch.manual_seed(0)  # the same weights in every process
    return nn.Sequential(*[Block(width) for _ in range(blocks)], nn.Linear(width, 10))


def load(width):
    """Gray pictures of shapes as `width` numbers each, with their labels; width is a square."""
    pictures, labels = data.load("shapes", n=1024)[:1024]
    side = round(width**0.5)
    small = F.adaptive_avg_pool2d(4 * pictures.mean(1) - 2, side)
    return small.flatten(1), labels


def start(disable_cuda):
    """Join the group of processes; returns this process's device. torchrun has set the environment variables."""
    local_rank = int(os.environ["LOCAL_RANK"])
    local_processes = int(os.environ["LOCAL_WORLD_SIZE"])
    patience = datetime.timedelta(seconds=PATIENCE)
    too_few = torch.cuda.device_count() < local_processes
    if disable_cuda or too_few or not dist.is_nccl_available():  # Windows has no NCCL
        dist.init_process_group("gloo", timeout=patience)
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=patience)
    return device


def shard(model, mesh):
    """Leave each rank of `mesh` its part of every weight. Each block is fetched by itself when it runs."""
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(model, batches, lr, die=None):
    """One step for each batch; returns the losses and the optimizer."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for number, (x, y) in enumerate(batches):
        if die == dist.get_rank() and number == 2:
            raise RuntimeError("this rank fails on purpose")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), optimizer


def local(tensor):
    """The part of `tensor` that is on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def bytes_here(model, optimizer):
    """Bytes that this rank holds between two steps: {"weights": …, "gradients": …, "optimizer": …}."""
    weights = list(model.parameters())
    states = [value for state in optimizer.state.values() for value in state.values()]
    kinds = {
        "weights": weights,
        "gradients": [weight.grad for weight in weights],
        "optimizer": [value for value in states if value.ndim],  # not the step's number
    }
    return {
        kind: sum(tensor_bytes(local(tensor)) for tensor in tensors)
        for kind, tensors in kinds.items()
    }


def batches_of(x, y, args, rank=0, world=1):
    """The share of one rank in each batch: every world-th image."""
    for step in range(args.steps):
        places = torch.arange(step * args.batch_size, (step + 1) * args.batch_size)
        share = places[rank::world] % len(x)
        yield x[share], y[share]


def products(mesh, width, device):
    """Two products, one split by columns, one by rows; what each rank holds, and whether it is right."""
    torch.manual_seed(1)
    x = torch.randn(32, width, device=device)
    up = torch.randn(width, 4 * width, device=device) / width**0.5
    down = torch.randn(4 * width, width, device=device) / width**0.5

    columns = distribute_tensor(up, mesh, [Shard(1)])
    rows = distribute_tensor(down, mesh, [Shard(0)])
    copies = distribute_tensor(x, mesh, [Replicate()])
    with CommDebugMode() as traffic:
        hidden = F.relu(copies @ columns)
        result = hidden @ rows
        before = traffic.get_total_counts()
        total = result.redistribute(mesh, [Replicate()])
        after = traffic.get_total_counts()

    expected = F.relu(x @ up) @ down
    error = (total.to_local() - expected).abs().max() / expected.abs().max()
    tensors = {"columns": columns, "rows": rows, "hidden": hidden, "result": result}
    return {
        "tensors": {name: described(tensor) for name, tensor in tensors.items()},
        "exchanges": {"products": before, "sum": after - before},
        "error": error.item(),
    }


def described(tensor):
    """Shapes of a DTensor, all of it and its part here, and how it is placed."""
    return {
        "whole": list(tensor.shape),
        "here": list(tensor.to_local().shape),
        "placed": str(tensor.placements[0]),
    }


def two_ways(device, width, blocks):
    """On a mesh of two rows: each row holds all weights, sharded over its columns. Place and bytes of this rank."""
    shape = (2, dist.get_world_size() // 2)
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
    model = shard(new_model(width, blocks).to(device), mesh)
    weights = sum(tensor_bytes(local(weight)) for weight in model.parameters())
    return {"place": list(mesh.get_coordinate()), "weights": weights}


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
    print(f"together: {format_bytes(total)}, {quotient:g} bytes a parameter")
    print(
        f"loss: {results['losses'][0]:.4f} at first, {results['losses'][-1]:.4f} at last"
    )
    print(f"largest difference from one process: {results['difference']:.0e}")


def main(args):
    # whole lines, though several processes print
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    device = start(args.disable_cuda)
    rank = dist.get_rank()
    world = dist.get_world_size()
    x, y = (tensor.to(device) for tensor in load(args.width))

    mesh = init_device_mesh(device.type, (world,))
    model = shard(new_model(args.width, args.blocks).to(device), mesh)
    batches = batches_of(x, y, args, rank, world)
    losses, optimizer = train(model, batches, args.lr, args.die)
    dist.all_reduce(losses)
    losses /= world  # of equal shares

    single = new_model(args.width, args.blocks).to(device)
    single_losses = torch.zeros_like(losses)
    if rank == 0:  # the same training in one process, to compare with
        single_losses, _ = train(single, batches_of(x, y, args), args.lr)
    results = {
        "device": device.type,
        "backend": dist.get_backend(),
        "parameters": sum(weight.numel() for weight in single.parameters()),
        "ranks": gather(bytes_here(model, optimizer)),
        "losses": losses.tolist(),
        "alone": single_losses.tolist(),
        "difference": (losses - single_losses).abs().max().item(),
    }
    if args.products:
        results["products"] = products(mesh, args.width, device)
        results["two_ways"] = gather(two_ways(device, args.width, args.blocks))
    if args.checkpoint:
        checkpoint.save({"model": model.state_dict()}, checkpoint_id=args.checkpoint)
    if rank == 0:
        report(results)
        if args.out:
            files.write(args.out, json.dumps(results, indent=1))
    dist.barrier()
    dist.destroy_process_group()


def check(args):
    """Raises ValueError where arguments do not fit, before any process waits for another."""
    if "LOCAL_RANK" not in os.environ:
        raise ValueError(
            "start this script with torchrun: torchrun --standalone --nproc-per-node=4 shard.py"
        )
    world = int(os.environ["WORLD_SIZE"])
    for name in ("steps", "batch_size", "width", "blocks", "lr"):
        if not 0 < getattr(args, name) < float("inf"):
            raise ValueError(
                f"--{name.replace('_', '-')} takes a number above 0; got {getattr(args, name)}"
            )
    if args.batch_size % world:
        raise ValueError(
            f"--batch-size takes a multiple of the number of processes; {args.batch_size} images "
            f"do not divide by {world}, and then the mean of the ranks is not the mean of the batch"
        )
    if round(args.width**0.5) ** 2 != args.width or args.width > 1024:
        raise ValueError(f"--width takes 4, 9, 16 … 1024, a square; got {args.width}")
    if args.products and world % 2:
        raise ValueError(
            f"--products takes an even number of processes, for a mesh of two rows; got {world}"
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
    warnings.filterwarnings("ignore", module="torch.distributed")
    try:
        main(options)
    except RuntimeError as error:
        rank = os.environ["RANK"]
        first_line = str(error).splitlines()[0]
        reason = first_line.split("] ", 1)[-1]  # without gloo's file and line
        print(f"rank {rank} ends: {reason}", file=sys.stderr, flush=True)
        sys.exit(1)
