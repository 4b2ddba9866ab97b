"""The photo network of lesson 04: features of its body; all layers for a step to time, or five epochs on a borrowed GPU."""

import copy
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course import photos
from course.measurements import measure
from helpers import devices, training


def _network(data: photos.Photos, device: torch.device | str):
    network = photos.pretrained(len(data.classes)).train().to(device)
    return network, torch.optim.Adam(network.parameters(), lr=0.0001)


def features(network, data: photos.Photos) -> torch.Tensor:
    """Return what `network` makes of the images of `data`, eight at a time: on the CPU, and fit for training."""
    device = next(network.parameters()).device
    with torch.inference_mode():
        parts = [network(photos.prepare(x.to(device))).cpu() for x in data.images.split(8)]
    return torch.cat(parts)  # outside inference_mode, so that training can use it


def loaders(body: nn.Module, train: photos.Photos, test: photos.Photos) -> list[DataLoader]:
    """Return loaders of the features that `body` sees in `train`, shuffled, and in `test`, 12 at a time, with labels."""
    sets = [TensorDataset(features(body, data), data.labels) for data in (train, test)]
    return [DataLoader(each, 12, shuffle=each is sets[0]) for each in sets]


def new_head(classes: int) -> nn.Module:
    """Return the head of page 04, with the same random weights each time: [n, 1280] to [n, classes]."""
    torch.manual_seed(0)
    return nn.Linear(1280, classes)


def scores(seen: torch.Tensor, labels: torch.Tensor, test_loader: DataLoader, epochs: int):
    """Train a new head on features `seen` and `labels` by page 04's nine lines; return the shares right in training and test after each epoch."""
    head = new_head(int(labels.max()) + 1)
    loader = DataLoader(TensorDataset(seen, labels), 12, shuffle=True)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.0005)
    shares = []
    for _ in range(epochs):
        for x, y in loader:
            training.train_step(head, x, y, optimizer)
        shares.append([training.evaluate(head, each, "cpu") for each in (loader, test_loader)])
    return shares


def answers(network: nn.Module, head: nn.Module, data: photos.Photos, training: bool):
    """Return the class, int64 [n], that body and head give each image of `data`, in batches of 12, in one of the modes.

    It asks a copy: in training mode, batch norm also changes the averages that it keeps.
    """
    device = next(head.parameters()).device
    whole = nn.Sequential(copy.deepcopy(network), copy.deepcopy(head)).train(training)
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(0)  # in training mode, dropout draws
        parts = [whole(photos.prepare(x.to(device))).argmax(1) for x in data.images.split(12)]
    return torch.cat(parts).cpu()


def full_step(data: photos.Photos, device: torch.device | str, train_step: Callable, count: int):
    """Return a function that trains all layers for one step, on the first `count` images of `data`."""
    network, optimizer = _network(data, device)
    x, y = photos.prepare(data.images[:count].to(device)), data.labels[:count].to(device)
    return lambda: train_step(network, x, y, optimizer)


def seconds_per_image(data: photos.Photos, train_step: Callable) -> float:
    """Return the seconds in which this CPU trains all layers on one image, timed on four at once."""
    cpu = torch.device("cpu")
    return measure.stopwatch(full_step(data, cpu, train_step, 4), cpu) / 4000


def seconds(forecast, steps: float) -> tuple[float, str]:
    """Return the seconds of so many `steps` by the `forecast` of one, and their range in words."""
    times = forecast.low_ms, forecast.ms, forecast.high_ms
    low, middle, high = (steps * ms / 1000 for ms in times)
    return middle, f"That's a forecast. Its range is {low:.1f} to {high:.1f} s."


def opened(path: str) -> tuple[str, str]:
    """Return what `torch.load(path)` does on a laptop without a GPU, and what it says here."""
    told = "It opens here, where a GPU is."
    try:
        torch.load(path)
    except RuntimeError as error:
        told = str(error)
    return "raises an error", told


def fine_tune(
    train: photos.Photos,
    test: photos.Photos,
    device: torch.device,
    train_step: Callable,
    evaluate: Callable,
    epochs: int = 5,
) -> None:
    """Train all layers in batches of 12; print the seconds, the share of `test` that is right and the GPU code."""
    full_step(train, device, train_step, 12)()  # the first step on a GPU is slow, so it isn't timed
    network, optimizer = _network(train, device)
    devices.synchronize(device)
    start = time.perf_counter()
    for _ in range(epochs):
        for places in torch.randperm(len(train)).split(12):
            x = photos.prepare(train.images[places].to(device))
            train_step(network, x, train.labels[places].to(device), optimizer)
    devices.synchronize(device)
    seconds = time.perf_counter() - start
    share = evaluate(network, [(photos.prepare(test.images), test.labels)], device)
    print(f"{share:.0%} of the test images right after {seconds:.1f} s")
    print(measure.gpu_code())
