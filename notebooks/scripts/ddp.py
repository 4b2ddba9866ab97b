"""Train the small CNN with DistributedDataParallel, one process for each device (lesson 06).

Two processes on this machine, on its GPUs where there are enough of them, otherwise on the CPU:

    torchrun --standalone --nproc-per-node=2 ddp.py --check --out results.json

On four machines with eight GPUs each, the same command on every one of them, with the name of the first as HOST:

    torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=run1 --rdzv-endpoint=HOST:29500 ddp.py

Under SLURM, `srun --nodes=4 --ntasks-per-node=1` starts that command once on every machine; on 1000 machines only the
number changes. What torchrun does: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

import argparse
import copy
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

from helpers import data, files
from helpers.training import SmallCNN, evaluate, train_epoch


def arguments():
    parser = argparse.ArgumentParser(
        description="Train the small CNN with one process for each device."
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument(
        "--batch-size", type=int, default=32, help="images a step for each process"
    )
    parser.add_argument(
        "--images",
        type=int,
        metavar="N",
        default=2000,
        help="images to learn from, all in all",
    )
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of Adam")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disable-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare gradients with those of one process, and weights between ranks",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="PATH",
        help="file for the weights, written by rank 0",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="file for the results as JSON, written by rank 0",
    )
    return parser


def start(disable_cuda):
    """Join the group of processes; returns this process's device. torchrun has set the environment variables."""
    local_rank = int(os.environ["LOCAL_RANK"])
    local_processes = int(os.environ["LOCAL_WORLD_SIZE"])
    too_few = torch.cuda.device_count() < local_processes
    if disable_cuda or too_few or not dist.is_nccl_available():  # Windows has no NCCL
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)  # otherwise "cuda" means cuda:0 in every process
    dist.init_process_group("nccl", device_id=device)
    return device


def mean_over_ranks(value, weight, device):
    """The mean of every rank's `value`, weighted by how many images it stands for."""
    sums = torch.tensor([value * weight, weight], dtype=torch.float32, device=device)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def gradients_equal(model, dataset, batch_size, device):
    """True when every rank has, after backward, the gradients of one process with the whole batch.

    In float64: the rounding of float32, or of TF32 on recent GPUs, would need a tolerance that hides small mistakes.
    """
    rank = dist.get_rank()
    world = dist.get_world_size()
    # as many images for every rank, so the mean of means is the mean
    share = min(batch_size, len(dataset) // world)
    x, y = (tensor.to(device) for tensor in dataset[: world * share])
    x = x.double()
    single = copy.deepcopy(model.module).double()
    shared = DistributedDataParallel(copy.deepcopy(single))
    # DDP averages the gradients of all ranks here
    F.cross_entropy(shared(x[rank::world]), y[rank::world]).backward()
    F.cross_entropy(single(x), y).backward()
    pairs = zip(shared.module.parameters(), single.parameters(), strict=True)
    equal = all(torch.allclose(a.grad, b.grad, rtol=1e-9, atol=1e-12) for a, b in pairs)
    return true_on_all_ranks(equal, device)


def weights_equal(model, device):
    """True when every rank has, bit for bit, the weights of rank 0."""
    equal = True
    for weights in model.parameters():
        first = weights.detach().clone()
        dist.broadcast(first, src=0)
        equal = equal and torch.equal(weights, first)
    return true_on_all_ranks(equal, device)


def true_on_all_ranks(value, device):
    """True when `value` is True on every rank."""
    lowest = torch.tensor(int(value), device=device)
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    return bool(lowest.item())


def train(model, dataset, args, device):
    """All epochs; returns their losses, test accuracies and seconds, and this rank's first images of each epoch."""
    rank = dist.get_rank()
    world = dist.get_world_size()
    sampler = DistributedSampler(dataset, shuffle=True, seed=args.seed)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler)
    test = data.load("shapes", train=False, n=1000)
    test_loader = DataLoader(Subset(test, range(rank, len(test), world)), 500)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    epochs = []
    shards = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)  # another order in each epoch, the same on all ranks
        shards.append(list(sampler)[:8])
        begin = time.perf_counter()
        loss = train_epoch(model, loader, optimizer, device)
        loss = mean_over_ranks(loss, len(sampler), device)
        seconds = time.perf_counter() - begin
        accuracy = evaluate(model.module, test_loader, device)
        accuracy = mean_over_ranks(accuracy, len(test_loader.dataset), device)
        epochs.append({"loss": loss, "accuracy": accuracy, "seconds": seconds})
    return epochs, shards


def report(results, model, args):
    """Rank 0 alone prints and writes; were every rank to write, they would destroy each other's file."""
    for rank in results["ranks"]:
        print(
            f"rank {rank['rank']} of {results['world_size']} on {rank['device']}, "
            f"first images of epoch 1: {rank['shards'][0][:4]}"
        )
    if args.check:
        print(f"gradients equal: {results['gradients_equal']}")
    for number, epoch in enumerate(results["epochs"], 1):
        print(
            f"epoch {number}: loss {epoch['loss']:.3f}, test accuracy {epoch['accuracy']:.1%}"
        )
        print(f"  {epoch['seconds']:.1f} s")
    if args.check:
        print(f"weights equal: {results['weights_equal']}")
    # of the module inside, so that names do not start with "module."
    if args.checkpoint:
        with files.atomic_write(args.checkpoint) as part:
            torch.save(model.module.state_dict(), part)
    if args.out:
        files.write(args.out, json.dumps(results, indent=1))


def main(args):
    # whole lines, though several processes print
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    dataset = data.load("shapes", n=args.images)  # the same images in every process
    device = start(args.disable_cuda)
    torch.manual_seed(args.seed)
    # copies the weights of rank 0 to all
    model = DistributedDataParallel(SmallCNN().to(device))
    checks = {"gradients_equal": None, "weights_equal": None}
    if args.check:
        checks["gradients_equal"] = gradients_equal(
            model, dataset, args.batch_size, device
        )
    epochs, shards = train(model, dataset, args, device)
    if args.check:
        checks["weights_equal"] = weights_equal(model, device)
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(
        ranks, {"rank": dist.get_rank(), "device": str(device), "shards": shards}
    )
    if dist.get_rank() == 0:
        results = {"world_size": len(ranks), "backend": dist.get_backend(), **checks}
        report({**results, "epochs": epochs, "ranks": ranks}, model, args)
    del model  # an orderly end: let go of DDP, wait for all ranks, then close the group
    dist.barrier()
    dist.destroy_process_group()


def check(args):
    """Raises ValueError where arguments do not fit, before any process waits for another."""
    if "LOCAL_RANK" not in os.environ:
        raise ValueError(
            "start this script with torchrun: torchrun --standalone --nproc-per-node=2 ddp.py"
        )
    for name in ("epochs", "batch_size", "images", "lr"):
        if not 0 < getattr(args, name) < float("inf"):
            raise ValueError(
                f"--{name.replace('_', '-')} takes a number above 0; got {getattr(args, name)}"
            )
    if args.images < int(os.environ["WORLD_SIZE"]):
        raise ValueError(
            f"--images takes at least one for each process; got {args.images}"
        )
    for name in ("checkpoint", "out"):
        path = getattr(args, name)
        if path and (path.is_dir() or not path.parent.is_dir()):
            raise ValueError(
                f"--{name} takes the path of a file in a folder that exists; got {path}"
            )


if __name__ == "__main__":
    parser = arguments()
    options = parser.parse_args()
    try:
        check(options)
    except ValueError as error:
        parser.error(str(error))  # exit status 2
    main(options)
