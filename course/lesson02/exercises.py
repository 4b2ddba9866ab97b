"""Exercises and quiz of lesson 02, Move tensors. Checks run on two GPUs, real ones or practice GPUs."""

import copy
from contextlib import contextmanager

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course import measurements
from course.checks import expect
from course.checks.core import LearnerError, NotAttempted, NotYet, call, describe_error, same_code
from course.checks.slips import same
from course.checks.words import exercise, quiz
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
        if name == "aten::_local_scalar_dense" and args[0].device != CPU:
            self.transfers["d2h"] += 1
        if name in ("aten::copy_", "aten::_to_copy"):
            source = args[1] if name == "aten::copy_" else args[0]
            if source.device != out.device:
                ends = ["h" if end.device == CPU else "d" for end in (source, out)]
                self.transfers["2".join(ends)] += 1
        return out


@contextmanager
def counted(gpus):
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


def unfinished_batch(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: move_batch(value, device) for key, value in batch.items()}


MOVED = "move_batch(batch, device)"


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
    if same_code(answer, unfinished_batch):
        raise NotAttempted("Go on where the function ends, then run this cell again.")
    with practice_gpus(2):
        for device in (GPUS[0], GPUS[1], CPU):
            for name, batch in _batches().items():
                untouched = copy.deepcopy(batch)
                _like(call(answer, batch, device), untouched, device, f"For {name}, `{MOVED}")
                _like(batch, untouched, CPU, f"For {name}, `batch")
    return "Your function moved seven kinds of batch to three devices, and kept everything else."


