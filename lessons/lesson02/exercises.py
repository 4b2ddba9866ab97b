"""Exercises and quiz of lesson 02, Move tensors. Checks run on two GPUs, real ones or practice GPUs."""

import copy
from contextlib import contextmanager

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import measurements
from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call
from practice_gpus import practice_gpus

CPU = torch.device("cpu")
GPUS = (torch.device("cuda:0"), torch.device("cuda:1"))


class _Crossings(TorchDispatchMode):
    """Counts copies to a GPU ("h2d"), from one ("d2h") and between two ("d2d"), where the GPUs are real."""

    def __init__(self):
        super().__init__()
        self.transfers = {"h2d": 0, "d2h": 0, "d2d": 0}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in ("aten::copy_", "aten::_to_copy"):
            source = args[1] if name == "aten::copy_" else args[0]
            if source.device != out.device:
                ends = ["h" if end.device == CPU else "d" for end in (source, out)]
                self.transfers["2".join(ends)] += 1
        return out


@contextmanager
def _counted(gpus):
    """Yields a dict that holds the copies of the block, by direction, once the block has ended."""
    copies = {}
    if gpus.real:
        with _Crossings() as crossings:
            yield copies
        copies.update(crossings.transfers)
    else:
        before = gpus.transfers
        yield copies
        copies.update({way: gpus.transfers[way] - before[way] for way in before})


