"""The same training on 1, 2 and 4 processes. Lesson 13 runs this file; what differs is yours to repair."""

import argparse
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--sampler", choices=("none", "distributed"), default="none")
parser.add_argument("--batch", choices=("each", "divided"), default="each")
parser.add_argument("--lr", choices=("scaled", "same"), default="scaled")
parser.add_argument("--norm", choices=("batch", "layer"), default="batch")
parser.add_argument("--last", choices=("keep", "drop"), default="keep")
options = parser.parse_args()


def train(group, ranks):
    """Train on the ranks of `group` and return what they did and the loss on all 90 samples."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(90, 8), torch.randn(90, 1))
    norm = nn.BatchNorm1d(16) if options.norm == "batch" else nn.LayerNorm(16)
    model = nn.Sequential(nn.Linear(8, 16), norm, nn.ReLU(), nn.Linear(16, 1))
    parallel = DistributedDataParallel(model, process_group=group)
    lr = 0.1 * ranks if options.lr == "scaled" else 0.1
    optimizer = torch.optim.SGD(parallel.parameters(), lr=lr)
    drop = options.last == "drop"
    sampler = None
    if options.sampler == "distributed":
        rank = dist.get_rank(group)
        sampler = DistributedSampler(data, ranks, rank, shuffle=False, drop_last=drop)
    batch = 24 // ranks if options.batch == "divided" else 24
    samples = 0
    for _ in range(2):
        for x, y in DataLoader(data, batch, sampler=sampler, drop_last=drop):
            samples += len(x)
            optimizer.zero_grad()
            nn.functional.mse_loss(parallel(x), y).backward()
            optimizer.step()
    model.eval()
    with torch.inference_mode():
        loss = nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1])
    alone = batch if options.norm == "batch" else 1
    return samples * ranks // 2, batch * ranks, lr, alone, loss.item()


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    heads = ("ranks", "samples per epoch", "per step", " lr", "norm over", "loss")
    sys.stdout.write("  ".join(heads) + "\n")
for ranks in (1, 2, 4):
    group = dist.new_group(list(range(ranks)))
    if dist.get_rank() < ranks:
        row = train(group, ranks)
        if dist.get_rank() == 0:
            form = "{:>5}  {:>17}  {:>8}  {:.1f}  {:>9}  {:.6f}\n"
            sys.stdout.write(form.format(ranks, *row))
dist.barrier()
dist.destroy_process_group()
