"""Exercises and quiz of lesson 04, Train and test."""

import copy
import os
import tempfile
from pathlib import Path
from unittest import mock

import torch
from torch import nn

from helpers.checks import expect
from helpers.checks.core import Exercise, LearnerError, NotYet, Question, call
from lessons.watch import (
    GPU,
    RATE,
    GraphWatched,
    Watched,
    batches,
    count_waits,
    far,
    train_by_hand,
)
from practice_gpus import practice_gpus

loss_function = nn.CrossEntropyLoss()


# --- write the step -----------------------------------------------------------------------------
def counting_step(model, x, y, optimizer, device):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    logits = model(x)
    loss = loss_function(logits, y)
    loss.backward()
    optimizer.step()
    return loss.detach(), (logits.argmax(1) == y).sum()


def _check_step(answer):
    with practice_gpus(1):
        model = Watched().to(GPU)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        model(torch.randn(4, 3, 2, 2).to(GPU)).sum().backward()  # gradients of an earlier batch
        for x, y in batches(8, 3, 5):
            before = model.linear.weight.detach().clone()
            y[0] = copy.deepcopy(model).cpu()(x)[0].argmax()  # one right answer at least
            twin, [loss], [right] = train_by_hand(model, [(x, y)])
            result = call(answer, model, x, y, optimizer, GPU)
            _check_step_result(result, loss, right)
            _check_step_weights(model, before, twin)
        _check_step_waits(answer, model, optimizer)
    return "three batches, the right weights after each, and nothing fetched from the GPU."


def _check_step_result(result, loss, right):
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise NotYet(
            f"returned {type(result).__name__}; expected two things, "
            "the loss and the number of right answers."
        )
    for part, name in zip(result, ("the loss", "the number of right answers"), strict=True):
        expect.tensor(part, shape=(), device=GPU, what=name)
    if result[0].requires_grad:
        raise NotYet("the loss still carries its graph. Which method of a tensor lets go of it?")
    if not abs(result[0].item() - loss) <= 1e-3:
        raise NotYet(f"the loss is {result[0].item():.4f}, expected {loss:.4f}.")
    if result[1].item() != right:
        raise NotYet(
            f"the batch had {right} right answers before the step, and {result[1].item():g} came "
            "back. Compare the largest output of each row with its label, and add up."
        )


def _check_step_weights(model, before, twin):
    if not far(model.linear.weight, before):
        raise NotYet("the weights did not change. Are there gradients when step() comes?")
    if far(model.linear.weight, twin.linear.weight):
        raise NotYet(
            "the weights changed, but not by this batch's gradient. "
            "Gradients of an earlier batch were still there when the function was called."
        )


def _check_step_waits(answer, model, optimizer):
    [(x, y)] = batches(4)
    waits = count_waits(call, answer, model, x.to(GPU), y.to(GPU), optimizer, GPU)
    if waits:
        often = "once" if waits == 1 else f"{waits} times"
        raise NotYet(
            f"the step made the program wait for the GPU {often}. Which of its lines asks for a value?"
        )


step = Exercise(
    key="04.step",
    title="write the step",
    check_answer=_check_step,
    hints=(
        "The loop in “Ten lines that learn” has every line but the count, in the right order.",
        "You need the outputs twice, for the loss and for the count: give `model(x)` a name. "
        "`detach()` is for the loss; a count has no graph.",
        "The count is `(logits.argmax(1) == y).sum()`. Return `loss.detach()` and the count.",
    ),
    reference=counting_step,
    explanation="zero_grad comes before backward, step after it. Both results are tensors on the "
    "device, so whoever calls the step decides when to read them. detach() lets go of the graph.",
)


# --- a checkpoint anywhere ----------------------------------------------------------------------
def resume(path, model, optimizer):
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"]


def _new_run(device):
    model = nn.Linear(3, 2).to(device)
    return model, torch.optim.Adam(model.parameters())


def _save_from_second_gpu(path):
    """Write a checkpoint from cuda:1; returns it with its tensors on the CPU."""
    with practice_gpus(2):
        model, optimizer = _new_run("cuda:1")
        model(torch.ones(4, 3).to("cuda:1")).sum().backward()
        optimizer.step()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}
        torch.save(states, path)
    return torch.load(path, map_location="cpu", weights_only=True)


class _Trap:
    """Pickles as a call that sets an environment variable when the file is opened without weights_only."""

    def __reduce__(self):
        return os.putenv, ("GPU_COURSE_TRAP", "1")


def _check_checkpoint(answer):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.pt"
        saved = _save_from_second_gpu(path)
        with mock.patch("torch.cuda.is_available", lambda: False):
            _check_resumed(answer, path, saved, "cpu", "a machine without a GPU")
        with practice_gpus(1):
            _check_resumed(answer, path, saved, GPU, "a machine with one GPU")
        _check_refuses_code(answer, path, saved)
    return "opened without a GPU and with another one; a file that carries code was refused."


