"""Train the tiny GPT with DistributedDataParallel, one process for each device (lesson 06).

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
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from course import files
from course.checks.my_tools import mine_all
from course.gpt import TinyGPT, course_words
from course.lesson04 import exercises as lesson04
from course.lesson06 import exercises as lesson06

SAID = {"weights_equal": "weights of all ranks equal"}
OURS = {
    "to_ddp": lesson06.to_ddp,
    "train_step": lesson04.train_step,
    "save_checkpoint": lesson04.save_checkpoint,
    "ring_all_reduce": lesson06.ring_all_reduce,
}


class FlatGPT(TinyGPT):
    """TinyGPT with its scores as [batch * context, words], which is what cross-entropy takes."""

    def forward(self, x):
        return super().forward(x).flatten(0, 1)


def arguments():
    parser = argparse.ArgumentParser(
        description="Train the tiny GPT with one process for each device."
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--batch-size", type=int, default=16, help="pieces a step for each process"
    )
    parser.add_argument(
        "--pieces",
        type=int,
        metavar="N",
        default=640,
        help="pieces of 32 words to learn from, all in all",
    )
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of AdamW")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disable-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare gradients, weights, a checkpoint and a ring with what they should be",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="PATH",
        help="file for weights, optimizer and epoch, written by rank 0",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="file for the results as JSON, written by rank 0",
    )
    return parser


def hide_gpus(disable_cuda):
    """Hide the GPUs where there are fewer than processes, or no NCCL (Windows), so that all stay on the CPU."""
    too_few = torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"])
    if disable_cuda or too_few or not dist.is_nccl_available():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def tools():
    """Each of OURS, or the learner's in its place; rank 0 alone says which are theirs, and whose `to_ddp` runs."""
    found, lines = mine_all(OURS)
    if not any("to_ddp" in line for line in lines):
        lines.insert(0, "to_ddp: the course's own, until you keep yours")
    if os.environ["RANK"] == "0":
        print("".join(f"{line}\n" for line in lines), end="")
    return found


def pieces(words, model, count):
    """The data set: up to `count` pieces of the text as (x, y), int64 [context] each; y is one word further."""
    numbers = {word: number for number, word in enumerate(model.vocabulary)}
    text = torch.tensor([numbers[word] for word in words])
    x = text[:-1].unfold(0, model.context, model.context)[:count]
    y = text[1:].unfold(0, model.context, model.context)[:count]
    return TensorDataset(x, y)


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y.flatten())


def train_epoch(train_step, model, loader, optimizer):
    """One epoch; returns its mean loss."""
    losses = [train_step(model, x, y.flatten(), optimizer) for x, y in loader]
    return torch.stack(losses).mean().item()  # waits for the GPU


def mean_over_ranks(value, device):
    """The mean of every rank's `value`; shards are of equal size."""
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def gradients_apart(model, dataset, batch_size, device):
    """How far a rank's gradients are, after backward, from those of one process with the whole batch.

    The largest difference on any rank, as a share of the largest gradient. In float64: the rounding of float32, or of
    TF32 on recent GPUs, would need a tolerance that hides small mistakes.
    """
    rank = dist.get_rank()
    world = dist.get_world_size()
    # as many pieces for every rank, so the mean of means is the mean
    share = min(batch_size, len(dataset) // world)
    x, y = (tensor.to(device) for tensor in dataset[: world * share])
    single = copy.deepcopy(model.module).double()
    shared = DistributedDataParallel(copy.deepcopy(single))
    # DDP averages the gradients of all ranks here
    loss_of(shared, x[rank::world], y[rank::world]).backward()
    loss_of(single, x, y).backward()
    a, b = (
        torch.cat([p.grad.flatten() for p in each.parameters()])
        for each in (shared.module, single)
    )
    apart = (a - b).abs().max() / b.abs().max()
    dist.all_reduce(apart, dist.ReduceOp.MAX)
    return apart.item()


def weights_equal(model, device):
    """True when every rank has, bit for bit, the weights of rank 0."""
    equal = True
    for weights in model.parameters():
        first = weights.detach().clone()
        dist.broadcast(first, src=0)
        equal = equal and torch.equal(weights, first)
    return true_on_all_ranks(equal, device)


def ring_equals_all_reduce(ring, device):
    """True when `ring`, a ring all-reduce from send and recv, gives on every rank what dist.all_reduce gives."""
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.arange(1000.0, device=device) * (rank + 1)
    sends = []  # kept until they are done

    def send(tensor, dst):
        sends.append(dist.isend(tensor, dst))

    by_ring = ring(x, rank, world, send, dist.recv)
    for each in sends:
        each.wait()
    dist.all_reduce(x)
    return true_on_all_ranks(torch.allclose(by_ring, x), device)


def checkpoint_equal(save_checkpoint, model, optimizer, args):
    """True when what rank 0 saves opens in a bare model, without DDP, with the same weights."""
    bare = FlatGPT(course_words())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpt.pt")
        save_checkpoint(path, model.module, optimizer, args.epochs)
        states = torch.load(path, map_location="cpu", weights_only=True)
    bare.load_state_dict(states["model"])
    pairs = zip(bare.parameters(), model.parameters(), strict=True)
    return all(torch.equal(opened, weights.cpu()) for opened, weights in pairs)


def true_on_all_ranks(value, device):
    """True when `value` is True on every rank."""
    lowest = torch.tensor(int(value), device=device)
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    return bool(lowest.item())


def train(train_step, model, loader, optimizer, args, device):
    """All epochs; returns their losses, of all ranks, and this rank's first pieces of each."""
    losses, shards = [], []
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)  # another order each time, the same on all
        shards.append(list(loader.sampler)[:8])
        loss = train_epoch(train_step, model, loader, optimizer)
        losses.append(mean_over_ranks(loss, device))
    return losses, shards


