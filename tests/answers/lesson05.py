"""Wrong answers to the exercises of lesson 05."""

import torch
from torch.nn import functional as F

from exercises.lesson05 import largest_batch, mean_loss
from helpers.checks.core import Wrong


def _still_leaky(model, batches):
    losses = [F.cross_entropy(model(images), labels) for images, labels in batches]
    return torch.stack(losses).mean().item()


def _sum(model, batches):
    return sum(F.cross_entropy(model(images), labels).item() for images, labels in batches)


def _power_of_two(try_batch, limit):
    batch = 1
    while batch <= limit:
        try:
            try_batch(batch)
        except torch.OutOfMemoryError:
            break
        batch *= 2
    return batch // 2


def _stepping(try_batch, limit):
    for batch in range(limit, 0, -1):
        try:
            try_batch(batch)
            return batch
        except torch.OutOfMemoryError:
            continue
    return 0


def _catches_all(try_batch, limit):
    fits, too_large = 0, limit + 1
    while too_large - fits > 1:
        batch = (fits + too_large) // 2
        try:
            try_batch(batch)
            fits = batch
        except Exception:  # noqa: BLE001 - the mistake this answer shows
            too_large = batch
    return fits


def _catches_runtime_errors(try_batch, limit):
    fits, too_large = 0, limit + 1
    while too_large - fits > 1:
        batch = (fits + too_large) // 2
        try:
            try_batch(batch)
            fits = batch
        except RuntimeError:
            too_large = batch
    return fits


def _never_zero(try_batch, limit):
    return max(1, largest_batch(try_batch, limit))


def _not_divided(model, x, y, size):
    model.zero_grad()
    for images, labels in zip(x.split(size), y.split(size)):
        F.cross_entropy(model(images), labels).backward()


def _equal_weights(model, x, y, size):
    model.zero_grad()
    pieces = list(zip(x.split(size), y.split(size)))
    for images, labels in pieces:
        (F.cross_entropy(model(images), labels) / len(pieces)).backward()


def _no_zero(model, x, y, size):
    for images, labels in zip(x.split(size), y.split(size)):
        (F.cross_entropy(model(images), labels) * len(labels) / len(y)).backward()


def _one_backward(model, x, y, size):
    model.zero_grad()
    loss = 0
    for images, labels in zip(x.split(size), y.split(size)):
        loss = loss + F.cross_entropy(model(images), labels, reduction="sum") / len(y)
    loss.backward()


def _zero_inside(model, x, y, size):
    for images, labels in zip(x.split(size), y.split(size)):
        model.zero_grad()
        (F.cross_entropy(model(images), labels) * len(labels) / len(y)).backward()


def _whole(model, x, y, size):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()


WRONG = {
    "leak": (
        Wrong(_still_leaky, "keep alive"),
        Wrong(_sum, "expected their mean"),
        Wrong(lambda m, b: torch.tensor(mean_loss(m, b)), "a Tensor"),
    ),
    "largest": (
        Wrong(_power_of_two, "also tried and kept"),
        Wrong(_stepping, "Halve the range"),
        Wrong(_catches_all, "OutOfMemoryError only"),
        Wrong(_never_zero, "exactly when even"),
        Wrong(_catches_runtime_errors, "mat1 and mat2"),
        Wrong(lambda try_batch, limit: float(largest_batch(try_batch, limit)), "whole number"),
    ),
    "accumulation": (
        Wrong(_not_divided, "part of the whole mean"),
        Wrong(_equal_weights, "uneven"),
        Wrong(_no_zero, "earlier step"),
        Wrong(_whole, "samples at once"),
        Wrong(_one_backward, "waited for one backward"),
        Wrong(_zero_inside, "zero_grad inside the loop"),
    ),
}
