"""Exercises, quiz and figures of lesson 01, Check for CUDA."""

from contextlib import ExitStack
from unittest import mock

import torch

import measurements
from helpers import plots
from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call
from helpers.doctor import Device, Facts, diagnose
from lessons.lesson01 import atlas

# --- figures --------------------------------------------------------------------------------------


def draw_race(rates):
    """A figure and a sentence: TFLOP/s of products by size, `rates` ({label: (sizes, TFLOP/s)}) here and published ones."""
    cards = ["V100-SXM2-16GB", "A100-PCIE-40GB", "H100 80GB HBM3"]
    where = {"dtype": "float32", "device": cards}
    published = plots.published("matmul_sizes", "tflop_per_s", x="size", **where)
    here = plots.here(rates)
    yours = plots.yours("matmul", "tflop_per_s", x="size", dtype="float32")
    recorded = plots.recorded("matmul", "size", "tflop_per_s", kind="cuda", dtype="float32")
    name, (_, values) = next(iter(rates.items()))
    h100 = max(published["H100 80GB HBM3"][1])
    title = f"An H100 multiplies {h100 / max(values):,.0f} times as fast as this CPU"
    groups = [here, yours, recorded, published]
    figure = plots.lines(groups, title, "matrix size n", "TFLOP/s (float32)", logx=True, logy=True)
    return figure, f"{name}: {max(values):.3g} TFLOP/s at best. H100: {h100:.3g}."


def draw_cpus_and_gpus():
    """A figure and a sentence: the best published rate of a float32 product on nine CPUs and ten GPUs."""
    data = measurements.published("cpus_and_gpus")
    kinds = {"cpu": {}, "cuda": {}}
    for row in data.rows("best", dtype="float32"):
        if row["device_kind"] in kinds:
            kinds[row["device_kind"]][row["device"]] = row["tflop_per_s"]
    highest = {kind: max(rates.values()) for kind, rates in kinds.items()}
    sentence = f"The best CPU reaches {highest['cpu']:g} TFLOP/s, the best GPU {highest['cuda']:g}"
    figure = plots.blank_figure((7.2, 3.4))
    figure.suptitle(sentence, fontsize=11)
    for axes, (kind, rates) in zip(figure.subplots(1, 2), kinds.items(), strict=True):
        rates = dict(sorted(rates.items(), key=lambda pair: pair[1]))
        color, hatch = (plots.COLORS[1], "//") if kind == "cpu" else (plots.COLORS[2], "")
        bars = axes.barh([*rates], [*rates.values()], color=color, hatch=hatch, edgecolor="white")
        axes.bar_label(bars, [f"{rate:g}" for rate in rates.values()], padding=3, fontsize=8)
        axes.set_xlim(0, 70)
        axes.set_xlabel(f"{'CPUs' if kind == 'cpu' else 'GPUs'}: TFLOP/s (float32)")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    plots.sources(figure, f"published: {data.source}")
    return figure, f"{sentence}."


def show_lookups():
    """Print published times of looking up ten and a million rows; return who is done first with ten, in words."""
    data = measurements.published("operations_cpu_gpu")
    names = {"Xeon Gold 6254": "a Xeon Gold 6254", "A100 80 GB PCIe": "an A100"}
    times = {}
    for count in ("10", "1,000,000"):
        for device, name in names.items():
            [row] = data.rows(operation=f"gather {count} indices", device=device)
            print(f"{count + ' rows':<16}{name:<20}{row['time_ms']:>6} ms")
            if count == "10":
                times[name] = row["time_ms"]
    print(f"published: {data.source}")
    return min(times, key=times.get)


CARDS = {
    "P100": "P100-PCIE-16GB",
    "V100": "V100-SXM2-16GB",
    "T4": "T4, Colab",
    "A100": "A100-PCIE-40GB",
    "L4": "L4",
    "H100": "H100 80GB HBM3",
}


