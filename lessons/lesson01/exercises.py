"""Exercises and quiz of lesson 01, Check for CUDA."""

import html
from contextlib import ExitStack
from unittest import mock

import torch

from helpers import show
from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call
from helpers.doctor import Device, Facts, diagnose


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
    return "Your function chose the right device on four machines: CUDA, CPU only, MPS, and one with both."


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
    unlocked="You can now start the same script on any machine.",
    tool="pick_device",
)


# --- five machines ---------------------------------------------------------------------------------------------------
MACHINES = {
    "A": Facts(
        system="Windows",
        driver="581.42",
        gpus=("NVIDIA GeForce RTX 4060",),
        cards=1,
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
    "A": "torch.version.cuda: does this build include CUDA?",
    "B": "the row driver, next to the cards on the bus: is the card there, and does anything talk to it?",
    "C": "CUDA's error: 11040 means CUDA 11.4. Which CUDA was this PyTorch built with?",
    "D": "CUDA_VISIBLE_DEVICES. Which GPU has the number -1?",
    "E": "the card's capability, next to what the build has code for.",
}


COLUMNS = {  # what the doctor knows about each machine, and the words above it
    "cuda_build": "torch.version.cuda",
    "cards": "NVIDIA cards on the bus",
    "driver": "driver",
    "gpus": "nvidia-smi lists",
    "visible": "CUDA_VISIBLE_DEVICES",
    "cuda_error": "CUDA's error",
    "devices": "what PyTorch sees",
    "architectures": "code in the build for",
}


def show_machines():
    """Show the facts of the five machines as a table; a dash where there is nothing to say."""
    rows = {name: [_plain(getattr(m, key)) for key in COLUMNS] for name, m in MACHINES.items()}
    head = "".join(f'<th style="text-align:left">{name}</th>' for name in MACHINES)
    lines, texts = [], []
    for place, title in enumerate(COLUMNS.values()):
        cells = [row[place] for row in rows.values()]
        told = "".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in cells)
        lines.append(f'<tr><th style="text-align:left">{title}</th>{told}</tr>')
        texts.append(
            f"{title}: " + "; ".join(f"{n} {c}" for n, c in zip(MACHINES, cells, strict=True))
        )
    show.page(f"<table><tr><th></th>{head}</tr>{''.join(lines)}</table>", "\n".join(texts))


def _plain(value):
    if isinstance(value, tuple):
        return ", ".join(_plain(part) for part in value) or "–"
    if isinstance(value, Device):
        return f"{value.device}, capability {'.'.join(map(str, value.capability))}: {value.error}"
    return "–" if value in (None, "") else str(value)


def _check_machines(answer):
    expect.choices(answer, CAUSES, {name: f"no. Look at {look}" for name, look in _LOOK.items()})
    fixes = [f"{name}: {diagnose(facts).fix}" for name, facts in MACHINES.items()]
    return "\n".join(["Five machines, five causes. The doctor prescribes:", *fixes])


machines = Exercise(
    key="01.machines",
    title="diagnose five machines",
    check_answer=_check_machines,
    hints=(
        "The table under Why is it False? lists five causes. Each machine has one of them.",
        "Each machine has one row that gives it away. Find it before you read the rest.",
        "No CUDA version in the build, no driver, an old driver, a variable that hides, a card the build has no code for.",
    ),
    reference=CAUSES,
    source=f"causes = {CAUSES!r}",
    explanation="A has a CPU-only build next to a healthy driver. B has a card that no driver talks to. On C the driver is "
    "older than the CUDA version of the build. On D the variable is -1. E sees its card, yet 6.0 is not among the "
    "architectures of the build, so every operation fails.",
)


# --- how long, and why? ---------------------------------------------------------------------------
A100 = {"tflop_per_s": 19.0, "gb_per_s": 1490.0, "overhead_ms": 0.03}


def how_long(flops, moved, card):
    compute = flops / (card["tflop_per_s"] * 1e12) * 1e3
    memory = moved / (card["gb_per_s"] * 1e9) * 1e3
    overhead = card["overhead_ms"]
    parts = {"compute": compute, "memory": memory, "overhead": overhead}
    return overhead + max(compute, memory), max(parts, key=parts.get)