def _like(result, expected, device, path):
    """Compare what came back, part by part; `path` says where we are, in code that isn't closed yet."""
    if type(result) is not type(expected):
        advice = "Code that unpacks the batch may depend on the type: keep it."
        if result is None:
            advice = "Does every path return something?"
        kinds = f"{type(result).__name__}, expected {type(expected).__name__}"
        raise NotYet(f"{path}` came back as {kinds}. {advice}")
    if isinstance(expected, torch.Tensor):
        if result.device != device:
            advice = "Is this the device you were given, and do you look inside each container?"
            if MOVED not in path:
                advice = "The batch you were given has changed: build a new container."
            raise NotYet(f"{path}` is on {result.device}, expected {device}. {advice}")
        if result.dtype != expected.dtype or not torch.equal(result.cpu(), expected):
            raise NotYet(f"{path}` has other values, or another dtype.")
    elif isinstance(expected, dict):
        if result.keys() != expected.keys():
            raise NotYet(f"{path}` has the keys {list(result)}, expected {list(expected)}.")
        for key in expected:
            _like(result[key], expected[key], device, f"{path}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        if len(result) != len(expected):
            raise NotYet(f"{path}` has {len(result)} parts, expected {len(expected)}.")
        for i, part in enumerate(expected):
            _like(result[i], part, device, f"{path}[{i}]")
    elif result != expected:
        raise NotYet(f"{path}` is {result!r}, expected {expected!r} untouched.")


batch = exercise("02.batch", _check_batch, move_batch, tool="move_batch", letter="b")


# --- port someone else's k-means -------------------------------------------------------------------------------------
def assign(points, centers):
    """For each point, its distance to the nearest center, and which center that is."""
    return torch.cdist(points, centers).min(1)


def recolor(points, nearest, centers):
    """Return `centers`, each moved to the mean of the points that are nearest to it."""
    group = nearest[:, None].expand_as(points)
    return centers.scatter_reduce(0, group, points, "mean", include_self=False)


def starter(points, k):
    centers = torch.linspace(0, 1, k)[:, None].repeat(1, 3)
    errors = []
    for _ in range(20):
        distance, nearest = assign(points, centers)
        errors.append(distance.mean().item())
        centers = recolor(points, nearest, centers)
    return centers.numpy(), errors


def kmeans(points, k):
    centers = torch.linspace(0, 1, k, device=points.device)[:, None].repeat(1, 3)
    errors = []
    for _ in range(20):
        distance, nearest = assign(points, centers)
        errors.append(distance.mean())
        centers = recolor(points, nearest, centers)
    return centers.cpu().numpy(), torch.stack(errors).tolist()


def _check_repair(answer):
    untouched = same_code(answer, starter)
    with practice_gpus(2) as gpus:
        for rows, home in enumerate((CPU, *GPUS), 200):
            points = torch.rand(rows, 3, generator=torch.Generator().manual_seed(rows)).to(home)
            case = f"{rows} points on {home}"
            held = 0
            if home != CPU:
                torch.cuda.reset_peak_memory_stats(home)
                held = torch.cuda.memory_allocated(home)
            with counted(gpus) as copies:
                result = _called(answer, points, untouched)
            _same_numbers(result, points, case)
            if home != CPU:
                _where_work(copies, torch.cuda.max_memory_allocated(home) > held, case)
    return "The same numbers on three devices, and two copies in 20 steps."


def _called(answer, points, untouched):
    try:
        return call(answer, points, 3)
    except LearnerError as error:
        if untouched:
            raise NotAttempted(describe_error(error.cause), "Here's the first error") from None
        raise


def _same_numbers(result, points, case):
    if not isinstance(result, tuple) or len(result) != 2:
        raise NotYet(f"{case}: got {type(result).__name__}; expected the centers and the errors.")
    centers, errors = result
    if not isinstance(centers, numpy.ndarray):
        kind = type(centers).__name__
        raise NotYet(f"{case}: the centers are a {kind}; expected a NumPy array.")
    if not isinstance(errors, list) or not all(isinstance(error, float) for error in errors):
        raise NotYet(f"{case}: the errors came back as something else than a list of floats.")
    expected, told = kmeans(points.cpu(), 3)
    same = centers.shape == expected.shape and numpy.allclose(centers, expected, atol=1e-3)
    if not same or len(errors) != len(told) or not numpy.allclose(errors, told, atol=1e-3):
        raise NotYet(f"{case}: the numbers differ from those of kmeans. Change places only.")


def _where_work(copies, grown, case):
    if not grown:
        raise NotYet(
            f"{case}: the GPU never held more than the points, so the work ran on the CPU. "
            "Bring the other tensors to the points instead."
        )
    count = copies["h2d"] + copies["d2h"]
    if count > 2:
        raise NotYet(
            f"{case}: {count} copies between CPU and GPU, {copies['h2d']} of them to the GPU. Two are "
            "enough. What crosses at every step could be created there, or wait until the end."
        )


repair = exercise("02.repair", _check_repair, kmeans)


# --- fit the cost of a copy -----------------------------------------------------------------------
def fit_copy(small, large):
    per_byte = (large[1] - small[1]) / (large[0] - small[0])
    overhead_us = small[1] - small[0] * per_byte
    return overhead_us, 1 / per_byte / 1000


def published_copies(build="1"):
    """Two of (bytes, microseconds): one `.to("cuda")` of 1,000 floats and one of 1,000,000, by a build of PyTorch's tutorial."""
    table = measurements.published("pinned_a10g")
    [many] = table.rows("many", build=build, tensors="1000 × 1,000 floats", way="blocking")
    [one] = table.rows("one", build=build, elements=10**6, way="pageable .to")
    return (4000, many["time_ms"]), (4_000_000, 1000 * one["time_ms"])  # ms of 1,000 are µs of one


def measured_copies():
    """{bytes: µs} of six pageable copies to a Quadro RTX 6000, the smallest first, as published."""
    rows = measurements.published("copies_rtx6000").rows("copies", direction="h2d", pinned=False)
    return {row["bytes"]: row["bytes"] / row["gb_per_s"] / 1000 for row in rows}


def _check_fit(answer):
    known = [*measured_copies().items()]
    copies = [published_copies(), (known[0], known[-1]), ((4096, 12.0), (4_000_000, 212.0))]
    for small, large in copies:
        result = call(answer, small, large)
        if not isinstance(result, tuple) or len(result) != 2:
            kind = "None: is there a `return`?" if result is None else f"{result!r}."
            raise NotYet(f"expected two values, overhead and bandwidth; got {kind}")
        overhead = expect.number(result[0], "the overhead")
        bandwidth = expect.number(result[1], "the bandwidth")
        _same_line(overhead, bandwidth, small, large)
    overhead, bandwidth = fit_copy(*copies[0])
    older = fit_copy(*copies[1])
    off = max(abs(copy_us(size, *older) / us - 1) for size, us in known)
    return (
        f"On the tutorial's machine, each copy has {overhead:.0f} µs of overhead and then moves at {bandwidth:.1f} GB/s. "
        f"And two copies to an RTX 6000 forecast four others, 4 to 256 KiB, to within {off:.0%}."
    )


def copy_us(size, overhead, bandwidth):
    """Microseconds of a copy of `size` bytes: overhead in µs, bandwidth in GB/s."""
    return overhead + size / bandwidth / 1000


def _same_line(overhead, bandwidth, small, large):
    right = fit_copy(small, large)
    ends = (f"({size:,} bytes, {us:.3g} µs)" for size, us in (small, large))
    case = f"for the copies {' and '.join(ends)}"
    if not same((overhead, bandwidth), right):
        names = {"overhead": overhead, "bandwidth": bandwidth, "right": right}
        raise NotYet(f"{case}: {fit.word((overhead, bandwidth), small, large, **names)}")


fit = exercise("02.fit", _check_fit, fit_copy)


QUIZ = quiz("02")
