"""Wrong answers to the exercises of lesson 04."""

from unittest import mock

import torch
from torch.nn import functional as F

from exercises.lesson04 import counting_step, fixed_epoch, resume
from helpers.checks.core import Wrong


def step(zero="first", labels=True, detach=True):
    """Return a step that clears gradients "first", "late" or never, and may forget labels or detach()."""

    def answer(model, x, y, optimizer, device):
        x = x.to(device)
        if labels:
            y = y.to(device)
        if zero == "first":
            optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        if zero == "late":
            optimizer.zero_grad()
        optimizer.step()
        return loss.detach() if detach else loss, (logits.argmax(1) == y).sum()

    return answer


def read_values(*args):
    loss, right = counting_step(*args)
    return loss.item(), right.item()


def print_loss(*args):
    loss, right = counting_step(*args)
    print(f"{loss.item():.3f}", end=" ")
    return loss, right


def summed_loss(model, x, y, optimizer, device):
    loss, right = counting_step(model, x, y, optimizer, device)
    return loss * len(y), right


def load_with(**options):
    """Return `resume` with other options for torch.load."""

    def answer(path, model, optimizer):
        load = torch.load
        with mock.patch("torch.load", lambda p, **_: load(p, **options)):
            return resume(path, model, optimizer)

    return answer


def model_only(path, model, optimizer):
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    return checkpoint["epoch"]


def moved_to_cpu(path, model, optimizer):
    epoch = resume(path, model, optimizer)
    model.to("cpu")
    return epoch


def epoch(train=True, labels=True, zero=True, detach=True):
    """Return the epoch with chosen bugs fixed."""

    def answer(model, loader, optimizer, device):
        if train:
            model.train()
        total, count = 0, 0
        for x, y in loader:
            x = x.to(device)
            if labels:
                y = y.to(device)
            if zero:
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += (loss.detach() if detach else loss) * len(y)
            count += len(y)
        return total / count

    return answer


def detached_late(model, loader, optimizer, device):
    return epoch(detach=False)(model, loader, optimizer, device).detach()


def mean_of_batches(model, loader, optimizer, device):
    means = [fixed_epoch(model, [batch], optimizer, device) for batch in loader]
    return sum(means) / len(means)


WRONG = {
    "step": (
        Wrong(step(zero="never"), "earlier batch"),
        Wrong(step(zero="late"), "did not change"),
        Wrong(step(labels=False), "same device"),
        Wrong(step(detach=False), "carries its graph"),
        Wrong(read_values, "the loss is of type float"),
        Wrong(print_loss, "wait for the GPU once"),
        Wrong(summed_loss, "the loss is"),
        Wrong(lambda *a: counting_step(*a)[0], "expected two things"),
    ),
    "checkpoint": (
        Wrong(load_with(weights_only=True), "Which argument of torch.load"),
        Wrong(load_with(map_location="cpu", weights_only=False), "runs code of its own"),
        Wrong(model_only, "the optimizer starts afresh"),
        Wrong(moved_to_cpu, "weight is on cpu"),
        Wrong(lambda *a: resume(*a) and None, "the epoch is of type NoneType"),
        Wrong(lambda *a: resume(*a) + 1, "the file says epoch 7"),
    ),
    "bugs": (
        Wrong(epoch(train=False), "back into training mode"),
        Wrong(epoch(labels=False), "same device"),
        Wrong(epoch(zero=False), "What is in .grad"),
        Wrong(epoch(detach=False), "graphs of all batches"),
        Wrong(detached_late, "What does `total` hold on to"),
        Wrong(mean_of_batches, "over all pictures"),
    ),
}
