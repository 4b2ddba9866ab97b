"""Exercises and quiz of lesson 04, Train and test. Those about loops that train are in `loops04`."""

import os
import tempfile
from pathlib import Path
from unittest import mock

import torch
from torch.nn import functional as F

from exercises.loops04 import bugs, curve, step  # noqa: F401 - the lesson finds all its exercises here
from exercises.watch import GPU, Waits, Watched, batches, far
from helpers.checks.core import Exercise, LearnerError, NotYet, Question, Wrong, call
from helpers.devices import features
from helpers.training import send
from practice_gpus import practice_gpus


# --- test with one read ----------------------------------------------------------------------------------------------
def accuracy_and_loss(model, loader, device):
    training = model.training
    model.eval()
    totals, count = torch.zeros(2, device=device), 0
    with torch.inference_mode():
        for x, y in loader:
            x, y = send(x, device), send(y, device)
            outputs = model(x)
            totals[0] += (outputs.argmax(1) == y).sum()
            totals[1] += F.cross_entropy(outputs, y, reduction="sum")
            count += len(y)
    model.train(training)
    accuracy, loss = (totals / count).tolist()
    return accuracy, loss


def _expected(model, loader):
    twin = Watched().eval()
    twin.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    with torch.no_grad():
        loader[0][1][0] = twin(loader[0][0])[
            0
        ].argmax()  # one at least is right, so that the accuracy tells
        logs = [twin(x).log_softmax(1) for x, _ in loader]
    right = [
        (log.argmax(1) == y).float().mean().item() for log, (_, y) in zip(logs, loader, strict=True)
    ]
    losses = [
        -log[range(len(y)), y].mean().item() for log, (_, y) in zip(logs, loader, strict=True)
    ]
    sizes = [len(y) for _, y in loader]
    weighted = [
        sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
        for values in (right, losses)
    ]
    return weighted, [sum(values) / len(values) for values in (right, losses)]


def _check_testing(answer):
    with practice_gpus(1):
        for sizes, training in (((6, 6, 2), True), ((1,), False)):
            model, loader = Watched(noisy=True).to(GPU).train(training), batches(*sizes)
            kept = model.norm.running_mean.cpu().clone()
            right, means = _expected(model, loader)
            with Waits() as waits:
                found = call(answer, model, loader, GPU)
            _testing_mode(model, kept)
            _testing_values(found, right, means)
            if waits.count != 1:
                raise NotYet(
                    f"{len(sizes)} batches, and the program read {waits.count} times from the device; once "
                    "is enough for both numbers. Can two results travel in one tensor?"
                )
            _testing_left(model, training)
    return "both numbers right, with one read, and the model in the mode in which it came."


def _testing_left(model, training):
    if model.training != training:
        before, after = ("training", "test") if training else ("test", "training")
        raise NotYet(
            f"the model came in {before} mode and was left in {after} mode; whoever calls the function does "
            "not expect that. How does evaluate put the mode back?"
        )


def _testing_mode(model, kept):
    if any(model.training_at):
        learned = " and its batch norm learned from the test images" * far(
            kept, model.norm.running_mean
        )
        raise NotYet(
            f"the model was in training mode while it was tested: its dropout was active{learned}."
        )
    if any(model.graph_at):
        raise NotYet(
            "PyTorch recorded a graph for a backward pass that never comes. Which context switches that off?"
        )


def _testing_values(found, right, means):
    if (
        not isinstance(found, (tuple, list))
        or len(found) != 2
        or not all(isinstance(v, (int, float)) for v in found)
    ):
        raise NotYet(f"returned {found!r}; expected two Python numbers, accuracy and mean loss.")
    if abs(found[0] - right[1]) + abs(found[1] - right[0]) < 1e-3 < abs(right[0] - right[1]):
        raise NotYet("both numbers are right, in the other order: accuracy comes first.")
    for name, value, good, mean in zip(("accuracy", "loss"), found, right, means, strict=True):
        if not abs(value - good) <= 1e-3:
            why = (
                "That is the mean of the batches' means, and the last batch is smaller."
                if abs(value - mean) <= 1e-3
                else "A share of 1, not of 100."
                if abs(value - 100 * good) <= 1e-2
                else "Add up over the images of all batches, then divide by their number."
            )
            raise NotYet(f"the {name} is {value:.4f}; expected {good:.4f}. {why}")


def _two_reads(model, loader, device):
    model.eval()  # and no train() after it: the reads come first in the check
    right, loss, count = 0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            outputs = model(x)
            right += (outputs.argmax(1) == y).sum()
            loss += F.cross_entropy(outputs, y, reduction="sum")
            count += len(y)
    return right.item() / count, loss.item() / count