def checks_to_print(save_checkpoint, ring):
    """The names of the checks that say something to the learner: two of training, one of each function of theirs."""
    names = ["gradients_equal", "weights_equal"]
    names += ["checkpoint_equal"] * (save_checkpoint is not OURS["save_checkpoint"])
    return names + ["ring_equal"] * (ring is not OURS["ring_all_reduce"])


def report(results, args, checks):
    """Rank 0 alone prints and writes; were every rank to write, they would destroy each other's file."""
    for rank in results["ranks"]:
        print(
            f"rank {rank['rank']} of {results['world_size']} on {rank['device']} "
            f"begins with texts {', '.join(map(str, rank['shards'][0][:4]))}"
        )
    for name in checks if args.check else ():
        apart = (
            f", within {results['gradients_apart']:.0e}"
            if name == "gradients_equal"
            else ""
        )
        print(f"{SAID.get(name, name.replace('_', ' '))}: {results[name]}{apart}")
    if args.out:
        files.write(args.out, json.dumps(results, indent=1))


def main(args):
    # whole lines, though several processes print
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    hide_gpus(args.disable_cuda)
    to_ddp, train_step, save_checkpoint, ring = tools()
    torch.manual_seed(args.seed)
    words = course_words()
    model = FlatGPT(words)
    dataset = pieces(words, model, args.pieces)
    model, loader = to_ddp(model, dataset, args.batch_size)
    device = next(model.parameters()).device
    results = {"world_size": dist.get_world_size(), "backend": dist.get_backend()}
    if args.check:
        apart = gradients_apart(model, dataset, args.batch_size, device)
        results |= {"gradients_apart": apart, "gradients_equal": apart <= 1e-12}
        results["ring_equal"] = ring_equals_all_reduce(ring, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    trained = train(train_step, model, loader, optimizer, args, device)
    results["losses"], shards = trained
    if args.check:
        results["weights_equal"] = weights_equal(model, device)
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(
        ranks, {"rank": dist.get_rank(), "device": str(device), "shards": shards}
    )
    if dist.get_rank() == 0:
        if args.check:
            equal = checkpoint_equal(save_checkpoint, model, optimizer, args)
            results["checkpoint_equal"] = equal
        # the module inside, so that names do not start with "module."
        if args.checkpoint:
            path = str(args.checkpoint)
            save_checkpoint(path, model.module, optimizer, args.epochs)
        checks = checks_to_print(save_checkpoint, ring)
        report({**results, "ranks": ranks}, args, checks)
    del model  # an orderly end: let go of DDP, wait for all ranks, then close the group
    dist.barrier()
    dist.destroy_process_group()


def check(args):
    """Raises ValueError where arguments do not fit, before any process waits for another."""
    if "LOCAL_RANK" not in os.environ:
        raise ValueError(
            "start this script with torchrun: torchrun --standalone --nproc-per-node=2 ddp.py"
        )
    for name in ("epochs", "batch_size", "pieces", "lr"):
        if not 0 < getattr(args, name) < float("inf"):
            raise ValueError(
                f"--{name.replace('_', '-')} takes a number above 0; got {getattr(args, name)}"
            )
    least = args.batch_size * int(os.environ["WORLD_SIZE"])
    if args.pieces < least:
        raise ValueError(
            f"--pieces takes at least {least}, a batch for each process; got {args.pieces}"
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
