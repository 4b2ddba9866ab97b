"""Exercises and quiz of lesson 01, Check for CUDA."""

import argparse
import io
import random
from contextlib import ExitStack, redirect_stderr
from unittest import mock

import torch

from helpers.checks.core import Exercise, NotYet, Question, Wrong, as_float, call
from helpers.doctor import Device, Facts


# --- choose the best device ------------------------------------------------------------------------------------------
def pick_device():
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _pick_on(answer, cuda, mps):
    found = torch.device("cuda") if cuda else torch.device("mps") if mps else None
    stand_ins = {
        "cuda.is_available": lambda: cuda,
        "cuda.device_count": lambda: int(cuda),
        "backends.mps.is_available": lambda: mps,
        "backends.mps.is_built": lambda: mps,
        "accelerator.is_available": lambda: cuda or mps,
        "accelerator.device_count": lambda: int(cuda or mps),
        "accelerator.current_accelerator":  # without check_available it names what was compiled in
        lambda check_available=False: found if check_available or found else torch.device("cuda"),
    }
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch(f"torch.{name}", stand_in))
        return call(answer)


def _check_pick(answer):
    for cuda, mps, expected in (
        (True, False, "cuda"),
        (False, False, "cpu"),
        (False, True, "mps"),
        (True, True, "cuda"),
    ):
        found = _pick_on(answer, cuda, mps)
        machine = f"Where CUDA is {'' if cuda else 'not '}available and MPS is {'' if mps else 'not '}available"
        if isinstance(found, str):
            raise NotYet(
                f"pick_device() returned the string {found!r}. Wrap it: torch.device({found!r})."
            )
        if not isinstance(found, torch.device):
            raise NotYet(
                f"{machine}, it returned {found!r}; expected a torch.device. Does every path return?"
            )
        if str(found) not in (expected, f"{expected}:0"):
            raise NotYet(
                f"{machine}, it returned {found}; expected {expected}.{_why_pick(found, expected)}"
            )
    return "the right device on four machines: CUDA, CPU only, MPS, and both GPUs."


def _why_pick(found, expected):
    if found.type == expected:
        return " Which index exists on a machine with one GPU?"
    if found.type == "cuda":
        return " Ask whether it is available: the name alone does not tell whether a GPU is there."
    if found.type == "cpu":
        return f" {expected.upper()} is there on this machine; which of your questions notices it?"
    return " Which question do you ask first?"


def _string():
    return "cuda" if torch.cuda.is_available() else "cpu"


def _no_mps():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _no_else():
    if torch.cuda.is_available():
        return torch.device("cuda")


def _mps_first():
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _unchecked():
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def _second():
    return torch.device("cuda:1") if torch.cuda.is_available() else pick_device()


pick = Exercise(
    key="01.pick",
    title="choose the best device",
    minutes=5,
    lines=5,
    difficulty=1,
    check_answer=_check_pick,
    hints=(
        "Three questions in order: CUDA? MPS? Otherwise the CPU. Each answer is a return.",
        'The questions are torch.cuda.is_available() and torch.backends.mps.is_available(); return torch.device("…").',
    ),
    reference=pick_device,
    explanation="The questions run from the fastest device to the one that is always there, and every path returns a "
    "torch.device, so the callers never need to ask again.",
    wrong=(
        Wrong(_unchecked, "the name alone does not tell"),
        Wrong(_string, "returned the string"),
        Wrong(_no_mps, "MPS is there"),
        Wrong(_no_else, "Does every path return"),
        Wrong(_mps_first, "ask first"),
        Wrong(_second, "Which index exists"),
    ),
)