JOBS = {  # floating-point operations and bytes moved, in float32
    "matmul of 8,192 × 8,192": (2 * 8192**3, 3 * 4 * 8192**2),
    "sum of two vectors of 100 million": (10**8, 12 * 10**8),
    "sum of two vectors of 1,000": (1_000, 12_000),
}
_SLOW = {"tflop_per_s": 0.5, "gb_per_s": 15.0, "overhead_ms": 0.002}


def _check_how_long(answer):
    lines = []
    for card in (A100, _SLOW):
        for name, (flops, moved) in JOBS.items():
            result = call(answer, flops, moved, dict(card))
            if not isinstance(result, tuple) or len(result) != 2:
                kind = "None: is there a `return`?" if result is None else f"{result!r}."
                raise NotYet(f"expected two values, the milliseconds and the limit; got {kind}")
            _same_time(result, how_long(flops, moved, card), name, card)
            lines.append(f"{name}: {result[0]:,.3g} ms, {result[1]}-bound")
    return "\n".join(
        ["Your formula names time and limit. By it, an A100 needs:", *lines[: len(JOBS)]]
    )


def _same_time(result, expected, name, card):
    ms, named = expect.number(result[0], f"{name}: the time"), result[1]
    if abs(ms - expected[0]) > 1e-6 * expected[0]:
        where = f"{name}, on {card}: you return {ms:g} ms, expected {expected[0]:g} ms."
        raise NotYet(f"{where} {_why_time(ms, expected[0], card['overhead_ms'])}")
    if named != expected[1]:
        raise NotYet(
            f"{name}, on {card}: the time is right, and the limit isn't {named!r}. Which part is longest?"
        )


def _why_time(ms, right, overhead):
    if abs(ms - (right - overhead)) < 1e-6 * right:
        return "Each call has its overhead, too."
    ratio = (ms - overhead) / (right - overhead)
    if any(abs(ratio * factor - 1) < 0.01 for factor in (1e-3, 1e3, 1e6, 1e9, 1e12)):
        return "Look at the units: tera is 10¹², giga is 10⁹, and a second has 1,000 ms."
    if ratio > 1:
        return "Computing and moving run in parallel, so only the longer of the two counts."
    return "The slower of computing and moving decides, and both belong in ms."


limit = Exercise(
    key="01.limit",
    title="how long, and why?",
    check_answer=_check_how_long,
    hints=(
        "Three times: what would computing alone take, what would moving alone take, and what does every call take?",
        "A time is an amount divided by a rate. Turn TFLOP/s and GB/s into plain units first, then seconds into ms.",
        "`compute = flops / (card['tflop_per_s'] * 1e12) * 1e3`, and `memory` likewise with 1e9. The time is the overhead "
        "plus `max(compute, memory)`; the limit is the name of the longest of the three.",
    ),
    reference=how_long,
    explanation="Arithmetic units and memory work in parallel, so the slower one sets the pace, and the overhead comes on "
    "top. Whichever part is longest is what you would have to improve.",
    unlocked="You can now say what limits a job before you run it.",
)


QUIZ = (
    Question(
        "01.false",
        "torch.cuda.is_available() is False and torch.version.cuda is '13.2'. What is certain?",
        {
            "The build has no CUDA code": "torch.version.cuda would be None then.",
            "The GPU is broken": "It may be absent, hidden or without a driver. Nothing here says that it's broken.",
            "The build includes CUDA; what's missing lies outside it": "The driver may be missing or too old, or no GPU is visible. The doctor tells you which.",
        },
        right=2,
    ),
    Question(
        "01.driver",
        "nvidia-smi shows CUDA Version 12.2. Which build of PyTorch won't run on this driver?",
        {
            "One built for CUDA 13.0": "A new major version needs a newer driver: 580 or later for CUDA 13.",
            "One built for CUDA 11.8": "Drivers run builds for every older CUDA.",
            "One built for CUDA 12.8": "Within major version 12, newer builds run too, with a limited set of features.",
        },
        right=0,
    ),
    Question(
        "01.small",
        "Why can a CPU beat an A100 at looking up ten rows?",
        {
            "The A100's arithmetic is less exact": "Looking up rows needs no arithmetic, and both use the same format.",
            "The overhead of one GPU operation is longer than the whole job": "The job is overhead-bound. With a million rows the A100 wins by a factor of 34.",
            "The A100's memory has less bandwidth": "It has more, and ten rows hardly need any.",
        },
        right=1,
    ),
)
