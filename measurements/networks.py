"""Training steps of the lessons' networks; a generator of rows, as in `measurements.measure`."""

import torch
from torch import nn

from helpers.data import shapes
from helpers.training import SmallCNN, train_step
from measurements.measure import PRECISIONS, digits, growing, timed
from measurements.peaks import peak_bytes


def mlp():
    """A network of matrix products only: 3072, 512, 512, 10."""
    layers = [nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


def networks(device):
    """Networks by name; the wide one only where it does not take minutes."""
    wide = {} if device.type == "cpu" else {"SmallCNN, width 128": lambda: SmallCNN(width=128)}
    return {"MLP": mlp, "SmallCNN": SmallCNN, **wide}


def batches(device, quick, most):
    """Growing batch sizes: powers of four."""
    sizes = [4**n for n in range(0, 8) if 4**n <= (most if device.type != "cpu" else 1024)]
    return sizes[1::2] if quick else sizes


def batch_of(n, device):
    """n drawn images and their labels on the device; a few hundred are drawn, the rest repeats them."""
    images, labels = shapes(min(n, 256), seed=0)
    times = -(-n // len(images))
    return images.repeat(times, 1, 1, 1)[:n].to(device), labels.repeat(times)[:n].to(device)


def step_of(model, x, y, optimizer, precision):
    """A function that trains `model` one step on (x, y): autocast below float32, a scaler under float16."""
    dtype = None if precision == "float32" else PRECISIONS[precision]
    scaler = torch.amp.GradScaler(x.device.type) if precision == "float16" else None
    return lambda: train_step(model, x, y, optimizer, dtype, scaler)


def training(device, quick):
    """Training steps on data that is on the device, by network, precision and batch, with their peak."""
    precisions = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16", "float16")}
    sizes = batches(device, quick, 4**6)
    for name in networks(device):
        for precision in precisions.get(device.type, ("float32",)):
            fields = {"network": name, "precision": precision}
            yield from growing(trained, sizes, device, quick, **fields)


def trained(device, batch, quick, network, precision):
    """The row of a training step of one of the `networks`."""
    model = networks(device)[network]().to(device)
    adam = torch.optim.Adam(model.parameters())
    step = step_of(model, *batch_of(batch, device), adam, precision)
    step()
    times = timed(step, device, quick)
    adam.zero_grad()
    peak = peak_bytes(step, device) if device.type == "cuda" else None
    what = {"network": network, "batch": batch, "precision": precision}
    rate = {"images_per_s": digits(1e3 * batch / times["time_ms"])}
    return {**what, **times, **rate, "peak_bytes": peak}
