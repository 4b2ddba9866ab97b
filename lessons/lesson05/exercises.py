"""Exercises, quiz and figures of lesson 05, Manage GPU memory."""

import functools
import gc
import math
import random
import sys
from numbers import Integral

import torch
from torch import nn
from torch.nn import functional as F

import measurements
from helpers import plots
from helpers.checks.core import Exercise, LearnerError, NotYet, Question, call, chosen
from helpers.memory import forecast
from practice_gpus import practice_gpus

MIB = 2**20


# --- figures --------------------------------------------------------------------------------------

PARTS = ("parameters", "optimizer", "batch", "gradients", "activations")
PLACES = ("forward", "backward", "step")


def watch_step(model, optimizer, batch, step):
    """Run `step()` once and return what it takes over time: (moments, {part: [MiB]}), a part of `PARTS`.

    A moment is the end of a layer's forward, of a parameter's gradient or of the optimizer's step, and counts the most
    that was in use since the moment before. Activations are what is left beside the parts that can be counted, and
    what was there at the start; during the optimizer's step that is the optimizer's.
    """
    places = []
    sizes_by_part = {part: [] for part in PARTS}
    device = next(model.parameters()).device
    optimizer.zero_grad()
    counted = sum(_counted_bytes(model, optimizer, batch, device))
    outside = torch.cuda.memory_allocated(device) - counted

    def mark(place):
        sizes = _counted_bytes(model, optimizer, batch, device)
        activations = max(0, torch.cuda.max_memory_allocated(device) - outside - sum(sizes))
        torch.cuda.reset_peak_memory_stats(device)
        places.append(place)
        sizes.append(activations)
        if place == "step":
            sizes = [sizes[0], sizes[1] + activations, *sizes[2:4], 0]
        for part, size in zip(PARTS, sizes, strict=True):
            sizes_by_part[part].append(size / MIB)

    hooks = _mark_moments(model, optimizer, mark)
    torch.cuda.reset_peak_memory_stats(device)
    mark("start")
    try:
        step()
    finally:
        for hook in hooks:
            hook.remove()
    mark("end")
    return places, sizes_by_part


def _counted_bytes(model, optimizer, batch, device):
    """Bytes on `device` of all `PARTS` but the activations."""
    parameters = [*model.parameters()]
    state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return [
        sum(tensor.nbytes for tensor in tensors if tensor.device == device)
        for tensors in (parameters, state, batch, gradients)
    ]


def _mark_moments(model, optimizer, mark):
    """Hooks that call `mark` with one of `PLACES` after each layer, each gradient and the optimizer's step."""
    layers = [layer for layer in model.modules() if not [*layer.children()]]
    hooks = [layer.register_forward_hook(lambda *_: mark("forward")) for layer in layers]
    for parameter in model.parameters():
        hooks.append(parameter.register_post_accumulate_grad_hook(lambda _: mark("backward")))
    hooks.append(optimizer.register_step_post_hook(lambda *_: mark("step")))
    return hooks


def draw_step(model, optimizer, batch, step):
    """A figure and a sentence: a step's memory over time, by what it is for."""
    places, sizes_by_part = watch_step(model, optimizer, batch, step)
    peak, share = _peak(sizes_by_part)
    title = f"At the peak, {peak:.0f} MiB, {share:.0%} are activations"
    figure, axes = _draw_parts(sizes_by_part, title)
    firsts = [places.index(place) for place in PLACES]
    axes.set_xticks(firsts, PLACES, ha="left")
    for first in firsts:
        axes.axvline(first, color="gray", linewidth=0.8)
    highest = {part: max(sizes) for part, sizes in sizes_by_part.items()}
    parts = ", ".join(f"{part} {size:.2g} MiB" for part, size in highest.items())
    return figure, f"{title}. At most: {parts}."


