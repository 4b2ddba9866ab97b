"""Exercises of lesson 04 about loops that train: write the step, keep a curve without graphs, find the bugs."""

import torch
from torch import nn
from torch.nn import functional as F

from exercises.watch import GPU, Waits, batches, check_graphs, check_weights, far, run_loop
from helpers.checks.core import Exercise, NotYet, Wrong, call
from helpers.training import send
from practice_gpus import practice_gpus


def _linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5))


def _step_by_formula(weights, bias, x, y, rate):
    """A step of SGD on a linear classifier, from the derivative written by hand; returns the loss before it."""
    logits = x.flatten(1) @ weights.T + bias
    loss = F.cross_entropy(logits, y).item()
    slope = (logits.softmax(1) - F.one_hot(y, 5)) / len(y)
    right = (logits.argmax(1) == y).sum().item()
    weights -= rate * slope.T @ x.flatten(1)
    bias -= rate * slope.sum(0)
    return loss, right


# --- write the step --------------------------------------------------------------------------------------------------
def counting_step(model, x, y, optimizer, device):
    x, y = send(x, device), send(y, device)
    optimizer.zero_grad()
    outputs = model(x)
    loss = F.cross_entropy(outputs, y)
    loss.backward()
    optimizer.step()
    return loss.detach(), (outputs.argmax(1) == y).sum()


def _check_step(answer):
    with practice_gpus(1):
        model = _linear().to(GPU)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        weights, bias = (p.detach().cpu().clone() for p in model.parameters())
        model(torch.randn(4, 3, 2, 2).to(GPU)).sum().backward()  # gradients of an earlier batch
        for x, y in batches(8, 1, 5):
            before = weights.clone()
            y[0] = (
                x[:1].flatten(1) @ weights.T + bias
            ).argmax()  # one at least is right, so that the number tells
            loss, right = _step_by_formula(weights, bias, x, y, 0.5)
            with Waits() as waits:
                found = call(answer, model, x, y, optimizer, GPU)
            _step_result(found, loss, right, waits.count)
            moved = model[1].weight
            if not far(moved, before):
                raise NotYet(
                    "the weights did not change. Are there gradients when the optimizer takes its step?"
                )
            if far(moved, weights):
                raise NotYet(
                    "the weights changed by another amount than this batch's gradients say. Gradients of an "
                    "earlier batch were still there when the function was called."
                )
    return "three batches, the right weights after each, and nothing read from the device."


def _step_result(found, loss, right, waits):
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise NotYet(
            f"returned {type(found).__name__}; expected two things: loss and number of right answers."
        )
    if waits or not all(isinstance(part, torch.Tensor) for part in found):
        raise NotYet(
            "the step read a value back from the device, and each read waits for the device. Return tensors."
        )
    if found[0].requires_grad:
        raise NotYet(
            "the loss still carries its graph: its requires_grad is True. What takes a tensor out of it?"
        )
    if not (found[0].is_cuda and found[1].is_cuda):
        raise NotYet(
            f"the results live on {found[0].device} and {found[1].device}; expected both on the device."
        )
    if found[0].numel() != 1 or not abs(found[0].item() - loss) <= 1e-3:
        swapped = found[1].numel() == 1 and abs(found[1].item() - loss) < 1e-3
        raise NotYet(
            f"the loss is {found[0].flatten()[0].item():.4f}; before the step the batch has {loss:.4f}."
            + " Is it the first of the two results?" * swapped
        )
    if found[1].numel() != 1 or not found[1].item() == right:
        raise NotYet(
            f"{right} answers were right before the step, and it returned {found[1].tolist()}. Compare "
            "the largest output of each row, as it was before the step, with its label, and add up."
        )


def _step(model, x, y, optimizer, zero="first", keep=torch.Tensor.detach):
    """A step on a batch as it is, which clears gradients "first", "late" or never, and returns keep(loss)."""
    if zero == "first":
        optimizer.zero_grad()
    outputs = model(x)
    loss = F.cross_entropy(outputs, y)
    loss.backward()
    if zero == "late":
        optimizer.zero_grad()
    optimizer.step()
    return keep(loss), (outputs.argmax(1) == y).sum()


def _items(model, x, y, optimizer, device):
    loss, right = counting_step(model, x, y, optimizer, device)
    return loss.item(), right.item()


def _share(model, x, y, optimizer, device):
    loss, right = counting_step(model, x, y, optimizer, device)
    return loss, right / 1000


step = Exercise(
    key="04.step",
    title="write the step",
    minutes=6,
    lines=7,
    difficulty=1,
    check_answer=_check_step,
    hints=(
        "Move x and y; then the five calls of the section, in an order in which old gradients cannot matter.",
        "The outputs are needed twice: for the loss, and (outputs.argmax(1) == y).sum() for the count. No .item().",
    ),
    reference=counting_step,
    explanation="zero_grad comes before backward, step after it. Both results are tensors on the device: whoever calls "
    "the step decides when to read them. detach() lets go of the graph.",
    wrong=(
        Wrong(lambda m, x, y, o, d: _step(m, x.to(d), y.to(d), o, zero="never"), "earlier batch"),
        Wrong(lambda m, x, y, o, d: _step(m, x.to(d), y.to(d), o, zero="late"), "did not change"),
        Wrong(lambda m, x, y, o, d: _step(m, x.to(d), y, o), "same device"),
        Wrong(
            lambda m, x, y, o, d: _step(m, x.to(d), y.to(d), o, keep=lambda loss: loss),
            "carries its graph",
        ),
        Wrong(_items, "read a value back"),
        Wrong(_share, "add up"),
        Wrong(lambda *a: counting_step(*a)[0], "expected two things"),
    ),
)