def _of_means(model, loader, device):
    model.eval()
    rows = []
    with torch.no_grad():
        for x, y in loader:
            outputs, y = model(x.to(device)), y.to(device)
            rows.append(
                torch.stack([(outputs.argmax(1) == y).float().mean(), F.cross_entropy(outputs, y)])
            )
    return tuple(torch.stack(rows).mean(0).tolist())


def _no_eval(model, loader, device):
    with mock.patch.object(model, "eval", lambda: model):
        return accuracy_and_loss(model, loader, device)


def _no_inference(model, loader, device):
    with mock.patch("torch.inference_mode", torch.enable_grad):
        accuracy, loss = accuracy_and_loss(model, loader, device)
    return accuracy, loss


testing = Exercise(
    key="04.testing",
    title="test with one read",
    minutes=6,
    lines=14,
    difficulty=3,
    check_answer=_check_testing,
    hints=(
        'Start from evaluate. cross_entropy(…, reduction="sum") adds up over a batch: sizes do not matter.',
        "Keep both sums in one tensor of two elements on the device; tolist() reads them together at the end.",
    ),
    reference=accuracy_and_loss,
    explanation="Both sums live in one tensor on the device, so one tolist() brings both. Sums over images, divided "
    "once by their number, are right for a smaller last batch too.",
    wrong=(
        Wrong(_two_reads, "Can two results travel"),
        Wrong(_of_means, "mean of the batches' means"),
        Wrong(_no_eval, "was in training mode"),
        Wrong(_no_inference, "recorded a graph"),
        Wrong(lambda m, *a: (accuracy_and_loss(m, *a), m.eval())[0], "left in test mode"),
        Wrong(lambda m, *a: (accuracy_and_loss(m, *a), m.train())[0], "left in training mode"),
        Wrong(lambda *a: accuracy_and_loss(*a)[::-1], "in the other order"),
        Wrong(lambda *a: accuracy_and_loss(*a)[0], "expected two Python numbers"),
        Wrong(lambda *a: (float("nan"), accuracy_and_loss(*a)[1]), "Add up over the images"),
    ),
)


# --- confusion without a loop ----------------------------------------------------------------------------------------
def confusion(labels, predictions, classes):
    pairs = labels * classes + predictions
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def _check_confusion(answer):
    with practice_gpus(1):
        for n, classes in ((200, 4), (1, 3), (0, 2), (50, 7)):
            labels, predictions = torch.randint(classes, (n, 2)).unbind(1)  # with gaps in memory
            predictions = predictions.clamp(
                max=max(0, classes - 2)
            )  # the last class is never predicted
            expected = torch.zeros(classes, classes, dtype=torch.int64)
            for t, p in zip(labels.tolist(), predictions.tolist(), strict=True):
                expected[t, p] += 1
            with Waits() as waits:
                found = call(answer, labels.to(GPU), predictions.to(GPU), classes)
            _confusion_result(found, expected, f"{n} images of {classes} classes", waits.count)
    return "the same table as the loop's, counted on the device."


def _confusion_result(found, expected, case, waits):
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise NotYet(
            f"{case}: got {shape}, expected a tensor of shape {tuple(expected.shape)}. A class that never "
            "appears still has its row and its column."
        )
    if waits > 3:
        raise NotYet(
            f"{case}: {waits} values were read from the device one by one. Count without a Python loop."
        )
    if not found.is_cuda:
        raise NotYet(
            f"{case}: the table is on {found.device}; labels and predictions are on {GPU}."
        )
    if not torch.equal(found.cpu().to(torch.int64), expected):
        turned = torch.equal(found.cpu().to(torch.int64), expected.T)
        why = (
            "Rows are the true classes, columns the predicted ones."
            if turned
            else "Does each pair (true, predicted) have a number of its own, and is each counted?"
        )
        raise NotYet(f"{case}: the counts differ from the loop's. {why}")


def _looped(labels, predictions, classes):
    table = torch.zeros(classes, classes, dtype=torch.int64, device=labels.device)
    for t, p in zip(labels, predictions, strict=True):
        table[t.item(), p.item()] += 1
    return table


def _overwritten(labels, predictions, classes):
    table = torch.zeros(classes, classes, dtype=torch.int64, device=labels.device)
    table[labels, predictions] += 1  # repeated indices count once
    return table


counting = Exercise(
    key="04.counting",
    title="count without a loop",
    minutes=4,
    lines=2,
    difficulty=2,
    check_answer=_check_confusion,
    hints=(
        "Give each pair (true, predicted) one number, so that equal pairs have equal numbers.",
        "true * classes + predicted is that number; torch.bincount(…, minlength=classes**2) counts, view shapes.",
    ),
    reference=confusion,
    explanation="A pair becomes one number, the index into the flattened table; bincount counts all of them in one "
    "call on the device. minlength keeps the places of pairs that never appear. Even bincount reads once: the "
    "largest number, which decides how long its result is. A loop reads each label.",
    wrong=(
        Wrong(_looped, "one by one"),
        Wrong(lambda t, p, c: confusion(p, t, c), "Rows are the true"),
        Wrong(_overwritten, "number of its own"),
        Wrong(lambda t, p, c: torch.bincount(t * c + p), "still has its row"),
        Wrong(lambda t, p, c: confusion(t, p, c).to("cpu"), "the table is on"),
    ),
)