# --- a flag for a script ---------------------------------------------------------------------------------------------
def parse_device(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--disable-cuda", action="store_true")
    options = parser.parse_args(arguments)
    if options.device != "auto":
        return torch.device(options.device)
    usable = torch.cuda.is_available() and not options.disable_cuda
    return torch.device("cuda" if usable else "cpu")


def _check_flags(answer):
    named = f"cuda:{random.randint(1, 7)}"
    rows = (
        ([], True, "cuda"),
        ([], False, "cpu"),
        (["--disable-cuda"], True, "cpu"),
        (["--device", "cpu"], True, "cpu"),
        (["--device", named], True, named),
        (["--device", named], False, named),
        (["--disable-cuda"], False, "cpu"),
        (["--device", named, "--disable-cuda"], True, named),
        (["--disable-cuda", "--device", named], True, named),
    )
    for arguments, cuda, expected in rows:
        with mock.patch("torch.cuda.is_available", lambda cuda=cuda: cuda):
            found = _parse(answer, arguments)
        if str(found) not in (expected, f"{expected}:0"):
            where = (
                f"{arguments or 'no arguments'} on a machine {'with' if cuda else 'without'} CUDA"
            )
            raise NotYet(
                f"{where}: got {found!r}, expected {expected}.{_why_flags(arguments, found)}"
            )
        if not isinstance(found, torch.device):
            raise NotYet(f"got the {type(found).__name__} {found!r}; return a torch.device.")
    return "nine command lines gave the right device, with CUDA and without."


def _parse(answer, arguments):
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return call(answer, list(arguments))
    except SystemExit:
        if not arguments:
            raise NotYet(
                "argparse stopped although the list was empty. Did you pass it on: parse_args(arguments)?"
            ) from None
        said = complaint.getvalue().strip().splitlines()[-1:]
        raise NotYet(
            f"argparse refused {arguments}, saying {said}. Is each option declared with two dashes, and is "
            'the switch a switch (action="store_true")?'
        ) from None


def _why_flags(arguments, found):
    if "--device" in arguments:
        return " A device named by the user wins, whatever else is said or there."
    if "--disable-cuda" in arguments:
        return " The switch was given, and nothing asks for it."
    return " Without arguments, ask torch.cuda.is_available()."


def _ignores_flag(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--disable-cuda", action="store_true")
    options = parser.parse_args(arguments)
    return torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _ignores_device(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--disable-cuda", action="store_true")
    options = parser.parse_args(arguments)
    return torch.device("cuda" if torch.cuda.is_available() and not options.disable_cuda else "cpu")


def _needs_cuda(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--disable-cuda", action="store_true")
    options = parser.parse_args(arguments)
    return torch.device("cpu" if options.disable_cuda else options.device)


def _switch_wins(arguments):
    return torch.device("cpu") if "--disable-cuda" in arguments else parse_device(arguments)


def _reads_the_command_line(arguments):
    with mock.patch("sys.argv", ["kernel", "-f", "kernel.json"]):
        return parse_device(None)


def _misspelled(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-cuda", action="store_true")
    options = parser.parse_args(arguments)
    return parse_device(["--disable-cuda"] if options.no_cuda else [])


flags = Exercise(
    key="01.flags",
    title="give a script its flags",
    minutes=6,
    lines=7,
    difficulty=2,
    check_answer=_check_flags,
    hints=(
        'add_argument("--device", default="auto") takes a value; action="store_true" makes a flag without one.',
        "First: did the user name a device? Then that one. Otherwise CUDA, when it is available and not disabled.",
    ),
    reference=parse_device,
    explanation="The user's word comes first, then the flag, then what the machine has. The dash in --disable-cuda becomes "
    "an underscore: options.disable_cuda.",
    wrong=(
        Wrong(_ignores_flag, "nothing asks for it"),
        Wrong(_ignores_device, "['--device', 'cpu'] on a machine with CUDA"),
        Wrong(_switch_wins, "'--disable-cuda'] on a machine"),
        Wrong(_needs_cuda, "Without arguments, ask"),
        Wrong(_reads_the_command_line, "Did you pass it on"),
        Wrong(_misspelled, "argparse refused"),
    ),
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
    """Print the facts of the five machines that differ from the defaults of `Facts`."""
    plain = Facts()
    for name, facts in MACHINES.items():
        told = {
            key: value
            for key, value in vars(facts).items()
            if value != getattr(plain, key) and key != "cuda_build"
        }
        print(f"machine {name}\n    cuda_build: {facts.cuda_build}")
        for key, value in told.items():
            print(f"    {key}: {_plain(value)}")


def _plain(value):
    if isinstance(value, tuple):
        return ", ".join(_plain(part) for part in value)
    if isinstance(value, Device):
        return f"{value.device} capability {value.capability}: {value.error}"
    return str(value)


def _check_machines(answer):
    if not isinstance(answer, dict) or set(answer) != set(CAUSES):
        raise NotYet(f"expected a dict with the machines {', '.join(CAUSES)}, got {answer!r}.")
    words = {cause.lower() for cause in CAUSES.values()}
    for name, cause in CAUSES.items():
        said = str(answer[name]).strip().lower()
        if said not in words:
            raise NotYet(
                f"machine {name}: {answer[name]!r} is not one of the five causes: {', '.join(CAUSES.values())}."
            )
        if said != cause.lower():
            raise NotYet(f"machine {name} is not {answer[name]!r}. Look at {_LOOK[name]}")
    return "five machines, five causes; the doctor agrees."


machines = Exercise(
    key="01.machines",
    title="diagnose five machines",
    minutes=5,
    lines=1,
    difficulty=2,
    check_answer=_check_machines,
    hints=(
        "Each machine has one fact that the others lack. Find it before you read the rest.",
        "No CUDA version in the build, no driver, an old driver, a variable that hides, a card the build has no code for.",
    ),
    reference=CAUSES,
    source=f"causes = {CAUSES!r}",
    explanation="A is a CPU-only build beside a healthy driver. B has a card that no driver speaks to. On C the driver is "
    "older than the CUDA version of the build. On D the variable is -1. E sees its card, yet 6.0 is not among the "
    "architectures of the build, so every operation fails.",
    wrong=(
        Wrong({**CAUSES, "A": "no driver"}, "cuda_build"),
        Wrong({**CAUSES, "B": "CPU-only build"}, "driver, beside cards"),
        Wrong({**CAUSES, "C": "no driver"}, "cuda_error"),
        Wrong({**CAUSES, "E": "hidden"}, "capability, beside"),
        Wrong({"A": "no driver"}, "expected a dict"),
        Wrong({**CAUSES, "D": "broken"}, "not one of the five"),
    ),
)


# --- rate of a product -----------------------------------------------------------------------------------------------
def tflops(n, milliseconds):
    return 2 * n**3 / (milliseconds / 1000) / 1e12


def _check_tflops(answer):
    for n, ms in (
        (700, 1.0),
        (1, 1.0),
        (random.randint(2, 5000), random.uniform(0.5, 90)),
        (512, 0.004),
    ):
        told, expected = call(answer, n, ms), 2 * n**3 / ms / 1e9
        found = as_float(told)
        if found is None:
            raise NotYet(f"tflops({n}, {ms}) returned {told!r}; expected a number.")
        if not abs(found - expected) <= 1e-5 * expected:  # float32 passes, NaN does not
            raise NotYet(
                f"tflops({n}, {ms}) is {found:.4g}, which is {found / expected:.3g} times the right value."
                f"{_why_tflops(found / expected)}"
            )
    return "operations over seconds, in units of 10**12."


def _why_tflops(ratio):
    if abs(ratio - 0.5) < 1e-3:
        return " Each of the n**3 products is also added."
    if abs(ratio - 5e-4) < 1e-6:
        return " Each product is also added, and are the milliseconds seconds?"
    if abs(ratio - 1e-3) < 1e-6 or abs(ratio - 1e3) < 1:
        return " Are the milliseconds turned into seconds?"
    return " Count the operations of one element of the result first; how many elements are there?"


rate = Exercise(
    key="01.rate",
    title="turn a time into a rate",
    minutes=4,
    lines=1,
    difficulty=1,
    check_answer=_check_tflops,
    hints=(
        "Each of the n*n results needs n multiplications and n additions.",
        "Rate = operations / seconds; 1 ms is 1e-3 s; one TFLOP/s is 1e12 operations per second.",
    ),
    reference=tflops,
    explanation="The result has n*n elements, each a sum of n products: 2 * n**3 operations. Divide by the seconds, and "
    "by 1e12 for the unit.",
    wrong=(
        Wrong(lambda n, ms: n**3 / ms / 1e9, "also added"),
        Wrong(lambda n, ms: 2 * n**3 / ms / 1e12, "into seconds"),
        Wrong(lambda n, ms: 2 * n**2 / ms / 1e9, "how many elements"),
        Wrong(lambda n, ms: f"{n} TFLOP/s", "expected a number"),
        Wrong(lambda n, ms: float("nan"), "is nan"),
    ),
)


QUIZ = (
    Question(
        "01.false",
        "torch.cuda.is_available() is False and torch.version.cuda is '13.2'. What is certain?",
        (
            "The build has no CUDA code",
            "The build has CUDA code; what is wrong lies outside the build",
            "The GPU is broken",
        ),
        (
            "torch.version.cuda would be None then.",
            "Yes: the driver may be absent or too old, or no GPU visible. The doctor tells which.",
            "It may be absent, hidden, or without a driver; nothing says broken.",
        ),
        1,
    ),
    Question(
        "01.index",
        "With CUDA_VISIBLE_DEVICES=2,3 set before Python starts, which card is cuda:0?",
        (
            "The first card of the machine",
            "The third card of the machine (number 2)",
            "None: cuda:2 is the first",
        ),
        (
            "Card 0 is hidden.",
            "Yes: the visible ones are numbered from 0 again.",
            "Visible cards are renumbered from 0.",
        ),
        1,
    ),
    Question(
        "01.bf16",
        "A T4 has compute capability 7.5. Which format has tensor cores on it?",
        ("FP16", "BF16", "FP8"),
        ("Yes: FP16 tensor cores came with 7.0.", "BF16 came with 8.0.", "FP8 came with 8.9."),
        0,
    ),
    Question(
        "01.small",
        "Why can a CPU win a race of 64×64 products against a large GPU?",
        (
            "The GPU's arithmetic is less exact",
            "Starting the work costs more than the work",
            "GPUs cannot multiply small matrices",
        ),
        (
            "Both compute in FP32 here.",
            "Yes: the fixed price of a call does not shrink with the matrix.",
            "They can; it only does not pay.",
        ),
        1,
    ),
)
