"""Exercises and quiz of lesson 04, Train and test."""

import copy
import os
import pickle
import tempfile
from pathlib import Path
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

from course.checks import expect
from course.checks.core import LearnerError, NotAttempted, NotYet, call, same_code
from course.checks.watch import (
    GPU,
    RATE,
    GraphWatched,
    Watched,
    batches,
    count_waits,
    far,
    train_by_hand,
)
from course.checks.words import exercise, quiz
from practice_gpus import practice_gpus


# --- write the step -----------------------------------------------------------------------------
def train_step(model, x, y, optimizer):
    device = next(model.parameters()).device
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train_step_starter(model, x, y, optimizer):
    device = next(model.parameters()).device  # noqa: F841 - for the lines to come
    loss = ...
    return loss.detach()  # the value alone


def _check_step(answer):
    if same_code(answer, train_step_starter):
        raise NotAttempted("Replace `loss = ...` with your five lines.")
    with practice_gpus(1):
        model = Watched().to(GPU)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        model(torch.randn(4, 3, 2, 2).to(GPU)).sum().backward()  # gradients of an earlier batch
        for x, y in batches(8, 3, 5):
            before = model.linear.weight.detach().clone()
            twin, [loss], _ = train_by_hand(model, [(x, y)])
            _check_step_result(call(answer, model, x, y, optimizer), loss)
            _check_step_weights(model, before, twin)
        [(x, y)] = batches(4)
        advice = "Which of its lines asks for a value?"
        _check_waits(0, advice, answer, model, x.to(GPU), y.to(GPU), optimizer)
    return "three batches, the right weights after each, and nothing fetched from the GPU."


def _check_step_result(result, loss):
    expect.tensor(result, shape=(), device=GPU, what="the loss")
    if result.requires_grad:
        raise NotYet("the loss still carries its graph. Which method of a tensor lets go of it?")
    if not abs(result.item() - loss) <= 1e-3:
        raise NotYet(f"the loss is {result.item():.4f}, expected {loss:.4f}.")


def _check_step_weights(model, before, twin):
    if not far(model.linear.weight, before):
        raise NotYet("the weights did not change. Are there gradients when step() comes?")
    if far(model.linear.weight, twin.linear.weight):
        raise NotYet(
            "the weights changed, but not by this batch's gradient. "
            "Gradients of an earlier batch were still there when the function was called."
        )


def _check_waits(most, advice, answer, *args):
    """Call `answer(*args)`, which may make the program wait for the GPU at most `most` times."""
    waits = count_waits(call, answer, *args)
    if waits > most:
        often = "once" if waits == 1 else f"{waits} times"
        raise NotYet(f"your function made the program wait for the GPU {often}. {advice}")


step = exercise("04.step", _check_step, train_step, tool="train_step")


# --- test it ------------------------------------------------------------------------------------
def evaluate(model, loader, device):
    model.eval()
    correct, count = 0, 0
    with torch.inference_mode():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(1) == y).sum()
            count += len(y)
    return float(correct) / count


def evaluate_starter(model, loader, device):
    correct, count = 0, 0
    ...
    return float(correct) / count


def _check_evaluate(answer):
    if same_code(answer, evaluate_starter):
        raise NotAttempted("Your lines belong in place of the three dots.")
    with practice_gpus(1):
        model = Watched().to(GPU)
        loader = _answered(model, batches(4, 4, 2), right=(4, 1, 0))
        share = call(answer, model, loader, GPU)
        _check_switches(model)
        _check_share(share, 5, 10)
        on_gpu = [(x.to(GPU), y.to(GPU)) for x, y in loader]
        waits = count_waits(call, answer, model, on_gpu, GPU)
    often = "one wait" if waits == 1 else f"{waits} waits"
    return f"the right fraction, both switches set, and {often} for the GPU in three batches."


def _answered(model, loader, right):
    """The batches of `loader` with labels of which `model`, in eval mode, has so many `right`."""
    twin = copy.deepcopy(model).cpu().eval()
    labelled = []
    for (x, _), count in zip(loader, right, strict=True):
        y = twin(x).argmax(1)
        y[count:] = (y[count:] + 1) % 5
        labelled.append((x, y))
    return labelled


def _check_share(share, right, count):
    share = expect.number(share, "your result")
    if share == right:
        raise NotYet(f"{right} of {count} are right and you return {right}. What fraction is it?")
    if not abs(share - right / count) <= 1e-6:
        raise NotYet(
            f"{right} of {count} are right, in batches of 4, 4 and 2, and you return {share:g}. "
            "Add up the right answers of all batches, and divide once by the number of images."
        )


