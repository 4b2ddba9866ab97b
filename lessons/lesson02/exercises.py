"""Exercises, quiz and figures of lesson 02, Move tensors. Checks run on two GPUs, real ones or practice GPUs."""

import copy
from contextlib import contextmanager

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import measurements
from helpers import plots
from helpers.checks import expect
from helpers.checks.core import CORRECT, Exercise, NotYet, Question, call
from helpers.memory import format_bytes
from practice_gpus import practice_gpus

CPU = torch.device("cpu")
GPUS = (torch.device("cuda:0"), torch.device("cuda:1"))


# --- figures --------------------------------------------------------------------------------------


def show_roads():
    """Show published rates: what the bus carries to a GPU, and what the GPU's own memory gives."""
    a100 = measurements.published("copies_a100")
    rtx = measurements.published("copies_rtx6000")
    [pageable] = rtx.rows(bytes=1_048_576, direction="h2d", pinned=False)
    [pinned] = rtx.rows(bytes=1_048_576, direction="h2d", pinned=True)
    [bus] = a100.rows("copies", bytes=1_000_000_000, direction="h2d")
    [inside] = a100.rows("bandwidth", bytes=1_000_000_000)
    rates = {
        "to a Quadro RTX 6000, PCIe 3": pageable["gb_per_s"],
        "the same, pinned": pinned["gb_per_s"],
        "to an A100, PCIe 4, pinned": bus["gb_per_s"],
        "inside the A100": inside["gb_per_s"],
    }
    title = "The A100's memory: nearly 50 times PCIe"
    figure = plots.bars(rates, title, "GB/s", digits=3)
    plots.sources(figure, "published: " + rtx.source, a100.source)
    plots.show(figure, f"{title}.")


def show_small_copies(rates, device):
    """Show the rate of copies by size: `rates` ({bytes: GB/s}) here to `device`, and published ones to two GPUs."""
    here = plots.here({f"to {device}": ([*rates], [*rates.values()])})
    where = {"direction": "h2d", "pinned": True}
    yours = plots.yours("copies", "gb_per_s", x="bytes", **where)
    recorded = plots.recorded("copies", "bytes", "gb_per_s", **where)
    lines = [here, yours, recorded]
    roads = (("copies_rtx6000", False), ("copies_rtx6000", True), ("copies_a100", True))
    for name, pinned in roads:
        where = {"section": "copies", "direction": "h2d", "pinned": pinned}
        series = plots.published(name, "gb_per_s", x="bytes", **where)
        kind = "pinned" if pinned else "pageable"
        lines.append(series.renamed({label: f"to {label}, {kind}" for label in series}))
    title = "Small copies waste the road"
    figure = plots.lines(lines, title, "bytes in one copy", "GB/s", logx=True, logy=True)
    sizes = [2**k for k in range(8, 31, 4)]
    figure.axes[0].set_xticks(sizes, [format_bytes(size) for size in sizes], fontsize=8)
    smallest = min(rates)
    best = max(rates.values())
    sentence = f"Here: {rates[smallest]:.2g} GB/s with {smallest} bytes, {best:.2g} GB/s at best."
    plots.show(figure, sentence)


def show_crossing():
    """Show published times of 2.1 billion weights in narrow and in wide layers, on a CPU and on a GPU.

    A third line is computed: the GPU's times, and the time in which the weights reach it at an A100's rate of PCIe 4.
    """
    layers = measurements.published("crossover_4090")
    copies = measurements.published("copies_a100")
    [bus] = copies.rows("copies", bytes=1_000_000_000, direction="h2d")
    widths = []
    totals = []
    for row in layers.rows("shape", device="RTX 4090"):
        weights = row["layers"] * row["width"] ** 2
        copy_ms = 4 * weights / (bus["gb_per_s"] * 1e6)
        widths.append(row["width"])
        totals.append(row["time_ms"] + copy_ms)
    times = plots.published("crossover_4090", "time_ms", x="width", section="shape")
    computed = {"RTX 4090, weights sent first (computed)": (widths, totals)}
    title = "Wide layers suit the GPU, unless their weights must travel first"
    labels = (title, "width of a layer", "ms for one row")
    figure = plots.lines([times, computed], *labels, logx=True, logy=True)
    figure.axes[0].set_ylim(bottom=5)
    plots.sources(figure, f"published: {layers.source}, under WSL 2", copies.source)
    plots.show(figure, f"{title}.")


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
    return "seven kinds of batch on three devices; structure, values and all other objects kept."


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
            raise NotYet(f"{path}: the values or the dtype changed on the way.")
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
        "Recursion: a tensor moves; a container is rebuilt from its moved parts; everything else comes back as it is.",
        "Three tests with `isinstance`. A list or tuple becomes `type(batch)(parts)`, a dict `{key: move_batch(value, "
        "device) for key, value in batch.items()}`.",
    ),
    reference=move_batch,
    explanation="The function calls itself on each part, so depth does not matter. Containers keep their type, because "
    "code that unpacks a batch depends on it, and the original is left alone. (A namedtuple would take its parts one "
    "by one: type(batch)(*parts).)",
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
    return "six pairs of places, and the work ran where weight lives."


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
        "A result that nobody keeps, a tensor born on the CPU, a conversion that NumPy can't do.",
        "`x = x.to(weight.device)`; `weight.new_ones(...)` instead of `torch.ones`; `.detach().cpu()` before `.numpy()`.",
    ),
    reference=repaired,
    explanation="weight decides where the work happens: x moves to it and is assigned, bias is made beside it, and "
    "only the small result travels back, without its graph.",
)