def draw_formats(card):
    """A figure and a sentence: the best published rates of one of `CARDS` by number format."""
    name, section = ("matmul_best", "best") if card == "T4" else ("matmul_sizes", "matmul")
    data = measurements.published(name)
    rates = {}
    for row in data.rows(section, device=CARDS[card]):
        rates[row["dtype"]] = max(rates.get(row["dtype"], 0), row["tflop_per_s"])
    gain = rates["float16"] / rates["float32"]
    title = f"{card}: float16 is {gain:.2g} times as fast as float32"
    figure = plots.bars(rates, title, "TFLOP/s at best", digits=3)
    plots.sources(figure, f"published: {data.source}")
    figure.axes[0].set_xlim(0, max(rates.values()) * 1.15)
    loses = rates["bfloat16"] < rates["float32"]
    return figure, title + (", and bfloat16 loses against both." if loses else ".")


def draw_call():
    """A figure and a sentence: what a call passes through on its way to the GPU."""
    figure = plots.blank_figure((7.2, 1.5))
    axes = figure.add_subplot()
    axes.set_axis_off()
    stations = ("a @ b", "PyTorch", "cuBLAS", "driver", "GPU")
    notes = ("your line", "checks, chooses", "holds the kernels", "puts it in a queue", "runs it")
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": plots.COLORS[0]}
    middle = {"ha": "center", "va": "center"}
    for i, (station, note) in enumerate(zip(stations, notes, strict=True)):
        axes.text(i, 0.6, station, fontsize=12, bbox=box, **middle)
        axes.text(i, 0.05, note, fontsize=9, **middle)
        if i:
            arrow = {"arrowstyle": "->", "shrinkA": 34, "shrinkB": 34}
            axes.annotate("", (i, 0.6), (i - 1, 0.6), arrowprops=arrow)
    axes.set_xlim(-0.5, 4.5)
    axes.set_ylim(-0.2, 1)
    return figure, "a @ b passes through PyTorch, cuBLAS and the driver before the GPU runs it."


def draw_job(hours, memory):
    """A figure and a sentence: a job of so many hours on a T4 at its best (float16), needing `memory` GB, on other cards."""
    rate = atlas.best_rate("T4", "float16")
    tflop = rate * 3600 * hours
    times = atlas.minutes(tflop, tflop / 100, memory, "float16")
    label, least = min(times.items(), key=lambda pair: pair[1])
    title = f"{len(times)} measured cards have {memory} GB or more; the fastest: {label}"
    figure = plots.bars([times], title, "minutes at best")
    return figure, f"{title}, {least:.3g} minutes."


# --- choose the best device ------------------------------------------------------------------------------------------
def pick_device():
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _pick_on(answer, cuda, mps):
    gpu = None
    if cuda or mps:
        gpu = torch.device("cuda" if cuda else "mps")
    stand_ins = {
        "cuda.is_available": lambda: cuda,
        "cuda.device_count": lambda: int(cuda),
        "backends.mps.is_available": lambda: mps,
        "backends.mps.is_built": lambda: mps,
        "accelerator.is_available": lambda: cuda or mps,
        "accelerator.device_count": lambda: int(cuda or mps),
        "accelerator.current_accelerator":  # without check_available it names what was compiled in
        lambda check_available=False: gpu if check_available or gpu else torch.device("cuda"),
    }
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch(f"torch.{name}", stand_in))
        return call(answer)


def _check_pick(answer):
    kinds = [(True, False, "cuda"), (False, False, "cpu"), (False, True, "mps")]
    for cuda, mps, expected in [*kinds, (True, True, "cuda")]:
        device = _pick_on(answer, cuda, mps)
        machine = f"Where CUDA is {'' if cuda else 'not '}available and MPS is {'' if mps else 'not '}available"
        if isinstance(device, str):
            raise NotYet(
                f"pick_device() returned the string {device!r}. Wrap it: torch.device({device!r})."
            )
        if not isinstance(device, torch.device):
            raise NotYet(
                f"{machine}, it returned {device!r}; expected a torch.device. Does every path return?"
            )
        if str(device) not in (expected, f"{expected}:0"):
            raise NotYet(
                f"{machine}, it returned {device}; expected {expected}.{_why_pick(device, expected)}"
            )
    return "the right device on four machines: CUDA, CPU only, MPS, and both GPUs."