def _check_switches(model):
    if any(model.modes) or not model.modes:
        raise NotYet("the model was not in eval mode while it was tested.")
    if any(model.recorded):
        raise NotYet("a graph was recorded for each batch, and nobody will call backward.")


test = exercise("04.test", _check_evaluate, evaluate, tool="evaluate")


# --- a checkpoint that survives -----------------------------------------------------------------
def save_checkpoint(path, model, optimizer, epoch):
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**states, "epoch": epoch}, f"{path}.part")
    os.replace(f"{path}.part", path)


def _new_run(device):
    model = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3).to(device)).sum().backward()
    optimizer.step()
    return model, optimizer


def _check_checkpoint(answer):
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "run.pt")
        with practice_gpus(1):
            model, optimizer = _new_run(GPU)
            call(answer, path, model, optimizer, 7)
            expect.tensor(model.weight, device=GPU, what="afterward the model's weight")
        _check_saved(path, model.weight.cpu())
        _check_survives(answer, path)
    return "it opens without a GPU, and a save that failed halfway left the old file whole."


def _check_saved(path, weight):
    """Go on from the file at `path` without a GPU, as a learner would."""
    model, optimizer = _new_run("cpu")
    try:
        states = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(states["model"])
        optimizer.load_state_dict(states["optimizer"])
        epoch = states["epoch"]
    except FileNotFoundError:
        raise NotYet("there is no file at `path` afterward.") from None
    except pickle.UnpicklingError:
        raise NotYet(
            "the file holds a whole model or optimizer, which opens only with its source code. "
            "Which method gives their tensors as a plain dictionary?"
        ) from None
    except Exception as error:  # noqa: BLE001 - whatever load_state_dict raises
        told = str(error).splitlines()[0]
        raise NotYet(f"a run can't go on from the file: {type(error).__name__}: {told}") from None
    if epoch != 7 or far(model.weight, weight):
        raise NotYet(f"epoch 7 was saved with its weights; the file says epoch {epoch!r}.")


def _half(states, file, *args, **kwargs):
    """Stands in for torch.save where the disk fills up: writes the first bytes, then fails."""
    if hasattr(file, "write"):
        file.write(b"half")
    else:
        Path(file).write_bytes(b"half")
    raise OSError("No space left on device")


def _check_survives(answer, path):
    with mock.patch("torch.save", _half):
        try:
            call(answer, path, *_new_run("cpu"), 8)
        except LearnerError:
            pass
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001 - whatever half a file raises
        raise NotYet(
            "a save failed halfway (the disk was full), and the checkpoint of epoch 7 is gone. "
            "Write to another name first."
        ) from None


checkpoint = exercise(
    "04.checkpoint", _check_checkpoint, save_checkpoint, tool="save_checkpoint", letter="b"
)


# --- four bugs ----------------------------------------------------------------------------------
def fixed_epoch(model, loader, optimizer, device):
    model.train()
    total, count = 0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        count += len(y)
    return total / count


def broken_epoch(model, loader, optimizer, device):
    total, count = 0, 0
    for x, y in loader:
        x = x.to(device)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss * len(y)
        count += len(y)
    return total / count


def _check_bugs(answer):
    if same_code(answer, broken_epoch):
        raise NotAttempted(
            "all four bugs are still there. The first to show: on a GPU, the loop stops with an error."
        )
    sizes = (4, 4, 4, 2)
    with practice_gpus(1):
        model = GraphWatched().to(GPU).eval()  # as a test leaves it
        loader = batches(*sizes)
        twin, losses, _ = train_by_hand(model, loader)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        result = call(answer, model, loader, optimizer, GPU)
        if not model.modes or not all(model.modes):
            raise NotYet(
                "the model came from a test, and the batches ran in eval mode: "
                "batch norm never used the batch at hand."
            )
        if far(model.linear.weight, twin.linear.weight):
            raise NotYet(
                "after four batches, the weights are not where each batch's own gradient leads. "
                "What is in .grad when backward begins?"
            )
        if getattr(result, "requires_grad", False):
            raise NotYet("the result carries the graphs of all batches: its requires_grad is True.")
        if max(model.alive) > 1:  # that of the batch before may be, by the name `loss`
            raise NotYet(
                "while the loop ran, the graphs of all earlier batches were still alive. "
                "What does `total` hold on to?"
            )
        mean = sum(loss * n for loss, n in zip(losses, sizes, strict=True)) / sum(sizes)
        loss = expect.number(result.item() if isinstance(result, torch.Tensor) else result)
        if not abs(loss - mean) <= 1e-3:
            raise NotYet(f"the mean loss is {loss:.4f}; over all images it is {mean:.4f}.")
    return "all four fixed."


bugs = exercise("04.bugs", _check_bugs, fixed_epoch)


QUIZ = quiz("04")