def draw_pieces(model, optimizer, batch, answer):
    """A figure and a sentence: the memory of a step over four pieces of the batch, by the learner's answer if it is right."""
    pieces = chosen(accumulation, answer)
    rows, labels = batch

    def step():
        pieces(model, rows, labels, len(rows) // 4)
        optimizer.step()

    _, sizes_by_part = watch_step(model, optimizer, batch, step)
    peak, _ = _peak(sizes_by_part)
    author = "the model answer" if pieces is accumulate else "your accumulate"
    title = f"Four pieces, by {author}: {peak:.0f} MiB at the peak"
    figure, axes = _draw_parts(sizes_by_part, title)
    axes.set_xticks([])
    return figure, f"{title}. Activations take {max(sizes_by_part['activations']):.0f} MiB at most."


def _peak(sizes_by_part):
    """The most of all parts together, in MiB, and the share of activations in it."""
    totals = [sum(sizes) for sizes in zip(*sizes_by_part.values(), strict=True)]
    peak = max(totals)
    return peak, sizes_by_part["activations"][totals.index(peak)] / peak


def _draw_parts(sizes_by_part, title):
    """A figure and its axes: the parts on top of each other over time, named in the same order."""
    figure, axes = plots.new_figure(title, "", "MiB", size=(7.2, 3.2))
    moments = range(len(sizes_by_part["batch"]))
    look = {"colors": plots.COLORS, "edgecolor": "white", "linewidth": 0}  # the color of hatches
    bands = axes.stackplot(moments, *sizes_by_part.values(), labels=sizes_by_part, **look)
    for band, hatch in zip(bands, ("", "\\\\", "", "..", "//"), strict=True):
        band.set_hatch(hatch)
    axes.margins(x=0)
    most = max(sum(sizes) for sizes in zip(*sizes_by_part.values(), strict=True))
    axes.set_ylim(0, max(130, 1.05 * most))  # the same for both figures, up to 130 MiB
    names = axes.get_legend_handles_labels()
    upside_down = [part[::-1] for part in names]
    axes.legend(*upside_down, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure, axes


# The point of each way, and where its words stand: points to the right and up.
WAYS = {
    "batch 4": ("start: batch 4", -45, 9),
    "gradient accumulation 4 × 1": ("accumulation", 7, -3),
    "accumulation and checkpointing": ("accumulation, checkpointing", 7, -3),
    "fp16, batch 4": ("16 bits", -44, -3),
    "accumulation, checkpointing, fp16": ("accumulation, checkpointing, 16 bits", 7, -9),
    "Adafactor, batch 4": ("Adafactor", -26, 8),
    "accumulation, checkpointing, fp16, Adafactor": ("all four", -18, 8),
}


def draw_ways():
    """A figure and a sentence: published memory and time of BERT-large's training, by what saves memory."""
    data = measurements.published("bert_memory_v100")
    rows = [row for row in data.rows("ways") if row["way"] in WAYS]
    [floor] = data.rows("floor", way="one tiny tensor")
    title = "BERT-large: from 14.6 to 4.7 GiB in the same time"
    figure, axes = plots.new_figure(title, "GiB in use", "seconds", size=(7.2, 3.6))
    for color, marker, row in zip(plots.COLORS, plots.MARKERS, rows, strict=True):
        place = (row["memory_mib"] / 1024, row["time_s"])
        words, right, up = WAYS[row["way"]]
        axes.plot(*place, marker, color=color, markersize=8)
        axes.annotate(words, place, (right, up), textcoords="offset points", fontsize=9)
    axes.axvline(floor["memory_mib"] / 1024, color="gray", linestyle=":")
    axes.text(floor["memory_mib"] / 1024 + 0.1, 4, "the context alone", fontsize=9, color="#505050")
    axes.set_xlim(0, 16)
    axes.set_ylim(0, 100)
    plots.sources(figure, f"published: {data.source}, one V100")
    least = min(rows, key=lambda row: row["memory_mib"])
    first = rows[0]
    sentence = f"{first['way']}: {first['memory_mib']:,} MiB and {first['time_s']:g} s; least memory: {least['way']}"
    return figure, f"{sentence}, {least['memory_mib']:,} MiB and {least['time_s']:g} s."


def _network(width):
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


@functools.cache
def _bytes_per_pixel(width, precision):
    """Bytes that a training step of `_network` holds for each pixel of a batch, from one forecast."""
    cast = {"FP32": None, "BF16 autocast": "bfloat16"}[precision]
    trial = forecast(_network(width), (3, 64, 64), 8, "sgd", autocast=cast)
    return (trial.activations + trial.other) / (8 * 64 * 64)


def draw_fit(width, batch, pixels, optimizer, precision):
    """A figure and a sentence: the memory that a training step needs, beside that of well-known cards."""
    weights = sum(p.nbytes for p in _network(width).parameters())
    copies = {"SGD": 2, "SGD with momentum": 3, "Adam": 4}[optimizer]
    constant = copies * weights
    need = (constant + _bytes_per_pixel(width, precision) * batch * pixels**2) / 1e9
    cards = sorted(measurements.cards(), key=lambda card: card.memory_gb)
    sizes = {card.name: card.memory_gb for card in cards}
    fits = [name for name, gb in sizes.items() if need < 0.9 * gb]
    title = (
        f"This step needs {plots.number(need, 2)} GB and fits {len(fits)} of {len(sizes)} cards; "
        f"weights, gradients and optimizer take {plots.number(constant / 1e6, 2)} MB of it"
    )
    figure = plots.bars(sizes, title, "memory in GB (data sheets)")
    axes = figure.axes[0]
    for bar, name in zip(axes.patches, sizes, strict=True):
        if name not in fits:
            bar.set(facecolor="#c4c4c4", hatch="//")
    axes.axvline(need, color="black", linewidth=2)
    axes.annotate(" this step", (need, 1), xycoords=("data", "axes fraction"), va="top", fontsize=9)
    return figure, f"{title}. It fits: {', '.join(fits) or 'none'}."


# --- find the leak ---------------------------------------------------------------------------------------------------
def mean_loss(model, batches):
    losses = []
    for images, labels in batches:
        losses.append(nn.functional.cross_entropy(model(images), labels).detach())
    return torch.stack(losses).mean().item()


class _Watched(nn.Module):
    """A model with large activations that notes the bytes in use whenever a batch comes in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 4096), nn.ReLU(), nn.Linear(4096, 4))
        self.bytes_in_use = []

    def forward(self, x):
        self.bytes_in_use.append(torch.cuda.memory_allocated())
        return self.layers(x)


def _check_leak(answer):
    with practice_gpus(1):
        for number in (1, 5):
            model = _Watched().to("cuda")
            batches = [
                (torch.randn(64, 16, device="cuda"), torch.randint(4, (64,), device="cuda"))
                for _ in range(number)
            ]
            expected = sum(F.cross_entropy(model.layers(x), y).item() for x, y in batches) / number
            gc.collect()
            before = torch.cuda.memory_allocated()
            result = call(answer, model, batches)
            if not isinstance(result, float):
                raise NotYet(f"it returned {_described(result)}; expected a Python float.")
            if not abs(result - expected) <= 1e-4:
                raise NotYet(
                    f"for {number} batches it returned {result:.4f}, expected their mean loss {expected:.4f}."
                )
            grown = max(model.bytes_in_use[-1] - before, torch.cuda.memory_allocated() - before)
            if grown > 1.75 * MIB:  # the last batch's graph, 1 MiB, may live as long as its name
                raise NotYet(
                    f"when batch {number} came in, {grown / MIB:.0f} MiB of earlier batches were still held. "
                    "What does a loss with a graph keep alive?"
                )
    return "the same mean, and nothing of earlier batches held."


def _described(value):
    return f"a {type(value).__name__}" if value is not None else "None"


leak = Exercise(
    key="05.leak",
    title="find the leak",
    check_answer=_check_leak,
    seconds=30,
    hints=(
        "The section What frees memory: what did four losses hold, and what did four numbers hold?",
        "A loss tensor refers to its graph, and the graph to all activations of its batch. Let go of it in the loop.",
        "Keep `loss.detach()` in the list, or put the loop under `torch.inference_mode()`.",
    ),
    reference=mean_loss,
    explanation="detach() gives the number without its graph, so each batch's activations go before the next batch comes. One "
    "item() at the end waits for the GPU once.",
)


# --- the largest batch -----------------------------------------------------------------------------------------------
def largest_batch(try_batch, limit):
    fits, too_large = 0, limit + 1
    while too_large - fits > 1:
        batch = (fits + too_large) // 2
        try:
            try_batch(batch)
            fits = batch
        except torch.OutOfMemoryError:
            too_large = batch
    return fits


def _check_largest(answer):
    devices = ((37, 64), (0, 16), (64, 64), (100, 64), (1, 1), (random.randint(1, 900), 1000))
    for capacity, limit in devices:
        tried = []
        handled = []
        batch = call(answer, _pretend(capacity, tried, handled), limit)
        expected = min(capacity, limit)
        case = f"With room for {capacity} and limit {limit}"
        if not isinstance(batch, Integral) or isinstance(batch, bool):
            raise NotYet(
                f"{case}, it returned {batch!r}, expected a whole number. Is one returned in every case?"
            )
        if batch != expected:
            raise NotYet(
                f"{case}, it returned {batch!r}, expected {expected}.{_why_largest(batch, expected)}"
            )
        outside = [batch for batch in tried if not 1 <= batch <= limit]
        if outside:
            raise NotYet(f"{case}, it tried a batch outside 1 to {limit}: {outside[0]}.")
        if len(tried) > 2 * math.log2(limit + 1) + 3:
            raise NotYet(
                f"{case}, it needed {len(tried)} trials. Halve the range each time instead of stepping."
            )
        if handled:
            raise NotYet(
                f"{case}, a batch of {handled[0]} was tried inside an except block. There the error still holds the "
                "tensors of the failed trial; what can wait until the block has ended?"
            )
    _check_other_errors(answer)
    return "six devices, few trials, and other errors pass through."


def _pretend(capacity, tried, handled):
    """A try_batch with room for `capacity`; notes the batches tried, and those tried while an error was handled."""

    def try_batch(batch):
        tried.append(batch)
        if isinstance(sys.exc_info()[1], torch.OutOfMemoryError):
            handled.append(batch)
        if batch > capacity:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory (pretended by the check, for a batch of {batch})."
            )

    return try_batch


def _check_other_errors(answer):
    shapes = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    for error in (ValueError("labels are missing"), shapes):

        def broken(batch, error=error):
            raise error

        try:
            outcome = repr(call(answer, broken, 8))
        except LearnerError as raised:
            if raised.cause is error:
                continue
            outcome = f"another error, {type(raised.cause).__name__}"
        raise NotYet(
            f"try_batch raised {type(error).__name__} ({error}), and the answer was {outcome}. "
            "Catch torch.OutOfMemoryError only: another error is a bug, not a full device."
        )


def _why_largest(batch, expected):
    if batch == 0 or expected == 0:
        return " Is 0 returned exactly when even a batch of 1 fails?"
    return " Is the last batch that fits also tried and kept?"


largest = Exercise(
    key="05.largest",
    title="find the largest batch",
    check_answer=_check_largest,
    hints=(
        "Out of memory, safely: the next allocation worked, so trying costs nothing but time.",
        "Keep two numbers: the largest batch known to fit (0 at first), the smallest known not to (`limit + 1`).",
        "Try the middle of the two; success raises the first, `torch.OutOfMemoryError` lowers the second; stop when they touch.",
    ),
    reference=largest_batch,
    explanation="Bisection: the range between fits and too_large halves with each trial, so ten trials serve for 1,000 "
    "batches. Only OutOfMemoryError is caught, so that bugs stay visible.",
)


# --- accumulate ------------------------------------------------------------------------------------------------------
def accumulate(model, x, y, size):
    model.zero_grad()
    for images, labels in zip(x.split(size), y.split(size)):
        loss = nn.functional.cross_entropy(model(images), labels) * len(labels) / len(y)
        loss.backward()


def _check_accumulate(answer):
    for n, size in ((12, 4), (10, 4), (5, 8), (3, 1)):
        model = nn.Linear(6, 3).double()
        x = torch.randn(n, 6, dtype=torch.float64)
        y = torch.randint(3, (n,))
        F.cross_entropy(model(x), y).backward()
        expected = [p.grad.clone() for p in model.parameters()]
        for p in model.parameters():
            p.grad = torch.ones_like(p)  # left over from an earlier step
        sizes_seen = []
        waiting = []
        model.register_forward_hook(_watch(sizes_seen, waiting))
        weights = [p.detach().clone() for p in model.parameters()]
        call(answer, model, x, y, size)
        case = f"{n} samples in pieces of {size}"
        if any(not torch.equal(p, w) for p, w in zip(model.parameters(), weights)):
            raise NotYet(
                f"{case}: the weights changed. Only the gradients are wanted; the optimizer steps later."
            )
        _judge_sizes(sizes_seen, n, size, case)
        _judge_gradients([p.grad for p in model.parameters()], expected, n, size, case)
        if max(waiting, default=0) > 1:
            raise NotYet(
                f"{case}: {max(waiting)} pieces waited for one backward, so their activations were held together. "
                "When could each piece's activations go?"
            )
    return "gradients of the large batch, even and uneven pieces."


def _watch(sizes_seen, waiting):
    """A forward hook that notes the samples it saw, and at each output how many had no backward yet."""
    open_outputs = []

    def hook(module, inputs, output):
        sizes_seen.append(len(inputs[0]))
        if output.requires_grad:
            open_outputs.append(output.shape)
            waiting.append(len(open_outputs))
            output.register_hook(lambda gradient: open_outputs.clear())

    return hook


def _judge_sizes(sizes_seen, n, size, case):
    if not sizes_seen:
        raise NotYet(f"{case}: the model was never called. Give it each piece of x.")
    if max(sizes_seen) > size:
        raise NotYet(
            f"{case}: the model saw {max(sizes_seen)} samples at once. Split x and y first; "
            "does your way of splitting take the length of a piece, or the number of pieces?"
        )
    if sum(sizes_seen) < n:
        raise NotYet(
            f"{case}: the model saw {sum(sizes_seen)} samples in all. What about the last piece?"
        )


def _judge_gradients(grads, expected, n, size, case):
    if any(g is None for g in grads):
        raise NotYet(f"{case}: a gradient is None. Is backward called for each piece?")
    if _equal(grads, expected):
        return
    factor = (grads[1].norm() / expected[1].norm()).item()
    if _equal([g - 1 for g in grads], expected):
        reason = "Gradients of an earlier step are still in there."
    elif n % size and n > size:
        reason = "The pieces are uneven: which share of all samples does each piece have?"
    else:
        reason = (
            "Each piece's loss is a mean over the piece; what turns it into its part of the whole mean? "
            "(And zero_grad inside the loop would throw away the pieces before.)"
        )
    raise NotYet(
        f"{case}: gradients differ from the large batch's, by a factor of {factor:.3g} in length. {reason}"
    )


def _equal(grads, expected):
    return all(torch.allclose(g, e, rtol=1e-7, atol=1e-10) for g, e in zip(grads, expected))


accumulation = Exercise(
    key="05.accumulation",
    title="accumulate",
    check_answer=_check_accumulate,
    hints=(
        "Fit more says what `backward` does with gradients that are there already.",
        "`x.split(size)` gives the pieces. Set the gradients to zero once, at the start. The mean over all samples is not the "
        "sum of the pieces' means: what is each piece's share?",
        "Weigh each piece's loss by its share: `nn.functional.cross_entropy(...) * len(labels) / len(y)`, then `backward` at once.",
    ),
    reference=accumulate,
    explanation="The mean over all samples is the sum of the pieces' means, each weighted by its share. backward after each "
    "piece adds the gradients and frees that piece's activations.",
)


QUIZ = (
    Question(
        "05.cache",
        "nvidia-smi shows 6 GB for your process, memory_allocated() 2 GB. Why?",
        {
            "Cached segments and the CUDA context": "Yes: reserved memory and the context come on top.",
            "A leak of 4 GB": "Freed blocks are kept for reuse; that is no leak.",
            "nvidia-smi counts other processes": "It lists each process by itself.",
        },
        right=0,
    ),
    Question(
        "05.empty",
        "When does empty_cache() help?",
        {
            "When PyTorch runs out of memory": "PyTorch returns unused segments by itself before it gives up.",
            "When another process needs the GPU's memory": "Yes: it returns unused segments to the driver.",
            "After every step": "It only makes the next allocations slower.",
        },
        right=1,
    ),
    Question(
        "05.activations",
        "You double the batch. What doubles?",
        {
            "Parameters": "They do not know the batch.",
            "Optimizer state": "It belongs to the parameters.",
            "Activations": "Yes: each sample brings its own.",
        },
        right=2,
    ),
)
