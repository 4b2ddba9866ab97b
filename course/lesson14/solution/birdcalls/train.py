"""Train the network, then test it: python -m birdcalls.train, with --small in seconds; torchrun starts several."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from birdcalls.config import FULL, SMALL
from birdcalls.data import training_batches
from birdcalls.evaluate import evaluate
from birdcalls.model import Net

RANK = int(os.environ.get("RANK", 0))
RANKS = int(os.environ.get("WORLD_SIZE", 1))


def pick_device():
    """Return this process's GPU, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device("cuda", torch.cuda.current_device())


def train_step(model, waves, labels, optimizer, scaler):
    """Learn from one batch; return the loss, which nobody has waited for."""
    optimizer.zero_grad()
    on_gpu = waves.device.type == "cuda"
    with torch.autocast(waves.device.type, torch.float16, enabled=on_gpu):
        loss = F.cross_entropy(model(waves), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def train(model, config, device):
    """Train for one epoch; return the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    losses = []
    for waves, labels in training_batches(config, RANK, RANKS):
        waves = waves.to(device, non_blocking=True)  # from pinned memory: it's only queued
        labels = labels.to(device, non_blocking=True)
        losses.append(train_step(model, waves, labels, optimizer, scaler))
    return torch.stack(losses).tolist()


def main(config):
    """Train and test a network; return the losses."""
    device = pick_device()
    torch.manual_seed(config.seed)
    model = Net(config).to(device)
    if RANKS > 1:
        dist.init_process_group()
        model = DistributedDataParallel(model)
    losses = train(model, config, device)
    for step, loss in enumerate(losses if RANK == 0 else [], 1):
        print(f"step {step}: loss {loss:.3f}")
    right = evaluate(model, config, device)
    if RANK == 0:
        print(f"named right: {right:.0%}")
    if RANKS > 1:
        dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    losses = main(SMALL if "--small" in sys.argv else FULL)