# --- a curve without graphs ------------------------------------------------------------------------------------------
def loss_curve(model, loader, optimizer, device):
    model.train()
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(send(x, device)), send(y, device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_curve(answer):
    with practice_gpus(1):
        for sizes in ((4, 4, 4, 4, 2), (3,)):
            found, model, twin, losses, waits = run_loop(answer, sizes)
            check_weights(model, twin)
            check_graphs(model)
            if not isinstance(found, list) or not all(isinstance(value, float) for value in found):
                raise NotYet(f"returned {type(found).__name__}; expected a list of Python floats.")
            if len(found) != len(losses):
                raise NotYet(
                    f"{len(losses)} batches, and {len(found)} losses came back. One for each step."
                )
            if not all(abs(a - b) <= 1e-3 for a, b in zip(found, losses, strict=True)):
                raise NotYet(f"the losses are {_short(found)}; expected {_short(losses)}.")
            if waits != 1:
                raise NotYet(
                    f"the program read {waits} times in {len(sizes)} steps; one read at the end is enough."
                )
    return "one loss for each step, one read, and no graph kept."


def _short(values):
    return "[" + ", ".join(f"{value:.3f}" for value in values[:5]) + "]"


def _curve(keep, finish):
    """A loop like the reference that keeps `keep(loss)` and returns `finish(kept)`."""

    def answer(model, loader, optimizer, device):
        model.train()
        kept = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            kept.append(keep(loss))
        return finish(kept)

    return answer


curve = Exercise(
    key="04.curve",
    title="keep a curve without graphs",
    minutes=4,
    lines=9,
    difficulty=2,
    check_answer=_check_curve,
    hints=(
        "A list may hold tensors, as long as they have no graph. Reading them can wait until the loop is over.",
        "Append loss.detach(); after the loop torch.stack(losses).tolist() reads all of them in one copy.",
    ),
    reference=loss_curve,
    explanation="detach() keeps the number and lets go of the graph. The list of small tensors stays on the device "
    "until one stack and one tolist bring everything at once.",
    wrong=(
        Wrong(
            _curve(lambda loss: loss, lambda kept: torch.stack(kept).tolist()),
            "graphs of earlier batches",
        ),
        Wrong(_curve(lambda loss: loss.item(), lambda kept: kept), "the program read"),
        Wrong(
            _curve(lambda loss: loss.detach(), lambda kept: torch.stack(kept)),
            "list of Python floats",
        ),
        Wrong(
            _curve(lambda loss: loss.detach(), lambda kept: [sum(kept).item()]), "One for each step"
        ),
    ),
)


# --- four bugs -------------------------------------------------------------------------------------------------------
def repaired_epoch(model, loader, optimizer, device):
    model.train()
    total, count = 0, 0
    for x, y in loader:
        x, y = send(x, device), send(y, device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        count += len(y)
    return total / count


def _check_bugs(answer):
    with practice_gpus(1):
        sizes = (4, 4, 4, 2)
        found, model, twin, losses, _ = run_loop(answer, sizes)
        check_weights(model, twin)
        check_graphs(model)
        if getattr(found, "requires_grad", False):
            raise NotYet(
                "the result still requires a gradient: it carries the graphs of the whole pass."
            )
        mean = sum(loss * n for loss, n in zip(losses, sizes, strict=True)) / sum(sizes)
        if not isinstance(found, (float, torch.Tensor)) or not abs(float(found) - mean) <= 1e-3:
            raise NotYet(
                f"the mean loss is {found!r}; expected {mean:.4f}, the mean over all images."
            )
    return "all four repaired: mode, labels, old gradients, kept graphs."


def _epoch(train=True, labels=True, zero=True, detach=True):
    """The epoch with chosen bugs repaired."""

    def answer(model, loader, optimizer, device):
        if train:
            model.train()
        total, count = 0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device) if labels else y
            if zero:
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += (loss.detach() if detach else loss) * len(y)
            count += len(y)
        return total / count

    return answer


bugs = Exercise(
    key="04.bugs",
    title="find four bugs",
    minutes=8,
    lines=11,
    difficulty=3,
    check_answer=_check_bugs,
    hints=(
        "One is about the model's mode, one about a device, one about old gradients, one about what total holds.",
        "Compare it with train_epoch and train_step, line by line: which calls are missing?",
    ),
    reference=repaired_epoch,
    explanation="model.train() undoes the eval() of the last test; the labels follow the images; zero_grad clears what "
    "the last batch left; detach keeps the sum from holding every step's graph.",
    wrong=(
        Wrong(_epoch(train=False), "evaluation mode"),
        Wrong(_epoch(labels=False), "same device"),
        Wrong(_epoch(zero=False), "What is in .grad"),
        Wrong(_epoch(detach=False), "graphs of earlier batches"),
        Wrong(lambda *a: _epoch()(*a) * 2, "mean over all images"),
    ),
)