def _why_pick(device, expected):
    if device.type == expected:
        return " Which index exists on a machine with one GPU?"
    if device.type == "cuda":
        return " Ask whether it is available: the name alone does not tell whether a GPU is there."
    if device.type == "cpu":
        return f" {expected.upper()} is there on this machine; which of your questions notices it?"
    return " Which question do you ask first?"


pick = Exercise(
    key="01.pick",
    title="choose the best device",
    check_answer=_check_pick,
    hints=(
        "Name the device once, above, asks one question. You need two of that kind.",
        "Three answers in order: CUDA? MPS? Otherwise the CPU. Each is a return.",
        'The questions are `torch.cuda.is_available()` and `torch.backends.mps.is_available()`; `return torch.device("…")`.',
    ),
    reference=pick_device,
    explanation="The questions run from the fastest device to the one that is always there, and every path returns a "
    "torch.device, so the callers never need to ask again.",
)


# --- five machines ---------------------------------------------------------------------------------------------------
MACHINES = {
    "A": Facts(
        system="Windows",
        driver="581.42",
        gpus=("NVIDIA GeForce RTX 4060",),
        torch="2.13.0+cpu",
        cuda_build=None,
    ),
    "B": Facts(cards=1),
    "C": Facts(driver="470.256.02", gpus=("Tesla T4",), cards=1, cuda_error="found version 11040"),
    "D": Facts(
        driver="580.95.05",
        gpus=("NVIDIA L4",),
        cards=1,
        visible="-1",
        cuda_error="No CUDA GPUs are available",
    ),
    "E": Facts(
        driver="580.95.05",
        gpus=("Tesla P100-PCIE-16GB",),
        cards=1,
        host="kaggle",
        architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
        devices=(
            Device(
                "cuda:0",
                "Tesla P100-PCIE-16GB",
                (6, 0),
                17_000_000_000,
                "no kernel image is available for execution on the device",
            ),
        ),
    ),
}
CAUSES = {
    "A": "CPU-only build",
    "B": "no driver",
    "C": "driver too old",
    "D": "hidden",
    "E": "no code for this card",
}
_LOOK = {
    "A": "cuda_build: was CUDA compiled in?",
    "B": "driver, beside cards: is the card there, and does anything speak to it?",
    "C": "cuda_error: 11040 is CUDA 11.4. Which CUDA was the build made for?",
    "D": "visible: that is CUDA_VISIBLE_DEVICES.",
    "E": "the device's capability, beside the architectures of the build.",
}


def show_machines():
    """Print build and driver of the five machines, and whatever else differs from the defaults of `Facts`."""
    plain = Facts()
    for name, facts in MACHINES.items():
        print(f"machine {name}\n    cuda_build: {facts.cuda_build}\n    driver: {facts.driver}")
        for key, value in vars(facts).items():
            if value != getattr(plain, key) and key not in ("cuda_build", "driver"):
                print(f"    {key}: {_plain(value)}")


def _plain(value):
    if isinstance(value, tuple):
        return ", ".join(_plain(part) for part in value)
    if isinstance(value, Device):
        return f"{value.device} capability {value.capability}: {value.error}"
    return str(value)


def _check_machines(answer):
    expect.choices(answer, CAUSES, {name: f"no. Look at {look}" for name, look in _LOOK.items()})
    fixes = [f"{name}: {diagnose(facts).fix}" for name, facts in MACHINES.items()]
    return "\n".join(["five machines, five causes. The doctor prescribes", *fixes])


