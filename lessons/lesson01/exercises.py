"""Exercises and quiz of lesson 01, Check for CUDA."""

import html
from contextlib import ExitStack
from typing import NamedTuple
from unittest import mock

import torch

from helpers import show
from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call


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


# --- nine machines ---------------------------------------------------------------------------------------------------
class Machine(NamedTuple):
    """A machine with an NVIDIA card: what `nvidia-smi` and PyTorch say there (None: nothing)."""

    story: str
    capability: float
    driver: str | None  # its version
    driver_cuda: str | None  # the newest CUDA it supports in full
    built_for: str | None  # torch.version.cuda
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    oldest: float = 7.5  # the lowest capability that the build has code for
    newest: float = 12.0  # the highest


SEEN = {
    "A": Machine("a gaming laptop with an RTX 4060", 8.9, "581.42", "13.0", None),
    "B": Machine("a freshly installed server with an A10", 8.6, None, None, "13.0"),
    "C": Machine("the lab's workstation with a T4", 7.5, "470.256.02", "11.4", "13.0"),
    "D": Machine("a shared server with an L4", 8.9, "580.95.05", "13.0", "13.0", "-1"),
    "E": Machine("a notebook host with a P100", 6.0, "580.95.05", "13.0", "13.0"),
}
UNSEEN = {
    "F": Machine("a desktop with an RTX 3090", 8.6, "535.104.05", "12.2", "12.8", ""),
    "G": Machine("a PC from 2017", 6.1, "390.157", "9.1", "12.6", oldest=5.0),
    "H": Machine("a PC with an RTX 5090", 12.0, "580.95.05", "13.0", "12.4", "0", 5.0, 9.0),
    "I": Machine("a rented machine with a T4", 7.5, "535.104.05", "12.2", "12.8", "0"),
}
_LOOK = {
    "CPU-only build": "Does this build of PyTorch include CUDA?",
    "no driver": "Does anything on this machine talk to the card?",
    "driver too old": "Compare the driver's CUDA with the one PyTorch was built for. As numbers: '9' > '12'.",
    "hidden": "Which GPUs does CUDA_VISIBLE_DEVICES leave visible?",
    "no code for this card": "Compare the card's capability with the oldest and the newest that the build has code for.",
    "works": "Nothing is missing on this one.",
}


def diagnose(machine):
    if machine.built_for is None:
        return "CPU-only build"
    if machine.driver_cuda is None:
        return "no driver"
    if float(machine.driver_cuda) // 1 < float(machine.built_for) // 1:
        return "driver too old"
    if machine.visible in ("", "-1"):
        return "hidden"
    if not machine.oldest <= machine.capability <= machine.newest:
        return "no code for this card"
    return "works"


def show_machines():
    """Show what `nvidia-smi` and PyTorch print on the first five machines."""
    text = "\n\n".join(f"{name}: {_printed(machine)}" for name, machine in SEEN.items())
    show.page(f"<pre>{html.escape(text)}</pre>", text)


def _printed(machine):
    top = "nvidia-smi: command not found"
    if machine.driver:
        top = f"| Driver Version: {machine.driver}    CUDA Version: {machine.driver_cuda} |"
    runs = diagnose(machine) in ("works", "no code for this card")
    lines = [
        machine.story,
        f"   $ nvidia-smi\n   {top}",
        '   >>> torch.version.cuda, os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.is_available()',
        f"   {(machine.built_for, machine.visible, runs)}",
    ]
    if runs:
        card = tuple(map(int, str(machine.capability).split(".")))
        known = (5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0, 10.0, 12.0)
        codes = [f"sm_{10 * n:.0f}" for n in known if machine.oldest <= n <= machine.newest]
        lines += ["   >>> torch.cuda.get_device_capability(), torch.cuda.get_arch_list()"]
        lines += [f"   {(card, codes)}"]
    return "\n".join(lines)


def _check_machines(answer):
    for name, machine in (SEEN | UNSEEN).items():
        said, right = call(answer, machine), diagnose(machine)
        if said is None:
            raise NotYet(f"you return None for {name}, expected a text: is there a `return`?")
        if not isinstance(said, str):
            raise NotYet(f"you say {said!r} of {name}, and a text was expected.")
        if said != right:
            raise NotYet(
                f"you say {said!r} of {name}, {_printed(machine)}\n{_why_not(said, right)}"
            )
    return "nine machines, and four of them you had never seen. Your function is a doctor."


def _why_not(said, right):
    if said not in list(_LOOK):
        return f"That's none of the answers, which are {', '.join(map(repr, _LOOK))}."
    if said == "driver too old":
        return "A driver runs builds for every older CUDA, and for newer ones of its own major version."
    return _LOOK["hidden" if said == "hidden" else right]


machines = Exercise(
    key="01.machines",
    title="write a doctor",
    check_answer=_check_machines,
    hints=(
        "Go through the table under Why is it False? from top to bottom. Which attribute answers each row?",
        'One `if` and one `return` for each cause, in the table\'s order. The versions are texts: `float("12.2")` is a number, '
        "and `// 1` cuts off what follows the point.",
        '`if machine.built_for is None: return "CPU-only build"`, likewise for the driver, then `if float(machine.driver_cuda) // 1 < '
        'float(machine.built_for) // 1:`, then `if machine.visible in ("", "-1"):`, and last `if not machine.oldest <= machine.capability <= machine.newest:`.',
    ),
    reference=diagnose,
    explanation="Each question makes sense only if those before it are answered: without CUDA in the build, no driver helps, and a "
    "driver that's too old hides even a visible GPU. That's why the doctor asks in this order, too.",
    unlocked="You can now read anyone's `nvidia-smi` and say what's missing.",
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
            "The build lacks CUDA": "torch.version.cuda would be None then.",
            "No NVIDIA driver is installed": "It may be. But the driver may also be too old, or the GPU hidden.",
            "The build includes CUDA": "What's missing lies outside it: the driver may be absent or too old, or no GPU is visible.",
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
        "Why does a CPU beat an A100 at looking up ten rows?",
        {
            "The table has to be copied to the A100 first": "In this benchmark it's in the A100's memory already.",
            "A GPU operation's overhead exceeds the job": "The job is overhead-bound. With a million rows the A100 wins by a factor of 34.",
            "The A100's memory has less bandwidth than the CPU's": "It has more, and ten rows hardly need any.",
        },
        right=1,
    ),
)