# --- move a nested batch ---------------------------------------------------------------------------------------------
def move_batch(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: move_batch(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(move_batch(part, device) for part in batch)
    return batch


def _batches():
    t = torch.rand
    mixed = {"image": t(2), "name": "cat", "size": 3, "none": None, "flag": True}
    return {
        "a tensor": t(2, 3),
        "a dict": {"image": t(2, 3), "label": torch.tensor([1, 2])},
        "a tuple": (t(3, 2).T, t(()), [t(0)], t(2).half()),
        "a dict with other things": mixed,
        "a list of tuples of dicts": [({"x": t(2)}, [t(1), "a"]), ()],
        "an empty dict": {},
        "a string": "only text",
    }


def _check_batch(answer):
    with practice_gpus(2):
        for device in (GPUS[0], GPUS[1], CPU):
            for name, batch in _batches().items():
                untouched = copy.deepcopy(batch)
                _like(call(answer, batch, device), untouched, device, name)
                _like(batch, untouched, CPU, f"{name}, afterwards (the original)")
    return "Your function moved seven kinds of batch to three devices, and kept everything else."


def _like(result, expected, device, path):
    """Compare what came back, part by part; `path` says where we are."""
    if type(result) is not type(expected):
        advice = "Code that unpacks the batch may depend on the type: keep it."
        if result is None:
            advice = "Does every path return something?"
        kinds = f"{type(result).__name__}, expected {type(expected).__name__}"
        raise NotYet(f"{path}: came back as {kinds}. {advice}")
    if isinstance(expected, torch.Tensor):
        if result.device != device:
            advice = "Is this the device you were given, and do you look inside each container?"
            if "the original" in path:
                advice = "The batch you were given has changed: build a new container."
            raise NotYet(f"{path}: the tensor is on {result.device}, expected {device}. {advice}")
        if result.dtype != expected.dtype or not torch.equal(result.cpu(), expected):
            raise NotYet(f"{path}: the values or the dtype changed in the copy.")
    elif isinstance(expected, dict):
        if result.keys() != expected.keys():
            raise NotYet(f"{path}: keys {list(result)}, expected {list(expected)}.")
        for key in expected:
            _like(result[key], expected[key], device, f"{path}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        if len(result) != len(expected):
            raise NotYet(f"{path}: {len(result)} parts, expected {len(expected)}.")
        for i, part in enumerate(expected):
            _like(result[i], part, device, f"{path}[{i}]")
    elif result != expected:
        raise NotYet(f"{path}: {result!r}, expected {expected!r} untouched.")


batch = Exercise(
    key="02.batch",
    title="move a nested batch",
    check_answer=_check_batch,
    hints=(
        "A list of tensors moved with one line, in Move a batch. What has to happen for each other kind of thing?",
        "Recursion: a tensor moves, a container is rebuilt from its moved parts, and everything else comes back as it is.",
        "Three tests with `isinstance`. A list or tuple becomes `type(batch)(parts)`, a dict `{key: move_batch(value, "
        "device) for key, value in batch.items()}`.",
    ),
    reference=move_batch,
    explanation="The function calls itself on each part, so depth does not matter. Containers keep their type, because "
    "code that unpacks a batch depends on it, and the original is left alone. (A namedtuple would take its parts one "
    "by one: type(batch)(*parts).)",
    unlocked="You can now send any batch to any device with one call.",
    tool="move_batch",
)


# --- repair three placements -----------------------------------------------------------------------------------------
def repaired(x, weight):
    x = x.to(weight.device)
    bias = weight.new_ones(weight.shape[1])
    return (x @ weight + bias).sigmoid().detach().cpu().numpy()


def _check_repair(answer):
    with practice_gpus(2) as gpus:
        places = [(CPU, CPU), (GPUS[0], CPU), (GPUS[1], CPU)]
        places += [(GPUS[1], GPUS[1]), (CPU, GPUS[0]), (GPUS[0], GPUS[1])]
        for rows, (home, source) in enumerate(places, 1):
            x = torch.rand(rows, 5, device=source)
            weight = torch.rand(5, rows + 1, device=home, requires_grad=True)
            case = f"x on {x.device}, weight on {weight.device}"
            with _counted(gpus) as copies:
                result = call(answer, x, weight)
            _same_numbers(result, x, weight, case)
            _where_work(copies, x, weight, case)
            if weight.device != home or not weight.requires_grad:
                raise NotYet(f"{case}: weight itself has changed; leave it as it is.")
    return "Your function works for six pairs of places, and always where weight is."


def _same_numbers(result, x, weight, case):
    if not isinstance(result, numpy.ndarray):
        raise NotYet(f"{case}: got {type(result).__name__}; expected a NumPy array.")
    expected = (x.detach().cpu() @ weight.detach().cpu() + 1).sigmoid().numpy()
    if result.shape != expected.shape or not numpy.allclose(result, expected, atol=1e-3):
        raise NotYet(
            f"{case}: the numbers differ from those of broken on the CPU. Keep bias and sigmoid, repair places only."
        )


def _where_work(copies, x, weight, case):
    if weight.device != CPU and x.device == CPU and (copies["h2d"], copies["d2h"]) != (1, 1):
        if not copies["h2d"]:
            raise NotYet(
                f"{case}: nothing went to the GPU, so the work ran on the CPU. Move x to weight instead."
            )
        raise NotYet(
            f"{case}: {copies['h2d']} copies went to the GPU and {copies['d2h']} came back; one each is "
            "enough. Make bias where it is needed."
        )


repair = Exercise(
    key="02.repair",
    title="repair three placements",
    check_answer=_check_repair,
    hints=(
        "You met all three above: in Move it, in Follow another tensor and at `.numpy()`. Each line of `broken` has one of them.",
        "A result that isn't kept, a tensor created on the CPU, a conversion that NumPy can't do.",
        "`x = x.to(weight.device)`; `weight.new_ones(...)` instead of `torch.ones`; `.detach().cpu()` before `.numpy()`.",
    ),
    reference=repaired,
    explanation="weight decides where the work happens: x moves to it and is assigned, bias is created there, and "
    "only the small result is copied back, without its graph.",
)


# --- fit the cost of a copy -----------------------------------------------------------------------
def fit_copy(small, large):
    per_byte = (large[1] - small[1]) / (large[0] - small[0])
    overhead_us = small[1] - small[0] * per_byte
    return overhead_us, 1 / per_byte / 1000


def pinned_copy(size):
    """(bytes, microseconds) of a published copy of `size` bytes from pinned memory to a Quadro RTX 6000."""
    rows = measurements.published("copies_rtx6000")
    [row] = rows.rows(bytes=size, direction="h2d", pinned=True)
    return size, size / row["gb_per_s"] / 1000


def _check_fit(answer):
    copies = [(pinned_copy(2**10), pinned_copy(2**20)), ((4096, 12.0), (4_000_000, 212.0))]
    for small, large in copies:
        result = call(answer, small, large)
        if not isinstance(result, tuple) or len(result) != 2:
            kind = "None: is there a `return`?" if result is None else f"{result!r}."
            raise NotYet(f"expected two values, overhead and bandwidth; got {kind}")
        overhead = expect.number(result[0], "the overhead")
        bandwidth = expect.number(result[1], "the bandwidth")
        _same_line(overhead, bandwidth, small, large)
    overhead, bandwidth = fit_copy(*copies[0])
    size, measured = pinned_copy(2**16)
    told = overhead + size / bandwidth / 1000
    return (
        f"By your formula, each copy has {overhead:.1f} µs of overhead and then moves at {bandwidth:.1f} GB/s. "
        f"For 64 KiB it says {told:.1f} µs, and {measured:.1f} were measured."
    )


def _same_line(overhead, bandwidth, small, large):
    right = fit_copy(small, large)
    case = f"for the copies {small} and {large}"
    if abs(bandwidth / right[1] - 1) > 1e-6:
        if (
            abs(bandwidth / right[1] * 1000 - 1) < 1e-6
            or abs(bandwidth / right[1] / 1000 - 1) < 1e-6
        ):
            raise NotYet(
                f"{case}: bytes per µs are millions of bytes per second. How many make a GB/s?"
            )
        if abs(bandwidth / (large[0] / large[1] / 1000) - 1) < 1e-6:
            raise NotYet(
                f"{case}: that bandwidth still has the overhead in it. Both copies have the same one."
            )
        raise NotYet(f"{case}: the bandwidth is {bandwidth:g} GB/s, expected {right[1]:g}.")
    if abs(overhead - small[1]) < 1e-9:
        raise NotYet(
            f"{case}: the small copy's time isn't all overhead: its bytes took some of it."
        )
    if abs(overhead / right[0] - 1) > 1e-6:
        raise NotYet(f"{case}: the overhead is {overhead:g} µs, expected {right[0]:g}.")


fit = Exercise(
    key="02.fit",
    title="fit the cost of a copy",
    check_answer=_check_fit,
    hints=(
        "Both copies have the same overhead. What's left when you subtract one time from the other?",
        "The difference in time belongs to the difference in bytes alone: that's the time per byte. What a copy takes "
        "beyond its bytes is overhead.",
        "`per_byte = (large[1] - small[1]) / (large[0] - small[0])`. The overhead is `small[1] - small[0] * per_byte`, and "
        "`1 / per_byte` is in bytes per µs: divide by 1,000 for GB/s.",
    ),
    reference=fit_copy,
    explanation="Two points determine a line: its slope is the time per byte, and where it meets zero bytes is the "
    "overhead. The formula then predicts every size in between.",
    unlocked="You can now tell what any copy on any machine costs, from two measurements.",
)


QUIZ = (
    Question(
        "02.alone",
        'x is on the CPU. After the line x.to("cuda:0"), where is x?',
        {
            "On the CPU": ".to returns the copy, and nothing was assigned to x.",
            "On cuda:0": "The call made a new tensor there, and nothing kept it.",
            "On both": "A copy is another tensor.",
        },
        right=0,
    ),
    Question(
        "02.current",
        'In a block with torch.device("cuda:1"), where does torch.zeros(3, device="cuda") live?',
        {
            "On cuda:1, the device of the block": "The block only fills in a device where none is given; here one is.",
            "On the CPU": "A device was given.",
            "On the current CUDA device, cuda:0 unless changed": 'An explicit device wins, and plain "cuda" means the current one.',
        },
        right=2,
    ),
    Question(
        "02.pieces",
        "10,000 small tensors have to reach the GPU. What helps most?",
        {
            "A faster link": "Bandwidth hardly matters while the overhead of each copy dominates.",
            "Concatenating them into one copy": "There's one overhead then, not 10,000.",
            "A GPU with more cores": "The copy doesn't use them.",
        },
        right=1,
    ),
)