# --- choose the format -----------------------------------------------------------------------------------------------
def choose_amp(found):
    if found["BF16"]:
        return torch.bfloat16, False
    if found["FP16"]:
        return torch.float16, True
    return None, False


_DEVICES = (
    ("an A100", (8, 0)),
    ("a T4", (7, 5)),
    ("a GTX 1080", (6, 1)),
    ("an H200", (9, 0)),
    ("a V100", (7, 0)),
    ("a CPU", "cpu"),
)


def _check_amp(answer):
    for name, device in (*_DEVICES, ("an unknown GPU", None)):
        known = features(device) if device else {"generation": None, "FP16": None, "BF16": None}
        half = torch.bfloat16 if known["BF16"] else torch.float16 if known["FP16"] else None
        expected = (half, half == torch.float16)
        found = call(answer, dict(known))
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise NotYet(
                f"for {name}: got {found!r}; expected two things, a dtype or None, and True or False."
            )
        if found[0] is not None and not isinstance(found[0], torch.dtype):
            raise NotYet(
                f"for {name}: {found[0]!r} is no dtype; expected torch.bfloat16, torch.float16 or None."
            )
        if found[0] != expected[0]:
            raise NotYet(
                f"for {name}: got {found[0]}; its tensor cores take BF16: {known['BF16']}, "
                f"FP16: {known['FP16']}."
            )
        if bool(found[1]) != expected[1]:
            raise NotYet(
                f"for {name}: {found[0]} {'with' if found[1] else 'without'} a scaler. Which format has too "
                "small a range for tiny gradients?"
            )
    return "the right format on seven devices, and the scaler only where FP16 needs it."


amp = Exercise(
    key="04.amp",
    title="choose the format",
    minutes=3,
    lines=5,
    difficulty=1,
    check_answer=_check_amp,
    hints=(
        "Ask for BF16 first, then for FP16; what remains computes in float32.",
        "BF16 has the range of float32, so only FP16 takes the scaler. None counts as no.",
    ),
    reference=choose_amp,
    explanation="BF16 first, since it needs no scaler; FP16 with one on Volta and Turing; float32 where nothing is "
    "known to be faster.",
    wrong=(
        Wrong(lambda f: (torch.bfloat16, False), "for a T4: got torch.bfloat16"),
        Wrong(lambda f: (torch.float16, True), "for an A100: got torch.float16"),
        Wrong(lambda f: (choose_amp(f)[0], False), "float16 without a scaler"),
        Wrong(lambda f: (choose_amp(f)[0], True), "bfloat16 with a scaler"),
        Wrong(lambda f: choose_amp(f) if f["BF16"] else (torch.float16, True), "for a GTX 1080"),
        Wrong(lambda f: (str(choose_amp(f)[0]), choose_amp(f)[1]), "is no dtype"),
        Wrong(lambda f: choose_amp(f)[0], "expected two things"),
    ),
)


# --- a checkpoint anywhere -------------------------------------------------------------------------------------------
def resume(path, model, optimizer):
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def _network():
    return torch.nn.Linear(3, 2)


def _checkpoint(path):
    """Write a checkpoint from the second of two GPUs; returns its states on the CPU."""
    with practice_gpus(2):
        model = _network().to("cuda:1")
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(4, 3).to("cuda:1")).sum().backward()
        optimizer.step()
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}, path
        )
    return torch.load(path, map_location="cpu", weights_only=True)


class _Trap:
    """Pickles as a call that sets an environment variable when the file is opened without weights_only."""

    def __reduce__(self):
        return os.putenv, ("GPU_COURSE_TRAP", "1")


def _check_checkpoint(answer):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.pt"
        state = _checkpoint(path)
        with mock.patch("torch.cuda.is_available", lambda: False):
            _resumed(answer, path, state, "cpu", "a machine without a GPU")
        with practice_gpus(1):
            _resumed(answer, path, state, GPU, "a machine with one GPU")
        torch.save({**state, "note": _Trap()}, path)
        try:
            call(answer, path, *_fresh("cpu"))
        except LearnerError:
            return (
                "opened without a GPU and with another one; a file that carries code was refused."
            )
        raise NotYet(
            "a file that runs code of its own was opened. Which argument of torch.load prevents that?"
        )


def _fresh(device):
    model = _network().to(device)
    return model, torch.optim.Adam(model.parameters())