machines = Exercise(
    key="01.machines",
    title="diagnose five machines",
    check_answer=_check_machines,
    hints=(
        "The table under Why is it False? lists five things. Each machine lacks one of them.",
        "Each machine has one fact that gives it away. Find it before you read the rest.",
        "No CUDA version in the build, no driver, an old driver, a variable that hides, a card the build has no code for.",
    ),
    reference=CAUSES,
    source=f"causes = {CAUSES!r}",
    explanation="A is a CPU-only build beside a healthy driver. B has a card that no driver speaks to. On C the driver is "
    "older than the CUDA version of the build. On D the variable is -1. E sees its card, yet 6.0 is not among the "
    "architectures of the build, so every operation fails.",
)


# --- which number is impossible? ------------------------------------------------------------------
CLAIMS = {
    "A": "An A100 multiplies bfloat16 matrices at 234 TFLOP/s.",
    "B": "An Arc B580 multiplies matrices at 11,920 TFLOP/s.",
    "C": "An RTX 4090 reads 3,868 GB a second from its memory.",
    "D": "A V100 is slower in bfloat16 than in float32.",
    "E": "A Core i9 with 24 cores multiplies matrices at 1.2 TFLOP/s.",
}
POSSIBLE = {
    "A": "possible",
    "B": "impossible",
    "C": "impossible",
    "D": "possible",
    "E": "possible",
}
_WHY_POSSIBLE = {
    "A": "the data sheet says 312, so 234 is 75% of it: what a good product reaches.",
    "B": "that's fifteen times the best H100 in your figures. Its clock didn't wait (lesson 07).",
    "C": "the data sheet says 1,008. The numbers were few enough to lie in the chip's cache.",
    "D": "the explorer shows it: tensor cores for bfloat16 came only with the A100's generation.",
    "E": "look at the figure with CPUs and GPUs.",
}


def show_claims():
    """Print the five claims."""
    for letter, claim in CLAIMS.items():
        print(f"{letter}  {claim}")


def _check_impossible(answer):
    expect.choices(answer, POSSIBLE, _WHY_POSSIBLE)
    return "all five were published. B and C measured something else than they say."


impossible = Exercise(
    key="01.impossible",
    title="which of these numbers is impossible?",
    check_answer=_check_impossible,
    hints=(
        "Your figures hold the best rates of many cards. Compare.",
        "Nothing is faster than its data sheet: an A100 is built for 312 TFLOP/s in bfloat16, an RTX 4090 for 1,008 GB/s.",
        "Two of the five cannot be.",
    ),
    reference=POSSIBLE,
    source=f"verdicts = {POSSIBLE!r}",
    explanation="B was the time of a call, not of the work: it grew by eight whenever n doubled. C was a vector of 16 MB, "
    "which lies in the chip's cache of 72 MB, so the memory was never asked.",
)


QUIZ = (
    Question(
        "01.false",
        "torch.cuda.is_available() is False and torch.version.cuda is '13.2'. What is certain?",
        {
            "The build has no CUDA code": "torch.version.cuda would be None then.",
            "The GPU is broken": "It may be absent, hidden, or without a driver; nothing says broken.",
            "The build has CUDA code; what is wrong lies outside the build": "Yes: the driver may be absent or too old, or no GPU visible. The doctor tells which.",
        },
        right=2,
    ),
    Question(
        "01.bf16",
        "A T4 has compute capability 7.5. Which format has tensor cores on it?",
        {
            "FP16": "Yes: FP16 tensor cores came with 7.0.",
            "BF16": "BF16 came with 8.0.",
            "FP8": "FP8 came with 8.9.",
        },
        right=0,
    ),
    Question(
        "01.small",
        "Why can a CPU win a race of 64×64 products against a large GPU?",
        {
            "The GPU's arithmetic is less exact": "Both compute in FP32 here.",
            "Starting the work costs more than the work": "Yes: the fixed price of a call does not shrink with the matrix.",
            "GPUs cannot multiply small matrices": "They can; it only does not pay.",
        },
        right=1,
    ),
)