# --- when does it pay? ----------------------------------------------------------------------------
JOBS = {
    "A": "convolve an image of 2,048 × 2,048, with both copies: Colab's CPU, or its T4",
    "B": "one row through 2,048 layers of 128 units, already there: Ryzen 9 7950X3D, or RTX 4090",
    "C": "2,048 rows at once through 128 such layers, already there: the same two",
    "D": "write 10 rows into a table, already there: Xeon Gold 6254, or A100",
}
_WHY_PAYS = {
    "A": "2,400 ms of arithmetic on the CPU. How long do 34 MB travel?",
    "B": "each of the 2,048 narrow layers is started anew, and has hardly anything to do.",
    "C": "only 128 layers to start, and now each of them has 2,048 rows to do.",
    "D": "how much is there to do for this one call?",
}


def published_times():
    """Milliseconds of each job on the CPU and on the GPU, as {letter: {"CPU": ms, "GPU": ms}}, all published."""
    image = measurements.published("convolution_t4").rows("convolution")
    ways = {row["way"]: row["time_ms"] for row in image}
    layers = measurements.published("crossover_4090")
    table = measurements.published("operations_cpu_gpu").rows(operation="scatter 10 rows")
    rows = {row["device"]: row["time_ms"] for row in table}
    return {
        "A": {"CPU": ways["CPU"], "GPU": ways["GPU, synchronized, with both copies"]},
        "B": _by_kind(layers.rows("depth", layers=2048)),
        "C": _by_kind(layers.rows("batch", batch=2048)),
        "D": {"CPU": rows["Xeon Gold 6254"], "GPU": rows["A100 80 GB PCIe"]},
    }


def _by_kind(rows):
    times = {row["device_kind"]: row["time_ms"] for row in rows}
    return {"CPU": times["cpu"], "GPU": times["cuda"]}


def show_jobs():
    """Print the four jobs."""
    for letter, job in JOBS.items():
        print(f"{letter}  {job}")


def faster():
    """Which is faster for each job: {letter: "CPU" or "GPU"}."""
    return {letter: min(times, key=times.get) for letter, times in published_times().items()}


def show_times(answer):
    """Show how long the four jobs took, once `answer` is right; before, say that a figure is waiting."""
    if pays.outcome(answer).status != CORRECT:
        print("A figure is waiting here for four right answers.")
        return
    times = published_times()
    points = {kind: {letter: times[letter][kind] for letter in JOBS} for kind in ("CPU", "GPU")}
    title = "A and C have much to do for each call; B and D haven't"
    figure = plots.dots(points, title, "milliseconds", log=True)
    names = ("convolution_t4", "crossover_4090", "operations_cpu_gpu")
    sources = [measurements.published(name).source for name in names]
    plots.sources(figure, "published: " + sources[0], *sources[1:])
    plots.show(figure, f"{title}.")


def _check_pays(answer):
    expect.choices(answer, faster(), _WHY_PAYS)
    times = published_times()
    sentences = [f"{letter} {ms['CPU']:g} and {ms['GPU']:g} ms" for letter, ms in times.items()]
    return (
        f"on CPU and GPU they took: {', '.join(sentences)}. Without its copies, the T4 needs 20.6 ms for A: the "
        "speed-up would be 116 instead of 67."
    )


pays = Exercise(
    key="02.pays",
    title="when does it pay?",
    check_answer=_check_pays,
    hints=(
        "The figure under When does the CPU win? has layers of 128 units at its left end. B is like them.",
        "Ask of each job: how much arithmetic is there for each call, and for each byte that travels?",
        "Two of the four belong on the CPU: those that hardly compute.",
    ),
    reference={"A": "GPU", "B": "CPU", "C": "GPU", "D": "CPU"},
    source="winners = {'A': 'GPU', 'B': 'CPU', 'C': 'GPU', 'D': 'CPU'}",
    explanation="B and D have so little to do for each call that the price of starting work on a GPU decides. A and C "
    "have plenty, and in A that pays for both copies as well.",
)


QUIZ = (
    Question(
        "02.alone",
        'x is on the CPU. After the line x.to("cuda:0"), where is x?',
        {
            "On the CPU": "Yes: .to returns the moved tensor, and x was not assigned.",
            "On cuda:0": "The call made a new tensor there and nobody kept it.",
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
            "On the current CUDA device, cuda:0 unless changed": 'Yes: an explicit device wins, and plain "cuda" means the current one.',
        },
        right=2,
    ),
    Question(
        "02.pieces",
        "10,000 small tensors must reach the GPU. What makes it fastest?",
        {
            "A faster link": "Bandwidth hardly matters where the fixed price of each copy dominates.",
            "Joining them into one copy": "Yes: the fixed price is then paid once.",
            "A GPU with more lanes": "The copy does not use them.",
        },
        right=1,
    ),
)
