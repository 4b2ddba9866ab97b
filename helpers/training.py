"""The loops of training and testing that lesson 04 writes out in full, and the small CNN of lesson 00.

They run unedited on any device; a step never waits for a GPU, and a test only once, at its end. Later lessons and the
scripts import them; copy what your own project needs.
"""

from collections.abc import Iterable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batches = Iterable[tuple[Tensor, Tensor]]  # of images and labels


class SmallCNN(nn.Module):
    """Three convolutions, each followed by ReLU and pooling, and one linear layer, for 32×32 images (lesson 03).

    Input float [N, in_channels, 32, 32] in 0..1, output logits [N, classes]. `width` is the number of filters of the
    first convolution. `forward` first centers the values to -2..2, without which learning takes several times longer.
    Another picture size does not fit the linear layer and raises RuntimeError there.
    """

    def __init__(self, classes: int = 10, width: int = 16, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, kernel_size=3, padding=1)
        self.classify = nn.Linear(2 * width * 4 * 4, classes)  # 32 pixels, halved three times: 4

    def forward(self, x: Tensor) -> Tensor:
        x = 4 * x - 2  # 0..1 becomes -2..2: about mean 0 and spread 1
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.max_pool2d(F.relu(self.conv3(x)), 2)
        return self.classify(x.flatten(1))


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
    if count == 0:
        words = "it needs at least one image (is drop_last set on a small set?)"
        raise ValueError(f"loader: it gave no batch; {words}")
    return correct.item() / count  # the one place that waits for the device