def _check_resumed(answer, path, saved, device, where):
    model, optimizer = _new_run(device)
    try:
        epoch = call(answer, path, model, optimizer)
    except LearnerError as error:
        if "deserialize" not in str(error):
            raise
        raise NotYet(
            f"on {where} the file did not open: its tensors want back to cuda:1. "
            "Which argument of torch.load says where they go?"
        ) from None
    expect.tensor(model.weight, device=device, what=f"on {where} the model's weight")
    if far(model.weight, saved["model"]["weight"]):
        raise NotYet(f"on {where} the model's weights are not those of the file.")
    averages = [state["exp_avg"] for state in optimizer.state_dict()["state"].values()]
    if not averages or far(averages[0], saved["optimizer"]["state"][0]["exp_avg"]):
        raise NotYet(f"on {where} the optimizer starts afresh; its averages are in the file too.")
    if expect.number(epoch, "the epoch") != 7:
        raise NotYet(f"returned {epoch!r}; the file says epoch 7.")


def _check_refuses_code(answer, path, saved):
    torch.save({**saved, "note": _Trap()}, path)
    try:
        call(answer, path, *_new_run("cpu"))
    except LearnerError:
        return
    raise NotYet("a file that runs code of its own was opened: leave weights_only at True.")


checkpoint = Exercise(
    key="04.checkpoint",
    title="go on from a checkpoint, anywhere",
    check_answer=_check_checkpoint,
    hints=(
        "Look at the last cell of “Take it to another machine”: it opens a file that was saved on a GPU.",
        "Load everything to the CPU. `load_state_dict` then copies to wherever model and optimizer "
        "live, so neither has to move.",
        '`checkpoint = torch.load(path, map_location="cpu")`, then one `load_state_dict` for the '
        'model, one for the optimizer, and return `checkpoint["epoch"]`.',
    ),
    reference=resume,
    explanation="map_location sends every tensor of the file to the CPU, whatever device it was "
    "saved from, and load_state_dict copies it to the parameter's own device. weights_only=True is "
    "the default; it takes plain data only, so that no file can run code.",
)


# --- four bugs ----------------------------------------------------------------------------------
def fixed_epoch(model, loader, optimizer, device):
    model.train()
    total, count = 0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        count += len(y)
    return total / count


def _check_bugs(answer):
    sizes = (4, 4, 4, 2)
    with practice_gpus(1):
        model = GraphWatched().to(GPU).eval()  # as a test leaves it
        loader = batches(*sizes)
        twin, losses, _ = train_by_hand(model, loader)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        result = call(answer, model, loader, optimizer, GPU)
        if not model.modes or not all(model.modes):
            raise NotYet("the model came from a test, and nothing put it back into training mode.")
        if far(model.linear.weight, twin.linear.weight):
            raise NotYet(
                "after the pass the weights are not where each batch's own gradient leads. "
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
            raise NotYet(f"the mean loss is {loss:.4f}; over all pictures it is {mean:.4f}.")
    return "all four fixed. Run the next cell to see what they cost."


bugs = Exercise(
    key="04.bugs",
    title="find four bugs",
    check_answer=_check_bugs,
    hints=(
        "Compare it line by line with the loop in “Ten lines that learn” and with `accuracy`.",
        "One bug is about the model's mode, one about a device, one about old gradients, one "
        "about what `total` holds on to.",
        "Missing are `model.train()`, `y.to(device)`, `optimizer.zero_grad()` and `loss.detach()`.",
    ),
    reference=fixed_epoch,
    explanation="model.train() undoes the eval() of the last test; the labels follow the pictures; "
    "zero_grad clears what the last batch left; detach keeps the sum from holding every graph.",
)


QUIZ = (
    Question(
        "04.order",
        "A loop calls backward() and step(), and never zero_grad(). What does step() follow?",
        {
            "The gradient of the latest batch": "backward() adds to .grad; it doesn't replace it.",
            "Nothing: an error is raised": "It runs without a word, which is why this bug lives long.",
            "The sum of the gradients of all batches so far": "Yes, and the accuracy stays where it began.",
        },
        right=2,
    ),
    Question(
        "04.eval",
        "What does model.eval() do?",
        {
            "It switches gradients off": "That's inference_mode.",
            "It switches layers such as dropout and batch norm to their test behavior": "Yes; gradients are another matter.",
            "It moves the model to the CPU": "It moves nothing.",
        },
        right=1,
    ),
    Question(
        "04.map",
        "A checkpoint was saved from cuda:1. How do you open it on a laptop without a GPU?",
        {
            'torch.load(path, map_location="cpu")': "Yes: the file names devices, and map_location overrules them.",
            "Not at all; save it on a CPU": "map_location exists for exactly this.",
            'torch.load(path).to("cpu")': "The load itself fails, before .to is reached.",
        },
        right=0,
    ),
)