def _resumed(answer, path, state, device, where):
    model, optimizer = _fresh(device)
    parameters = list(model.parameters())
    try:
        found = call(answer, path, model, optimizer)
    except LearnerError as error:
        if "deserialize" not in str(error):
            raise
        raise NotYet(
            f"on {where}: {str(error)[:110]} … The file names cuda:1; say where its tensors go."
        ) from None
    if any(far(value, state["model"][name]) for name, value in model.state_dict().items()):
        raise NotYet(f"on {where}: the model's weights are not those of the file.")
    kept = all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    if not kept or model.weight.device.type != torch.device(device).type:
        raise NotYet(
            f"on {where}: the model moved to {model.weight.device}; it should stay on {device}."
        )
    held = optimizer.state_dict()["state"]
    if not held or far(held[0]["exp_avg"], state["optimizer"]["state"][0]["exp_avg"]):
        raise NotYet(f"on {where}: the optimizer starts afresh; its averages are in the file too.")
    if not found == 7:
        raise NotYet(f"on {where}: returned {found!r}; expected the epoch in the file, 7.")


def _no_map(path, model, optimizer):
    with mock.patch("torch.load", lambda p, load=torch.load, **_: load(p, weights_only=True)):
        return resume(path, model, optimizer)


def _unsafe(path, model, optimizer):
    with mock.patch(
        "torch.load",
        lambda p, load=torch.load, **_: load(p, map_location="cpu", weights_only=False),
    ):
        return resume(path, model, optimizer)


def _model_only(path, model, optimizer):
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    return state["epoch"]


def _nothing_loaded(path, model, optimizer):
    return torch.load(path, map_location="cpu", weights_only=True)["epoch"]


def _to_cpu(path, model, optimizer):
    epoch = resume(path, model, optimizer)
    model.to("cpu")
    return epoch


checkpoint = Exercise(
    key="04.checkpoint",
    title="open a checkpoint anywhere",
    minutes=5,
    lines=4,
    difficulty=2,
    check_answer=_check_checkpoint,
    hints=(
        "torch.load takes map_location and weights_only. load_state_dict copies to where model and optimizer live.",
        'Load to "cpu", which every machine has; then model, optimizer, and return state["epoch"].',
    ),
    reference=resume,
    explanation="map_location sends every tensor of the file to the CPU, whatever device it was saved from, and "
    "load_state_dict copies it to the parameter's own device. weights_only takes plain data only.",
    wrong=(
        Wrong(_no_map, "The file names cuda:1"),
        Wrong(_unsafe, "runs code of its own"),
        Wrong(_model_only, "the optimizer starts afresh"),
        Wrong(_nothing_loaded, "weights are not those"),
        Wrong(_to_cpu, "the model moved"),
        Wrong(lambda *a: resume(*a) and None, "expected the epoch"),
    ),
)


QUIZ = (
    Question(
        "04.order",
        "backward() and step() run in a loop without zero_grad(). What does the optimizer use?",
        (
            "The gradient of the latest batch",
            "The sum of all gradients so far",
            "Nothing: an error is raised",
        ),
        (
            "backward adds to .grad; it does not replace it.",
            "Yes: .grad is added to until it is cleared.",
            "It runs silently, which is why this bug lasts.",
        ),
        1,
    ),
    Question(
        "04.labels",
        "100 test batches, labels on the CPU, predictions fetched with .cpu(). What does that cost "
        "on a GPU?",
        (
            "Much more memory",
            "100 reads, each with a wait, where comparing on the device needs one",
            "Nothing",
        ),
        (
            "A label takes 8 bytes; memory is not the point.",
            "Yes: each .cpu() waits until the device is done.",
            "On a CPU, perhaps. On a GPU each .cpu() waits.",
        ),
        1,
    ),
    Question(
        "04.eval",
        "What does model.eval() do?",
        (
            "It switches gradients off",
            "It switches layers such as dropout and batch norm to their test behavior",
            "It moves the model to the CPU",
        ),
        (
            "That is inference_mode or no_grad.",
            "Yes; gradients are another matter.",
            "It moves nothing.",
        ),
        1,
    ),
    Question(
        "04.map",
        "A checkpoint was saved from cuda:1. How is it opened on a laptop without a GPU?",
        (
            'torch.load(path, map_location="cpu")',
            "Not at all; save it on a CPU",
            'torch.load(path).to("cpu")',
        ),
        (
            "Yes: the file names devices, and map_location overrules them.",
            "map_location exists for exactly this.",
            "The load itself fails, before .to is reached.",
        ),
        0,
    ),
    Question(
        "04.scaler",
        "Which format needs a GradScaler?",
        ("float16", "bfloat16", "both"),
        (
            "Yes: its smallest numbers are too large for small gradients.",
            "It has float32's range.",
            "bfloat16 has float32's range.",
        ),
        0,
    ),
)
