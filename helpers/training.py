"""The loops that lesson 04 writes out in full, and the network of lesson 00; later lessons and the scripts import them."""

from collections.abc import Iterable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.small_cnn import SmallCNN

__all__ = ["SmallCNN", "evaluate", "send", "train_epoch", "train_step"]

Batches = Iterable[tuple[Tensor, Tensor]]  # of images and labels


def send(tensor: Tensor, device: str | torch.device) -> Tensor:
    """Copy `tensor` to `device`; towards a CUDA device the copy is only queued and the program goes on (lesson 04).

    Work queued on that device later finds the values in place. From pinned memory the copy is read while the program
    goes on: leave such a tensor unchanged until then. Towards other devices the program waits, since only CUDA keeps
    the source until it was read (https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html).
    """
    return tensor.to(device, non_blocking=torch.device(device).type == "cuda")


def train_step(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype | None = None,
    scaler: torch.amp.GradScaler | None = None,
) -> Tensor:
    """One step of training on one batch that is on the model's device (lesson 04); returns the loss, not synchronized.

    `x` float [N, C, H, W], `y` int64 [N]; the loss is a tensor without a graph, on the same device. `dtype`: of
    autocast, None for none; `scaler`: a GradScaler, which float16 needs.
    """
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype) if dtype else nullcontext():
        loss = F.cross_entropy(model(x), y)
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()


def train_epoch(
    model: nn.Module,
    loader: Batches,
    optimizer: torch.optim.Optimizer,
    device: str | torch.device,
) -> float:
    """Train once through `loader` (batches of images and labels); returns the mean loss per image (lesson 04).

    The losses are added up on the device and read once, at the end. Leaves the model in training mode. An empty
    loader raises ValueError.
    """
    model.train()
    total, count = torch.zeros((), device=device), 0
    for x, y in loader:
        x, y = send(x, device), send(y, device)
        total += train_step(model, x, y, optimizer) * len(y)
        count += len(y)
    return _mean(total, count)


def evaluate(model: nn.Module, loader: Batches, device: str | torch.device) -> float:
    """Share of the images of `loader` that the model names right, 0 to 1 (lesson 04).

    Counts on the device and synchronizes once, at the end. The model comes back in the mode (train or eval) it was in.
    An empty loader raises ValueError.
    """
    training = model.training
    model.eval()
    correct, count = torch.zeros((), device=device, dtype=torch.int64), 0
    with torch.inference_mode():
        for x, y in loader:
            x, y = send(x, device), send(y, device)
            correct += (model(x).argmax(1) == y).sum()
            count += len(y)
    model.train(training)
    return _mean(correct, count)


def _mean(total: Tensor, count: int) -> float:
    """Read `total` from its device and divide; this is the one place that waits for the device."""
    if count == 0:
        words = "it needs at least one image (is drop_last set on a small set?)"
        raise ValueError(f"loader: it gave no batch; {words}")
    return total.item() / count
